// cpu.attention_tiles: blocks of queries against blocks of keys on the contraction engine; scores live in L2, never as
// a whole (Dao et al., 2022; the running maximum and sum: Milakov and Gimelshein, 2018). Other types than f32 become
// f32 where blocks are packed.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/attention_shape.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/pack.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t up16(int64_t n) { return (n + 15) / 16 * 16; }

struct State {
  AttentionShape shape;
  EpiloguePass epilogue;
  // Rows of queries and keys a block, parts that one head's queries are cut into; the rest in floats.
  int64_t block_q = 0, block_k = 0, parts = 1;
  int64_t score_row = 0, q_row = 0, y_row = 0;  // q_row, y_row: of the copies, 0 if q or y are used where they are
  int64_t packed_k = 0, packed_v = 0, rows_floats = 0;
  int64_t blocks(int64_t keys) const { return (keys + block_k - 1) / block_k; }
  int64_t thread_floats() const {
    return packed_k + packed_v + rows_floats + block_q * (score_row + q_row + y_row + 2) + 32;
  }
};

State make_state(const Problem& p) {
  State s{.shape = attention_shape(p), .epilogue = EpiloguePass(p)};
  const AttentionShape& a = s.shape;
  // Scores take at most 256 KiB of L2, beside the head's keys and values; keys in one block where they fit, for then
  // nothing is rescaled. 84 rows are whole tiles of the engine (14 rows with AVX-512, 6 with AVX2).
  s.block_k = a.keys <= 1024 ? std::max<int64_t>(1, a.keys) : 512;
  s.score_row = up16(s.block_k) + 16;  // never a power of two: its lines would share cache sets
  s.block_q = std::clamp<int64_t>((64 << 10) / s.score_row / 84 * 84, 84, 252);
  if (a.causal) s.block_q = 28;  // less is computed in vain along the diagonal: 5 % of 512 by 512 against 84 rows
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
  const int64_t heads = a.batch * a.heads, most = (a.queries + s.block_q - 1) / std::max<int64_t>(1, s.block_q);
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

class Worker {
 public:
  Worker(const State& state, const Buffers& buffers, const KeysAndValues& all, int thread)
      : s_(state), a_(state.shape), b_(buffers), all_(all) {
    k_ = static_cast<float*>(buffers.workspace) + thread * (s_.thread_floats() / 16 * 16);
    v_ = k_ + s_.packed_k;
    wide_ = v_ + s_.packed_v;
    scores_ = wide_ + s_.rows_floats;
    q_ = scores_ + s_.block_q * s_.score_row;
    y_ = q_ + s_.block_q * s_.q_row;
    rows_ = reinterpret_cast<RowState*>(y_ + s_.block_q * s_.y_row);
  }

  void run(int64_t item, int64_t head, int64_t begin, int64_t end) {
    item_ = item, head_ = head;
    length_ = a_.length(b_, item);
    pack(a_.source(head));
    for (int64_t first = begin; first < end; first += s_.block_q)
      block(first, std::min(end, first + s_.block_q) - first);
  }

 private:
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
    AttentionShape::Range all = {keys_, 0};
    for (int64_t r = 0; r < rows; ++r) {
      rows_[r] = {-HUGE_VALF, 0};
      const AttentionShape::Range seen = a_.seen(first + r, length_);
      if (seen.begin < seen.end) all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
    }
    bool started = false;
    for (int64_t b = 0; b < s_.blocks(keys_); ++b) {
      const int64_t at = b * s_.block_k, whole = keys_of(b), keys = std::min(whole, all.end - at);
      if (keys <= 0 || at + keys <= all.begin) continue;
      score(b, queries, first, rows, keys);
      for (int64_t r = 0; r < rows; ++r) {
        const float factor = weigh(r, first + r, at, keys);
        if (started && factor != 1) scale_row(y + r * y_row, a_.value_depth, factor);
      }
      add_values(b, rows, keys, whole, y, y_row, started);
      started = true;
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* row = y + r * y_row;
      if (started && rows_[r].sum != 0)
        scale_row(row, a_.value_depth, 1.0f / rows_[r].sum);
      else
        std::fill(row, row + a_.value_depth, a_.no_key());
      if (s_.y_row) from_f32(row, a_.y_type, out + r * a_.y.row * y_bytes, a_.value_depth);
    }
  }

  void score(int64_t b, const MatrixA& queries, int64_t first, int64_t rows, int64_t keys) {
    Gemm g;
    g.m = rows, g.n = keys, g.k = a_.depth;
    g.a = queries;
    g.b.packed = packed_keys(b);
    g.c = scores_;
    g.ldc = s_.score_row;
    if (a_.plain_mask()) {
      g.epilogue.residual =
          static_cast<const float*>(b_.inputs[3]) + a_.mask.at(item_, head_, first) + b * s_.block_k * a_.mask_col;
      g.epilogue.residual_stride = a_.mask.row;
    }
    gemm(g, nullptr, ThreadPool(1));
  }

  // What of a row's scores its query sees becomes weights.
  float weigh(int64_t r, int64_t query, int64_t at, int64_t keys) {
    float* scores = scores_ + r * s_.score_row;
    const AttentionShape::Range seen = a_.seen(query, length_);
    if (a_.softcap != 0) cap_scores(scores, keys, a_.softcap);
    if (const int64_t masked = std::min(keys, a_.mask_keys - at); a_.has_mask() && !a_.plain_mask() && masked > 0) {
      const int64_t first = a_.mask.at(item_, head_, query) + at * a_.mask_col;
      add_mask(scores, masked, a_.mask_type, static_cast<const char*>(b_.inputs[3]) + first * bytes_of(a_.mask_type, 1),
               a_.mask_col);
    }
    return softmax_block(scores, seen.begin - at, seen.end - at, keys, rows_ + r);
  }

  // A panel at a time: the packed form has room for all keys of the block, `keys` of which anybody sees.
  void add_values(int64_t b, int64_t rows, int64_t keys, int64_t whole, float* y, int64_t y_row, bool adds) {
    const int64_t width = panel_width(), step = keys == whole ? a_.value_depth : width;
    for (int64_t j = 0; j < a_.value_depth; j += step) {
      Gemm g;
      g.m = rows, g.n = std::min(step, a_.value_depth - j), g.k = keys;
      g.a = {scores_, s_.score_row};
      g.b.packed = packed_values(b) + j * whole;
      g.c = y + j;
      g.ldc = y_row;
      if (adds) g.epilogue.residual = g.c;
      g.epilogue.residual_stride = y_row;
      gemm(g, nullptr, ThreadPool(1));
    }
  }

  const State& s_;
  const AttentionShape& a_;
  const Buffers& b_;
  const KeysAndValues& all_;
  float *k_, *v_, *wide_, *scores_, *q_, *y_;
  RowState* rows_;
  int64_t item_ = 0, head_ = 0, length_ = 0, keys_ = 0;
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
      if (from < to) worker.run(item, head, from, to);
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
          .run = run};
}

}  // namespace

constinit const Kernel kAttentionTilesKernel = make("cpu.attention_tiles", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionTilesKernel = make("cpu.standard_attention_tiles", "Attention");

}  // namespace ridgeline::cpu
