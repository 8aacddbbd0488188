// Products of matrices. Source: ONNX MatMul-13, Gemm-13, MatMulInteger-10, QLinearMatMul-21; ONNX Runtime
// FusedMatMul-1.
#include "ops/matmul.h"

#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

/// The operands' last two axes, and the batch before them. A vector counts as a row on the left, as a column on the
/// right.
struct Sides {
  Shape batch;
  Dim m, n, k;
  bool row = false, column = false;  // the vectors' own axes are not in the result
};

Sides sides_of(Infer& i, int a, int b, bool trans_a, bool trans_b) {
  Shape x = i.shape(a), y = i.shape(b);
  i.require(!x.empty() && !y.empty(),
            fmt::format("a scalar cannot be multiplied: the operands are {} and {}", describe(i, a), describe(i, b)));
  Sides s;
  s.row = x.size() == 1, s.column = y.size() == 1;
  if (s.row) x.insert(x.begin(), 1);
  if (s.column) y.push_back(1);
  trans_a = trans_a && !s.row, trans_b = trans_b && !s.column;
  const Dim &ka = x[x.size() - (trans_a ? 2 : 1)], &kb = y[y.size() - (trans_b ? 1 : 2)];
  s.m = x[x.size() - (trans_a ? 1 : 2)], s.n = y[y.size() - (trans_b ? 2 : 1)];
  i.require(!ka.known() || !kb.known() || ka == kb,
            fmt::format("the operands are {} and {}: the contracted extents {} and {} differ", describe(i, a),
                        describe(i, b), ka.text(), kb.text()));
  s.k = ka.known() ? ka : kb;
  const size_t rank = std::max(x.size(), y.size());
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    auto at = [&](const Shape& shape) {
      return axis + shape.size() >= rank ? shape[axis + shape.size() - rank] : Dim(1);
    };
    Dim joined;
    i.require(broadcast(at(x), at(y), joined), fmt::format("the operands are {} and {}: their batches do not broadcast",
                                                           describe(i, a), describe(i, b)));
    s.batch.push_back(joined);
  }
  return s;
}

void infer_product(Infer& i, int a, int b, bool trans_a, bool trans_b, DType dtype) {
  const Sides s = sides_of(i, a, b, trans_a, trans_b);
  Shape out = s.batch;
  if (!s.row) out.push_back(s.m);
  if (!s.column) out.push_back(s.n);
  i.output(0, dtype, out);
}

/// Row-major operands of one product: extents with the vectors' axes put in.
struct Operands {
  Extents a, b, batch;
  int64_t m, n, k;
  bool trans_a, trans_b;
};
Operands operands_of(const Extents& x, const Extents& y, bool trans_a, bool trans_b) {
  Operands o{x, y, {}, 0, 0, 0, trans_a && x.size() > 1, trans_b && y.size() > 1};
  if (x.size() == 1) o.a.insert(o.a.begin(), 1);
  if (y.size() == 1) o.b.push_back(1);
  o.m = o.a[o.a.size() - (o.trans_a ? 1 : 2)];
  o.k = o.a[o.a.size() - (o.trans_a ? 2 : 1)];
  o.n = o.b[o.b.size() - (o.trans_b ? 2 : 1)];
  const size_t rank = std::max(o.a.size(), o.b.size());
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    auto at = [&](const Extents& shape) { return axis + shape.size() >= rank ? shape[axis + shape.size() - rank] : 1; };
    o.batch.push_back(at(o.a) == 1 ? at(o.b) : at(o.a));
  }
  return o;
}

/// Offset of the matrix of a batched operand that stands at `at` of the joined batch.
int64_t matrix_of(const Extents& shape, const Extents& at) {
  const Extents batch(shape.begin(), shape.end() - 2);
  return broadcast_index(batch, at) * shape[shape.size() - 2] * shape[shape.size() - 1];
}

/// B as [K, N], row-major.
template <typename T>
std::vector<T> row_major_b(const T* b, int64_t k, int64_t n, bool transposed) {
  std::vector<T> rows(b, b + k * n);
  if (transposed)
    for (int64_t c = 0; c < n; ++c)
      for (int64_t r = 0; r < k; ++r) rows[size_t(r * n + c)] = b[c * k + r];
  return rows;
}

