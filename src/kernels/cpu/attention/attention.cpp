// cpu.attention_tiles: blocks of queries against blocks of keys on the contraction engine; scores live in L2, never as
// a whole (Dao et al., 2022; the running maximum and sum: Milakov and Gimelshein, 2018). cpu.attention_rows: a few
// queries (decoding): keys and values are read once, where they lie.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/matmul/gemm.h"

namespace ridgeline::cpu {

namespace {

/// Strides of batch, head and row; the last axis is contiguous.
struct Rows {
  int64_t batch = 0, head = 0, row = 0;
};

struct State {
  int64_t batch = 0, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 0, value_depth = 0;
  Rows q, k, v, y, mask;
  int64_t mask_col = 0;
  bool has_mask = false, causal = false;
  float scale = 1;
  EpiloguePass epilogue;
  // Tiles: rows of queries and keys a block, parts that one head's queries are cut into, and what a thread needs, in
  // floats.
  int64_t block_q = 0, block_k = 0, parts = 1;
  int64_t score_row = 0, packed_k = 0, packed_v = 0, engine_bytes = 0;
  int64_t blocks() const { return (keys + block_k - 1) / block_k; }
  int64_t scores_floats() const { return block_q * score_row; }
  int64_t thread_floats() const {
    const int64_t floats = packed_k + packed_v + scores_floats() + 2 * block_q + engine_bytes / 4;
    return (floats + 15 + 16) / 16 * 16;
  }
  int64_t source(int64_t head) const { return head * kv_heads / heads; }  // the head of k and v that serves this one
  /// The result where every key is hidden, 0 / 0; where there are none, the sum of nothing.
  float no_key() const { return keys ? NAN : 0; }
  /// How many keys a query sees.
  int64_t visible(int64_t query) const {
    return causal ? std::clamp<int64_t>(keys - queries + query + 1, 0, keys) : keys;
  }
};

Rows rows_of(const Layout& l) {
  const size_t r = l.shape.size();
  return {l.strides[0], r == 4 ? l.strides[1] : 0, l.strides[r - 2]};
}
bool last_contiguous(const Layout& l) { return l.shape.back() == 1 || l.strides.back() == 1; }

Support common_support(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  for (int k = 0; k < 3; ++k)
    if (!last_contiguous(p.input(k).layout)) return no("the last axis of '{}' is strided", p.op->inputs[k].name);
  if (!last_contiguous(p.output().layout)) return no("the last axis of the output is strided");
  return EpiloguePass::check(p);
}

State make_state(const Problem& p) {
  State s{.epilogue = EpiloguePass(p)};
  const Layout &q = p.input(0).layout, &k = p.input(1).layout, &v = p.input(2).layout;
  const size_t rank = q.shape.size();
  s.batch = q.shape[0];
  if (rank == 4) s.heads = q.shape[1], s.kv_heads = k.shape[1];
  s.queries = q.shape[rank - 2], s.depth = q.shape[rank - 1], s.keys = k.shape[rank - 2],
  s.value_depth = v.shape[rank - 1];
  s.q = rows_of(q), s.k = rows_of(k), s.v = rows_of(v), s.y = rows_of(p.output().layout);
  s.scale = float(p.number("scale"));
  s.causal = p.flag("causal");
  if ((s.has_mask = p.has(3))) {
    const Layout& m = p.input(3).layout;
    const size_t missing = rank - m.shape.size();
    auto stride = [&](size_t axis) {
      return axis < missing || m.shape[axis - missing] == 1 ? 0 : m.strides[axis - missing];
    };
    s.mask = {stride(0), rank == 4 ? stride(1) : 0, stride(rank - 2)};
    s.mask_col = stride(rank - 1);
  }
  return s;
}

// ---- tiles

Gemm scores_product(const State& s, int64_t rows, int64_t keys) {
  Gemm g;
  g.m = rows, g.n = keys, g.k = s.depth;
  g.a.row_stride = s.q.row;
  g.b.packed = reinterpret_cast<const float*>(64);  // set: that is all that the engine asks of it before a run
  g.ldc = s.score_row;
  if (s.has_mask) g.epilogue.residual = g.b.packed;
  g.epilogue.residual_stride = s.mask.row;
  return g;
}
Gemm values_product(const State& s, int64_t rows, int64_t keys, bool adds) {
  Gemm g;
  g.m = rows, g.n = s.value_depth, g.k = keys;
  g.a.row_stride = s.score_row;
  g.b.packed = reinterpret_cast<const float*>(64);
  g.ldc = s.y.row;
  if (adds) g.epilogue.residual = g.b.packed;
  g.epilogue.residual_stride = s.y.row;
  return g;
}

State make_tiles(const Problem& p) {
  State s = make_state(p);
  // Scores take at most 256 KiB of L2, beside the head's keys and values; keys in one block where they fit, for then
  // nothing is rescaled. 84 rows are whole tiles of the engine (14 rows with AVX-512, 6 with AVX2).
  s.block_k = s.keys <= 1024 ? std::max<int64_t>(1, s.keys) : 512;
  s.score_row = (s.block_k + 15) / 16 * 16 + 16;  // never a power of two: its lines would share cache sets
  s.block_q = std::clamp<int64_t>((64 << 10) / s.score_row / 84 * 84, 84, 252);
  s.block_q = std::min(s.block_q, std::max<int64_t>(1, s.queries));
  const int64_t last_keys = s.keys - (s.blocks() - 1) * s.block_k;
  s.packed_k = (s.blocks() - 1) * packed_b_floats(s.depth, s.block_k) +
               packed_b_floats(s.depth, std::max<int64_t>(0, last_keys));
  s.packed_v = (s.blocks() - 1) * packed_b_floats(s.block_k, s.value_depth) +
               packed_b_floats(std::max<int64_t>(0, last_keys), s.value_depth);
  s.packed_k = (s.packed_k + 15) / 16 * 16;
  s.packed_v = (s.packed_v + 15) / 16 * 16;
  const int64_t last_rows = s.queries % s.block_q;
  for (int64_t rows : {s.block_q, last_rows}) {
    for (int64_t keys : {s.block_k, last_keys}) {
      if (rows <= 0 || keys <= 0) continue;
      s.engine_bytes = std::max(s.engine_bytes, gemm_workspace_bytes(scores_product(s, rows, keys), 1));
      for (bool adds : {false, true})
        s.engine_bytes = std::max(s.engine_bytes, gemm_workspace_bytes(values_product(s, rows, keys, adds), 1));
    }
  }
  s.engine_bytes = (s.engine_bytes + 63) / 64 * 64;
  // A head to a thread; where there are fewer heads, its queries are split and each part packs the keys again.
  const int64_t heads = s.batch * s.heads, most = (s.queries + s.block_q - 1) / std::max<int64_t>(1, s.block_q);
  if (heads > 0 && heads < 2 * p.threads)
    s.parts = std::clamp<int64_t>((2 * p.threads + heads - 1) / heads, 1, std::max<int64_t>(1, most));
  if (p.threads == 1) s.parts = 1;
  return s;
}

Support supports_tiles(const Problem& p) {
  if (Support c = common_support(p); !c.ok) return c;
  if (p.has(3)) {
    const State s = make_state(p);
    if (s.keys > 1 && s.mask_col != 1) return no("the mask is broadcast or strided along the keys");
  }
  return yes();
}

double attention_flops(const State& s) {
  return double(s.batch * s.heads * s.queries) * double(s.keys) * 2 * double(s.depth + s.value_depth);
}

double estimate_tiles(const Problem& p, const Tile&, const Ceilings& c) {
  const State s = make_state(p);
  const int64_t scores = s.batch * s.heads * s.queries * s.keys;
  // Causal: key blocks that nobody sees are left out, half of a square at most; blocks are whole, so three quarters.
  const double seen = s.causal && s.queries > 1 ? 0.75 : 1;
  const double products = attention_flops(s) * seen / (0.85 * c.f32.at(p.threads, c.cores));
  const double exponentials = c.special_ns(SpecialFunction::kExp, scores, p.threads) * seen +
                              4.0 * double(scores) * 2 * seen / c.read_gb_s[1].at(p.threads, c.cores);
  const double packing =
      4.0 * 3 * double(p.input(1).elements() + p.input(2).elements()) / c.copy_gb_s[1].at(p.threads, c.cores);
  return products + exponentials + packing + 2000;
}

int64_t workspace_tiles(const Problem& p, const Tile&) { return 4 * make_tiles(p).thread_floats() * p.threads; }

class Worker {
 public:
  Worker(const State& state, const Buffers& buffers, float* memory) : s_(state) {
    for (int k = 0; k < 4; ++k)
      in_[size_t(k)] = k < 3 || state.has_mask ? static_cast<const float*>(buffers.inputs[k]) : nullptr;
    y_ = static_cast<float*>(buffers.outputs[0]);
    k_ = memory;
    v_ = k_ + s_.packed_k;
    scores_ = v_ + s_.packed_v;
    rows_ = reinterpret_cast<RowState*>(scores_ + s_.scores_floats());
    const int64_t used = s_.packed_k + s_.packed_v + s_.scores_floats() + 2 * s_.block_q;
    engine_ = memory + (used + 15) / 16 * 16;
  }

