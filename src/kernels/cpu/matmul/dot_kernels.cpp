// cpu.matmul_dot: products of 8-bit integers with exact sums (MatMulInteger) and of bf16 with f32 sums, by the
// dot-product instructions (VNNI, AVX512-BF16, AMX; AVX2 without them).
#include <algorithm>
#include <cstring>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_epilogue.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_gemm.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/matmul/product.h"

namespace ridgeline::cpu {
namespace {

bool is_integer(const Problem& p) { return p.op->name == "MatMulInteger"; }
DotType type_of(const Problem& p) { return is_integer(p) ? DotType::kU8S8 : DotType::kBf16; }

struct DotProduct {
  Product product;
  DotType type;
  DType a, b, y;
  bool zero_a = false, zero_b = false, many_zero_b = false;  // which zero points are given; one a column of B
  int64_t panel_bytes = 0, batches = 1;
  std::shared_ptr<const DotEpilogue> epilogue;  // after integer sums
};

std::vector<DotRider> riders_of(const Product& product) {
  std::vector<DotRider> kinds;
  for (const Product::Further& o : product.operands) {
    const bool one_row = o.row == 0 && std::all_of(o.batch.begin(), o.batch.end(), [](int64_t s) { return s == 0; });
    kinds.push_back(one_row && o.col == 0   ? DotRider::kScalar
                    : one_row && o.col == 1 ? DotRider::kColumns
                    : o.col == 1            ? DotRider::kRows
                                            : DotRider::kOther);
  }
  return kinds;
}

DotProduct dot_product_of(const Problem& p) {
  DotProduct d;
  d.type = type_of(p);
  d.a = p.input(0).dtype;
  d.b = p.input(1).dtype;
  d.y = p.output().dtype;
  d.product = product_of(p, false, {d.a, d.b, d.y, is_integer(p)});
  for (int axis = 0; axis < d.product.gemm.batch_axes; ++axis) d.batches *= d.product.gemm.batch[size_t(axis)].extent;
  d.panel_bytes = dot_panel_bytes(d.type, d.product.gemm.k, d.product.gemm.n);
  if (is_integer(p)) {
    d.zero_a = p.has(2);
    d.zero_b = p.has(3);
    d.many_zero_b = d.zero_b && p.input(3).elements() > 1;
  }
  return d;
}

bool packed_ahead(const Problem& p, const DotProduct& d) {
  return p.input(1).is_constant && d.batches == 1 && p.input(1).layout.rank() == 2;
}

DotProduct whole_product(const Problem& p) {
  DotProduct d = dot_product_of(p);
  if (is_integer(p) && p.has_epilogue())
    d.epilogue = std::make_shared<const DotEpilogue>(p, true, riders_of(d.product), -1, d.product.gemm.n);
  return d;
}

Support supports(const Problem& p) {
  if (!is_integer(p) && (p.input(0).dtype != DType::kBF16 || p.input(1).dtype != DType::kBF16))
    return no("a is {} and b is {}: bf16 is wanted", name(p.input(0).dtype), name(p.input(1).dtype));
  if (!is_integer(p) && p.output().dtype != DType::kF32 && p.output().dtype != DType::kBF16)
    return no("y is {}: f32 or bf16 is wanted", name(p.output().dtype));
  if (!dot_kernels(type_of(p)).tile) return no("no dot-product instructions at this instruction set");
  const DotProduct d = dot_product_of(p);
  if (!d.product.refusal.empty()) return no("{}", d.product.refusal);
  const Gemm& g = d.product.gemm;
  if (g.a.k_stride != 1) return no("a is strided along k by {}", g.a.k_stride);
  if (is_integer(p)) {
    if (std::string why = DotEpilogue::reject(p, true, riders_of(d.product)); !why.empty()) return no("{}", why);
    if (g.batch_axes > 0 && d.many_zero_b) return no("a zero point a column with batches");
    if (p.has(2) && p.input(2).elements() != 1) return no("a zero point for each row of a");
    for (int zero : {2, 3})
      if (p.has(zero) && !p.input(zero).layout.is_row_major()) return no("strided zero points");
  }
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& ceilings) {
  const DotProduct d = dot_product_of(p);
  const Gemm& g = d.product.gemm;
  // Half of the peak for many rows; a tile of 16 rows costs as much for fewer.
  const double flops = 2.0 * double(d.batches) * double(round_up(g.m, 4)) * double(round_up(g.n, kDotColumns)) *
                       double(round_up(g.k, 32));
  const double compute = ceilings.compute_ns(d.a, int64_t(flops), p.threads) * 2;
  const double packing = packed_ahead(p, d) ? 0 : 1.0 * double(p.input(1).elements()) / std::max(1, p.threads);
  return std::max(compute, ceilings.stream_ns(p.read_bytes(), p.write_bytes(), p.threads)) + packing + 500;
}

struct Places {
  int64_t panels, sums, terms, zeros, lines, end;
};
Places places(const Problem& p, const DotProduct& d) {
  const Gemm& g = d.product.gemm;
  Places at{};
  at.panels = round_up(dot_workspace_bytes(d.type, g.m, g.n, g.k, std::max(1, p.threads)), 64);
  at.sums = at.panels + (packed_ahead(p, d) ? 0 : d.panel_bytes);
  // Vectors read to the end of the last one.
  const int64_t columns = d.type == DotType::kU8S8 ? round_up(g.n + kDotColumns, 16) * 4 : 0;
  at.terms = at.sums + columns;
  at.zeros = at.terms + columns;
  at.lines = at.zeros + columns;
  at.end = at.lines + (d.epilogue ? round_up(d.epilogue->bytes(), 64) : 0);
  return at;
}
int64_t workspace(const Problem& p, const Tile&) { return places(p, whole_product(p)).end; }

Packing packing(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const DotProduct d = dot_product_of(p);
  if (!packed_ahead(p, d)) return {};
  const Gemm& g = d.product.gemm;
  const int64_t sums = d.type == DotType::kU8S8 ? round_up(g.n * 4, 64) : 0;
  return {fmt::format("dot {} k={} n={}{}", name(d.b), g.k, g.n, g.b.stride_n == 1 ? "" : " transposed"),
          d.panel_bytes + sums};
}

void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  const DotProduct d = dot_product_of(p);
  const Gemm& g = d.product.gemm;
  uint8_t* panels = static_cast<uint8_t*>(packed);
  dot_pack(d.type, source.data(), d.b, g.b.stride_k, g.b.stride_n, g.k, g.n, panels, 0, g.n);
  if (d.type == DotType::kU8S8) dot_column_sums(panels, g.k, g.n, reinterpret_cast<int32_t*>(panels + d.panel_bytes));
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  return std::make_shared<const DotProduct>(whole_product(p));
}

struct Context {
  const DotProduct* d;
  const Buffers* buffers;
  int64_t batch;
  char* y;
  const int32_t *terms, *zeros;
  const float *bias, *residual;
  const DotEpilogue::Bound* bound;
};

void finish_integer(const void* context, const DotBlock& b) {
  const Context& c = *static_cast<const Context*>(context);
  const int64_t ldc = c.d->product.gemm.ldc;
  if (c.d->epilogue) {
    DotFinish f;
    f.sums = b.sums;
    f.rows = b.rows, f.cols = b.cols;
    f.y = c.y + (b.row * ldc + b.col) * bytes_of(c.d->y, 1);
    f.y_row = ldc;
    f.terms = c.terms + b.col;
    if (c.zeros) f.zeros = c.zeros + b.col, f.row_sums = b.row_sums;
    TileInput operands[DotEpilogue::kMostOperands];
    place_operands(c.d->product, *c.buffers, c.batch, b.row, b.col, operands);
    return c.d->epilogue->finish(*c.bound, f, b.col, operands);
  }
  finish_i32(static_cast<const int32_t*>(b.sums), b.row_sums, c.terms + b.col, c.zeros ? c.zeros + b.col : nullptr,
             b.rows, b.cols, reinterpret_cast<int32_t*>(c.y) + b.row * ldc + b.col, ldc, b.stream);
}

void finish_float(const void* context, const DotBlock& b) {
  const Context& c = *static_cast<const Context*>(context);
  const Gemm& g = c.d->product.gemm;
  const GemmEpilogue& e = g.epilogue;
  float* sums = static_cast<float*>(b.sums);
  const float infinity = std::numeric_limits<float>::infinity();
  if (e.alpha != 1 || c.bias || c.residual || e.low > -infinity || e.high < infinity) {
    scale_f32(sums, e.alpha, c.bias ? c.bias + b.col : nullptr,
              c.residual ? c.residual + b.row * e.residual_stride + b.col : nullptr, e.residual_stride, e.low, e.high,
              b.rows, b.cols);
  }
  if (e.hook) {
    const ProductContext product{&c.d->product, c.buffers};
    e.hook(&product, {sums, kDotColumns, c.batch, b.row, b.col, b.rows, b.cols, 0});
  }
  const int bytes = int(info(c.d->y).bits / 8);
  store_rows(sums, b.rows, b.cols, c.y + (b.row * g.ldc + b.col) * bytes, g.ldc, bytes, b.stream);
}

int32_t zero_point(const void* data, DType dtype, int64_t at) {
  const uint8_t byte = static_cast<const uint8_t*>(data)[at];
  return dtype == DType::kI8 ? int8_t(byte) : byte;
}

// y = sum (a - za)(b - zb), where the tiles see a' = a + (128 if i8) and b' = b - (128 if u8):
// sum a' b' - za' (sum b' - k zb') - zb' sum a', with za' and zb' moved alike.
const int32_t* zero_terms(const Buffers& buffers, const DotProduct& d, const int32_t* sums, const int32_t* bias,
                          int32_t* terms, int32_t* zeros) {
  const Gemm& g = d.product.gemm;
  const int32_t za = (d.zero_a ? zero_point(buffers.inputs[2], d.a, 0) : 0) + (d.a == DType::kI8 ? 128 : 0);
  bool any = false;
  std::fill_n(terms + g.n, kDotColumns, 0);
  std::fill_n(zeros + g.n, kDotColumns, 0);
  for (int64_t c = 0; c < g.n; ++c) {
    zeros[c] =
        (d.zero_b ? zero_point(buffers.inputs[3], d.b, d.many_zero_b ? c : 0) : 0) - (d.b == DType::kU8 ? 128 : 0);
    any = any || zeros[c] != 0;
    terms[c] = int32_t((bias ? uint32_t(bias[c]) : 0u) -
                       uint32_t(za) * (uint32_t(sums[c]) - uint32_t(g.k) * uint32_t(zeros[c])));
  }
  return any ? zeros : nullptr;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& given) {
  const DotProduct& d = call.state_as<DotProduct>();
  const Gemm& g = d.product.gemm;
  const ThreadPool pool(std::min(given.threads(), std::max(1, call.problem.threads)));
  if (g.m == 0 || g.n == 0) return;
  const Places at = places(call.problem, d);
  char* workspace = static_cast<char*>(buffers.workspace);
  const bool ahead = packed_ahead(call.problem, d);
  int32_t* terms = reinterpret_cast<int32_t*>(workspace + at.terms);
  int32_t* zeros = reinterpret_cast<int32_t*>(workspace + at.zeros);
  DotEpilogue::Bound bound;
  if (d.epilogue) d.epilogue->bind(buffers, workspace + at.lines, bound);
  const int64_t a_bytes = info(d.a).bits / 8, b_bytes = info(d.b).bits / 8, y_bytes = info(d.y).bits / 8;
  static constexpr char kNothing = 0;  // operands without elements (k = 0) may have no address
  for (int64_t batch = 0; batch < d.batches; ++batch) {
    int64_t a = 0, b = 0, y = 0, bias = 0, residual = 0, index = batch;
    for (int axis = g.batch_axes; axis-- > 0;) {
      const BatchAxis& step = g.batch[size_t(axis)];
      const int64_t i = index % step.extent;
      index /= step.extent;
      a += i * step.a, b += i * step.b, y += i * step.c, bias += i * step.bias, residual += i * step.residual;
    }
    const char* b_data = g.k == 0 && !ahead ? &kNothing : static_cast<const char*>(buffers.inputs[1]);
    const uint8_t* panels = reinterpret_cast<const uint8_t*>(b_data);
    const int32_t* sums = reinterpret_cast<const int32_t*>(panels + d.panel_bytes);
    if (!ahead) {
      uint8_t* own = reinterpret_cast<uint8_t*>(workspace + at.panels);
      const struct {
        const DotProduct& d;
        const char* b;
        uint8_t* own;
      } packing{d, b_data + b * b_bytes, own};
      const auto body = [&packing](int64_t begin, int64_t end, int) {
        const Gemm& gemm = packing.d.product.gemm;
        dot_pack(packing.d.type, packing.b, packing.d.b, gemm.b.stride_k, gemm.b.stride_n, gemm.k, gemm.n, packing.own,
                 begin * kDotColumns, std::min(gemm.n, end * kDotColumns));
      };
      pool.run((g.n + kDotColumns - 1) / kDotColumns, 1, body);
      panels = own;
      if (d.type == DotType::kU8S8) {
        dot_column_sums(own, g.k, g.n, reinterpret_cast<int32_t*>(workspace + at.sums));
        sums = reinterpret_cast<const int32_t*>(workspace + at.sums);
      }
    }
    Context context{&d,      &buffers, batch, static_cast<char*>(buffers.outputs[0]) + y * y_bytes, nullptr, nullptr,
                    nullptr, nullptr,  &bound};
    if (d.product.bias >= 0) context.bias = static_cast<const float*>(buffers.inputs[d.product.bias]) + bias;
    if (d.product.residual >= 0)
      context.residual = static_cast<const float*>(buffers.inputs[d.product.residual]) + residual;
    DotGemm gemm;
    gemm.type = d.type;
    gemm.m = g.m, gemm.n = g.n, gemm.k = g.k;
    gemm.a = g.k == 0 ? &kNothing : static_cast<const char*>(buffers.inputs[0]) + a * a_bytes;
    gemm.a_dtype = d.a;
    gemm.a_row_stride = g.a.row_stride;
    gemm.panels = panels;
    gemm.context = &context;
    gemm.finish = finish_float;
    gemm.y = context.y;
    gemm.y_row_stride = g.ldc;
    gemm.y_bytes = int(y_bytes);
    gemm.may_stream = !d.epilogue;
    if (d.type == DotType::kU8S8) {
      context.zeros = zero_terms(buffers, d, sums, bound.integer_bias, terms, zeros);
      context.terms = terms;
      gemm.finish = finish_integer;
      gemm.want_row_sums = context.zeros != nullptr;
    }
    dot_gemm(gemm, workspace, pool);
  }
}

constexpr Kernel dot_kernel(std::string_view op) {
  return {.name = "cpu.matmul_dot",
          .op = op,
          .supports = supports,
          .estimate = estimate,
          .workspace = workspace,
          .packing = packing,
          .pack = pack,
          .prepare = prepare,
          .run = run,
          .version = 2};
}

}  // namespace

constinit const Kernel kMatMulDot[4] = {dot_kernel("MatMul"), dot_kernel("FusedMatMul"), dot_kernel("Gemm"),
                                        dot_kernel("MatMulInteger")};

}  // namespace ridgeline::cpu
