// The driver: cuts a product by its Blocking, brings blocks of A and B into the form that the tiles want, and runs the
// tiles.
#include "kernels/cpu/matmul/gemm.h"

#include <algorithm>
#include <cassert>

#include "kernels/cpu/matmul/blocking.h"
#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/matmul/pack.h"

namespace ridgeline::cpu {
namespace {

struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// Part `index` of `parts` nearly equal ones.
Range part(int64_t count, int64_t parts, int64_t index) { return {count * index / parts, count * (index + 1) / parts}; }

// Floats between rows of a partial C.
int64_t partial_row(const Gemm& p) { return (p.n + 15) / 16 * 16; }

// A block of A as the tiles see it.
struct BlockA {
  const float* data;
  int64_t row_stride;
};

// A block of B: panel p at data + p * panel_stride.
struct BlockB {
  const float* data;
  int64_t row_stride, panel_stride;
};

// One thread's work.
class Worker {
 public:
  Worker(const Blocking& blocking, float* workspace, int thread)
      : blocking_(blocking),
        p_(blocking.problem),
        kernels_(micro_kernels()),
        width_(2 * kernels_.lanes),
        thread_(thread),
        fetches_next_(blocking.fetches_next()) {
    if (workspace) {
      partials_ = workspace;
      a_copy_ =
          workspace + blocking.batches * blocking.parts_k * blocking.partial_floats + thread * blocking.thread_floats();
      b_copy_ = a_copy_ + blocking.a_floats;
    }
  }

  /// `last`: no other task follows on this thread.
  void run(int64_t task, bool last) {
    const int64_t cells = blocking_.parts_rows * blocking_.parts_cols, cell = task % cells;
    select_matrix(task / cells);
    next_ = {};
    if (fetches_next_ && !last) next_ = operands_of(task + 1);
    if (all_k_.size() == 0 && p_.k > 0) return;
    const Range rows = part(p_.m, blocking_.parts_rows, cell / blocking_.parts_cols);
    const int64_t all_panels = (p_.n + width_ - 1) / width_;
    const Range panels = part(all_panels, blocking_.parts_cols, cell % blocking_.parts_cols);
    if (rows.size() == 0 || panels.size() == 0) return;
    if (blocking_.b == SourceB::kPackedPerCall) return run_packing_b(rows, panels);
    for (Range block{rows.begin, 0}; block.begin < rows.end; block.begin = block.end) {
      block.end = std::min(rows.end, block.begin + blocking_.block_rows);
      for_k([&](Range k) {
        const BlockA a = block_a(block, k);
        const BlockB b = blocking_.b == SourceB::kPanels ? BlockB{b_ + k.begin * width_, width_, p_.k * width_}
                                                         : BlockB{b_ + k.begin * p_.b.stride_k, p_.b.stride_k, width_};
        for (int64_t first = panels.begin; first < panels.end; first += blocking_.block_panels)
          run_tiles(a, b, block, k, {first, std::min(panels.end, first + blocking_.block_panels)});
      });
    }
  }

 private:
  // B is packed block by block, each read by all rows: k blocks outside the rows.
  void run_packing_b(Range rows, Range panels) {
    for (Range some{panels.begin, 0}; some.begin < panels.end; some.begin = some.end) {
      some.end = std::min(panels.end, some.begin + blocking_.block_panels);
      for_k([&](Range k) {
        const int64_t panel_floats = k.size() * width_;
        for (int64_t panel = some.begin; panel < some.end; ++panel) {
          const int64_t col = panel * width_;
          pack_panel(b_ + k.begin * p_.b.stride_k + col * p_.b.stride_n, p_.b.stride_k, p_.b.stride_n, k.size(),
                     std::min<int64_t>(width_, p_.n - col), b_copy_ + (panel - some.begin) * panel_floats, 1.0f);
        }
        const BlockB b{b_copy_ - some.begin * panel_floats, width_, panel_floats};
        for (Range block{rows.begin, 0}; block.begin < rows.end; block.begin = block.end) {
          block.end = std::min(rows.end, block.begin + blocking_.block_rows);
          run_tiles(block_a(block, k), b, block, k, some);
        }
      });
    }
  }

  template <typename Body>
  void for_k(const Body& body) {
    int64_t k = all_k_.begin;
    do {  // once if k is 0: the sum is 0 and the epilogue follows
      const int64_t end = std::min(all_k_.end, k + blocking_.block_k);
      body(Range{k, end});
      k = end;
    } while (k < all_k_.end);
  }