  void run(int64_t item, int64_t head, int64_t begin, int64_t end) {
    const int64_t source = s_.source(head);
    pack(item, source);
    for (int64_t first = begin; first < end; first += s_.block_q)
      block(item, head, first, std::min(end, first + s_.block_q) - first);
  }

 private:
  int64_t keys_of(int64_t b) const { return std::min(s_.block_k, s_.keys - b * s_.block_k); }
  const float* packed_keys(int64_t b) const { return k_ + b * packed_b_floats(s_.depth, s_.block_k); }
  const float* packed_values(int64_t b) const { return v_ + b * packed_b_floats(s_.block_k, s_.value_depth); }

  void pack(int64_t item, int64_t source) {
    if (item == packed_item_ && source == packed_source_)
      return;  // heads that share keys and values come one after the other
    packed_item_ = item;
    packed_source_ = source;
    const float *k = in_[1] + item * s_.k.batch + source * s_.k.head,
                *v = in_[2] + item * s_.v.batch + source * s_.v.head;
    for (int64_t b = 0; b < s_.blocks(); ++b) {
      const int64_t first = b * s_.block_k, keys = keys_of(b);
      pack_b(k + first * s_.k.row, 1, s_.k.row, s_.depth, keys, const_cast<float*>(packed_keys(b)), s_.scale, 0, keys);
      pack_b(v + first * s_.v.row, s_.v.row, 1, keys, s_.value_depth, const_cast<float*>(packed_values(b)));
    }
  }

