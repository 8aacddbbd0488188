// cpu.low_bit: LowBitMatMul. Weights are packed ahead; with act = i8 by integer dot products, else
// levels become f32 on their way to the multiply-adds.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_gemm.h"
#include "kernels/cpu/matmul/dot/dot_rows.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/matmul/low/low_amx.h"
#include "kernels/cpu/matmul/low/low_epilogue.h"
#include "kernels/cpu/matmul/low/low_groups.h"
#include "kernels/cpu/matmul/low/low_tiles.h"
#include "kernels/cpu/matmul/low/low_weights.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

constexpr int kTileRows = 32;
// Of the levels that are to stand side by side: an odd number of lines, which do not meet in one set of the first
// cache.
int64_t packed_pitch(const LowShape& s) { return (round_up(s.k, 64) / 64 | 1) * 64; }

struct LowProduct {
  LowShape shape;
  LowDotKernels dot;
  bool amx = false;
  bool few = false;  // low_few_tile
  int packed = 0;    // rows of a tile whose rows stand together; 0: a pitch apart
  LowEpilogue epilogue;
  // Workspace: activations of all rows, then each thread's own.
  int64_t a_pitch = 0;                                                  // bytes of a row of levels, or of f32
  int64_t levels = 0, scale = 0, weighted = 0, start = 0, threads = 0;  // offsets
  int64_t scales_bytes = 0, widened_bytes = 0, unpacked_bytes = 0, work_bytes = 0, thread_bytes = 0;  // of a thread
};

LowProduct low_product(const Problem& p) {
  LowProduct l;
  LowShape& s = l.shape = low_shape(p);
  if (!s.refusal.empty()) return l;
  l.epilogue = low_epilogue(p);
  s.refusal = l.epilogue.refusal;
  if (p.string("act") == "bf16") s.refusal = "activations are rounded to bf16";
  if (s.quantize) {
    l.dot = low_dot_kernels();
    l.amx = low_amx_suits(s);
    l.packed = l.amx ? 0 : low_packed_rows(s.m, s.chunks);
    l.few = l.dot.few && !l.amx && !l.packed;
  }
  const int64_t rows = round_up(s.m, l.packed ? l.packed : 16), per_chunk = round_up(rows * s.chunks * 4, 64);
  l.a_pitch = l.amx                ? round_up(s.k, 64)
              : s.quantize         ? (round_up(s.k, 64) / 64 | 1) * 64
              : s.a == DType::kF32 ? s.k * 4
                                   : round_up(s.k * 4, 64);
  l.levels = 0;
  const bool copies = s.quantize || s.a != DType::kF32;
  int64_t at = copies ? round_up(rows * l.a_pitch, 64) : 0;
  if (s.quantize) {
    l.scale = at, l.weighted = at + per_chunk, l.start = at + 2 * per_chunk;
    at += 3 * per_chunk;
  }
  l.threads = at;
  l.scales_bytes = s.bits == 16 ? 0 : round_up(s.chunks * kLowColumns * 4, 64);
  const int64_t apart = l.packed ? l.packed * packed_pitch(s) : round_up(s.k, 64);
  l.widened_bytes = s.quantize ? round_up(s.k * 4, 64) + apart + 3 * round_up(s.chunks * 4, 64) : 0;
  l.unpacked_bytes = l.packed && s.bits == 4 ? s.k * kLowColumns : 0;
  l.work_bytes = l.amx ? low_amx_bytes(s) : kTileRows * kLowColumns * 4 + l.unpacked_bytes;
  l.thread_bytes = (l.few ? 4 : 2) * l.scales_bytes + l.widened_bytes + l.work_bytes;
  return l;
}

Support supports(const Problem& p) {
  const LowProduct l = low_product(p);
  return l.shape.refusal.empty() ? yes() : no("{}", l.shape.refusal);
}

int64_t workspace(const Problem& p, const Tile&) {
  const LowProduct l = low_product(p);
  return l.threads + std::max(1, p.threads) * l.thread_bytes;
}

Packing packing(const Problem& p, const Tile&, int input) {
  if (input < 1 || input >= p.op_inputs || !p.has(input)) return {};
  const LowShape s = low_shape(p);
  return {fmt::format("low {} bits={} k={} n={}", p.op->inputs[input].name, s.bits, s.k, s.n),
          low_packed_bytes(p, input)};
}
void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  low_pack(p, input, source, packed);
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  return std::make_shared<const LowProduct>(low_product(p));
}

