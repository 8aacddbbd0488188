// cpu.low_bit_bf16: LowBitMatMul with activations rounded to bf16 and weights in bf16, by the dot-product tiles of
// cpu.matmul_dot.
#include <algorithm>

#include "kernels/cpu/matmul/dot/dot_gemm.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/matmul/low/low_epilogue.h"
#include "kernels/cpu/matmul/low/low_weights.h"

namespace ridgeline::cpu {
namespace {

struct LowBf16 {
  LowShape shape;
  LowEpilogue epilogue;
};

Support supports_bf16(const Problem& p) {
  if (p.string("act") != "bf16") return no("act is {}", p.string("act"));
  if (!dot_kernels(DotType::kBf16).tile) return no("no dot products of bf16 at this instruction set");
  const LowShape s = low_shape(p);
  if (!s.refusal.empty()) return no("{}", s.refusal);
  if (s.a != DType::kF32 && s.a != DType::kBF16) return no("{} activations", name(s.a));
  const LowEpilogue e = low_epilogue(p);
  return e.refusal.empty() ? yes() : no("{}", e.refusal);
}

int64_t workspace_bf16(const Problem& p, const Tile&) {
  const LowShape s = low_shape(p);
  return dot_workspace_bytes(DotType::kBf16, s.m, s.n, s.k, std::max(1, p.threads));
}
Packing packing_bf16(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const LowShape s = low_shape(p);
  return {fmt::format("dot bf16 k={} n={} transposed", s.k, s.n), dot_panel_bytes(DotType::kBf16, s.k, s.n)};
}
void pack_bf16(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  const LowShape s = low_shape(p);
  if (input == 1)
    dot_pack(DotType::kBf16, source.data(), DType::kBF16, 1, s.k, s.k, s.n, static_cast<uint8_t*>(packed), 0, s.n);
}
std::shared_ptr<const void> prepare_bf16(const Problem& p, const Tile&) {
  return std::make_shared<const LowBf16>(LowBf16{low_shape(p), low_epilogue(p)});
}

struct Bf16Context {
  const LowBf16& product;
  const Buffers& buffers;
};
void finish_bf16(const void* context, const DotBlock& b) {
  const Bf16Context& c = *static_cast<const Bf16Context*>(context);
  low_finish(c.product.epilogue, c.buffers, b.row, b.col, b.rows, b.cols, static_cast<float*>(b.sums), b.stream);
}
void run_bf16(const KernelCall& call, const Buffers& buffers, const ThreadPool& given) {
  const LowBf16& l = call.state_as<LowBf16>();
  const Bf16Context context{l, buffers};
  DotGemm gemm;
  gemm.type = DotType::kBf16;
  gemm.m = l.shape.m, gemm.n = l.shape.n, gemm.k = l.shape.k;
  gemm.a = buffers.inputs[0];
  gemm.a_dtype = l.shape.a;
  gemm.a_row_stride = l.shape.k;
  gemm.panels = static_cast<const uint8_t*>(buffers.inputs[1]);
  gemm.finish = finish_bf16;
  gemm.context = &context;
  gemm.y = buffers.outputs[0];
  gemm.y_row_stride = l.epilogue.n;
  gemm.y_bytes = int(info(l.epilogue.y).bits / 8);
  gemm.may_stream = l.epilogue.y != DType::kF16;
  dot_gemm(gemm, buffers.workspace, given.at_most(call.problem.threads));
}

}  // namespace

constinit const Kernel kLowBf16 = {.name = "cpu.low_bit_bf16",
                                   .op = "LowBitMatMul",
                                   .supports = supports_bf16,
                                   .estimate = low_estimate,
                                   .workspace = workspace_bf16,
                                   .packing = packing_bf16,
                                   .pack = pack_bf16,
                                   .prepare = prepare_bf16,
                                   .run = run_bf16,
                                   .version = 2};

}  // namespace ridgeline::cpu
