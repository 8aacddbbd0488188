// cpu.attention_tiles: tiles of queries against blocks of keys by the contraction engine's innermost loops; scores live
// in L1, never as a whole (Dao et al., 2022; the running maximum and sum: Milakov and Gimelshein, 2018). Other types
// than f32 become f32 where blocks are packed.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/attention_shape.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/matmul/pack.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kMostTiles = 18;  // of a block of queries: 252 rows with AVX-512

constexpr int64_t kMostLines = 8;  // asked for at once, of each of four places: more would wait for buffers

constexpr int64_t up16(int64_t n) { return (n + 15) / 16 * 16; }

struct State {
  AttentionShape shape;
  EpiloguePass epilogue;
  // Rows of queries and keys a block, parts that one head's queries are cut into; the rest in floats.
  int64_t block_q = 0, block_k = 0, parts = 1, tile_rows = micro_kernels().max_rows;
  int64_t score_row = 0, q_row = 0, y_row = 0;  // q_row, y_row: of the copies, 0 if q or y are used where they are
  int64_t packed_k = 0, packed_v = 0, rows_floats = 0;
  int64_t blocks(int64_t keys) const { return (keys + block_k - 1) / block_k; }
  int64_t thread_floats() const {
    return packed_k + packed_v + rows_floats + tile_rows * score_row + block_q * (q_row + y_row + 2) + 32;
  }
};

State make_state(const Problem& p) {
  State s{.shape = attention_shape(p), .epilogue = EpiloguePass(p)};
  const AttentionShape& a = s.shape;
  // Scores of a tile (14 rows with AVX-512) in 29 KiB, beside what streams past them. Share of the roof with 12 heads
  // of 64, 512 by 512: 0.755 by six tiles at a time and their scores in L2, 0.81 to 0.85 so. Blocks of 256 keys lose 1
  // to 4 points.
  s.block_k = std::clamp<int64_t>(a.keys, 1, 512);
  s.score_row = up16(s.block_k) + 16;  // never a power of two: its lines would share cache sets
  const int64_t heads = a.batch * a.heads;
  // A block of keys is read by all tiles of a block of queries. Fewer of these where heads alone do not fill the
  // threads.
  s.block_q = s.tile_rows * (heads < 2 * p.threads ? 6 : kMostTiles);
  s.block_q = std::min(s.block_q, std::max<int64_t>(1, a.queries));
  // Rows a multiple of 4 KiB apart share cache sets: the engine would copy them, and want memory of its own for it.
  if (a.q_type != DType::kF32 || a.q.row % 1024 == 0) s.q_row = up16(a.depth) + 16;
  if (a.y_type != DType::kF32) s.y_row = up16(a.value_depth) + 16;
  for (int64_t first = 0; first < a.keys; first += s.block_k) {
    const int64_t keys = std::min(s.block_k, a.keys - first);
    s.packed_k += packed_b_floats(a.depth, keys);
    s.packed_v += packed_b_floats(keys, a.value_depth);
  }
  s.packed_k = up16(s.packed_k);
  s.packed_v = up16(s.packed_v);
  if (a.k_type != DType::kF32 || a.v_type != DType::kF32)
    s.rows_floats = up16(panel_width() * std::max(a.depth, a.value_depth));
  // A head to a thread; where there are fewer heads, its queries are split and each part packs the keys again.
  const int64_t most = (a.queries + s.block_q - 1) / std::max<int64_t>(1, s.block_q);
  if (heads > 0 && heads < 2 * p.threads)
    s.parts = std::clamp<int64_t>((2 * p.threads + heads - 1) / heads, 1, std::max<int64_t>(1, most));
  if (p.threads == 1) s.parts = 1;
  return s;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const AttentionShape a = attention_shape(p);
  // Causal: blocks of keys end where the block of queries sees no further; half a block is computed in vain.
  const double seen = a.causal && a.queries > 1 ? 0.6 : 1;
  // A tile of the engine has 14 rows of queries; fewer cost nearly the same.
  const double filled = std::min(1.0, double(std::max<int64_t>(1, a.queries)) / 14);
  const double products = a.flops() * seen / (0.85 * filled * c.f32.at(p.threads, c.cores));
  const double exponentials = c.special_ns(SpecialFunction::kExp, a.scores(), p.threads) * seen +
                              4.0 * double(a.scores()) * 2 * seen / c.read_gb_s[1].at(p.threads, c.cores);
  const double packing = 2 * c.stream_ns(p.input(1).bytes() + p.input(2).bytes(), 0, p.threads);
  return products + exponentials + packing + 2000;
}