  void block(int64_t item, int64_t head, int64_t first, int64_t rows) {
    const float* q = in_[0] + item * s_.q.batch + head * s_.q.head + first * s_.q.row;
    float* y = y_ + item * s_.y.batch + head * s_.y.head + first * s_.y.row;
    const ThreadPool inline_pool(1);
    for (int64_t r = 0; r < rows; ++r) rows_[r] = {-HUGE_VALF, 0};
    bool started = false;
    for (int64_t b = 0; b < s_.blocks(); ++b) {
      const int64_t at = b * s_.block_k, keys = keys_of(b);
      if (at >= s_.visible(first + rows - 1)) break;
      Gemm product = scores_product(s_, rows, keys);
      product.a.data = q;
      product.b.packed = packed_keys(b);
      product.c = scores_;
      if (s_.has_mask)
        product.epilogue.residual =
            in_[3] + item * s_.mask.batch + head * s_.mask.head + first * s_.mask.row + at * s_.mask_col;
      gemm(product, engine_, inline_pool);
      for (int64_t r = 0; r < rows; ++r) {
        const float factor = softmax_block(scores_ + r * s_.score_row, s_.visible(first + r) - at, keys, rows_ + r);
        if (started && factor != 1) scale_row(y + r * s_.y.row, s_.value_depth, factor);
      }
      product = values_product(s_, rows, keys, started);
      product.a.data = scores_;
      product.b.packed = packed_values(b);
      product.c = y;
      if (started) product.epilogue.residual = y;
      gemm(product, engine_, inline_pool);
      started = true;
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* row = y + r * s_.y.row;
      if (started && rows_[r].sum != 0)
        scale_row(row, s_.value_depth, 1.0f / rows_[r].sum);
      else
        std::fill(row, row + s_.value_depth, s_.no_key());
    }
  }

