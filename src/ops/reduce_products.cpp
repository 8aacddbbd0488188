// Running products and determinants. Source: the ONNX operator standard, CumProd-26, Det-11.
#include <cmath>
#include <utility>

#include "core/saturate.h"
#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {
namespace {

void infer_cum_prod(Infer& i) {
  i.require(i.rank(0) >= 1, "'x' is a scalar; allowed: rank 1 and above");
  i.require(product(i.shape(1)).is(1),
            [&] { return fmt::format("'axis' has shape {}; allowed: a scalar", text(i.shape(1))); });
  if (const auto axis = i.values(1); axis && (*axis)[0].known()) i.axis((*axis)[0].value(), i.rank(0));
  i.same_as(0, 0);
}

void reference_cum_prod(Reference& r) {
  const RefArray& x = r.in[0];
  const int64_t given = r.in[1].integer(0);
  if (given < -x.rank() || given >= x.rank())
    fail(ErrorCode::kBadInput, "CumProd: axis {} is out of range for rank {}", given, x.rank());
  const AxisSpan span = span_of(x.shape, positive_axis(given, x.rank()));
  const bool exclusive = r.flag("exclusive"), reverse = r.flag("reverse");
  for (int64_t row = 0; row < span.outer * span.inner; ++row) {
    const int64_t base = row / span.inner * span.extent * span.inner + row % span.inner;
    double product = 1;
    uint64_t whole = 1;  // integers wrap
    for (int64_t k = 0; k < span.extent; ++k) {
      const size_t at = size_t(base + (reverse ? span.extent - 1 - k : k) * span.inner);
      if (x.is_float()) {
        const double before = std::exchange(product, product * x.f[at]);
        r.out[0].f[at] = exclusive ? before : product;
      } else {
        const uint64_t before = std::exchange(whole, whole * uint64_t(x.i[at]));
        r.out[0].i[at] = int64_t(exclusive ? before : whole);
      }
    }
  }
}

void infer_det(Infer& i) {
  const Shape& x = i.shape(0);
  i.require(x.size() >= 2 && (!x.back().known() || !x[x.size() - 2].known() || x.back() == x[x.size() - 2]),
            [&] { return fmt::format("'X' is {}; allowed: square matrices, [..., M, M]", text(x)); });
  i.output(0, i.dtype(0), Shape(x.begin(), x.end() - 2));
}

/// By elimination with the largest pivot of each column.
double determinant(std::vector<double> m, int64_t n) {
  double result = 1;
  const auto at = [&](int64_t row, int64_t column) -> double& { return m[size_t(row * n + column)]; };
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t row = k + 1; row < n; ++row)
      if (std::fabs(at(row, k)) > std::fabs(at(pivot, k)) || std::isnan(at(row, k))) pivot = row;
    if (at(pivot, k) == 0) return 0;
    if (pivot != k) {
      result = -result;
      for (int64_t column = k; column < n; ++column) std::swap(at(pivot, column), at(k, column));
    }
    result *= at(k, k);
    for (int64_t row = k + 1; row < n; ++row) {
      const double factor = at(row, k) / at(k, k);
      for (int64_t column = k + 1; column < n; ++column) at(row, column) -= factor * at(k, column);
    }
  }
  return result;
}

void reference_det(Reference& r) {
  const RefArray& x = r.in[0];
  const int64_t n = x.dim(-1), size = n * n;
  r.parallel_for(r.out[0].elements(), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      r.out[0].f[size_t(k)] = determinant({x.f.begin() + k * size, x.f.begin() + (k + 1) * size}, n);
  });
}

}  // namespace

constinit const OpSchema kCumProd = {
    .name = "CumProd",
    .family = "reduce",
    .kind = OpKind::kReduction,
    .doc =
        "running products along axis; exclusive: without the element itself; reverse: from the end. Integers wrap. "
        "Source: ONNX CumProd-26",
    .since = 26,
    .versions = {26},
    .inputs = {{"x", kFloats | kIndices | type_bit(DType::kU32) | type_bit(DType::kU64)}, {"axis", kIndices}},
    .outputs = {{"y"}},
    .attributes = {{"exclusive", 0}, {"reverse", 0}},
    .infer = infer_cum_prod,
    .reference = reference_cum_prod,
    .no_gradient = "the usual quotient, a running sum of dy * y over x, has no value where x is 0",
    .samples = {"x=f32[3,65] axis=i64{1}", "x=f32[4,5,3] axis=i32{-2} exclusive=1", "x=i64[7] axis=i64{0} reverse=1",
                "x=f16[0,3] axis=i64{0} exclusive=1 reverse=1", "x=f32[2,9] axis=i64{-1} exclusive=1 reverse=1",
                "x=u32[5,3] axis=i64{0}"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kDet = {
    .name = "Det",
    .family = "reduce",
    .kind = OpKind::kReduction,
    .doc = "determinants of the matrices in the last two axes; 1 of an empty one. Source: ONNX Det-11",
    .since = 11,
    .versions = {11, 22},
    .inputs = {{"X", kFloats}},
    .outputs = {{"Y"}},
    .infer = infer_det,
    .cost =
        [](const Problem& p) {
          const int64_t n = p.input(0).shape().back();
          return Cost{.flops = saturated_product({2, p.output().elements(), n, n, n}) / 3,
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes(),
                      .special = saturated_product({p.output().elements(), n})};
        },
    .reference = reference_det,
    .no_gradient = "it needs the inverse of X, which no operator of the standard computes",
    .samples = {"X=f32[3,3]", "X=f32[2,5,4,4]", "X=f64[1,1,1]", "X=f32[2,0,0]", "X=f16[0,2,2]"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> reduce_products_ops() {
  static constexpr const OpSchema* kOps[] = {&kCumProd, &kDet};
  return kOps;
}

}  // namespace ridgeline