int64_t workspace(const Problem& p, const Tile&) { return 4 * make_state(p).thread_floats() * p.threads; }
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) { return std::make_shared<State>(make_state(p)); }

// Rows that are wanted soon, brought into the second cache a few lines at a time.
class Ahead {
 public:
  void start(const void* first, int64_t stride, int64_t row_bytes, int64_t rows) {
    row_ = static_cast<const char*>(first), stride_ = stride, bytes_ = row_bytes, rows_ = row_bytes > 0 ? rows : 0,
    at_ = 0;
  }
  void some(int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += 64;
      if (at_ < bytes_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }
  int64_t lines() const { return (bytes_ + 63) / 64 * rows_; }

 private:
  const char* row_ = nullptr;
  int64_t stride_ = 0, bytes_ = 0, rows_ = 0, at_ = 0;
};

class Worker {
 public:
  Worker(const State& state, const Buffers& buffers, const KeysAndValues& all, int thread)
      : s_(state), a_(state.shape), b_(buffers), all_(all) {
    k_ = static_cast<float*>(buffers.workspace) + thread * (s_.thread_floats() / 16 * 16);
    v_ = k_ + s_.packed_k;
    wide_ = v_ + s_.packed_v;
    scores_ = wide_ + s_.rows_floats;
    q_ = scores_ + s_.tile_rows * s_.score_row;
    y_ = q_ + s_.block_q * s_.q_row;
    rows_ = reinterpret_cast<RowState*>(y_ + s_.block_q * s_.y_row);
  }

  void run(int64_t item, int64_t head, int64_t begin, int64_t end, int64_t next_item, int64_t next_source) {
    item_ = item, head_ = head;
    length_ = a_.length(b_, item);
    pack(a_.source(head));
    fetch_head(next_item, next_source, (end - begin + s_.tile_rows - 1) / s_.tile_rows * panels());
    const int64_t row_lines = (std::max(a_.depth, a_.value_depth) + 15) / 16;
    tile_lines_ = std::min(kMostLines, (s_.tile_rows * row_lines + panels() - 1) / panels());
    for (int64_t first = begin; first < end; first += s_.block_q)
      block(first, std::min(end, first + s_.block_q) - first);
  }

 private:
  // Panels of a tile of rows, in both products.
  int64_t panels() const {
    const int64_t width = panel_width();
    return std::max<int64_t>(1,
                             (keys_ + width - 1) / width + s_.blocks(keys_) * ((a_.value_depth + width - 1) / width));
  }
  int64_t keys_of(int64_t b) const { return std::min(s_.block_k, keys_ - b * s_.block_k); }
  float* packed_keys(int64_t b) const { return k_ + b * packed_b_floats(a_.depth, s_.block_k); }
  float* packed_values(int64_t b) const { return v_ + b * packed_b_floats(s_.block_k, a_.value_depth); }

