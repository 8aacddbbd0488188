// cuda.attention_wgmma: many queries, f16 and bf16, on sm_90a.
#include <algorithm>
#include <tuple>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma_source.h"

namespace ridgeline::cuda {
namespace {

using Rows = AttentionArguments::Rows;

// Heads as wide as the swizzled rows of 64 columns that hold them: copies fill up with zeros.
int wide(int depth) { return (depth + 63) / 64 * 64; }

// Tile: keys, warpgroups of 64 queries, buffers of K and V, buffers of Q, how the warpgroups work: 1 as it comes, 2 in
// turns, 3 and 4 the same with sums rescaled only where a largest score has grown.
int64_t shared_bytes(const AttentionArguments& a, const Tile& t) {
  const int64_t barriers = 16 * int64_t(t.size[3]) + 32 * int64_t(t.size[2]);
  return 64 * int64_t(t.size[1]) * t.size[3] * wide(a.depth) * 2 +
         int64_t(t.size[2]) * t.size[0] * (wide(a.depth) + wide(a.value_depth)) * 2 + barriers;
}

bool has_output(const Problem& p, int o) { return size_t(o) < p.outputs.size() && p.output(o).present(); }

Support supports(const Problem& p) {
  if (const std::string why = missing(Capability::kWgmma); !why.empty()) return no("{}", why);
  if (Support s = attention_half_support(p); !s.ok) return s;
  const AttentionArguments a = attention_arguments(p);
  for (const int depth : {a.depth, a.value_depth})
    if (depth % 8 || depth < 8 || depth > 256) return no("heads of {}: a multiple of 8 up to 256 is wanted", depth);
  if (p.has(3)) return no("a mask");
  if (a.softcap != 0 || a.left >= 0 || a.right >= 0 || a.has_lengths) return no("a cap, a window or lengths");
  if (!(a.scale > 0)) return no("a scale of {}: a positive one is wanted", a.scale);
  if (a.keys < 1) return no("no keys");
  if (a.past && !(has_output(p, 1) && has_output(p, 2))) return no("a cache that is not handed on");
  for (const Rows& rows : {a.q, a.k, a.v, a.present_k, a.present_v})
    if (!attention_in_words(rows)) return no("rows, heads or batches not a multiple of 8 elements apart");
  for (const auto& [rows, length, heads] :
       {std::tuple(a.q, a.queries, a.heads), std::tuple(a.k, a.keys, a.kv_heads), std::tuple(a.v, a.keys, a.kv_heads)})
    if ((rows.row == 0 && length > 1) || (rows.head == 0 && heads > 1) || (rows.batch == 0 && a.batch > 1))
      return no("repeated rows, heads or batches");
  if (int64_t(a.batch) * a.heads * ((a.queries + 63) / 64) >= int64_t(1) << 31) return no("too many rows");
  return yes();
}

// By what an H200 showed, TFLOP/s in bf16. Heads of 128, 16,384 keys: causal 176x2x2x1x2 662, 128x2x2x1x2 632; full
// 650, 639. 1,024 keys, causal: 128x2x2x2x2 448, 128x2x2x1x4 435. Heads of 64, 16,384 keys, causal: 208x2x2x2x4 478,
// 176x2x2x2x2 474, 128x2x2x1x2 440 (before one stream of tiles for all jobs; 176x2x2x1x2 493, 128x3x2x1x2 485 then).
std::vector<Tile> tiles(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  const int most = std::max(wide(a.depth), wide(a.value_depth));
  if (most > 128) return {Tile{{most > 192 ? 80 : 112, 2, 2, 1, 2}}};
  if (a.keys < 4096) return {Tile{{128, 2, 2, 2, 2}}};
  return {most == 64 ? Tile{{208, 2, 2, 2, 4}} : Tile{{176, 2, 2, 1, 2}}};
}

std::vector<Tile> sweep(const Problem& p) {
  const AttentionArguments a = attention_arguments(p);
  std::vector<Tile> list;
  for (const int keys : {64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224})
    for (const int groups : {2, 3})
      for (const int queries : {1, 2})
        for (const int way : {2, 4}) {
          const Tile t{{keys, groups, 2, queries, way}};
          // Beyond these the sums of a warpgroup do not fit its registers.
          const int registers = keys / 2 + keys / 4 + wide(a.value_depth) / 2;
          if (registers <= (groups == 2 ? 200 : 132) && shared_bytes(a, t) <= target().shared_bytes_per_block)
            list.push_back(t);
        }
  return list;
}

TileCheck check_tile(const Problem& p, const Tile& t) {
  TileCheck check;
  if (t.size[0] < 16 || t.size[0] > 256 || t.size[0] % 16 || t.size[1] < 2 || t.size[1] > 3)
    check.reason = "16 to 256 keys in steps of 16 and 2 or 3 warpgroups are wanted";
  else if (t.size[2] < 2 || t.size[2] > 4 || t.size[3] < 1 || t.size[3] > 2 || t.size[4] < 1 || t.size[4] > 4)
    check.reason = "2 to 4 buffers of K and V, 1 or 2 of Q and a way of 1 to 4 are wanted";
  check.bytes = shared_bytes(attention_arguments(p), t), check.limit = target().shared_bytes_per_block;
  check.unit = "16x1x1x1x1";
  return check;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const AttentionArguments a = attention_arguments(p);
  const int rows = 64 * t.size[1];
  const double padded = double((a.queries + rows - 1) / rows * rows) / std::max(1, a.queries) *
                        (double((a.keys + t.size[0] - 1) / t.size[0] * t.size[0]) / std::max(1, a.keys));
  const double filled = double(a.depth + a.value_depth) / (wide(a.depth) + wide(a.value_depth));
  const double share = filled * (a.depth <= 64 ? 0.58 : 0.8) * (a.queries < 4096 ? 0.7 : 1.0);
  const int64_t jobs = int64_t(a.batch) * a.heads * ((a.queries + rows - 1) / rows), sms = target().multiprocessors;
  const double idle = double((jobs + sms - 1) / sms * sms) / double(std::max<int64_t>(1, jobs));
  const double compute = attention_flops(p) * padded * (jobs < 4 * sms ? idle : 1.0) / (share * c.bf16.one);
  return std::max(compute, c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) + 3000 + c.launch_ns.one;
}

Source source(const Problem& p, const Tile& t) {
  const AttentionArguments a = attention_arguments(p);
  const DType dtype = p.input(0).dtype;
  Source source;
  source.file = "attention/wgmma.cu";
  source.entry = "attention_wgmma";
  source.more_entries = {"attention_any", "attention_copies"};
  source.program = attention_half_text(p) + wgmma_function(dtype, t.size[0], "score_product") +
                   wgmma_from_registers(dtype, wide(a.value_depth), "value_product");
  source.defines = attention_half_defines();
  constexpr int kProducer[] = {0, 0, 40, 32}, kConsumer[] = {0, 0, 232, 160};  // of 65536 registers
  for (const std::string& define :
       {fmt::format("DEPTH={}", wide(a.depth)), fmt::format("VALUE_DEPTH={}", wide(a.value_depth)),
        fmt::format("RAGGED={}", int(a.value_depth % 64 != 0)), fmt::format("KEYS={}", t.size[0]),
        fmt::format("GROUPS={}", t.size[1]), fmt::format("STAGES={}", t.size[2]),
        fmt::format("QUERY_STAGES={}", t.size[3]), fmt::format("TURNS={}", (t.size[4] - 1) & 1),
        fmt::format("LAZY={}", (t.size[4] - 1) >> 1), fmt::format("PRODUCER_REGISTERS={}", kProducer[t.size[1]]),
        fmt::format("CONSUMER_REGISTERS={}", kConsumer[t.size[1]])})
    source.defines.push_back(define);
  source.shared_bytes = shared_bytes(a, t);
  return source;
}

TensorMap map_of(DType dtype, uint64_t address, const Rows& rows, int depth, int length, int heads, int batch,
                 int box_rows) {
  const int64_t extents[] = {depth, length, heads, batch};
  // Of an extent of 1 the stride has no meaning, but it has to be one.
  const auto bytes = [](int64_t stride, int extent) { return extent > 1 ? stride * 2 : int64_t(16); };
  const int64_t strides[] = {bytes(rows.row, length), bytes(rows.head, heads), bytes(rows.batch, batch)};
  const int box[] = {64, box_rows, 1, 1};
  return tensor_map(dtype == DType::kBF16 ? MapType::kBF16 : MapType::kF16, 4, reinterpret_cast<void*>(address),
                    extents, strides, box, 128);
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const auto& kernel = call.state_as<LoadedKernel>();
  AttentionArguments a = attention_arguments(p, &buffers);
  const bool copied_k = a.present_k.column != 0, copied_v = a.present_v.column != 0;
  if (!a.aligned || (copied_k && a.present_k_address % 16) || (copied_v && a.present_v_address % 16))
    return attention_any_launch(kernel.more[0], p, buffers, kAttentionAnyRows, stream);
  if (a.batch == 0 || a.heads == 0) return;
  if (copied_k || copied_v) {
    void* copying[] = {&a};
    launch(kernel.more[1], {attention_copy_blocks(a, kAttentionAnyTile)}, kAttentionAnyTile, stream, copying);
  }
  const DType dtype = p.input(0).dtype;
  const Tile& t = call.tile;
  const TensorMap q = map_of(dtype, a.q_address, a.q, a.depth, a.queries, a.heads, a.batch, 64 * t.size[1]);
  const TensorMap k = map_of(dtype, copied_k ? a.present_k_address : a.k_address, copied_k ? a.present_k : a.k, a.depth,
                             a.keys, a.kv_heads, a.batch, t.size[0]);
  const TensorMap v = map_of(dtype, copied_v ? a.present_v_address : a.v_address, copied_v ? a.present_v : a.v,
                             a.value_depth, a.keys, a.kv_heads, a.batch, t.size[0]);
  std::vector<uint64_t> epilogue = attention_epilogue(p, buffers.inputs);
  void* parameters[] = {&a, epilogue.data(), const_cast<TensorMap*>(&q), const_cast<TensorMap*>(&k),
                        const_cast<TensorMap*>(&v)};
  const int rows = 64 * t.size[1];
  const int64_t jobs = int64_t(a.batch) * a.heads * ((a.queries + rows - 1) / rows);
  a.paired = a.causal && jobs > target().multiprocessors;
  launch(kernel, {std::min<int64_t>(jobs, target().multiprocessors)}, 128 * (t.size[1] + 1), stream, parameters);
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
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kAttentionWgmma = make("cuda.attention_wgmma", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionWgmma = make("cuda.standard_attention_wgmma", "Attention");

}  // namespace ridgeline::cuda
