// cpu.attention_rows: few queries against many keys (decoding), and any other problem. The queries of all heads that
// share keys and values go over them together, so that those are read once, where they lie, in their own type. Long
// contexts are cut into segments whose results are merged exactly (Milakov and Gimelshein, 2018; Dao et al., 2023); the
// cuts depend on the problem alone, so that the result does not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/attention_rows_steps.h"
#include "kernels/cpu/attention/attention_shape.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kMostRows = 32;       // of queries that a task has
constexpr int64_t kEnoughTasks = 64;    // beyond this many nothing is cut
constexpr int64_t kLeastSegment = 512;  // keys

struct State {
  AttentionShape shape;
  EpiloguePass epilogue;
  int64_t group_rows = 0;  // queries that share keys and values: those of one head after those of another
  int64_t task_rows = 0, row_blocks = 0, segments = 1, block = 0;
  int64_t q_row = 0, score_row = 0, y_row = 0;

  int64_t tasks() const { return shape.batch * shape.kv_heads * row_blocks * segments; }
  int64_t part_row() const { return y_row + 16; }  // y, then the row's state
  int64_t thread_floats() const { return task_rows * (q_row + 2 * score_row + y_row + 16) + 16; }
  int64_t parts_floats() const { return segments > 1 ? tasks() * task_rows * part_row() : 0; }
};

State make_state(const Problem& p) {
  State s{.shape = attention_shape(p), .epilogue = EpiloguePass(p)};
  const AttentionShape& a = s.shape;
  s.group_rows = a.kv_heads > 0 ? a.heads / a.kv_heads * a.queries : 0;
  s.row_blocks = (s.group_rows + kMostRows - 1) / kMostRows;
  s.task_rows = s.row_blocks ? (s.group_rows + s.row_blocks - 1) / s.row_blocks : 0;
  const int64_t pairs = std::max<int64_t>(1, a.batch * a.kv_heads * s.row_blocks);
  s.segments = std::clamp<int64_t>(std::min(kEnoughTasks / pairs, a.keys / kLeastSegment), 1, 64);
  s.block = s.task_rows <= 8 ? 128 : 64;  // 64 to 256 are alike from memory, 512 loses 5 to 10 points
  s.q_row = padded16(a.depth);
  s.score_row = s.block + 16;
  s.y_row = padded16(a.value_depth);
  return s;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const State s = make_state(p);
  const AttentionShape& a = s.shape;
  // Short tiles of queries: 0.4 of the peak where four share a key, 0.2 where there is one.
  const double share = s.task_rows >= 4 ? 0.4 : 0.2;
  const double compute =
      a.flops() / (share * c.f32.at(p.threads, c.cores)) + c.special_ns(SpecialFunction::kExp, a.scores(), p.threads);
  return std::max(compute, c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads)) + 500;
}

int64_t workspace(const Problem& p, const Tile&) {
  const State s = make_state(p);
  return 4 * (s.thread_floats() * p.threads + s.parts_floats());
}
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) { return std::make_shared<State>(make_state(p)); }

class Worker {
 public:
  Worker(const State& state, const Buffers& buffers, const KeysAndValues& all, int thread)
      : s_(state), a_(state.shape), b_(buffers), all_(all) {
    float* memory = static_cast<float*>(buffers.workspace);
    parts_ = memory + 0;
    memory += s_.parts_floats() + thread * s_.thread_floats();
    q_ = memory;
    scores_ = q_ + s_.task_rows * s_.q_row;
    y_ = scores_ + 2 * s_.task_rows * s_.score_row;
    rows_ = reinterpret_cast<RowState*>(y_ + s_.task_rows * s_.y_row);
  }

