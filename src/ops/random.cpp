// Random tensors: functions of the attribute `seed` and each element's place. A node without a seed is given one by the
// importer, made from its name. Source: ONNX RandomUniform-22, RandomUniformLike-22, RandomNormal-22,
// RandomNormalLike-22, Bernoulli-22, Multinomial-22.
#include "ops/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "core/saturate.h"
#include "ops/common.h"
#include "ops/families.h"

namespace ridgeline {
namespace {

constexpr std::string_view kNoGradient = "a random result does not depend on the input's content";

DType result_dtype(const Infer& i, DType otherwise, TypeSet allowed) {
  const DType dtype = i.attributes().has("dtype") ? dtype_of_onnx(int(i.integer("dtype"))) : otherwise;
  i.require(dtype != DType::kNone && contains(allowed, dtype), [&] {
    return i.attributes().has("dtype")
               ? fmt::format("dtype = {} is unsupported; allowed: {}", i.integer("dtype"), text(allowed))
               : fmt::format("without 'dtype' the result would be {}; allowed: {}", name(otherwise), text(allowed));
  });
  return dtype;
}

void infer_like(Infer& i) { i.output(0, result_dtype(i, i.dtype(0), kFloats), i.shape(0)); }

void infer_shaped(Infer& i) {
  i.require(i.rank(0) == 1, [&] { return fmt::format("'shape' is {}; allowed: one axis", text(i.shape(0))); });
  const Shape shape = i.need_values(0);
  for (const Dim& d : shape)
    i.require(!d.known() || d.value() >= 0,
              [&] { return fmt::format("shape = {}; allowed: 0 and more", text(shape)); });
  i.output(0, result_dtype(i, DType::kF32, kFloats), shape);
}

void reference_uniform(Reference& r) {
  RefArray& y = r.out[0];
  const double low = r.number("low"), range = r.number("high") - low;
  const PhiloxKey key = random_key(*r.attributes, RandomStream::kUniform);
  const int each = randoms_per_block(y.dtype);
  r.parallel_for(y.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      y.f[size_t(k)] = low + range * uniform_of(philox(key, uint64_t(k / each)), int(k % each), y.dtype);
  });
}

/// Two uniform numbers give two normal ones: a radius and an angle. Source: Box, Muller, 1958.
void reference_normal(Reference& r) {
  RefArray& y = r.out[0];
  const double mean = r.number("mean"), scale = r.number("scale");
  const PhiloxKey key = random_key(*r.attributes, RandomStream::kNormal);
  const int each = randoms_per_block(y.dtype);
  r.parallel_for(y.elements(), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const std::array<uint32_t, 4> block = philox(key, uint64_t(k / each));
      const int lane = int(k % each), first = lane - lane % 2;
      const double u = 1 - normal_uniform_of(block, first, y.dtype), v = normal_uniform_of(block, first + 1, y.dtype);
      const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      y.f[size_t(k)] = mean + scale * radius * (lane % 2 ? std::sin(angle) : std::cos(angle));
    }
  });
}

Cost cost_of_random(const Problem& p) {
  return {.flops = saturated_product({p.output().elements(), 20}), .write_bytes = p.write_bytes()};
}

// ---- Bernoulli

void infer_bernoulli(Infer& i) { i.output(0, result_dtype(i, i.dtype(0), kAll), i.shape(0)); }

/// 1 where a uniform number lies below the probability.
void decompose_bernoulli(Builder& b) {
  V p = b.input(0);
  const DType wide = b.dtype(p) == DType::kF64 ? DType::kF64 : DType::kF32;
  Attributes attributes;
  attributes.set("dtype", int64_t(info(wide).onnx_id));
  attributes.set("seed", b.number("seed"));
  V u = b.op("RandomUniformLike", {p}, std::move(attributes));
  V below = b.op("Less", {u, b.cast(p, wide)});
  const std::vector<int64_t> dtype = b.integers("dtype");  // none: the input's
  b.result(b.cast(below, dtype.empty() ? b.dtype(p) : dtype_of_onnx(int(dtype[0]))));
}

// ---- Multinomial

void infer_multinomial(Infer& i) {
  const int64_t samples = i.integer("sample_size");
  i.require(i.rank(0) == 2, [&] { return fmt::format("'input' is {}; allowed: [batch, classes]", text(i.shape(0))); });
  i.require(samples >= 1, [&] { return fmt::format("sample_size = {}; allowed: 1 and more", samples); });
  i.require(!i.dim(0, 1).is(0), "'input' has no classes; allowed: one and more");
  i.output(0, result_dtype(i, DType::kI32, kIndices), {i.dim(0, 0), samples});
}

void reference_multinomial(Reference& r) {
  const RefArray& x = r.in[0];
  const int64_t classes = x.dim(1), samples = r.integer("sample_size");
  const PhiloxKey key = random_key(*r.attributes, RandomStream::kMultinomial);
  r.parallel_for(x.dim(0), [&](int64_t begin, int64_t end) {
    std::vector<double> below(static_cast<size_t>(classes));
    for (int64_t row = begin; row < end; ++row) {
      const double* p = x.f.data() + row * classes;
      const double top = *std::max_element(p, p + classes);
      double total = 0;
      for (int64_t k = 0; k < classes; ++k) below[size_t(k)] = total += std::exp(p[k] - top);
      for (int64_t n = 0; n < samples; ++n) {
        const int64_t place = row * samples + n;
        const double u = uniform_of(philox(key, uint64_t(place / 2)), int(place % 2), DType::kF64) * total;
        // The first class whose sum lies above; numbers of no order (NaN) give the last one.
        const auto at = std::upper_bound(below.begin(), below.end(), u);
        r.out[0].i[size_t(place)] = std::min<int64_t>(at - below.begin(), classes - 1);
      }
    }
  });
}

