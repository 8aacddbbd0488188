// Counts of n-grams. Source: the ONNX operator standard, TfIdfVectorizer-9. Items are integers; strings are refused, as
// everywhere.
#include <algorithm>
#include <cstdint>
#include <map>

#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {

namespace {

/// The pool, taken apart: what each n-gram is counted as.
struct Pool {
  std::map<std::vector<int64_t>, size_t> place;  // n-gram -> its number in the order of the pool
  std::vector<int64_t> indexes;                  // by number: the output that counts it
  std::vector<double> weights;
  int64_t shortest = 1, longest = 1, skips = 0;
  int64_t outputs = 0;
  std::string fault;  // what the attributes contradict; empty: nothing
};

template <typename Context>
Pool pool_of(const Context& c, const Attributes& attributes) {
  Pool p;
  const std::vector<int64_t> items = c.integers("pool_int64s"), starts = c.integers("ngram_counts");
  p.indexes = c.integers("ngram_indexes");
  p.weights = attributes.numbers("weights");
  p.shortest = c.integer("min_gram_length");
  p.longest = c.integer("max_gram_length");
  p.skips = c.integer("max_skip_count");
  const auto size = int64_t(items.size());
  if (p.shortest < 1 || p.longest < p.shortest || p.skips < 0) {
    p.fault = fmt::format("n-grams of {} to {} items, {} skipped; allowed: 1 <= min <= max, skipped >= 0", p.shortest,
                          p.longest, p.skips);
    return p;
  }
  size_t number = 0;
  for (size_t k = 0; k < starts.size(); ++k) {
    const auto n = int64_t(k) + 1;
    const int64_t begin = starts[k], end = k + 1 < starts.size() ? starts[k + 1] : size;
    if (begin < 0 || end < begin || end > size || (end - begin) % n != 0) {
      p.fault = fmt::format("'ngram_counts' has {} to {} as {}-grams of a pool of {}", begin, end, n, size);
      return p;
    }
    for (int64_t at = begin; at < end; at += n) p.place[{items.begin() + at, items.begin() + at + n}] = number++;
  }
  for (const int64_t index : p.indexes) {
    if (index < 0) p.fault = fmt::format("'ngram_indexes' has {}; allowed: 0 and more", index);
    p.outputs = std::max(p.outputs, index < INT64_MAX ? index + 1 : index);
  }
  if (p.indexes.size() != number)
    p.fault = fmt::format("'ngram_indexes' has {} numbers for {} n-grams", p.indexes.size(), number);
  if (!p.weights.empty() && p.weights.size() != number)
    p.fault = fmt::format("'weights' has {} numbers for {} n-grams", p.weights.size(), number);
  return p;
}

void infer_tf_idf(Infer& i) {
  const int rank = i.rank(0);
  i.require(rank == 1 || rank == 2, [&] { return fmt::format("'X' is {}; allowed: rank 1 or 2", text(i.shape(0))); });
  const std::string mode = i.string("mode");
  i.require(mode == "TF" || mode == "IDF" || mode == "TFIDF",
            [&] { return fmt::format("mode = {}; allowed: TF, IDF, TFIDF", mode); });
  i.require(!i.attributes().has("pool_strings"), "'pool_strings': strings are unsupported; allowed: 'pool_int64s'");
  const Pool pool = pool_of(i, i.attributes());
  i.require(pool.fault.empty(), pool.fault);
  Shape result;
  if (rank == 2) result.push_back(i.dim(0, 0));
  result.emplace_back(pool.outputs);
  i.output(0, DType::kF32, std::move(result));
}

void reference_tf_idf(Reference& r) {
  const RefArray& x = r.in[0];
  const Pool pool = pool_of(r, *r.attributes);
  const int64_t length = x.dim(-1), rows = x.rank() == 2 ? x.dim(0) : 1;
  const bool counts = r.string("mode") != "IDF", weighs = r.string("mode") != "TF";
  std::vector<int64_t> gram;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t n = pool.shortest; n <= std::min(pool.longest, length); ++n) {
      // One item has nothing to skip between.
      for (int64_t step = 1; step <= (n == 1 ? 1 : std::min(pool.skips + 1, length)); ++step) {
        for (int64_t begin = 0; begin + (n - 1) * step < length; ++begin) {
          gram.clear();
          for (int64_t k = 0; k < n; ++k) gram.push_back(x.integer(row * length + begin + k * step));
          const auto found = pool.place.find(gram);
          if (found == pool.place.end()) continue;
          double& out = r.out[0].f[size_t(row * pool.outputs + pool.indexes[found->second])];
          const double weight = weighs && !pool.weights.empty() ? pool.weights[found->second] : 1;
          out = counts ? out + weight : weight;
        }
      }
    }
  }
}

constinit const OpSchema kTfIdfVectorizer = {
    .name = "TfIdfVectorizer",
    .family = "movement",
    .kind = OpKind::kOpaque,
    .doc =
        "How often each n-gram of a pool of integers occurs in each row (TF), whether it does (IDF), weighted "
        "(TFIDF).",
    .since = 9,
    .versions = {9},
    .inputs = {{"X", kIndices}},
    .outputs = {{"Y"}},
    .attributes = {{"max_gram_length", AttributeSpec::Type::kInt, AttributeSpec::Presence::kRequired},
                   {"max_skip_count", AttributeSpec::Type::kInt, AttributeSpec::Presence::kRequired},
                   {"min_gram_length", AttributeSpec::Type::kInt, AttributeSpec::Presence::kRequired},
                   {"mode", AttributeSpec::Type::kString, AttributeSpec::Presence::kRequired},
                   {"ngram_counts", AttributeSpec::Type::kInts, AttributeSpec::Presence::kRequired},
                   {"ngram_indexes", AttributeSpec::Type::kInts, AttributeSpec::Presence::kRequired},
                   {"pool_int64s", AttributeSpec::Type::kInts},
                   {"pool_strings", AttributeSpec::Type::kStrings},
                   {"weights", AttributeSpec::Type::kFloats}},
    .infer = infer_tf_idf,
    .reference = reference_tf_idf,
    .no_gradient = "counts of integers have no slope",
    .samples = {"X=i32[12] max_gram_length=2 max_skip_count=0 min_gram_length=1 mode=TF ngram_counts=0,2 "
                "ngram_indexes=0,1,2 pool_int64s=1,2,1,2",
                "X=i64[3,7] max_gram_length=2 max_skip_count=5 min_gram_length=2 mode=TFIDF ngram_counts=0,1 "
                "ngram_indexes=2,0,1 pool_int64s=3,1,1,0,1 weights=0.5,2,3",
                "X=i64[2,0] max_gram_length=1 max_skip_count=0 min_gram_length=1 mode=IDF ngram_counts=0 "
                "ngram_indexes=0 pool_int64s=1"},
};

}  // namespace

std::span<const OpSchema* const> ngram_ops() {
  static constexpr const OpSchema* kOps[] = {&kTfIdfVectorizer};
  return kOps;
}

}  // namespace ridgeline