  void pack(int64_t source) {
    if (item_ == packed_item_ && source == packed_source_)
      return;  // heads that share keys and values come one after the other
    packed_item_ = item_;
    packed_source_ = source;
    keys_ = a_.existing(length_);
    const int64_t k_bytes = bytes_of(a_.k_type, 1), v_bytes = bytes_of(a_.v_type, 1);
    const char *k = static_cast<const char*>(all_.k) + a_.k.at(item_, source, 0) * k_bytes,
               *v = static_cast<const char*>(all_.v) + a_.v.at(item_, source, 0) * v_bytes;
    const int64_t width = panel_width();
    for (int64_t b = 0; b < s_.blocks(keys_); ++b) {
      const int64_t first = b * s_.block_k, keys = keys_of(b);
      for (int64_t t = 0; t < keys; t += width) {
        const int64_t count = std::min(width, keys - t);
        const F32Rows from = rows(a_.k_type, k, a_.k.row, first + t, count, a_.depth);
        pack_panel(from.data, 1, from.row, a_.depth, count, packed_keys(b) + t * a_.depth, a_.scale);
      }
      // Whole panels at a time where nothing has to become f32; else some rows, as long as they lie in L1.
      const int64_t step = a_.v_type == DType::kF32 ? keys : width;
      for (int64_t t = 0; t < keys; t += step) {
        const int64_t count = std::min(step, keys - t);
        const F32Rows from = rows(a_.v_type, v, a_.v.row, first + t, count, a_.value_depth);
        for (int64_t j = 0; j < a_.value_depth; j += width)
          pack_panel(from.data + j, from.row, 1, count, std::min(width, a_.value_depth - j),
                     packed_values(b) + j * keys + t * width, 1.0f);
      }
    }
  }

  struct F32Rows {
    const float* data;
    int64_t row;
  };
  F32Rows rows(DType type, const char* data, int64_t row, int64_t first, int64_t count, int64_t depth) {
    const int64_t bytes = bytes_of(type, 1);
    data += first * row * bytes;
    if (type == DType::kF32) return {reinterpret_cast<const float*>(data), row};
    for (int64_t t = 0; t < count; ++t) to_f32(type, data + t * row * bytes, wide_ + t * depth, depth);
    return {wide_, depth};
  }

  void block(int64_t first, int64_t rows) {
    const int64_t q_bytes = bytes_of(a_.q_type, 1), y_bytes = bytes_of(a_.y_type, 1);
    const char* q = static_cast<const char*>(b_.inputs[0]) + a_.q.at(item_, head_, first) * q_bytes;
    char* out = static_cast<char*>(b_.outputs[0]) + a_.y.at(item_, head_, first) * y_bytes;
    MatrixA queries = {reinterpret_cast<const float*>(q), a_.q.row};
    if (s_.q_row) {
      queries = {q_, s_.q_row};
      for (int64_t r = 0; r < rows; ++r) to_f32(a_.q_type, q + r * a_.q.row * q_bytes, q_ + r * s_.q_row, a_.depth);
    }
    float* y = s_.y_row ? y_ : reinterpret_cast<float*>(out);
    const int64_t y_row = s_.y_row ? s_.y_row : a_.y.row;
    for (int64_t r = 0; r < rows; ++r) rows_[r] = {-HUGE_VALF, 0};
    // Nearly equal tiles of rows; each takes a block of keys from its scores to its sums while they are in L1.
    const int64_t tiles = (rows + s_.tile_rows - 1) / s_.tile_rows;
    std::fill(started_, started_ + tiles, false);
    for (int64_t b = 0; b < s_.blocks(keys_); ++b) {
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t from = rows * t / tiles, to = rows * (t + 1) / tiles;
        const int64_t next = t + 1 < tiles ? rows * (t + 2) / tiles - to : 0;
        if (!s_.q_row) next_q_.start(queries.data + to * queries.row_stride, a_.q.row * 4, a_.depth * 4, next);
        if (!s_.y_row) next_y_.start(y + to * y_row, y_row * 4, a_.value_depth * 4, next);
        const MatrixA some = {queries.data + from * queries.row_stride, queries.row_stride};
        if (attend(b, some, first + from, to - from, rows_ + from, y + from * y_row, y_row, started_[t]))
          started_[t] = true;
      }
    }
    for (int64_t t = 0; t < tiles; ++t) {
      for (int64_t r = rows * t / tiles; r < rows * (t + 1) / tiles; ++r) {
        float* row = y + r * y_row;
        if (started_[t] && rows_[r].sum != 0)
          scale_row(row, a_.value_depth, 1.0f / rows_[r].sum);
        else
          std::fill(row, row + a_.value_depth, a_.no_key());
        if (s_.y_row) from_f32(row, a_.y_type, out + r * a_.y.row * y_bytes, a_.value_depth);
      }
    }
  }