constexpr OpSchema random_schema(std::string_view name, std::string_view doc, bool like, bool normal) {
  OpSchema s;
  s.name = name;
  s.family = "random";
  s.kind = OpKind::kOpaque;
  s.doc = doc;
  s.since = 22;
  s.versions = {1, 22};
  if (like)
    s.inputs = {{"input", kAll}};
  else
    s.inputs = {{"shape", kInt64}};
  s.outputs = {{"output"}};
  s.infer = like ? infer_like : infer_shaped;
  s.cost = cost_of_random;
  s.reference = normal ? reference_normal : reference_uniform;
  s.no_gradient = kNoGradient;
  if (normal)
    s.attributes = {{"dtype", AttributeType::kInt}, {"mean", 0.0}, {"scale", 1.0}, {"seed", AttributeType::kFloat}};
  else
    s.attributes = {{"dtype", AttributeType::kInt}, {"high", 1.0}, {"low", 0.0}, {"seed", AttributeType::kFloat}};
  // Near 0 the sum of mean and deviation cancels: an error of a last place of the largest.
  s.tolerance = Tolerance::reduction(16);
  return s;
}

constexpr OpSchema with_samples(OpSchema s, StaticList<std::string_view, 24> samples) {
  s.samples = samples;
  return s;
}

}  // namespace

PhiloxKey random_key(const Attributes& attributes, RandomStream stream) {
  return {std::bit_cast<uint32_t>(float(attributes.number("seed", 0))), uint32_t(stream)};
}

constinit const OpSchema kRandomUniform = with_samples(
    random_schema(
        "RandomUniform",
        "uniform numbers of [low, high) of the given shape (an attribute in the standard), by Philox from the "
        "seed and each place. Source: ONNX RandomUniform-22",
        false, false),
    {"shape=i64{3,65} seed=7", "shape=i64{} seed=1 low=-2.5 high=8", "shape=i64{0,4}", "shape=i64{1001} dtype=11",
     "shape=i64{9,7} dtype=10 seed=3"});
constinit const OpSchema kRandomUniformLike =
    with_samples(random_schema("RandomUniformLike",
                               "RandomUniform of the input's shape. Source: ONNX RandomUniformLike-22", true, false),
                 {"input=f32[3,65] seed=7", "input=i64[2,3] dtype=1 low=-1", "input=f16[33]", "input=f64[5,7] seed=2",
                  "input=f32[0,3]", "input=bf16[4,9]"});
constinit const OpSchema kRandomNormal = with_samples(
    random_schema("RandomNormal",
                  "normal numbers of the given shape (an attribute in the standard), by Philox and Box and Muller from "
                  "the seed and each place. Source: ONNX RandomNormal-22",
                  false, true),
    {"shape=i64{3,65} seed=7", "shape=i64{} seed=1 mean=-2.5 scale=8", "shape=i64{0,4}", "shape=i64{1001} dtype=11",
     "shape=i64{9,7} dtype=10 seed=3"});
constinit const OpSchema kRandomNormalLike =
    with_samples(random_schema("RandomNormalLike",
                               "RandomNormal of the input's shape. Source: ONNX RandomNormalLike-22", true, true),
                 {"input=f32[3,65] seed=7", "input=i64[2,3] dtype=1 mean=-1", "input=f16[33]", "input=f64[5,7] seed=2",
                  "input=f32[0,3]", "input=bf16[4,9]"});

constinit const OpSchema kBernoulli = {
    .name = "Bernoulli",
    .family = "random",
    .kind = OpKind::kOpaque,
    .doc = "1 with the probability that the input says, else 0, by RandomUniformLike. Source: ONNX Bernoulli-22",
    .since = 22,
    .versions = {15, 22},
    .inputs = {{"input", kFloats}},
    .outputs = {{"output"}},
    .attributes = {{"dtype", AttributeType::kInt}, {"seed", AttributeType::kFloat}},
    .infer = infer_bernoulli,
    .decompose = {decompose_bernoulli},
    .no_gradient = kNoGradientZero,
    .samples = {"input=f32[3,65] seed=5", "input=f64[7] dtype=9", "input=f16[0,2] dtype=6", "input=bf16[33] seed=1"},
};

constinit const OpSchema kMultinomial = {
    .name = "Multinomial",
    .family = "random",
    .kind = OpKind::kOpaque,
    .doc =
        "sample_size classes for each row of unnormalized log probabilities, by Philox from the seed and each place. "
        "Source: ONNX Multinomial-22",
    .since = 22,
    .versions = {7, 22},
    .inputs = {{"input", kFloats}},
    .outputs = {{"output"}},
    .attributes = {{"dtype", AttributeType::kInt}, {"sample_size", 1}, {"seed", AttributeType::kFloat}},
    .infer = infer_multinomial,
    .reference = reference_multinomial,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"input=f32[3,5] sample_size=65 seed=3", "input=f64[2,1]", "input=f16[0,4]", "input=f32[4,129] dtype=7"},
};

std::span<const OpSchema* const> random_ops() {
  static constexpr const OpSchema* kOps[] = {&kBernoulli,        &kMultinomial,   &kRandomNormal,
                                             &kRandomNormalLike, &kRandomUniform, &kRandomUniformLike};
  return kOps;
}

}  // namespace ridgeline