  void select_matrix(int64_t matrix) {
    int64_t batch = matrix / blocking_.parts_k;
    all_k_ = part(p_.k, blocking_.parts_k, matrix % blocking_.parts_k);
    batch_ = batch;
    const Ahead operands = operands_of(batch);
    a_ = operands.a;
    b_ = operands.b;
    c_ = p_.c;
    bias_ = p_.epilogue.bias;
    residual_ = p_.epilogue.residual;
    for (int axis = p_.batch_axes; axis-- > 0;) {
      const BatchAxis& step = p_.batch[size_t(axis)];
      const int64_t index = batch % step.extent;
      batch /= step.extent;
      c_ += index * step.c;
      if (bias_) bias_ += index * step.bias;
      if (residual_) residual_ += index * step.residual;
    }
    c_row_ = p_.ldc;
    if (blocking_.parts_k == 1) return;
    c_ = partials_ + matrix * blocking_.partial_floats;  // bare sums; what follows them comes when all are there
    c_row_ = partial_row(p_);
    bias_ = residual_ = nullptr;
  }

  // A and B of a matrix of the batch, and how far their lines have been asked for.
  struct Ahead {
    const float *a = nullptr, *b = nullptr;
    int64_t at = 0;
  };
  Ahead operands_of(int64_t batch) const {
    static constexpr float kNothing = 0;  // operands without elements (k = 0) may have no address
    if (p_.k == 0) return {&kNothing, &kNothing};
    Ahead found{p_.a.data, p_.b.packed ? p_.b.packed : p_.b.data};
    for (int axis = p_.batch_axes; axis-- > 0;) {
      const BatchAxis& step = p_.batch[size_t(axis)];
      const int64_t index = batch % step.extent;
      batch /= step.extent;
      found.a += index * step.a;
      found.b += index * step.b;
    }
    return found;
  }

  // A tile asks for as many lines as it has steps of k: of the next panel, or of the next matrix of the batch.
  void set_ahead(MicroTile& tile) {
    if (!next_.a) return;
    const int64_t at = next_.at;
    next_.at += tile.length * kLine;
    tile.ahead = at < p_.m * p_.k ? next_.a + at : next_.b + (at - p_.m * p_.k);
    tile.ahead_step = at < p_.m * p_.k + p_.k * p_.n ? kLine : 0;
  }

  BlockA block_a(Range rows, Range k) {
    const MatrixA& a = p_.a;
    const float* first = a_ + rows.begin * a.row_stride + k.begin * a.k_stride;
    if (blocking_.a == SourceA::kInPlace) return {first, a.row_stride};
    pack_rows(first, a.row_stride, a.k_stride, rows.size(), k.size(), a_copy_, blocking_.a_pitch);
    return {a_copy_, blocking_.a_pitch};
  }

  // Some rows, the columns of some panels, over one block of k.
  void run_tiles(const BlockA& a, const BlockB& b, Range rows, Range k, Range panels) {
    static constexpr GemmEpilogue kNoEpilogue;
    const bool first = k.begin == all_k_.begin, last = k.end == all_k_.end;
    const GemmEpilogue& end = blocking_.parts_k > 1 ? kNoEpilogue : p_.epilogue;
    MicroTile tile{};
    tile.a_row = a.row_stride;
    tile.length = k.size();
    tile.b_row = b.row_stride;
    tile.c_row = c_row_;
    tile.alpha = end.alpha;
    tile.low = end.low;
    tile.high = end.high;
    tile.clamp = last && (end.low > -std::numeric_limits<float>::infinity() ||
                          end.high < std::numeric_limits<float>::infinity());
    // The residual is where the sum starts, so that it may be C itself; later blocks go on from C.
    const float* add = first ? residual_ : c_;
    tile.add_row = first ? end.residual_stride : c_row_;

    const int64_t tiles = (rows.size() + kernels_.max_rows - 1) / kernels_.max_rows;
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      const int64_t col = panel * width_, cols = std::min<int64_t>(width_, p_.n - col);
      const bool lone = tiles == 1 && cols == width_ && !next_.a;
      const int vectors = cols > kernels_.lanes ? 2 : 1;
      const bool masked = cols != vectors * kernels_.lanes;
      tile.b = b.data + panel * b.panel_stride;
      tile.cols = int(cols);
      tile.bias = last && bias_ ? bias_ + col : nullptr;
      // The next panel comes closer while this one is used, a share with each tile.
      const int64_t share = k.size() / tiles;
      tile.ahead = tile.b + b.panel_stride;
      tile.ahead_step = width_ / tiles;
      int64_t row = rows.begin;
      tile.a = a.data;
      // Nearly equal tiles: 128 rows are 10 of 12 or 13, not 9 of 14 and one of 2.
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t size = part(rows.size(), tiles, t).size();
        tile.c = c_ + row * c_row_ + col;
        tile.add = add ? add + row * tile.add_row + col : nullptr;
        set_ahead(tile);
        (blocking_.thin ? kernels_.thin[size][vectors][masked]
         : lone         ? kernels_.lone[size]
                        : kernels_.tile[size][vectors][masked])(tile);
        tile.a += size * a.row_stride;
        if (!next_.a) tile.ahead += share * width_;
        row += size;
      }
    }
    if (!last || !end.hook) return;
    const int64_t col = panels.begin * width_, col_end = std::min(p_.n, panels.end * width_);
    end.hook(end.context,
             {c_ + rows.begin * p_.ldc + col, p_.ldc, batch_, rows.begin, col, rows.size(), col_end - col, thread_});
  }