/// out[batch, M, N] = alpha * A x B, in double or in 64-bit integers.
template <typename T>
void multiply(const Reference& c, const T* a, const T* b, T* out, const Operands& o, T alpha) {
  for (Index at(o.batch); at.more(); ++at) {
    const T* x = a + matrix_of(o.a, at.at());
    const std::vector<T> y = row_major_b(b + matrix_of(o.b, at.at()), o.k, o.n, o.trans_b);
    T* z = out + at.flat() * o.m * o.n;
    c.parallel_for(o.m, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const RowOfA<T> left{x + (o.trans_a ? row : row * o.k), o.trans_a ? o.m : 1};
        multiply_row(left, y.data(), z + row * o.n, o.k, o.n);
        for (int64_t col = 0; col < o.n; ++col) z[row * o.n + col] *= alpha;
      }
    });
  }
}

/// Integers wrap: they are multiplied as unsigned ones.
uint64_t* bits(std::vector<int64_t>& v) { return reinterpret_cast<uint64_t*>(v.data()); }

void product_reference(Reference& c, bool trans_a, bool trans_b, double alpha) {
  const Operands o = operands_of(c.in[0].shape, c.in[1].shape, trans_a, trans_b);
  if (c.in[0].is_float())
    multiply(c, c.in[0].f.data(), c.in[1].f.data(), c.out[0].f.data(), o, alpha);
  else
    multiply(c, bits(c.in[0].i), bits(c.in[1].i), bits(c.out[0].i), o, uint64_t(int64_t(alpha)));
}

