// cuda.attention_any: every attention problem, on the plain cores. What the tensor cores' kernels do not take (f32,
// f64, strided heads, scores as an output) runs here.
#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

constexpr int kTile = kAttentionAnyTile, kMostRows = kAttentionAnyRows;

bool wide_sums(const Problem& p) { return p.input(0).dtype == DType::kF64 || p.input(2).dtype == DType::kF64; }

struct Choice {
  int rows;
  int64_t bytes;
};
Choice choice_of(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  const int64_t row = (int64_t(a.depth) + a.value_depth + kTile) * (wide_sums(p) ? 8 : 4);
  const int64_t group_rows = a.kv_heads ? int64_t(a.heads / a.kv_heads) * a.queries : 0;
  const int rows = group_rows > 1 && row * kMostRows <= (64 << 10) ? kMostRows : 1;
  return {rows, row * rows};
}

Support supports(const Problem& p) {
  if (Support s = attention_support(p); !s.ok) return s;
  const int64_t bytes = choice_of(p).bytes, limit = target().shared_bytes_per_block - 1024;
  if (bytes > limit) return no("a row of {} bytes does not fit {} of shared memory", bytes, limit);
  return yes();
}

Source source(const Problem& p, const Tile&) {
  const Choice c = choice_of(p);
  Source source;
  source.file = "attention/any.cu";
  source.entry = "attention_any";
  source.program = attention_text(p);
  source.defines = {fmt::format("Sum={}", wide_sums(p) ? "double" : "float"), fmt::format("ROWS={}", c.rows),
                    fmt::format("TILE={}", kTile),
                    fmt::format("SCORES={}", int(p.outputs.size() > 3 && p.output(3).present()))};
  // One text serves all depths: a few sizes are loaded, a launch takes what it needs.
  for (const int64_t bytes : {int64_t(16) << 10, int64_t(48) << 10, target().shared_bytes_per_block - 1024})
    if (source.shared_bytes < c.bytes) source.shared_bytes = bytes;
  return source;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // A tenth of the multiply-adds: every operand of one comes from shared memory or the first cache.
  const double compute = attention_flops(p) / (0.1 * c.f32.one);
  return std::max(compute, c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) + 3000 + c.launch_ns.one;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  LoadedKernel kernel = call.state_as<LoadedKernel>();
  const Choice c = choice_of(call.problem);
  kernel.shared_bytes = c.bytes;
  attention_any_launch(kernel, call.problem, buffers, c.rows, stream);
}

constexpr Kernel make(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .estimate = estimate,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kAttentionAny = make("cuda.attention_any", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionAny = make("cuda.standard_attention_any", "Attention");

}  // namespace ridgeline::cuda