  const Blocking& blocking_;
  const Gemm& p_;
  const MicroKernels& kernels_;
  const int64_t width_;
  const int thread_;
  float* a_copy_ = nullptr;
  float* b_copy_ = nullptr;
  int64_t batch_ = 0;
  const float *a_ = nullptr, *b_ = nullptr, *bias_ = nullptr, *residual_ = nullptr;
  float *c_ = nullptr, *partials_ = nullptr;
  int64_t c_row_ = 0;
  Range all_k_{0, 0};
  // Small matrices of a batch: while one is multiplied the next comes closer.
  static constexpr int64_t kLine = 16;  // floats
  const bool fetches_next_;
  Ahead next_;
};

}  // namespace

int64_t gemm_workspace_bytes(const Gemm& problem, int threads) {
  const Blocking blocking = make_blocking(problem, threads);
  return blocking.workspace_floats() * int64_t(sizeof(float));
}

int64_t matvec_workspace_bytes(const Gemm& problem, int threads) {
  return make_thin_blocking(problem, threads).workspace_floats() * int64_t(sizeof(float));
}

namespace {

// Rows of a partial C are padded to as many floats.
constexpr int64_t kSumWidth = 16;

// The parts of k, added in their order, and what follows the sum.
void add_partials(const Blocking& blocking, const float* partials) {
  const Gemm& p = blocking.problem;
  const GemmEpilogue& end = p.epilogue;
  for (int64_t batch = 0; batch < blocking.batches; ++batch) {
    float* c = p.c;
    const float *bias = end.bias, *residual = end.residual;
    for (int64_t axis = p.batch_axes, rest = batch; axis-- > 0;) {
      const BatchAxis& step = p.batch[size_t(axis)];
      const int64_t index = rest % step.extent;
      rest /= step.extent;
      c += index * step.c;
      if (bias) bias += index * step.bias;
      if (residual) residual += index * step.residual;
    }
    const float* first = partials + batch * blocking.parts_k * blocking.partial_floats;
    for (int64_t row = 0; row < p.m; ++row) {
      for (int64_t col = 0; col < p.n; col += kSumWidth) {
        float sums[kSumWidth] = {};
        for (int64_t k = 0; k < blocking.parts_k; ++k) {
          const float* const at = first + k * blocking.partial_floats + row * partial_row(p) + col;
          for (int64_t j = 0; j < kSumWidth; ++j) sums[j] += at[j];
        }
        for (int64_t j = 0; j < std::min(kSumWidth, p.n - col); ++j) {
          float sum = sums[j] * end.alpha;
          if (bias) sum += bias[col + j];
          if (residual) sum += residual[row * end.residual_stride + col + j];
          sum = sum < end.low ? end.low : sum;  // written so that NaN passes
          c[row * p.ldc + col + j] = sum > end.high ? end.high : sum;
        }
      }
    }
    if (end.hook) end.hook(end.context, {c, p.ldc, batch, 0, 0, p.m, p.n, 0});
  }
}

void run(const Blocking& blocking, void* workspace, const ThreadPool& pool) {
  if (blocking.problem.m == 0 || blocking.problem.n == 0 || blocking.tasks == 0) return;
  assert(workspace || blocking.workspace_floats() == 0);
  const struct {
    const Blocking& blocking;
    float* workspace;
  } shared{blocking, static_cast<float*>(workspace)};
  const auto body = [&shared](int64_t begin, int64_t end, int) {
    for (int64_t thread = begin; thread < end; ++thread) {
      Worker worker(shared.blocking, shared.workspace, int(thread));
      const Range tasks = part(shared.blocking.tasks, shared.blocking.threads, thread);
      for (int64_t task = tasks.begin; task < tasks.end; ++task) worker.run(task, task + 1 == tasks.end);
    }
  };
  if (blocking.threads == 1)
    body(0, 1, 0);
  else
    pool.run(blocking.threads, 1, body);
  if (blocking.parts_k > 1) add_partials(blocking, shared.workspace);
}

}  // namespace

void gemm(const Gemm& problem, void* workspace, const ThreadPool& pool) {
  run(make_blocking(problem, pool.threads()), workspace, pool);
}

void matvec(const Gemm& problem, void* workspace, const ThreadPool& pool) {
  assert(problem.m <= kMaxMatvecRows && problem.b.packed && problem.a.k_stride == 1);
  run(make_thin_blocking(problem, pool.threads()), workspace, pool);
}

}  // namespace ridgeline::cpu