int kind_of(DType t) { return t == DType::kF32 ? 0 : t == DType::kF16 ? 1 : 2; }

class Run {
 public:
  Run(const KernelCall& call, const Buffers& buffers)
      : p_(call.problem),
        l_(call.state_as<LowProduct>()),
        s_(l_.shape),
        buffers_(buffers),
        workspace_(static_cast<char*>(buffers.workspace)),
        stream_(s_.m > 1 && dot_streams(buffers.outputs[0], s_.m, s_.n * info(s_.y).bits / 8)) {}

  void activations(int64_t begin, int64_t end, int thread) const {
    if (l_.packed) {
      for (int64_t tile = begin; tile < end; ++tile)
        pack_rows(tile * l_.packed, std::min(s_.m, (tile + 1) * l_.packed),
                  own(thread) + (l_.few ? 4 : 2) * l_.scales_bytes);
      return;
    }
    const int64_t bytes = info(s_.a).bits / 8;
    for (int64_t r = begin; r < end; ++r) {
      const char* from = static_cast<const char*>(buffers_.inputs[0]) + r * s_.k * bytes;
      if (!s_.quantize) {
        low_widen(from, s_.k, kind_of(s_.a), reinterpret_cast<float*>(workspace_ + l_.levels + r * l_.a_pitch));
        continue;
      }
      const float* row = reinterpret_cast<const float*>(from);
      char* wide = own(thread) + (l_.few ? 4 : 2) * l_.scales_bytes;
      if (s_.a != DType::kF32) {
        low_widen(from, s_.k, kind_of(s_.a), reinterpret_cast<float*>(wide));
        row = reinterpret_cast<const float*>(wide);
      }
      int8_t* apart = reinterpret_cast<int8_t*>(wide + round_up(s_.k * 4, 64));
      low_quantize(row, s_.k, s_.act_block, s_.chunk, s_.offset, l_.amx ? apart : levels(r), chunks<float>(l_.scale, r),
                   chunks<float>(l_.weighted, r), chunks<int32_t>(l_.start, r));
      if (l_.amx)  // into tiles of 16 rows by 64
        dot_scatter_row(reinterpret_cast<const uint8_t*>(apart), l_.a_pitch / 64,
                        reinterpret_cast<uint8_t*>(levels(r / 16 * 16) + r % 16 * 64));
    }
  }

