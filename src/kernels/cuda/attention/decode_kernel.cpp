// cuda.attention_decode: few queries, many keys, f16 and bf16.
#include <algorithm>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
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
int64_t shared_bytes(const AttentionArguments& a, const Tile& t) {
  const int64_t warps = t.size[2], stage = kKeys * (row_bytes(a.depth) + row_bytes(a.value_depth));
  return std::max(warps * t.size[1] * stage, warps * kRows * (a.value_depth + 4 + 2) * 4);
}

Support supports(const Problem& p) {
  if (Support s = attention_half_support(p); !s.ok) return s;
  const AttentionArguments a = attention_arguments(p);
  for (const int depth : {a.depth, a.value_depth})
    if (depth % 16 || depth < 16 || depth > 256) return no("heads of {}: a multiple of 16 up to 256 is wanted", depth);
  if (group_rows_of(a) > kMostGroupRows)
    return no("{} queries share keys, at most {}", group_rows_of(a), kMostGroupRows);
  for (const auto& rows : {a.q, a.k, a.v, a.past_k, a.past_v})
    if (!attention_in_words(rows)) return no("rows, heads or batches not a multiple of 8 elements apart");
  return yes();
}

// Tile: blocks that share a context, buffers a warp, warps. Two blocks of 96 KB a multiprocessor, so that one reads
// while the other ends.
std::vector<Tile> tiles(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  const int64_t tasks = std::max<int64_t>(1, tasks_of(a)), blocks = 2 * int64_t(target().multiprocessors);
  const int64_t most = std::max<int64_t>(1, a.keys / (4 * kKeys));
  std::vector<Tile> list;
  for (const int64_t want : {blocks / tasks, blocks / 2 / tasks, blocks * 2 / tasks, int64_t(1)}) {
    Tile t{{int(std::clamp<int64_t>(want, 1, std::min<int64_t>(most, 64))), 3, 4}};
    if (a.depth + a.value_depth > 256) t.size[1] = 2;
    if (std::find(list.begin(), list.end(), t) == list.end()) list.push_back(t);
  }
  return list;
}

TileCheck check_tile(const Problem& p, const Tile& t) {
  TileCheck check;
  if (t.size[0] < 1 || t.size[1] < 2 || t.size[1] > 8 || (t.size[2] != 2 && t.size[2] != 4 && t.size[2] != 8))
    check.reason = "splits of at least 1, 2 to 8 stages and 2, 4 or 8 warps are wanted";
  check.bytes = shared_bytes(attention_arguments(p), t), check.limit = target().shared_bytes_per_block;
  check.unit = "1x1x2";
  return check;
}

int64_t part_bytes(const AttentionArguments& a) { return kRows * (int64_t(a.value_depth) + 2) * 4; }

int64_t workspace(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  return t.size[0] > 1 ? tasks_of(a) * t.size[0] * part_bytes(a) : 0;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const AttentionArguments a = attention_arguments(p);
  const double row_blocks = double((group_rows_of(a) + kRows - 1) / kRows);
  const double bytes = double(p.read_bytes()) * std::max(1.0, row_blocks * 0.6) + double(p.write_bytes());
  // One block draws 40 GB/s at most; what the last round of blocks leaves idle counts.
  const int64_t blocks = std::max<int64_t>(1, tasks_of(a) * t.size[0]), slots = 2 * int64_t(target().multiprocessors);
  const double rounds = double((blocks + slots - 1) / slots) * double(slots) / double(blocks);
  const double merge = t.size[0] > 1 ? 1500 + 20.0 * t.size[0] + c.launch_ns.one : 0;
  return bytes / c.read_gb_s[3].one * std::max(1.0, blocks < slots ? double(slots) / 2 / double(blocks) : rounds) +
         merge + 2500 + c.launch_ns.one;
}

Source source(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  Source source;
  source.file = "attention/decode.cu";
  source.entry = "attention_decode";
  source.more_entries = {"combine", "attention_any"};
  source.program = attention_half_text(p);
  source.defines = attention_half_defines();
  for (const std::string& define : {fmt::format("DEPTH={}", a.depth), fmt::format("VALUE_DEPTH={}", a.value_depth),
                                    fmt::format("STAGES={}", t.size[1]), fmt::format("WARPS={}", t.size[2]),
                                    fmt::format("PAST={}", int(a.past > 0))})
    source.defines.push_back(define);
  source.shared_bytes = shared_bytes(a, t);
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const auto& kernel = call.state_as<LoadedKernel>();
  AttentionArguments a = attention_arguments(p, &buffers);
  if (!a.aligned) return attention_any_launch(kernel.more[1], p, buffers, kAttentionAnyRows, stream);
  a.splits = call.tile.size[0];
  const int64_t tasks = tasks_of(a);
  a.attention_blocks = tasks * a.splits;
  const int threads = call.tile.size[2] * 32;
  std::vector<uint64_t> epilogue = attention_epilogue(p, buffers.inputs);
  void* parts = buffers.workspace;
  void* parameters[] = {&a, epilogue.data(), &parts};
  launch(kernel, {a.attention_blocks + attention_copy_blocks(a, threads)}, threads, stream, parameters);
  if (a.splits > 1) launch(kernel.more[0], {tasks * kRows / 4}, 128, stream, parameters, {.dependent = true});
}

constexpr Kernel make(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
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
