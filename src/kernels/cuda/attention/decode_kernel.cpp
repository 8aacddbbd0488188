// cuda.attention_decode: few queries, many keys, f16 and bf16.
#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

constexpr int kRows = 16, kKeys = 16, kMostGroupRows = 64;

int64_t group_rows_of(const AttentionArguments& a) {
  return a.kv_heads ? int64_t(a.heads / a.kv_heads) * a.queries : 0;
}
int64_t tasks_of(const AttentionArguments& a) {
  return int64_t(a.batch) * a.kv_heads * ((group_rows_of(a) + kRows - 1) / kRows);
}
int64_t row_bytes(int depth) { return (int64_t(depth) * 2 + 127) / 128 * 128; }
// Tile: blocks that share a context, buffers a warp, warps, and how the shares are merged: 1 by the blocks, which are a
// cluster, 2 by a second kernel.
bool by_kernel(const Tile& t) { return t.size[3] == 2 && t.size[0] > 1; }
int cluster_of(const Tile& t) { return t.size[3] == 1 ? t.size[0] : 1; }

// Buffers of all warps, where their shares are merged afterwards; then the places for the shares of the cluster's
// blocks.
int64_t inbox_at(const AttentionArguments& a, const Tile& t) {
  const int64_t warps = t.size[2], stage = kKeys * (row_bytes(a.depth) + row_bytes(a.value_depth));
  return std::max(warps * t.size[1] * stage, warps * kRows * (a.value_depth + 4 + 2) * 4);
}
int64_t shared_bytes(const AttentionArguments& a, const Tile& t) {
  const int64_t inbox = cluster_of(t) > 1 ? kRows * (int64_t(a.value_depth) + 2 * cluster_of(t)) * 4 : 0;
  return inbox_at(a, t) + inbox;
}

Support supports(const Problem& p) {
  if (Support s = attention_half_support(p); !s.ok) return s;
  const AttentionArguments a = attention_arguments(p);
  for (const int depth : {a.depth, a.value_depth})
    if (depth % 16 || depth < 16 || depth > 256) return no("heads of {}: a multiple of 16 up to 256 is wanted", depth);
  if (group_rows_of(a) > kMostGroupRows)
    return no("{} queries share keys, at most {}", group_rows_of(a), kMostGroupRows);
  if (a.batch > 65535 || tasks_of(a) / std::max(1, a.batch) > 65535) return no("more than 65535 batches or heads");
  for (const auto& rows : {a.q, a.k, a.v, a.past_k, a.past_v})
    if (!attention_in_words(rows)) return no("rows, heads or batches not a multiple of 8 elements apart");
  return yes();
}

int stages_of(const AttentionArguments& a, int64_t bytes) {
  const int64_t stage = kKeys * (row_bytes(a.depth) + row_bytes(a.value_depth));
  return int(std::clamp<int64_t>(bytes / (4 * stage), 2, 6));
}

// By what an H200 showed, us, 32 heads of 128 on 8 of K and V, bf16. Batch 1: 1,024 keys 8x3x4x1 5.99 (a second kernel
// 10.97); 4,096 keys 16x3x4x1 9.90, 8x3x4x1 10.08, a second kernel 14.4; 32,768 keys a second kernel 16x6x4x2 41.9,
// 33x3x4x2 47.1, clusters 16x3x4x1 43.2, 8x6x4x1 49.7, 16x6x4x1 55.5 (there are not eight times sixteen free
// multiprocessors in the card's clusters: they take two rounds). Batch 8, 4,096 keys: 2x3x4x1 34.5, 2x6x4x1 35.1,
// 4x3x4x1 45.3, 8x3x4x1 42.5. Batch 32: 2x3x4x1 124.9, 1x3x4x1 127.5.
std::vector<Tile> tiles(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  const int64_t tasks = std::max<int64_t>(1, tasks_of(a)), sms = target().multiprocessors;
  const int64_t most = std::max<int64_t>(1, a.keys / (4 * kKeys));
  const int stages = stages_of(a, 96 << 10);
  int64_t splits = 1;
  while (splits < 16 && tasks * splits * 2 <= sms && splits * 2 <= most) splits *= 2;
  if (tasks > sms && tasks <= 4 * sms && most >= 2) splits = 2;
  if (!capabilities().clusters) return {Tile{{int(splits), stages, 4, 2}}};
  if (splits == 16 && a.keys <= 2048) splits = 8;
  if (splits == 16 && a.keys >= 16384) return {Tile{{16, stages_of(a, 192 << 10), 4, 2}}};
  return {Tile{{int(splits), stages, 4, 1}}};
}