  void panels(int64_t begin, int64_t end, int thread) const {
    if (l_.few) return few_panels(begin, end, thread);
    if (s_.bits == 16 && s_.m <= kLowPairRows) return pairs_f32(begin, end, thread);
    char* mine = own(thread);
    float *scale = reinterpret_cast<float*>(mine), *low = reinterpret_cast<float*>(mine + l_.scales_bytes);
    float* sums = reinterpret_cast<float*>(mine + l_.thread_bytes - l_.work_bytes);
    if (l_.amx) low_groups_enter(s_.chunk);
    // A block of rows stays in the second cache while all panels pass by.
    const int64_t most = l_.packed ? l_.packed : s_.quantize ? l_.dot.rows : s_.bits == 16 ? kLowRows16 : kLowRows;
    const int64_t room =
        std::max<int64_t>(1, this_cpu().caches.l2 * 9 / 16 / std::max<int64_t>(1, l_.a_pitch) / most) * most;
    const int64_t passes = (s_.m + room - 1) / room;  // as equal as can be
    const int64_t fit = l_.amx ? low_amx_rows(s_) : round_up((s_.m + passes - 1) / passes, most);
    for (int64_t first = 0; first < s_.m; first += fit) {
      const int64_t last = std::min(s_.m, first + fit), tiles = (last - first + most - 1) / most;
      for (int64_t panel = begin; panel < end; ++panel) {
        const uint8_t* w = static_cast<const uint8_t*>(buffers_.inputs[1]) + panel * s_.panel_bytes();
        if (s_.bits != 16) low_scales(sources(panel), scale, s_.subtracts() ? low : nullptr);
        if (panel + 1 < end && !l_.packed) fetch_scales(panel + 1);
        const LowScales scales{scale, s_.subtracts() ? low : nullptr};
        if (l_.amx) {
          const int rows = int(last - first);
          low_amx_panel(
              s_, {levels(first), chunks<float>(l_.scale, first), chunks<float>(l_.weighted, first),
                   chunks<int32_t>(l_.start, first), rows, w, scales, panel + 1 < end, reinterpret_cast<char*>(sums)});
          for (int row = 0; row < rows; row += kTileRows)
            finish(panel, first + row, std::min(kTileRows, rows - row), sums + row * kLowColumns);
          continue;
        }
        if (l_.packed) {
          packed_rows(panel, panel + 1 < end, scales, first, last, sums);
          continue;
        }
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t at = first + (last - first) * t / tiles, to = first + (last - first) * (t + 1) / tiles;
          s_.quantize ? dot_tile(w, scales, at, int(to - at), sums) : f32_tile(w, scales, at, int(to - at), sums);
          finish(panel, at, int(to - at), sums);
        }
      }
    }
    if (l_.amx) low_groups_leave();
    if (stream_) end_stores();
  }

 private:
  char* own(int thread) const { return workspace_ + l_.threads + thread * l_.thread_bytes; }
  int8_t* levels(int64_t row) const { return reinterpret_cast<int8_t*>(workspace_ + l_.levels + row * l_.a_pitch); }
  template <typename T>
  T* chunks(int64_t offset, int64_t row) const {
    return reinterpret_cast<T*>(workspace_ + offset) + row * s_.chunks;
  }

  // A tile's rows, quantized, side by side: fours of levels and numbers of chunks `packed` apart.
  void pack_rows(int64_t first, int64_t end, char* mine) const {
    const int64_t rows = l_.packed, bytes = info(s_.a).bits / 8, pitch = packed_pitch(s_);
    int8_t* apart = reinterpret_cast<int8_t*>(mine + round_up(s_.k * 4, 64));
    const int64_t line = round_up(s_.chunks * 4, 64) / 4;
    float *scale = reinterpret_cast<float*>(apart + rows * pitch), *weighted = scale + line;
    int32_t* start = reinterpret_cast<int32_t*>(weighted + line);
    for (int64_t r = first; r < end; ++r) {
      const char* from = static_cast<const char*>(buffers_.inputs[0]) + r * s_.k * bytes;
      const float* row = reinterpret_cast<const float*>(from);
      if (s_.a != DType::kF32) {
        low_widen(from, s_.k, kind_of(s_.a), reinterpret_cast<float*>(mine));
        row = reinterpret_cast<const float*>(mine);
      }
      const int64_t at = r - first;
      low_quantize(row, s_.k, s_.act_block, s_.chunk, s_.offset, apart + at * pitch, scale, weighted, start);
      for (int64_t c = 0; c < s_.chunks; ++c) {
        chunks<float>(l_.scale, first)[c * rows + at] = scale[c];
        chunks<float>(l_.weighted, first)[c * rows + at] = weighted[c];
        chunks<int32_t>(l_.start, first)[c * rows + at] = start[c];
      }
    }
    low_interleave(apart, pitch, rows, s_.k, levels(first));
  }

  // Two panels of the thread's part side by side, the first and the one in its middle.
  void few_panels(int64_t begin, int64_t end, int thread) const {
    char* mine = own(thread);
    float* sums = reinterpret_cast<float*>(mine + l_.thread_bytes - l_.work_bytes);
    const int rows = int(s_.m), together = rows <= kLowFewPairs ? 2 : 1;
    const int64_t steps = (end - begin + together - 1) / together;
    LowFewTile t;
    t.a = levels(0);
    t.a_pitch = l_.a_pitch;
    t.scale = chunks<float>(l_.scale, 0);
    t.weighted = chunks<float>(l_.weighted, 0);
    t.start = chunks<int32_t>(l_.start, 0);
    t.chunk_pitch = t.chunks = s_.chunks;
    t.one_scale = s_.act_block == s_.k;
    t.chunk = s_.chunk;
    t.bits = s_.bits;
    for (int64_t i = 0; i < steps; ++i) {
      for (int j = 0; j < together; ++j) {
        const int64_t panel = begin + i + j * steps;
        LowFewTile::Panel& p = t.panels[j];
        if (panel >= end) {
          p = t.panels[0];
        } else {
          place_scales(panel, reinterpret_cast<float*>(mine + 2 * j * l_.scales_bytes), t, p);
          p.w = static_cast<const uint8_t*>(buffers_.inputs[1]) + panel * s_.panel_bytes();
        }
        p.sums = sums + j * (kTileRows / 2) * kLowColumns;
      }
      low_few_tile(t, rows);
      for (int j = 0; j < together && begin + i + j * steps < end; ++j)
        finish(begin + i + j * steps, 0, rows, t.panels[j].sums);
    }
  }

  // A panel's scales: as they are stored in the common forms, else as f32 in `own`.
  void place_scales(int64_t panel, float* own, LowFewTile& t, LowFewTile::Panel& p) const {
    const LowSources from = sources(panel);
    t.form = low_form(from);
    t.within = from.groups / from.super_groups;
    p.scale = from.scale, p.low = from.min, p.super_scale = from.super_scale, p.super_low = from.super_min;
    if (t.form != LowScaleForm::kConverted) return;
    float* low = s_.subtracts() ? own + l_.scales_bytes / 4 : nullptr;
    low_scales(from, own, low);
    p.scale = own, p.low = low;
    t.form = low ? LowScaleForm::kF32Low : LowScaleForm::kF32;
  }

  // The same of 16-bit weights.
  void pairs_f32(int64_t begin, int64_t end, int thread) const {
    float* sums = reinterpret_cast<float*>(own(thread) + l_.thread_bytes - l_.work_bytes);
    float* more = sums + kTileRows / 2 * kLowColumns;
    const int rows = int(s_.m);
    const int64_t half = (end - begin) / 2;
    const uint8_t* w = static_cast<const uint8_t*>(buffers_.inputs[1]);
    for (int64_t panel = begin; panel < begin + half; ++panel) {
      low_pair_f32(f32_tile_of(w + panel * s_.panel_bytes(), {}, 0, sums),
                   f32_tile_of(w + (panel + half) * s_.panel_bytes(), {}, 0, more), rows);
      finish(panel, 0, rows, sums);
      finish(panel + half, 0, rows, more);
    }
    if (begin + 2 * half == end) return;
    f32_tile(w + (end - 1) * s_.panel_bytes(), {}, 0, rows, sums);
    finish(end - 1, 0, rows, sums);
  }

  void packed_rows(int64_t panel, bool more, const LowScales& scales, int64_t first, int64_t last, float* sums) const {
    const uint8_t* w = static_cast<const uint8_t*>(buffers_.inputs[1]) + panel * s_.panel_bytes();
    const int64_t rows = l_.packed, tiles = (last - first + rows - 1) / rows, lines = s_.bits * 2;  // of 32 of k
    LowPackedTile t;
    t.scales = scales;
    t.one_scale = s_.act_block == s_.k;
    t.chunks = s_.chunks;
    t.chunk = s_.chunk;
    t.w = w;
    t.sums = sums;
    // The last tiles fetch the next panel, its scales first: of what the first ones fetched a third was gone when it
    // was wanted (rows for half of the second cache had passed by).
    const int64_t each = more && s_.chunk % 32 == 0 ? (lines + tiles - 1) / tiles : 0;
    const int64_t from = tiles - (each ? (lines + each - 1) / each : 0);
    if (l_.unpacked_bytes) {  // some 2 % of the time for 512 rows, a sixth for 7
      int8_t* levels = reinterpret_cast<int8_t*>(sums + kTileRows * kLowColumns);
      low_signed_levels(w, s_.k, 4, 0, levels);
      t.w = reinterpret_cast<const uint8_t*>(levels);
    }
    for (int64_t row = first, i = 0; row < last; row += rows, ++i) {
      t.a = levels(row);
      t.scale = chunks<float>(l_.scale, row);
      t.weighted = chunks<float>(l_.weighted, row);
      t.start = chunks<int32_t>(l_.start, row);
      if (more && i == std::max<int64_t>(0, from - 1)) fetch_scales(panel + 1);
      t.next_lines = i >= from ? int(each) : 0;
      t.next = w + s_.panel_bytes() + (i - from) * s_.k / 32 * each * 64;
      low_packed_tile(t, int(rows));
      finish(panel, row, int(std::min(rows, last - row)), sums);
    }
  }

  // The next panel's scales come into the second cache while this one is used: read on demand they cost DRAM's latency.
  void fetch_scales(int64_t panel) const {
    for (int input = 2; input < p_.op_inputs; ++input) {
      if (!p_.has(input)) continue;
      const int64_t bytes = p_.input(input).shape()[1] * kLowColumns * info(p_.input(input).dtype).bits / 8;
      const char* at = static_cast<const char*>(buffers_.inputs[input]) + panel * bytes;
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
    }
  }

  LowSources sources(int64_t panel) const {
    LowSources from;
    const auto place = [&](int input, int* bytes, int64_t* groups) -> const void* {
      if (!p_.has(input)) return nullptr;
      const int64_t size = info(p_.input(input).dtype).bits / 8, count = p_.input(input).shape()[1];
      if (bytes) *bytes = int(size);
      if (groups) *groups = count;
      return static_cast<const char*>(buffers_.inputs[input]) + panel * count * kLowColumns * size;
    };
    from.scale = place(2, &from.scale_bytes, &from.groups);
    from.zero = place(3, nullptr, nullptr);
    from.min = place(4, &from.min_bytes, nullptr);
    from.super_scale = place(5, &from.super_scale_bytes, &from.super_groups);
    from.super_min = place(6, &from.super_min_bytes, &from.super_min_groups);
    from.repeat = s_.group / s_.chunk;
    return from;
  }

  void dot_tile(const uint8_t* w, const LowScales& scales, int64_t row, int rows, float* sums) const {
    LowDotTile t;
    t.a = levels(row);
    t.a_pitch = l_.a_pitch;
    t.scale = chunks<float>(l_.scale, row);
    t.weighted = chunks<float>(l_.weighted, row);
    t.start = chunks<int32_t>(l_.start, row);
    t.chunk_pitch = s_.chunks;
    t.one_scale = s_.act_block == s_.k;
    t.w = w;
    t.scales = scales;
    t.chunks = s_.chunks;
    t.chunk = s_.chunk;
    t.bits = s_.bits;
    t.sums = sums;
    l_.dot.tile(t, rows);
  }

  void f32_tile(const uint8_t* w, const LowScales& scales, int64_t row, int rows, float* sums) const {
    low_tile_f32(f32_tile_of(w, scales, row, sums), rows);
  }
  LowTile f32_tile_of(const uint8_t* w, const LowScales& scales, int64_t row, float* sums) const {
    LowTile t;
    const char* a = s_.a == DType::kF32 ? static_cast<const char*>(buffers_.inputs[0]) : workspace_ + l_.levels;
    t.a = reinterpret_cast<const float*>(a + row * l_.a_pitch);
    t.a_pitch = l_.a_pitch / 4;
    t.w = w;
    t.scales = scales;
    t.chunks = s_.chunks;
    t.chunk = s_.chunk;
    t.bits = s_.bits;
    t.kind = kind_of(s_.q);
    t.offset = s_.offset;
    t.sums = sums;
    return t;
  }

  void finish(int64_t panel, int64_t row, int rows, float* sums) const {
    const int64_t col = panel * kLowColumns;
    low_finish(l_.epilogue, buffers_, row, col, rows, int(std::min<int64_t>(kLowColumns, s_.n - col)), sums, stream_);
  }

  const Problem& p_;
  const LowProduct& l_;
  const LowShape& s_;
  const Buffers& buffers_;
  char* workspace_;
  bool stream_;
};

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& given) {
  const LowShape& s = call.state_as<LowProduct>().shape;
  if (s.m == 0 || s.n == 0) return;
  const ThreadPool pool = given.at_most(call.problem.threads);
  const Run work(call, buffers);
  if (s.quantize || s.a != DType::kF32) {
    const auto body = [&work](int64_t begin, int64_t end, int thread) { work.activations(begin, end, thread); };
    const int64_t rows = std::max(1, call.state_as<LowProduct>().packed);  // at a time
    pool.run((s.m + rows - 1) / rows, std::max<int64_t>(1, 16384 / s.k / rows), body);
  }
  const auto body = [&work](int64_t begin, int64_t end, int thread) { work.panels(begin, end, thread); };
  const int64_t threads = pool.threads();
  pool.run(s.panels(), std::max<int64_t>(1, (s.panels() + threads - 1) / threads), body);
}

}  // namespace

constinit const Kernel kLowBit = {.name = "cpu.low_bit",
                                  .op = "LowBitMatMul",
                                  .supports = supports,
                                  .estimate = low_estimate,
                                  .workspace = workspace,
                                  .packing = packing,
                                  .pack = pack,
                                  .prepare = prepare,
                                  .run = run,
                                  .version = 5};

}  // namespace ridgeline::cpu