  const State& s_;
  std::array<const float*, 4> in_{};
  float* y_;
  float *k_, *v_, *scores_, *engine_;
  RowState* rows_;
  int64_t packed_item_ = -1, packed_source_ = -1;
};

void run_tiles(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.queries == 0 || s.value_depth == 0) return;
  const int64_t blocks = (s.queries + s.block_q - 1) / s.block_q;
  parallel(pool, s.batch * s.heads * s.parts, 1, [&](int64_t begin, int64_t end, int thread) {
    Worker worker(s, buffers, static_cast<float*>(buffers.workspace) + thread * s.thread_floats());
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % s.parts, head = task / s.parts % s.heads, item = task / s.parts / s.heads;
      const int64_t from = blocks * part / s.parts * s.block_q,
                    to = std::min(s.queries, blocks * (part + 1) / s.parts * s.block_q);
      if (from < to) worker.run(item, head, from, to);
    }
  });
  s.epilogue.run(buffers, pool);
}

std::shared_ptr<const void> prepare_tiles(const Problem& p, const Tile&) {
  return std::make_shared<State>(make_tiles(p));
}

// ---- rows

Support supports_rows(const Problem& p) {
  if (Support c = common_support(p); !c.ok) return c;
  return yes();
}

double estimate_rows(const Problem& p, const Tile&, const Ceilings& c) {
  const State s = make_state(p);
  // A dot product of one row uses a quarter of the multiply-adds; keys and values come from memory for each query.
  const double compute = attention_flops(s) / (0.15 * c.f32.at(p.threads, c.cores));
  return std::max(compute, c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads)) + 500;
}

int64_t workspace_rows(const Problem& p, const Tile&) {
  return 4 * ((make_state(p).keys + 15) / 16 * 16 + 16) * p.threads;
}
std::shared_ptr<const void> prepare_rows(const Problem& p, const Tile&) {
  return std::make_shared<State>(make_state(p));
}

void run_rows(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float *q = static_cast<const float*>(buffers.inputs[0]), *k = static_cast<const float*>(buffers.inputs[1]),
              *v = static_cast<const float*>(buffers.inputs[2]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t work = std::max<int64_t>(1, s.keys * (s.depth + s.value_depth));
  parallel(pool, s.batch * s.heads * s.queries, std::max<int64_t>(1, (32 << 10) / work),
           [&](int64_t begin, int64_t end, int thread) {
             float* scores = static_cast<float*>(buffers.workspace) + thread * ((s.keys + 15) / 16 * 16 + 16);
             for (int64_t task = begin; task < end; ++task) {
               const int64_t query = task % s.queries, head = task / s.queries % s.heads,
                             item = task / s.queries / s.heads;
               const int64_t source = s.source(head), seen = s.visible(query);
               float* row = y + item * s.y.batch + head * s.y.head + query * s.y.row;
               dot_keys(q + item * s.q.batch + head * s.q.head + query * s.q.row,
                        k + item * s.k.batch + source * s.k.head, s.k.row, s.depth, seen, s.scale, scores);
               if (s.has_mask) {
                 const float* mask = static_cast<const float*>(buffers.inputs[3]) + item * s.mask.batch +
                                     head * s.mask.head + query * s.mask.row;
                 for (int64_t t = 0; t < seen; ++t) scores[t] += mask[t * s.mask_col];
               }
               RowState state = {-HUGE_VALF, 0};
               softmax_block(scores, seen, seen, &state);
               sum_values(scores, v + item * s.v.batch + source * s.v.head, s.v.row, s.value_depth, seen, row);
               if (state.sum != 0)
                 scale_row(row, s.value_depth, 1.0f / state.sum);
               else
                 std::fill(row, row + s.value_depth, s.no_key());
             }
           });
  s.epilogue.run(buffers, pool);
}

}  // namespace

constinit const Kernel kAttentionTilesKernel = {
    .name = "cpu.attention_tiles",
    .op = "ScaledDotProductAttention",
    .supports = supports_tiles,
    .estimate = estimate_tiles,
    .workspace = workspace_tiles,
    .prepare = prepare_tiles,
    .run = run_tiles,
};
constinit const Kernel kAttentionRowsKernel = {
    .name = "cpu.attention_rows",
    .op = "ScaledDotProductAttention",
    .supports = supports_rows,
    .estimate = estimate_rows,
    .workspace = workspace_rows,
    .prepare = prepare_rows,
    .run = run_rows,
};

}  // namespace ridgeline::cpu