std::vector<Tile> sweep(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  const int64_t most = std::max<int64_t>(1, a.keys / (4 * kKeys));
  std::vector<Tile> list;
  for (int splits = 1; splits <= 16 && splits <= most; splits *= 2)
    for (const int bytes : {96 << 10, 192 << 10})
      for (const int way : {1, 2})
        if (way == 2 || capabilities().clusters) list.push_back({{splits, stages_of(a, bytes), 4, way}});
  return list;
}

TileCheck check_tile(const Problem& p, const Tile& t) {
  TileCheck check;
  const int c = cluster_of(t);
  if (t.size[0] < 1 || t.size[1] < 2 || t.size[1] > 8 || (t.size[2] != 2 && t.size[2] != 4 && t.size[2] != 8) ||
      t.size[3] < 1 || t.size[3] > 2)
    check.reason = "splits of at least 1, 2 to 8 buffers, 2, 4 or 8 warps and way 1 or 2 are wanted";
  else if (c > 16 || (c & (c - 1)) || (c > 1 && !capabilities().clusters))
    check.reason = "clusters of 2, 4, 8 or 16 blocks are wanted, and sm_90";
  check.bytes = shared_bytes(attention_arguments(p), t), check.limit = target().shared_bytes_per_block;
  check.unit = "1x1x2x1";
  return check;
}

int64_t part_bytes(const AttentionArguments& a) { return kRows * (int64_t(a.value_depth) + 2) * 4; }

int64_t workspace(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  return by_kernel(t) ? tasks_of(a) * t.size[0] * part_bytes(a) : 0;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const AttentionArguments a = attention_arguments(p);
  const double row_blocks = double((group_rows_of(a) + kRows - 1) / kRows);
  const double bytes = double(p.read_bytes()) * std::max(1.0, row_blocks * 0.6) + double(p.write_bytes());
  const int64_t blocks = std::max<int64_t>(1, tasks_of(a) * t.size[0]), sms = target().multiprocessors;
  const double few = blocks < sms ? double(sms) / double(blocks) : 1.0;  // not enough in flight
  return bytes / (0.9 * c.read_gb_s[3].one) * few + (by_kernel(t) ? 6000 : 3500) + c.launch_ns.one;
}

Source source(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  Source source;
  source.file = "attention/decode.cu";
  source.entry = "attention_decode";
  source.more_entries = {"combine", "attention_any", "attention_copies"};
  source.program = attention_half_text(p) + std::string(embedded("attention/warp_rows.cu"));
  source.defines = attention_half_defines();
  for (const std::string& define :
       {fmt::format("DEPTH={}", a.depth), fmt::format("VALUE_DEPTH={}", a.value_depth),
        fmt::format("STAGES={}", t.size[1]), fmt::format("WARPS={}", t.size[2]),
        fmt::format("PAST={}", int(a.past > 0)), fmt::format("CLUSTER={}", cluster_of(t)),
        fmt::format("CAP={}", int(a.softcap != 0)), fmt::format("INBOX={}", inbox_at(a, t))})
    source.defines.push_back(define);
  source.shared_bytes = shared_bytes(a, t);
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const auto& kernel = call.state_as<LoadedKernel>();
  AttentionArguments a = attention_arguments(p, &buffers);
  if (!a.aligned) return attention_any_launch(kernel.more[1], p, buffers, kAttentionAnyRows, stream);
  if (a.present_k_address || a.present_v_address) {
    void* copying[] = {&a};
    launch(kernel.more[2], {attention_copy_blocks(a, kAttentionAnyTile)}, kAttentionAnyTile, stream, copying);
  }
  a.splits = call.tile.size[0];
  const int64_t heads = a.batch ? tasks_of(a) / a.batch : 0;
  std::vector<uint64_t> epilogue = attention_epilogue(p, buffers.inputs);
  void* parts = buffers.workspace;
  void* parameters[] = {&a, epilogue.data(), &parts};
  constexpr int kNonPortableClusters = 14;  // CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
  if (cluster_of(call.tile) > 8)
    check(driver().function_set_attribute(kernel.function, kNonPortableClusters, 1), "allowing clusters of 16 blocks");
  launch(kernel, {a.splits, heads, a.batch}, call.tile.size[2] * 32, stream, parameters);
  if (by_kernel(call.tile))
    launch(kernel.more[0], {kRows / 4, heads, a.batch}, 128, stream, parameters, {.dependent = true});
}

constexpr Kernel make(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
          .sweep = sweep,
          .check_tile = check_tile,
          .estimate = estimate,
          .workspace = workspace,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kAttentionDecode = make("cuda.attention_decode", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionDecode = make("cuda.standard_attention_decode", "Attention");

}  // namespace ridgeline::cuda
