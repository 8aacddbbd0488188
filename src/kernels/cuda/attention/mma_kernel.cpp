// cuda.attention_mma: f16 and bf16 by a warp's matrix instructions: sm_80, and what the warpgroups' kernel does not
// take.
#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

int64_t row_bytes(int depth) { return (int64_t(depth) * 2 + 127) / 128 * 128; }

// Tile: keys, warps of 16 queries.
int64_t shared_bytes(const AttentionArguments& a, const Tile& t) {
  return 2 * int64_t(t.size[0]) * (row_bytes(a.depth) + row_bytes(a.value_depth));
}
int64_t row_blocks(const AttentionArguments& a, const Tile& t) {
  const int64_t rows = a.kv_heads ? int64_t(a.heads / a.kv_heads) * a.queries : 0, block = 16 * int64_t(t.size[1]);
  return (rows + block - 1) / block;
}

Support supports(const Problem& p) {
  if (Support s = attention_half_support(p); !s.ok) return s;
  const AttentionArguments a = attention_arguments(p);
  for (const int depth : {a.depth, a.value_depth})
    if (depth % 16 || depth < 16 || depth > 256) return no("heads of {}: a multiple of 16 up to 256 is wanted", depth);
  for (const auto& rows : {a.q, a.k, a.v, a.past_k, a.past_v})
    if (!attention_in_words(rows)) return no("rows, heads or batches not a multiple of 8 elements apart");
  if (a.batch > 65535 || a.kv_heads > 65535) return no("more than 65535 batches or heads");
  if (int64_t(a.heads) * a.queries >= int64_t(1) << 30) return no("too many rows");
  return yes();
}

std::vector<Tile> tiles(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  return {Tile{{a.depth + a.value_depth > 256 ? 32 : 64, 4}}};
}

TileCheck check_tile(const Problem& p, const Tile& t) {
  TileCheck check;
  if (t.size[0] < 16 || t.size[0] > 128 || t.size[0] % 16 || t.size[1] < 1 || t.size[1] > 8)
    check.reason = "16 to 128 keys in steps of 16 and 1 to 8 warps are wanted";
  check.bytes = shared_bytes(attention_arguments(p), t), check.limit = target().shared_bytes_per_block - 1024;
  check.unit = "16x1";
  return check;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const AttentionArguments a = attention_arguments(p);
  const int64_t block = 16 * int64_t(t.size[1]), rows = a.kv_heads ? int64_t(a.heads / a.kv_heads) * a.queries : 0;
  const double padded = double(row_blocks(a, t) * block) / double(std::max<int64_t>(1, rows));
  const int64_t blocks = row_blocks(a, t) * a.kv_heads * a.batch, slots = 2 * int64_t(target().multiprocessors);
  const double idle = blocks < slots ? double(slots) / double(std::max<int64_t>(1, blocks)) : 1.0;
  const double share = p.has(3) || a.softcap != 0 ? 0.2 : 0.31;
  const double compute = attention_flops(p) * padded * idle / (share * (c.bf16.one > 0 ? c.bf16.one : 8 * c.f32.one));
  return std::max(compute, c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) + 3500 + c.launch_ns.one;
}

Source source(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  Source source;
  source.file = "attention/mma.cu";
  source.entry = "attention_mma";
  source.more_entries = {"attention_any", "attention_copies"};
  source.program = attention_half_text(p) + std::string(embedded("attention/warp_rows.cu"));
  source.defines = attention_half_defines();
  for (const std::string& define :
       {fmt::format("DEPTH={}", a.depth), fmt::format("VALUE_DEPTH={}", a.value_depth),
        fmt::format("KEYS={}", t.size[0]), fmt::format("WARPS={}", t.size[1]), fmt::format("PAST={}", int(a.past > 0)),
        fmt::format("CAP={}", int(a.softcap != 0))})
    source.defines.push_back(define);
  source.shared_bytes = shared_bytes(a, t);
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const auto& kernel = call.state_as<LoadedKernel>();
  AttentionArguments a = attention_arguments(p, &buffers);
  if (!a.aligned) return attention_any_launch(kernel.more[0], p, buffers, kAttentionAnyRows, stream);
  if (a.present_k_address || a.present_v_address) {
    void* copying[] = {&a};
    launch(kernel.more[1], {attention_copy_blocks(a, kAttentionAnyTile)}, kAttentionAnyTile, stream, copying);
  }
  std::vector<uint64_t> epilogue = attention_epilogue(p, buffers.inputs);
  void* parameters[] = {&a, epilogue.data()};
  launch(kernel, {row_blocks(a, call.tile), a.kv_heads, a.batch}, call.tile.size[1] * 32, stream, parameters);
}

constexpr Kernel make(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
          .check_tile = check_tile,
          .estimate = estimate,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kAttentionMma = make("cuda.attention_mma", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionMma = make("cuda.standard_attention_mma", "Attention");

}  // namespace ridgeline::cuda