  // A tile of queries against block b of the keys; false if none of them sees any of it.
  bool attend(int64_t b, const MatrixA& queries, int64_t first, int64_t rows, RowState* states, float* y, int64_t y_row,
              bool started) {
    AttentionShape::Range all = {keys_, 0};
    for (int64_t r = 0; r < rows; ++r) {
      const AttentionShape::Range seen = a_.seen(first + r, length_);
      if (seen.begin < seen.end) all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
    }
    const int64_t at = b * s_.block_k, whole = keys_of(b), keys = std::min(whole, all.end - at);
    if (keys <= 0 || at + keys <= all.begin) return false;
    score(b, queries, first, rows, keys);
    for (int64_t r = 0; r < rows; ++r) {
      const float factor = weigh(scores_ + r * s_.score_row, first + r, at, keys, states + r);
      if (started && factor != 1) scale_row(y + r * y_row, a_.value_depth, factor);
    }
    add_values(b, rows, keys, whole, y, y_row, started);
    return true;
  }

  // A product of one tile of rows: `panels` of B, packed, one after the other.
  void product(const MatrixA& a, int64_t rows, int64_t length, const float* panels, int64_t panel_stride, int64_t cols,
               float* c, int64_t c_row, const float* add, int64_t add_row) {
    const int64_t width = panel_width();
    MicroTile tile{};
    static constexpr float kNothing = 0;  // operands without elements may have no address
    tile.a = length > 0 ? a.data : &kNothing, tile.a_row = length > 0 ? a.row_stride : 0;
    tile.length = length;
    tile.b_row = width;
    tile.c_row = c_row, tile.add_row = add_row;
    tile.alpha = 1;
    tile.b = panels;
    for (int64_t j = 0; j < cols; j += width, tile.b += panel_stride) {
      const int64_t some = std::min(width, cols - j);
      const int vectors = some > kernels_.lanes ? 2 : 1;
      tile.c = c + j;
      tile.add = add ? add + j : nullptr;
      tile.cols = int(some);
      tile.ahead = tile.b;
      (some == width ? kernels_.lone[rows] : kernels_.tile[rows][vectors][some != vectors * kernels_.lanes])(tile);
      fetch();
    }
  }

  void score(int64_t b, const MatrixA& queries, int64_t first, int64_t rows, int64_t keys) {
    const float* mask = nullptr;
    if (a_.plain_mask())
      mask = static_cast<const float*>(b_.inputs[3]) + a_.mask.at(item_, head_, first) + b * s_.block_k * a_.mask_col;
    product(queries, rows, a_.depth, packed_keys(b), a_.depth * panel_width(), keys, scores_, s_.score_row, mask,
            a_.mask.row);
  }

  // What of a row's scores its query sees becomes weights.
  float weigh(float* scores, int64_t query, int64_t at, int64_t keys, RowState* state) {
    const AttentionShape::Range seen = a_.seen(query, length_);
    if (a_.softcap != 0) cap_scores(scores, keys, a_.softcap);
    if (const int64_t masked = std::min(keys, a_.mask_keys - at); a_.has_mask() && !a_.plain_mask() && masked > 0) {
      const int64_t first = a_.mask.at(item_, head_, query) + at * a_.mask_col;
      add_mask(scores, masked, a_.mask_type, static_cast<const char*>(b_.inputs[3]) + first * bytes_of(a_.mask_type, 1),
               a_.mask_col);
    }
    return softmax_block(scores, seen.begin - at, seen.end - at, keys, state);
  }

