// Sums of products over labelled axes. Source: ONNX Einsum-12.
#include "ops/einsum.h"

#include <algorithm>
#include <map>

#include "core/saturate.h"
#include "ops/common.h"
#include "ops/families.h"

namespace ridgeline {
namespace {

constexpr int kEllipsis = 256;
using Labels = std::vector<int>;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool has(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
int place(const Labels& labels, int label) {
  return int(std::find(labels.begin(), labels.end(), label) - labels.begin());
}

/// The labels of one term; -1 stands for its ellipsis. A fault is said in `fault`.
Labels letters_of(std::string_view term, std::string& fault) {
  Labels labels;
  for (size_t k = 0; k < term.size(); ++k) {
    if (term[k] == ' ') continue;
    if (term.substr(k, 3) == "...") {
      if (has(labels, -1)) fault = "a term has two ellipses";
      labels.push_back(-1);
      k += 2;
    } else if (is_letter(term[k])) {
      labels.push_back(static_cast<unsigned char>(term[k]));
    } else {
      fault = fmt::format("the character at '{}' is none of letters, '...', ',', '->' and space",
                          term.substr(k, std::min<size_t>(8, term.size() - k)));
    }
    if (!fault.empty()) return labels;
  }
  return labels;
}

Labels with_ellipsis(const Labels& labels, int axes) {
  Labels out;
  for (int label : labels) {
    if (label >= 0) out.push_back(label);
    for (int k = axes; label < 0 && k-- > 0;) out.push_back(kEllipsis + k);
  }
  return out;
}

// ---- reference

/// How far one step along a label moves in an operand: 0 where it repeats, the sum of strides on a diagonal.
int64_t stride_of(const Labels& labels, const Extents& shape, int label) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  int64_t step = 0;
  for (size_t a = 0; a < labels.size(); ++a)
    if (labels[a] == label && shape[a] != 1) step += strides[a];
  return step;
}

struct Sum {
  Labels order;                               // the output's labels, then those that are summed
  Extents extents;                            // of `order`
  std::vector<std::vector<int64_t>> strides;  // [operand][place in order]
};

Sum sum_of(const EinsumTerms& terms, const std::vector<Extents>& shapes) {
  Sum sum{terms.output, {}, {}};
  std::map<int, int64_t> extent;
  for (size_t i = 0; i < shapes.size(); ++i)
    for (size_t a = 0; a < shapes[i].size(); ++a) {
      const int label = terms.inputs[i][a];
      if (!has(sum.order, label)) sum.order.push_back(label);
      const auto [at, fresh] = extent.emplace(label, shapes[i][a]);
      if (!fresh && at->second == 1) at->second = shapes[i][a];
    }
  for (int label : sum.order) sum.extents.push_back(extent[label]);
  for (size_t i = 0; i < shapes.size(); ++i) {
    sum.strides.emplace_back();
    for (int label : sum.order) sum.strides.back().push_back(stride_of(terms.inputs[i], shapes[i], label));
  }
  return sum;
}

void reference_einsum(Reference& r) {
  std::vector<int> ranks;
  std::vector<Extents> shapes;
  for (const RefArray& x : r.in) {
    ranks.push_back(x.rank());
    shapes.push_back(x.shape);
  }
  const EinsumTerms terms = parse_einsum(r.string("equation"), ranks);
  const Sum sum = sum_of(terms, shapes);
  const size_t kept = terms.output.size();
  RefArray& y = r.out[0];
  int64_t products = 1;
  for (size_t a = kept; a < sum.extents.size(); ++a) products = saturated_product({products, sum.extents[a]});
  // A line of text and three long vectors ask for years of work.
  if (saturated_product({products, y.elements()}) > int64_t(1) << 42)
    fail(ErrorCode::kUnsupported, "unsupported: Einsum '{}' by its definition takes more than 2^42 products",
         r.string("equation"));
  r.parallel_for(y.elements(), [&](int64_t begin, int64_t end) {
    std::vector<int64_t> first(shapes.size()), at(shapes.size()), index(sum.extents.size());
    for (int64_t k = begin; k < end; ++k) {
      std::fill(first.begin(), first.end(), 0);
      int64_t rest = k;
      for (size_t a = kept; a-- > 0; rest /= sum.extents[a])
        for (size_t i = 0; i < first.size(); ++i) first[i] += rest % sum.extents[a] * sum.strides[i][a];
      at = first;
      std::fill(index.begin(), index.end(), 0);
      double total = 0;
      uint64_t integers = 0;  // they wrap
      for (int64_t n = 0; n < products; ++n) {
        double product = 1;
        uint64_t whole = 1;
        for (size_t i = 0; i < at.size(); ++i) {
          if (y.is_float())
            product *= r.in[i].f[size_t(at[i])];
          else
            whole *= uint64_t(r.in[i].i[size_t(at[i])]);
        }
        total += product;
        integers += whole;
        for (size_t a = index.size(); a-- > kept;) {
          for (size_t i = 0; i < at.size(); ++i) at[i] += sum.strides[i][a];
          if (++index[a] < sum.extents[a]) break;
          for (size_t i = 0; i < at.size(); ++i) at[i] -= sum.strides[i][a] * sum.extents[a];
          index[a] = 0;
        }
      }
      if (y.is_float())
        y.f[size_t(k)] = total;
      else
        y.i[size_t(k)] = int64_t(integers);
    }
  });
}

Cost cost_einsum(const Problem& p) {
  std::vector<int> ranks;
  std::vector<Extents> shapes;
  for (int i = 0; i < p.op_inputs; ++i) {
    ranks.push_back(p.input(i).layout.rank());
    shapes.push_back(p.input(i).shape());
  }
  int64_t products = std::max(1, p.op_inputs);
  for (int64_t extent : sum_of(parse_einsum(p.string("equation"), ranks), shapes).extents)
    products = saturated_product({products, extent});
  return {.flops = products, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
}

// ---- in products of matrices

/// An operand under way: its value, and a label for each axis.
struct Term {
  V value;
  Labels labels;
};

class Contraction {
 public:
  explicit Contraction(Builder& b) : b_(b) {}

  V run() {
    std::vector<int> ranks;
    for (int i = 0; i < b_.inputs(); ++i) ranks.push_back(b_.rank(b_.input(i)));
    const EinsumTerms terms = parse_einsum(b_.string("equation"), ranks);
    output_ = terms.output;
    const DType dtype = b_.dtype(b_.input(0));
    // Products and sums modulo 2^32, cut to the type, are those modulo its own power of two.
    const bool narrow = is_integer(dtype) && info(dtype).bits < 32;
    for (int i = 0; i < b_.inputs(); ++i) {
      V value = narrow ? b_.cast(b_.input(i), DType::kI32) : b_.input(i);
      terms_.push_back(diagonal({value, terms.inputs[size_t(i)]}));
    }
    Term left = terms_[0];
    for (next_ = 1; next_ < terms_.size(); ++next_) left = product(left, terms_[next_]);
    left = summed(left, output_);
    V y = permuted(left, output_);
    return narrow ? b_.cast(y, dtype) : y;
  }

 private:
  bool wanted_later(int label) const {
    bool wanted = has(output_, label);
    for (size_t k = next_ + 1; k < terms_.size(); ++k) wanted = wanted || has(terms_[k].labels, label);
    return wanted;
  }

  Dim extent(const Term& t, int label) const { return b_.shape(t.value)[size_t(place(t.labels, label))]; }

  static void cannot(std::string_view why) {
    fail(ErrorCode::kUnsupported, "unsupported: Einsum has no form in products of matrices: {}", why);
  }

  V permuted(const Term& t, const Labels& order) {
    std::vector<int64_t> perm;
    for (int label : order) perm.push_back(place(t.labels, label));
    return std::is_sorted(perm.begin(), perm.end()) ? t.value : b_.transpose(t.value, perm);
  }

  /// A label that an operand has twice: both axes go last and become one of n * n, of which every n + 1-th is taken.
  Term diagonal(Term t) {
    for (size_t a = 0; a < t.labels.size(); ++a) {
      const int label = t.labels[a];
      const auto twin = std::find(t.labels.begin() + int64_t(a) + 1, t.labels.end(), label);
      if (twin == t.labels.end()) continue;
      const size_t other = size_t(twin - t.labels.begin());
      std::vector<int64_t> perm;
      Labels rest;
      for (size_t k = 0; k < t.labels.size(); ++k) {
        if (k == a || k == other) continue;
        perm.push_back(int64_t(k));
        rest.push_back(t.labels[k]);
      }
      perm.push_back(int64_t(a));
      perm.push_back(int64_t(other));
      const Dim n = b_.shape(t.value)[a], m = b_.shape(t.value)[other];
      if (!n.known() || !m.known() || n.value() != m.value())
        cannot("a diagonal of unknown extent, or of an extent of 1");
      if (n.value() > INT32_MAX) cannot("the square of a diagonal's extent does not fit 64 bits");
      t.value = b_.transpose(t.value, perm);
      std::vector<Dim> shape(b_.shape(t.value).begin(), b_.shape(t.value).end() - 2);
      shape.emplace_back(n.value() * n.value());
      t.value = reshaped(t.value, shape);
      const int64_t last = int64_t(shape.size()) - 1;
      if (n.value() > 0)
        t.value = b_.op("Slice", {t.value, b_.integers_constant({0}), b_.integers_constant({n.value() * n.value()}),
                                  b_.integers_constant({last}), b_.integers_constant({n.value() + 1})});
      rest.push_back(label);
      return diagonal({t.value, rest});
    }
    return t;
  }

  /// Sums over every label that is not in `kept`.
  Term summed(const Term& t, const Labels& kept) {
    std::vector<int64_t> axes;
    Labels rest;
    for (size_t a = 0; a < t.labels.size(); ++a) {
      if (has(kept, t.labels[a]))
        rest.push_back(t.labels[a]);
      else
        axes.push_back(int64_t(a));
    }
    return axes.empty() ? t : Term{b_.reduce("ReduceSum", t.value, axes, false), rest};
  }

  /// Reshape to extents some of which may be open: these are copied where they stand in their place, else one may be
  /// what is left.
  V reshaped(V value, const std::vector<Dim>& shape) {
    const Shape& from = b_.shape(value);
    bool all = true;
    for (const Dim& d : shape) all = all && d.known();
    std::vector<int64_t> target;
    int open = 0;
    for (size_t a = 0; a < shape.size(); ++a) {
      if (all)
        target.push_back(shape[a].value());
      else if (a < from.size() && from[a] == shape[a])
        target.push_back(0);
      else if (shape[a].known() && shape[a].value() > 0)
        target.push_back(shape[a].value());
      else
        target.push_back(-1), ++open;
    }
    if (open > 1) cannot("two open extents would become one");
    Attributes attributes;
    if (all) attributes.set("allowzero", int64_t(1));
    return b_.op("Reshape", {value, b_.integers_constant(target)}, std::move(attributes));
  }

  /// [labels of `to`]: extents of 1 where the term has none. Its own labels stand in the order of `to`.
  V spread(V value, const Labels& own, const Labels& to) {
    std::vector<int64_t> axes;
    for (size_t a = 0; a < to.size(); ++a)
      if (!has(own, to[a])) axes.push_back(int64_t(a));
    return axes.empty() ? value : b_.op("Unsqueeze", {value, b_.integers_constant(axes)});
  }

  Term product(Term a, Term b) {
    Labels keep_a, keep_b;  // what is summed in one of them alone goes first
    for (int label : a.labels)
      if (has(b.labels, label) || wanted_later(label)) keep_a.push_back(label);
    for (int label : b.labels)
      if (has(a.labels, label) || wanted_later(label)) keep_b.push_back(label);
    // A sum over k of a[0] * b[k] is one of b alone.
    for (int label : a.labels) {
      if (!has(b.labels, label) || wanted_later(label)) continue;
      if (extent(a, label) == extent(b, label)) continue;
      if (!extent(a, label).is(1) && !extent(b, label).is(1)) cannot("a summed extent that may be 1 in one operand");
      std::erase(keep_a, label);
      std::erase(keep_b, label);
    }
    a = summed(a, keep_a);
    b = summed(b, keep_b);
    Labels batch, rows, cols, inner;
    for (int label : a.labels) (!has(b.labels, label) ? rows : wanted_later(label) ? batch : inner).push_back(label);
    for (int label : b.labels)
      if (!has(a.labels, label)) cols.push_back(label);
    // Batches of the ellipsis first, in its order, as most results have them.
    std::stable_sort(batch.begin(), batch.end(), [](int p, int q) { return (p >= kEllipsis) > (q >= kEllipsis); });
    Labels result = batch;
    result.insert(result.end(), rows.begin(), rows.end());
    result.insert(result.end(), cols.begin(), cols.end());
    Labels order_a = batch, order_b = batch;
    order_a.insert(order_a.end(), rows.begin(), rows.end());
    order_b.insert(order_b.end(), inner.begin(), inner.end());
    order_b.insert(order_b.end(), cols.begin(), cols.end());
    if (inner.empty())
      return {b_.mul(spread(permuted(a, order_a), order_a, result), spread(permuted(b, order_b), order_b, result)),
              result};
    order_a.insert(order_a.end(), inner.begin(), inner.end());
    return {multiplied(a, b, {batch, rows, cols, inner}, order_a, order_b), result};
  }

  struct Groups {
    Labels batch, rows, cols, inner;
  };

  Dim extent_of(const Term& t, const Labels& labels) const {
    Dim total = 1;
    for (int label : labels) total = total * extent(t, label);
    return total;
  }

  V multiplied(const Term& a, const Term& b, const Groups& g, const Labels& order_a, const Labels& order_b) {
    std::vector<Dim> left, right, result;
    for (int label : g.batch) {
      left.push_back(extent(a, label));
      right.push_back(extent(b, label));
      result.push_back(extent(a, label).is(1) ? extent(b, label) : extent(a, label));
    }
    const Dim inner = extent_of(a, g.inner);
    left.insert(left.end(), {extent_of(a, g.rows), inner});
    right.insert(right.end(), {inner, extent_of(b, g.cols)});
    for (int label : g.rows) result.push_back(extent(a, label));
    for (int label : g.cols) result.push_back(extent(b, label));
    V x = permuted(a, order_a), y = permuted(b, order_b);
    if (g.rows.size() != 1 || g.inner.size() != 1) x = reshaped(x, left);
    if (g.cols.size() != 1 || g.inner.size() != 1) y = reshaped(y, right);
    V z = b_.matmul(x, y);
    return g.rows.size() == 1 && g.cols.size() == 1 ? z : reshaped(z, result);
  }

  Builder& b_;
  Labels output_;
  std::vector<Term> terms_;
  size_t next_ = 0;  // the term that is multiplied in
};

void decompose_einsum(Builder& b) { b.result(Contraction(b).run()); }

void infer_einsum(Infer& i) {
  std::vector<int> ranks;
  for (int k = 0; k < i.inputs(); ++k) ranks.push_back(i.rank(k));
  const EinsumTerms terms = parse_einsum(i.string("equation"), ranks);
  i.require(terms.fault.empty(), [&] { return fmt::format("equation '{}': {}", i.string("equation"), terms.fault); });
  std::map<int, Dim> extent;
  for (int k = 0; k < i.inputs(); ++k)
    for (size_t a = 0; a < terms.inputs[size_t(k)].size(); ++a) {
      const int label = terms.inputs[size_t(k)][a];
      const Dim& d = i.dim(k, int(a));
      const auto [at, fresh] = extent.emplace(label, d);
      Dim& seen = at->second;
      if (fresh || d.is(1) || seen == d) continue;
      i.require(seen.is(1) || !d.known() || !seen.known(), [&] {
        return fmt::format(
            "equation '{}': {} is {} in one place and {} in input {}; allowed: equal, or 1", i.string("equation"),
            label < kEllipsis ? fmt::format("'{}'", char(label)) : "an axis of the ellipsis", seen.text(), d.text(), k);
      });
      if (seen.is(1) || d.known())
        seen = d;
      else if (!seen.known() && label >= kEllipsis)
        seen = broadcast_atom(seen, d);
    }
  Shape shape;
  for (int label : terms.output) shape.push_back(extent.at(label));
  i.output(0, i.dtype(0), shape);
}

constexpr InputSpec kOperands = [] {
  InputSpec spec{"Inputs", kNumbers, "Inputs"};
  spec.variadic = true;
  return spec;
}();

}  // namespace

EinsumTerms parse_einsum(std::string_view equation, const std::vector<int>& ranks) {
  EinsumTerms out;
  const size_t arrow = equation.find("->");
  std::string_view left = equation.substr(0, arrow);
  std::vector<Labels> terms;
  for (size_t from = 0; out.fault.empty();) {
    const size_t comma = left.find(',', from);
    terms.push_back(letters_of(left.substr(from, comma == std::string_view::npos ? comma : comma - from), out.fault));
    if (comma == std::string_view::npos) break;
    from = comma + 1;
  }
  if (!out.fault.empty()) return out;
  if (terms.size() != ranks.size()) {
    out.fault = fmt::format("it has {} terms for {} inputs", terms.size(), ranks.size());
    return out;
  }
  int most = 0;  // axes of the longest ellipsis
  std::map<int, int> seen;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool open = has(terms[i], -1);
    const int axes = ranks[i] - int(terms[i].size()) + int(open);
    if (open ? axes < 0 : axes != 0) {
      out.fault =
          fmt::format("term {} has {} letters for an input of rank {}", i, int(terms[i].size()) - int(open), ranks[i]);
      return out;
    }
    most = std::max(most, axes);
    out.inputs.push_back(with_ellipsis(terms[i], axes));
    for (int label : terms[i]) ++seen[label];
  }
  if (arrow == std::string_view::npos) {  // the ellipsis, then what appears once, in the order of ASCII
    Labels own = {-1};
    for (const auto& [label, times] : seen)
      if (label >= 0 && times == 1) own.push_back(label);
    out.output = with_ellipsis(own, most);
    return out;
  }
  const Labels own = letters_of(equation.substr(arrow + 2), out.fault);
  for (size_t k = 0; k < own.size() && out.fault.empty(); ++k) {
    if (own[k] >= 0 && !seen.count(own[k])) out.fault = fmt::format("'{}' is in no term", char(own[k]));
    if (std::count(own.begin(), own.end(), own[k]) > 1) out.fault = "the result has a label twice";
  }
  out.output = with_ellipsis(own, most);
  return out;
}

constinit const OpSchema kEinsum = {
    .name = "Einsum",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "products of operands whose axes have letters, summed over the letters that the result leaves out. Source: "
        "ONNX Einsum-12",
    .since = 12,
    .versions = {12, 28},
    .inputs = {kOperands},
    .outputs = {{"Output"}},
    .attributes = {{"equation", AttributeType::kString, kRequired}},
    .infer = infer_einsum,
    .cost = cost_einsum,
    .reference = reference_einsum,
    .decompose = {decompose_einsum},
    .samples = {"Inputs=f32[5,7] Inputs1=f32[7,9] equation=ij,jk->ik",
                "Inputs=f32[2,3,5,7] Inputs1=f32[2,3,6,7] equation=bhid,bhjd->bhij",
                "Inputs=f32[2,3,4] Inputs1=f32[4,5,3] equation=bij,jki->bk", "Inputs=f32[3,5,5] equation=...ii->...i",
                "Inputs=f32[4,4] equation=ii", "Inputs=f32[3,4,5] equation=bca",
                "Inputs=f32[2,1,5,7] Inputs1=f32[3,7,2] equation=...ij,...jk",
                "Inputs=f32[3,4] Inputs1=f32[4,5] Inputs2=f32[5,2] equation=ij,jk,kl->li",
                "Inputs=f32[3] Inputs1=f32[4] equation=i,j->ji", "Inputs=f32[5] Inputs1=f32[5] equation=i,i->",
                "Inputs=f32[] equation=->", "Inputs=i64[3,4] Inputs1=i64[4,3] equation=ij,ji->i",
                "Inputs=i8[3,4] Inputs1=i8[4,2] equation=ij,jk",
                "Inputs=f16[2,4,3] Inputs1=f16[2,3,5] equation=bij,bjk->bik",
                "Inputs=f32[0,3] Inputs1=f32[3,2] equation=ij,jk->ik",
                "Inputs=f32[3,0] Inputs1=f32[0,2] equation=ij,jk->ik"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> einsum_ops() {
  static constexpr const OpSchema* kOps[] = {&kEinsum};
  return kOps;
}

}  // namespace ridgeline