Cost product_cost(const Problem& p, int a, int b, bool trans_a, bool trans_b) {
  const Operands o = operands_of(p.input(a).shape(), p.input(b).shape(), trans_a, trans_b);
  return {.flops = saturated_product({2, element_count(o.batch), o.m, o.n, o.k}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

V swap_last(Builder& b, V v) {
  std::vector<int64_t> perm(size_t(b.rank(v)));
  for (size_t a = 0; a < perm.size(); ++a) perm[a] = int64_t(a);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.transpose(v, perm);
}

/// Gradients of y = A' x B' with A' = A or its transpose: dA' = dy x B'^T, dB' = A'^T x dy. Vectors get their axis for
/// the time.
void product_gradient(Gradient& g, bool trans_a, bool trans_b, double alpha) {
  V a = g.input(0), b = g.input(1), dy = g.gradient();
  const bool row = g.rank(a) == 1, column = g.rank(b) == 1;
  if (alpha != 1) dy = dy * g.constant(alpha, dy);
  if (column) dy = g.op("Unsqueeze", {dy, g.integers_constant({-1})});
  if (row) dy = g.op("Unsqueeze", {dy, g.integers_constant({-2})});
  V left = row ? g.op("Unsqueeze", {a, g.integers_constant({0})}) : a;
  V right = column ? g.op("Unsqueeze", {b, g.integers_constant({1})}) : b;
  trans_a = trans_a && !row, trans_b = trans_b && !column;
  V wide_left = trans_a ? swap_last(g, left) : left, wide_right = trans_b ? swap_last(g, right) : right;
  V da = g.matmul(dy, swap_last(g, wide_right)), db = g.matmul(swap_last(g, wide_left), dy);
  da = g.unbroadcast(trans_a ? swap_last(g, da) : da, left);
  db = g.unbroadcast(trans_b ? swap_last(g, db) : db, right);
  g.input_gradient(0, row ? g.op("Squeeze", {da, g.integers_constant({0})}) : da);
  g.input_gradient(1, column ? g.op("Squeeze", {db, g.integers_constant({1})}) : db);
}

constexpr TypeSet kProducts =
    kFloats | type_bit(DType::kI32) | type_bit(DType::kI64) | type_bit(DType::kU32) | type_bit(DType::kU64);
constexpr TypeSet kBytes = type_bit(DType::kI8) | type_bit(DType::kU8);
constexpr TypeSet kQuantized = kBytes | kFloat8;

void reject_batch_transposes(const Infer& i) {
  for (std::string_view name : {"transBatchA", "transBatchB"})
    if (i.flag(name)) i.reject(fmt::format("{} = 1 is unsupported: transpose the operand before it", name));
}

// ---- Gemm

void infer_gemm(Infer& i) {
  i.require(i.rank(0) == 2 && i.rank(1) == 2,
            fmt::format("the operands are {} and {}: matrices are wanted", describe(i, 0), describe(i, 1)));
  infer_product(i, 0, 1, i.flag("transA"), i.flag("transB"), i.dtype(0));
  if (!i.has(2)) return;
  const Shape& out = *i.results()[0].shape;
  const Shape& c = i.shape(2);
  bool fits = c.size() <= 2;
  for (size_t a = 0; fits && a < c.size(); ++a) {
    const Dim& want = out[a + 2 - c.size()];
    fits = c[a].is(1) || !c[a].known() || !want.known() || c[a] == want;
  }
  i.require(fits,
            fmt::format("input 'c' is {}: it must broadcast to the product's shape {}", describe(i, 2), text(out)));
}

void gemm_reference(Reference& c) {
  product_reference(c, c.flag("transA"), c.flag("transB"),
                    c.in[0].is_float() ? c.number("alpha") : std::trunc(c.number("alpha")));
  const double beta = c.number("beta");
  if (!c.has(2) || beta == 0) return;  // beta = 0: C is not read, NaN in it or not
  RefArray& y = c.out[0];
  for (Index at(y.shape); at.more(); ++at) {
    const int64_t k = broadcast_index(c.in[2].shape, at.at());
    if (y.is_float())
      y.f[size_t(at.flat())] += beta * c.in[2].f[size_t(k)];
    else
      bits(y.i)[at.flat()] += uint64_t(int64_t(beta)) * bits(c.in[2].i)[k];
  }
}

V maybe_transposed(Builder& b, int input, std::string_view flag) {
  return b.flag(flag) ? b.transpose(b.input(input), {1, 0}) : b.input(input);
}

void decompose_gemm(Builder& b) {
  V y = b.matmul(maybe_transposed(b, 0, "transA"), maybe_transposed(b, 1, "transB"));
  if (b.number("alpha") != 1) y = y * b.number_like("alpha", y);
  if (b.has(2) && b.number("beta") != 0) {
    V c = b.input(2);
    y = y + (b.number("beta") == 1 ? c : c * b.number_like("beta", c));
  }
  b.result(y);
}

void gemm_gradient(Gradient& g) {
  product_gradient(g, g.flag("transA"), g.flag("transB"), g.number("alpha"));
  if (!g.has(2)) return;
  V dy = g.gradient();
  g.input_gradient(2, g.unbroadcast(g.number("beta") == 1 ? dy : dy * g.number_like("beta", dy), g.input(2)));
}

// ---- integers with zero points

/// The zero point of row `m` (per_row) or column of a product, as the standard's two forms have it: one number, or one
/// a row or column.
std::vector<int64_t> zero_points(const Reference& c, int input, int64_t count) {
  if (!c.has(input)) return std::vector<int64_t>(size_t(count), 0);
  const RefArray& zero = c.in[size_t(input)];
  std::vector<int64_t> points(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k) points[size_t(k)] = zero.i[size_t(zero.elements() == 1 ? 0 : k)];
  return points;
}

void check_zero_point(Infer& i, int input, const Dim& extent, std::string_view of) {
  if (!i.has(input) || i.rank(input) == 0) return;
  const Dim count = product(i.shape(input));
  i.require(i.rank(input) <= 2 && (count.is(1) || !count.known() || !extent.known() || count == extent),
            fmt::format(
                "input '{}' is {}: one number, or one for each of the {} {}, is wanted (batched ones are unsupported)",
                i.op().inputs[input].name, describe(i, input), extent.text(), of));
}

/// A and B less their zero points, in integers.
void shifted_product(const Reference& c, int a, int b, int a_zero, int b_zero, std::vector<int64_t>& out,
                     const Operands& o) {
  std::vector<int64_t> x = c.in[size_t(a)].i, y = c.in[size_t(b)].i;
  const std::vector<int64_t> za = zero_points(c, a_zero, o.m), zb = zero_points(c, b_zero, o.n);
  for (size_t k = 0; k < x.size(); ++k) x[k] -= za[k / size_t(o.k) % size_t(o.m)];
  for (size_t k = 0; k < y.size(); ++k) y[k] -= zb[k % size_t(o.n)];
  multiply(c, bits(x), bits(y), bits(out), o, uint64_t(1));
}

/// The same of two tensors of 8-bit floats.
std::vector<double> shifted_product(const Reference& c, const Operands& o) {
  const auto shifted = [&](int input, int zero, auto slice) {
    const RefArray &x = c.in[size_t(input)], &z = c.in[size_t(zero)];
    std::vector<double> out(size_t(x.elements()));
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = x.number(int64_t(k)) - z.number(z.elements() == 1 ? 0 : int64_t(slice(k)));
    return out;
  };
  const std::vector<double> a = shifted(0, 2, [&](size_t k) { return k / size_t(o.k) % size_t(o.m); }),
                            b = shifted(3, 5, [&](size_t k) { return k % size_t(o.n); });
  std::vector<double> sums(size_t(c.out[0].elements()));
  multiply(c, a.data(), b.data(), sums.data(), o, 1.0);
  return sums;
}

void quantized_product_reference(Reference& c) {
  const Operands o = operands_of(c.in[0].shape, c.in[3].shape, false, false);
  std::vector<double> sums;
  if (c.in[0].is_float() || c.in[3].is_float()) {
    sums = shifted_product(c, o);
  } else {
    std::vector<int64_t> whole(size_t(c.out[0].elements()));
    shifted_product(c, 0, 3, 2, 5, whole, o);
    sums.assign(whole.begin(), whole.end());
  }
  const RefArray &sa = c.in[1], &sb = c.in[4];
  RefArray& y = c.out[0];
  const DTypeInfo& type = info(y.dtype);
  const double most = type.largest, least = type.is_float ? -most : type.is_signed ? -most - 1 : 0;
  for (size_t k = 0; k < sums.size(); ++k) {
    const double a = sa.f[sa.elements() == 1 ? 0 : k / size_t(o.n) % size_t(o.m)],
                 b = sb.f[sb.elements() == 1 ? 0 : k % size_t(o.n)];
    double v = sums[k] * (a * b / c.in[6].f[0]);
    if (!type.is_float) v = std::isnan(v) ? 0 : std::nearbyint(v);
    y.set(int64_t(k), std::clamp(v + c.in[7].number(0), least, most));
  }
}

}  // namespace

constinit const OpSchema kMatMul = {
    .name = "MatMul",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "Matrix product over the last two axes, batches broadcast; a vector is a row on the left, a column on the "
        "right. Source: ONNX MatMul-13.",
    .since = 13,
    .versions = {1, 9, 13},
    .inputs = {{"a", kProducts}, {"b", kProducts, "a"}},
    .outputs = {{"y"}},
    .infer = [](Infer& i) { infer_product(i, 0, 1, false, false, i.dtype(0)); },
    .cost = [](const Problem& p) { return product_cost(p, 0, 1, false, false); },
    .reference = [](Reference& c) { product_reference(c, false, false, 1); },
    .gradient = [](Gradient& g) { product_gradient(g, false, false, 1); },
    .samples = {"a=f32[7,13] b=f32[13,5]", "a=f32[1,64] b=f32[64,33]", "a=f32[33,64] b=f32[64,1]",
                "a=f32[17] b=f32[17]", "a=f32[17] b=f32[3,17,4]", "a=f32[3,4,17] b=f32[17]",
                "a=f32[2,1,5,9] b=f32[3,9,4]", "a=f32[3,7,8] b=f32[8,65]", "a=f32[0,4] b=f32[4,3]",
                "a=f32[3,0] b=f32[0,4]", "a=f32[2,3,4] b=f32[2,4,0]", "a=f64[5,7] b=f64[7,3]",
                "a=f16[9,33] b=f16[33,17]", "a=bf16[9,33] b=bf16[33,17]", "a=i32[3,5] b=i32[5,2]",
                "a=f32[65,129] b=f32[129,97]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kGemm = {
    .name = "Gemm",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "alpha * A' x B' + beta * C, A' and B' transposed if the attributes say so; C is not read if beta is 0. "
        "Source: ONNX Gemm-13.",
    .since = 13,
    .versions = {1, 6, 7, 9, 11, 13},
    .inputs = {{"a", kProducts}, {"b", kProducts, "a"}, {"c", kProducts, "a", true}},
    .outputs = {{"y"}},
    .attributes = {{"alpha", 1.0}, {"beta", 1.0}, {"transA", 0}, {"transB", 0}},
    .infer = infer_gemm,
    .cost =
        [](const Problem& p) {
          Cost cost = product_cost(p, 0, 1, p.flag("transA"), p.flag("transB"));
          if (p.has(2)) cost.flops += p.output().elements();
          return cost;
        },
    .reference = gemm_reference,
    .decompose = {decompose_gemm},
    .gradient = gemm_gradient,
    .samples = {"a=f32[7,13] b=f32[13,5] c=f32[5]",
                "a=f32[13,7] b=f32[5,13] c=f32[7,1] transA=1 transB=1 alpha=0.5 beta=2.0",
                "a=f32[1,64] b=f32[33,64] c=f32[33] transB=1", "a=f32[3,17] b=f32[17,4]",
                "a=f32[3,0] b=f32[0,4] c=f32[3,4]", "a=f32[0,4] b=f32[4,3] c=f32[3]",
                "a=f32[4,6] b=f32[6,5] c=f32[1] beta=0.0", "a=f64[5,7] b=f64[7,3] c=f64[]",
                "a=f16[9,33] b=f16[33,17] c=f16[17]", "a=bf16[9,33] b=bf16[17,33] transB=1",
                "a=i32[3,5] b=i32[5,2] c=i32[2]", "a=f32[33,65] b=f32[129,65] c=f32[129] transB=1"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kFusedMatMul = {
    .name = "FusedMatMul",
    .domain = "com.microsoft",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "alpha * A' x B' over the last two axes, batches broadcast, A' and B' transposed if the attributes say so. "
        "Source: ONNX Runtime FusedMatMul-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"a", kFloats}, {"b", kFloats, "a"}},
    .outputs = {{"y"}},
    .attributes = {{"alpha", 1.0}, {"transA", 0}, {"transB", 0}, {"transBatchA", 0}, {"transBatchB", 0}},
    .infer =
        [](Infer& i) {
          reject_batch_transposes(i);
          infer_product(i, 0, 1, i.flag("transA"), i.flag("transB"), i.dtype(0));
        },
    .cost = [](const Problem& p) { return product_cost(p, 0, 1, p.flag("transA"), p.flag("transB")); },
    .reference = [](Reference& c) { product_reference(c, c.flag("transA"), c.flag("transB"), c.number("alpha")); },
    .decompose = {[](Builder& b) {
      V x = b.input(0), y = b.input(1);
      if (b.flag("transA") && b.rank(x) > 1) x = swap_last(b, x);
      if (b.flag("transB") && b.rank(y) > 1) y = swap_last(b, y);
      V z = b.matmul(x, y);
      b.result(b.number("alpha") == 1 ? z : z * b.number_like("alpha", z));
    }},
    .gradient = [](Gradient& g) { product_gradient(g, g.flag("transA"), g.flag("transB"), g.number("alpha")); },
    .samples = {"a=f32[7,13] b=f32[13,5] alpha=0.125", "a=f32[2,3,17,9] b=f32[2,3,17,9] transB=1 alpha=0.25",
                "a=f32[2,9,5] b=f32[2,9,4] transA=1", "a=f32[3,13,7] b=f32[5,13] transA=1 transB=1",
                "a=f32[0,4] b=f32[3,4] transB=1", "a=f32[3,0] b=f32[0,4]", "a=f16[9,33] b=f16[17,33] transB=1",
                "a=bf16[33,9] b=bf16[33,17] transA=1", "a=f32[1,12,33,64] b=f32[1,12,33,64] transB=1"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kMatMulInteger = {
    .name = "MatMulInteger",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc = "(A - a_zero_point) x (B - b_zero_point) in 32-bit integers. Source: ONNX MatMulInteger-10.",
    .since = 10,
    .versions = {10},
    .inputs = {{"a", kBytes}, {"b", kBytes}, {"a_zero_point", kBytes, "a", true}, {"b_zero_point", kBytes, "b", true}},
    .outputs = {{"y"}},
    .infer =
        [](Infer& i) {
          const Sides s = sides_of(i, 0, 1, false, false);
          check_zero_point(i, 2, s.m, "rows");
          check_zero_point(i, 3, s.n, "columns");
          infer_product(i, 0, 1, false, false, DType::kI32);
        },
    .cost = [](const Problem& p) { return product_cost(p, 0, 1, false, false); },
    .reference =
        [](Reference& c) {
          shifted_product(c, 0, 1, 2, 3, c.out[0].i, operands_of(c.in[0].shape, c.in[1].shape, false, false));
        },
    .no_gradient = kNoGradientDiscrete,
    .samples = {"a=u8[7,13] b=u8[13,5] a_zero_point=u8[] b_zero_point=u8[]", "a=u8[3,5,33] b=i8[33,17]",
                "a=i8[4,64] b=i8[64,9] b_zero_point=i8[9]", "a=u8[0,4] b=i8[4,3]"},
};

constinit const OpSchema kQLinearMatMul = {
    .name = "QLinearMatMul",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "The product of two quantized matrices, quantized: round(A x B * (a_scale * b_scale / y_scale)) + "
        "y_zero_point. Source: ONNX QLinearMatMul-21.",
    .since = 10,
    .versions = {10, 21},
    .inputs = {{"a", kQuantized},
               {"a_scale", kFloats},
               {"a_zero_point", kQuantized, "a"},
               {"b", kQuantized},
               {"b_scale", kFloats},
               {"b_zero_point", kQuantized, "b"},
               {"y_scale", kFloats},
               {"y_zero_point", kQuantized}},
    .outputs = {{"y"}},
    .infer =
        [](Infer& i) {
          const Sides s = sides_of(i, 0, 3, false, false);
          check_zero_point(i, 1, s.m, "rows");
          check_zero_point(i, 2, s.m, "rows");
          check_zero_point(i, 4, s.n, "columns");
          check_zero_point(i, 5, s.n, "columns");
          check_zero_point(i, 6, 1, "products");
          check_zero_point(i, 7, 1, "products");
          infer_product(i, 0, 3, false, false, i.dtype(7));
        },
    .cost = [](const Problem& p) { return product_cost(p, 0, 3, false, false); },
    .reference = quantized_product_reference,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"a=u8[7,13] a_scale=f32[] a_zero_point=u8[] b=u8[13,5] b_scale=f32[] b_zero_point=u8[] y_scale=f32[] "
                "y_zero_point=u8[]",
                "a=u8[2,3,8] a_scale=f32[1] a_zero_point=u8[1] b=i8[8,4] b_scale=f32[4] b_zero_point=i8[4] "
                "y_scale=f32[1] y_zero_point=u8[1]",
                "a=i8[0,4] a_scale=f32[] a_zero_point=i8[] b=i8[4,3] b_scale=f32[] b_zero_point=i8[] y_scale=f32[] "
                "y_zero_point=i8[]",
                "a=f8e4m3[5,9] a_scale=f32[] a_zero_point=f8e4m3[] b=f8e4m3[9,3] b_scale=f32[] b_zero_point=f8e4m3[] "
                "y_scale=f32[] y_zero_point=f8e4m3[]"},
    .tolerance = Tolerance::elementwise(1),  // a product that lies between two integers may go either way
};

std::span<const OpSchema* const> matmul_ops() {
  static constexpr const OpSchema* kOps[] = {&kMatMul, &kGemm, &kFusedMatMul, &kMatMulInteger, &kQLinearMatMul};
  return kOps;
}

}  // namespace ridgeline