  // The packed form has room for all keys of the block, `keys` of which anybody sees.
  void add_values(int64_t b, int64_t rows, int64_t keys, int64_t whole, float* y, int64_t y_row, bool adds) {
    product({scores_, s_.score_row}, rows, keys, packed_values(b), whole * panel_width(), a_.value_depth, y, y_row,
            adds ? y : nullptr, y_row);
  }

  // From keys and values in DRAM 0.92 of the roof, 0.86 without (32 heads of 128, 8 of them with keys).
  void fetch_head(int64_t item, int64_t source, int64_t calls) {
    constexpr int64_t kMostBytes = 512 << 10;  // beside this head's packed keys and values in L2
    const int64_t k_row = bytes_of(a_.k_type, a_.depth), v_row = bytes_of(a_.v_type, a_.value_depth);
    head_lines_ = 0;
    if (item < 0 || (item == packed_item_ && source == packed_source_) || a_.keys * (k_row + v_row) > kMostBytes)
      return;
    next_k_.start(static_cast<const char*>(all_.k) + bytes_of(a_.k_type, a_.k.at(item, source, 0)),
                  bytes_of(a_.k_type, a_.k.row), k_row, a_.keys);
    next_v_.start(static_cast<const char*>(all_.v) + bytes_of(a_.v_type, a_.v.at(item, source, 0)),
                  bytes_of(a_.v_type, a_.v.row), v_row, a_.keys);
    head_lines_ = std::min(kMostLines, (std::max(next_k_.lines(), next_v_.lines()) + calls - 1) / calls);
  }

  // Between two panels of a product what comes next is asked for, a few lines at a time.
  void fetch() {
    next_q_.some(tile_lines_);
    next_y_.some(tile_lines_);
    next_k_.some(head_lines_);
    next_v_.some(head_lines_);
  }

  const State& s_;
  const AttentionShape& a_;
  const Buffers& b_;
  const KeysAndValues& all_;
  float *k_, *v_, *wide_, *scores_, *q_, *y_;
  RowState* rows_;
  const MicroKernels& kernels_ = micro_kernels();
  bool started_[kMostTiles];
  int64_t item_ = 0, head_ = 0, length_ = 0, keys_ = 0;
  Ahead next_q_, next_y_, next_k_, next_v_;
  int64_t tile_lines_ = 0, head_lines_ = 0;
  int64_t packed_item_ = -1, packed_source_ = -1;
};

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const AttentionShape& a = s.shape;
  const KeysAndValues all = attention_operands(a, buffers, pool);
  if (a.queries == 0 || a.value_depth == 0) return;
  const int64_t blocks = (a.queries + s.block_q - 1) / s.block_q;
  parallel(pool, a.batch * a.heads * s.parts, 1, [&](int64_t begin, int64_t end, int thread) {
    Worker worker(s, buffers, all, thread);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % s.parts, head = task / s.parts % a.heads, item = task / s.parts / a.heads;
      const int64_t from = blocks * part / s.parts * s.block_q,
                    to = std::min(a.queries, blocks * (part + 1) / s.parts * s.block_q);
      const bool more = task + 1 < end;
      const int64_t next = more ? (task + 1) / s.parts : 0;
      if (from < to) worker.run(item, head, from, to, more ? next / a.heads : -1, more ? a.source(next % a.heads) : -1);
    }
  });
  s.epilogue.run(buffers, pool);
}

constexpr Kernel make(const char* name, const char* op) {
  return {.name = name,
          .op = op,
          .supports = attention_support,
          .estimate = estimate,
          .workspace = workspace,
          .prepare = prepare,
          .run = run,
          .version = 2};
}

}  // namespace

constinit const Kernel kAttentionTilesKernel = make("cpu.attention_tiles", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionTilesKernel = make("cpu.standard_attention_tiles", "Attention");

}  // namespace ridgeline::cpu