  void run(int64_t task) {
    const int64_t segment = task % s_.segments, pair = task / s_.segments;
    const int64_t row_block = pair % s_.row_blocks, head = pair / s_.row_blocks % a_.kv_heads;
    item_ = pair / s_.row_blocks / a_.kv_heads;
    first_ = row_block * s_.task_rows;
    count_ = std::min(s_.task_rows, s_.group_rows - first_);
    first_head_ = head * (a_.heads / a_.kv_heads);
    length_ = a_.length(b_, item_);
    start();
    attend(head, segment);
    for (int64_t r = 0; r < count_; ++r) {
      float* y = y_ + r * s_.y_row;
      if (s_.segments > 1) {
        float* part = parts_ + (task * s_.task_rows + r) * s_.part_row();
        std::copy(y, y + s_.y_row, part);
        part[s_.y_row] = rows_[r].largest, part[s_.y_row + 1] = rows_[r].sum;
      } else {
        store(head_of(r), query_of(r), y, rows_[r]);
      }
    }
  }

  /// Rows of [begin, end) of the output (batch, head, query) from their segments' parts.
  void merge(int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t query = row % a_.queries, head = row / a_.queries % a_.heads, source = a_.source(head);
      item_ = row / a_.queries / a_.heads;
      const int64_t in_group = (head - source * (a_.heads / a_.kv_heads)) * a_.queries + query;
      const int64_t pair = (item_ * a_.kv_heads + source) * s_.row_blocks + in_group / s_.task_rows;
      const float* part = parts_ + (pair * s_.segments * s_.task_rows + in_group % s_.task_rows) * s_.part_row();
      const int64_t step = s_.task_rows * s_.part_row();
      RowState all = {-HUGE_VALF, 0};
      for (int64_t k = 0; k < s_.segments; ++k) all.largest = std::max(all.largest, part[k * step + s_.y_row]);
      std::fill(y_, y_ + s_.y_row, 0.0f);
      for (int64_t k = 0; k < s_.segments; ++k) {
        const float* from = part + k * step;
        if (from[s_.y_row + 1] == 0) continue;  // saw nothing (a sum that is NaN is not equal)
        const float factor = std::exp(from[s_.y_row] - all.largest);
        all.sum += factor * from[s_.y_row + 1];
        for (int64_t j = 0; j < s_.y_row; ++j) y_[j] += factor * from[j];
      }
      store(head, query, y_, all);
    }
  }

 private:
  int64_t head_of(int64_t r) const { return first_head_ + (first_ + r) / a_.queries; }
  int64_t query_of(int64_t r) const { return (first_ + r) % a_.queries; }

  void start() {
    const char* q = static_cast<const char*>(b_.inputs[0]);
    const int64_t bytes = bytes_of(a_.q_type, 1);
    for (int64_t r = 0; r < count_; ++r) {
      float* row = q_ + r * s_.q_row;
      to_f32(a_.q_type, q + a_.q.at(item_, head_of(r), query_of(r)) * bytes, row, a_.depth);
      scale_row(row, a_.depth, a_.scale);
      std::fill(row + a_.depth, row + s_.q_row, 0.0f);
      std::fill(y_ + r * s_.y_row, y_ + (r + 1) * s_.y_row, 0.0f);
      rows_[r] = {-HUGE_VALF, 0};
    }
  }

  void attend(int64_t head, int64_t segment) {
    AttentionShape::Range all = {a_.keys, 0};
    for (int64_t r = 0; r < count_; ++r) {
      const AttentionShape::Range seen = a_.seen(query_of(r), length_);
      if (seen.begin < seen.end) all = {std::min(all.begin, seen.begin), std::max(all.end, seen.end)};
    }
    const int64_t from = std::max(all.begin, a_.keys * segment / s_.segments),
                  to = std::min(all.end, a_.keys * (segment + 1) / s_.segments);
    const char* k = static_cast<const char*>(all_.k) + a_.k.at(item_, head, 0) * bytes_of(a_.k_type, 1);
    const char* v = static_cast<const char*>(all_.v) + a_.v.at(item_, head, 0) * bytes_of(a_.v_type, 1);
    const int64_t k_bytes = a_.k.row * bytes_of(a_.k_type, 1), v_bytes = a_.v.row * bytes_of(a_.v_type, 1);
    // The scores of a block while the values of the one before it are added: two streams from memory instead of one
    // after the other.
    float *scores = scores_, *weights = scores_ + s_.task_rows * s_.score_row;
    int64_t before = 0;  // keys of the block that `weights` is of
    for (int64_t at = from; at < to || before > 0;) {
      const int64_t keys = std::min(s_.block, to - at), behind = at - before;
      attend_block({a_.k_type, k + at * k_bytes, a_.k.row, a_.depth, keys, to - at}, q_, s_.q_row, scores,
                   {a_.v_type, v + behind * v_bytes, a_.v.row, a_.value_depth, before, to - behind}, weights, y_,
                   s_.y_row, count_, s_.score_row);
      for (int64_t r = 0; r < count_ && keys > 0; ++r) weigh(r, scores + r * s_.score_row, at, keys);
      std::swap(scores, weights);
      before = keys;
      at += keys;
    }
  }

  void weigh(int64_t r, float* scores, int64_t at, int64_t keys) {
    const AttentionShape::Range seen = a_.seen(query_of(r), length_);
    if (a_.softcap != 0) cap_scores(scores, keys, a_.softcap);
    if (const int64_t masked = std::min(keys, a_.mask_keys - at); a_.has_mask() && masked > 0) {
      const int64_t first = a_.mask.at(item_, head_of(r), query_of(r)) + at * a_.mask_col;
      add_mask(scores, masked, a_.mask_type, static_cast<const char*>(b_.inputs[3]) + first * bytes_of(a_.mask_type, 1),
               a_.mask_col);
    }
    const float factor = softmax_block(scores, seen.begin - at, seen.end - at, keys, rows_ + r);
    if (factor != 1) scale_row(y_ + r * s_.y_row, a_.value_depth, factor);
  }

  void store(int64_t head, int64_t query, float* y, const RowState& state) {
    if (state.sum != 0)
      scale_row(y, a_.value_depth, 1.0f / state.sum);
    else
      std::fill(y, y + a_.value_depth, a_.no_key());
    char* out = static_cast<char*>(b_.outputs[0]);
    from_f32(y, a_.y_type, out + a_.y.at(item_, head, query) * bytes_of(a_.y_type, 1), a_.value_depth);
  }

  const State& s_;
  const AttentionShape& a_;
  const Buffers& b_;
  const KeysAndValues& all_;
  float *parts_, *q_, *scores_, *y_;
  RowState* rows_;
  int64_t item_ = 0, first_ = 0, count_ = 0, first_head_ = 0, length_ = 0;
};

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const AttentionShape& a = s.shape;
  const KeysAndValues all = attention_operands(a, buffers, pool);
  if (a.rows() == 0 || a.value_depth == 0) return;
  const double work = double(a.rows()) * double(a.keys + 1) * double(a.depth + a.value_depth) / double(s.tasks());
  parallel(pool, s.tasks(), std::max<int64_t>(1, int64_t(32e3 / std::max(1.0, work))),
           [&](int64_t begin, int64_t end, int thread) {
             Worker worker(s, buffers, all, thread);
             for (int64_t task = begin; task < end; ++task) worker.run(task);
           });
  if (s.segments > 1) {
    const int64_t grain = std::max<int64_t>(1, (16 << 10) / (s.segments * s.y_row));
    parallel(pool, a.rows(), grain,
             [&](int64_t begin, int64_t end, int thread) { Worker(s, buffers, all, thread).merge(begin, end); });
  }
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

constinit const Kernel kAttentionRowsKernel = make("cpu.attention_rows", "ScaledDotProductAttention");
constinit const Kernel kStandardAttentionRowsKernel = make("cpu.standard_attention_rows", "Attention");

}  // namespace ridgeline::cpu
