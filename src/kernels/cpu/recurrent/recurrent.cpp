// cpu.lstm, cpu.gru, cpu.rnn: the part of x is one product over many steps; then step by step the product with the
// state, a group of units at a time, and their cell. Weights stand in panels; two directions, slices of the batch, or
// the units of a step go to threads.
#include <algorithm>
#include <cstring>

#include "core/integer.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/recurrent/cell_steps.h"
#include "kernels/cpu/recurrent/recurrent_kernels.h"
#include "kernels/cpu/recurrent/recurrent_shape.h"

namespace ridgeline::cpu {
namespace {

struct State {
  RecurrentShape shape;
  EpiloguePass epilogue;
};

Support supports(const Problem& p) {
  const DType type = p.input(kRecurrentX).dtype;
  if (type != DType::kF32 && type != DType::kF16 && type != DType::kBF16)
    return no("{}: this kernel takes f32, f16 and bf16", name(type));
  for (int i = 0; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).layout.is_row_major()) return no("input {} is not row-major", i);
  for (const Operand& output : p.outputs)
    if (output.present() && !output.layout.is_row_major()) return no("an output is not row-major");
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const RecurrentShape s = recurrent_shape(p);
  // A row keeps 8 sums in flight, of which the caches feed some 4; all the tile's rows fill the units.
  const double share = 0.9 * std::min(1.0, double(s.rows) * 4 / 8);
  const int64_t rows = s.e.steps * s.e.batch * s.form.directions;
  const double flops = 2.0 * double(rows) * double(s.x_cols * s.e.input + s.r_floats);
  const int64_t read = s.e.steps * s.form.directions * s.slices * s.r_floats * int64_t(sizeof(float));
  const double bandwidth = c.stream_ns(read, 0, s.threads, c.level_of(s.r_floats * int64_t(sizeof(float)), s.threads));
  const double cells = c.special_ns(SpecialFunction::kTanh, rows * s.units * (s.form.gates + 1), s.threads);
  return std::max(c.compute_ns(DType::kF32, int64_t(flops), s.threads) / share, bandwidth) + cells +
         double(s.e.steps) * (s.share_steps ? 1500 : 50) + 300;
}

int64_t workspace(const Problem& p, const Tile&) {
  return recurrent_shape(p).workspace_floats() * int64_t(sizeof(float));
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  return std::make_shared<State>(State{recurrent_shape(p), EpiloguePass(p)});
}

int64_t depth_of(const RecurrentShape& s, int input) { return input == kRecurrentW ? s.e.input : s.e.hidden; }
bool is_packed(int input) { return input == kRecurrentW || input == kRecurrentR || input == kRecurrentB; }
int64_t packed_floats(const RecurrentShape& s, int input) {  // of a direction
  return input == kRecurrentW ? s.w_floats : input == kRecurrentR ? s.r_floats : s.bias_floats();
}

Packing packing(const Problem& p, const Tile&, int input) {
  if (!is_packed(input)) return {};
  const RecurrentShape s = recurrent_shape(p);
  const std::string gates =
      fmt::format("{} directions={} passes={}{} units={} lanes={}", s.form.gates, s.form.directions, s.passes,
                  s.form.linear_before_reset ? " linear" : "", s.e.hidden, s.lanes);
  return {input == kRecurrentB ? fmt::format("biases of gates {}", gates)
                               : fmt::format("gates {} k={}", gates, depth_of(s, input)),
          s.form.directions * packed_floats(s, input) * int64_t(sizeof(float))};
}

void pack_direction(const RecurrentShape& s, int input, int64_t direction, const void* source, float* packed) {
  const int64_t rows = s.form.gates * s.e.hidden, k = input == kRecurrentB ? 2 : depth_of(s, input);
  const void* from = static_cast<const char*>(source) + bytes_of(s.dtype, direction * rows * k);
  float* to = packed + direction * packed_floats(s, input);
  input == kRecurrentB ? pack_bias(s, from, to) : pack_recurrent(s, from, k, to);
}

void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (!is_packed(input)) return;
  const RecurrentShape s = recurrent_shape(p);
  for (int64_t d = 0; d < s.form.directions; ++d)
    pack_direction(s, input, d, source.data(), static_cast<float*>(packed));
}

// What all sweeps read: packed weights and biases; peepholes with room for whole vectors, or null.
struct Shared {
  const float *w, *r, *bias, *peephole;
  const int32_t* lengths;
  float* sweeps;  // memory
};

// One direction of some rows of the batch.
class Sweep {
 public:
  Sweep(const KernelCall& call, const Buffers& buffers, const Shared& shared, int direction, int64_t first,
        int64_t rows, float* memory)
      : s_(call.state_as<State>().shape),
        problem_(call.problem),
        b_(buffers),
        shared_(shared),
        direction_(direction),
        first_(first),
        rows_(rows),
        lengths_(shared.lengths ? shared.lengths + first : nullptr) {
    const auto take = [&](int64_t floats) {
      float* at = memory;
      memory += round_up(floats, 16);
      return at;
    };
    x_ = take(s_.chunk * s_.rows * s_.x_cols);
    wide_ = take(s_.narrow() ? s_.chunk * s_.rows * s_.e.input : 0);
    for (float** state : {&h_, &next_, &cell_, &reset_}) *state = take(s_.rows * s_.state_row);
    gemm_ = take(s_.gemm_floats);
    sums_ = memory;
  }

  void run(const ThreadPool& pool) {
    start(h_, kRecurrentH);
    if (s_.form.kind == CellKind::kLstm) start(cell_, kRecurrentC);
    zero_state_ = !problem_.has(kRecurrentH);
    int64_t steps = s_.e.steps;
    if (lengths_) {
      steps = rows_ > 0 ? std::max<int32_t>(0, *std::max_element(lengths_, lengths_ + rows_)) : 0;
      for (int64_t t = steps; t < s_.e.steps; ++t) clear(t);
    }
    const bool backward = s_.form.is_backward(direction_);
    for (int64_t done = 0; done < steps; done += s_.chunk) {
      const int64_t count = std::min(s_.chunk, steps - done), first = backward ? steps - done - count : done;
      project(first, count, pool);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t in_chunk = backward ? count - 1 - i : i;
        step(first + in_chunk, x_ + in_chunk * rows_ * s_.x_cols, pool);
      }
    }
    finish(h_, 1);
    if (s_.form.kind == CellKind::kLstm) finish(cell_, 2);
  }

 private:
  int64_t bytes(int64_t elements) const { return bytes_of(s_.dtype, elements); }
  int64_t state_at(int64_t row) const {
    return (s_.form.batch_first ? (first_ + row) * s_.form.directions + direction_
                                : direction_ * s_.e.batch + first_ + row) *
           s_.e.hidden;
  }
  int64_t y_at(int64_t t, int64_t row) const {
    return (s_.form.batch_first ? ((first_ + row) * s_.e.steps + t) * s_.form.directions + direction_
                                : (t * s_.form.directions + direction_) * s_.e.batch + first_ + row) *
           s_.e.hidden;
  }
  char* y_of(int64_t t, int64_t row) const { return static_cast<char*>(b_.outputs[0]) + bytes(y_at(t, row)); }

  void start(float* state, int input) {
    std::fill(state, state + rows_ * s_.state_row, 0.0f);
    for (int64_t row = 0; row < rows_ && problem_.has(input); ++row)
      to_f32(s_.dtype, static_cast<const char*>(b_.inputs[input]) + bytes(state_at(row)), state + row * s_.state_row,
             s_.e.hidden);
  }
  void finish(const float* state, size_t output) {
    if (output >= problem_.outputs.size() || !problem_.output(int(output)).present()) return;
    for (int64_t row = 0; row < rows_; ++row)
      from_f32(state + row * s_.state_row, s_.dtype, static_cast<char*>(b_.outputs[output]) + bytes(state_at(row)),
               s_.e.hidden);
  }
  void clear(int64_t t) {
    for (int64_t row = 0; row < rows_ && s_.e.hidden > 0; ++row)
      std::memset(y_of(t, row), 0, size_t(bytes(s_.e.hidden)));
  }

  void project(int64_t t, int64_t count, const ThreadPool& pool) {
    Gemm g = projection(s_, count, rows_);
    const char* x = static_cast<const char*>(b_.inputs[kRecurrentX]);
    const auto x_at = [&](int64_t step, int64_t row) {
      return (s_.form.batch_first ? (first_ + row) * s_.e.steps + step : step * s_.e.batch + first_ + row) * s_.e.input;
    };
    g.a.data = reinterpret_cast<const float*>(x + bytes(x_at(t, 0)));
    if (s_.narrow()) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t row = 0; row < rows_; ++row)
          to_f32(s_.dtype, x + bytes(x_at(t + i, row)), wide_ + (i * rows_ + row) * s_.e.input, s_.e.input);
      g.a.data = wide_;
    }
    g.b.packed = shared_.w + direction_ * s_.w_floats;
    g.c = x_;
    g.epilogue.bias = shared_.bias + direction_ * s_.bias_floats();
    if (g.m <= kMaxMatvecRows && g.batch_axes == 0)
      matvec(g, gemm_, pool);
    else
      gemm(g, gemm_, pool);
  }

  void step(int64_t t, const float* x, const ThreadPool& pool) {
    for (int p = 0; p < s_.passes; ++p) {
      const RecurrentPass& pass = s_.pass[size_t(p)];
      const int64_t groups = ceil_div(s_.blocks, pass.group);
      const auto body = [&](int64_t begin, int64_t end, int thread) {
        // Back and forth: what the last step read last is still near.
        for (int64_t i = begin; i < end; ++i)
          group(pass, p, odd_ ? begin + end - 1 - i : i, t, x, sums_ + thread * s_.sums_floats);
      };
      if (pool.threads() == 1)
        body(0, groups, 0);
      else
        pool.run(groups, 1, body);
    }
    std::swap(h_, next_);
    odd_ = !odd_;
    zero_state_ = false;
  }

  // The units of one group: their sums, and their cell.
  void group(const RecurrentPass& pass, int number, int64_t index, int64_t t, const float* x, float* sums) {
    const int64_t first = index * pass.group, blocks = std::min(pass.group, s_.blocks - first);
    const int64_t cols = s_.group_cols(pass), vectors = blocks * pass.gates;
    const float* h = number == 1 ? reset_ : h_;
    if (zero_state_)
      std::fill(sums, sums + rows_ * cols, 0.0f);
    else
      for (int64_t v = 0; v < vectors; v += 2)
        multiply(shared_.r + direction_ * s_.r_floats + pass.r_floats +
                     (first * pass.gates + v) / 2 * s_.width * s_.e.hidden,
                 int(std::min<int64_t>(2, vectors - v)), h, sums + v * s_.lanes, cols);
    CellStep c;
    c.first = first, c.blocks = blocks, c.hidden = s_.e.hidden, c.rows = rows_;
    c.sums = sums, c.sums_row = cols;
    c.x = x + pass.x_col + first * pass.gates * s_.lanes, c.x_row = s_.x_cols;
    c.h = h_, c.next = next_, c.cell = cell_, c.reset = reset_, c.state_row = s_.state_row;
    if (shared_.peephole) c.peephole = shared_.peephole + direction_ * 3 * s_.units;
    c.peephole_step = s_.units;
    c.bias = shared_.bias + direction_ * s_.bias_floats() + s_.x_cols;
    if (!s_.narrow()) c.y = reinterpret_cast<float*>(y_of(t, 0));
    c.y_row = rows_ > 1 ? y_at(t, 1) - y_at(t, 0) : 0;
    c.lengths = lengths_, c.t = t;
    c.activation = s_.form.activations_of(direction_);
    c.clip = float(s_.form.clip);
    c.usual = s_.usual, c.input_forget = s_.form.input_forget;
    if (s_.form.kind == CellKind::kLstm)
      lstm_step(c);
    else if (s_.form.kind == CellKind::kRnn)
      rnn_step(c);
    else if (s_.passes == 1)
      gru_step(c);
    else if (number == 0)
      return gru_gates(c);
    else
      gru_candidate(c);
    if (s_.narrow()) store_narrow(c);
  }

  void store_narrow(const CellStep& c) {
    const int64_t unit = c.first * s_.lanes, count = std::min(c.blocks * s_.lanes, s_.e.hidden - unit);
    for (int64_t row = 0; row < rows_; ++row) {
      char* y = y_of(c.t, row) + bytes(unit);
      if (c.active(row))
        from_f32(c.next + row * c.state_row + unit, s_.dtype, y, count);
      else
        std::memset(y, 0, size_t(bytes(count)));
    }
  }

  // All rows of the state by one panel.
  void multiply(const float* panel, int vectors, const float* h, float* sums, int64_t sums_row) const {
    const MicroKernels& kernels = micro_kernels();
    MicroTile tile{};
    tile.a_row = s_.state_row;
    tile.length = s_.e.hidden;
    tile.b = panel, tile.b_row = s_.width;
    tile.c_row = sums_row;
    tile.alpha = 1;
    tile.cols = int(vectors * s_.lanes);
    const bool thin = rows_ <= kMaxThinRows;
    const int64_t tiles = thin ? 1 : ceil_div(rows_, int64_t(kernels.max_rows));
    tile.ahead = panel + s_.width * s_.e.hidden;
    tile.ahead_step = s_.width / tiles;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t row = rows_ * i / tiles, size = rows_ * (i + 1) / tiles - row;
      tile.a = h + row * s_.state_row;
      tile.c = sums + row * sums_row;
      (thin ? kernels.thin[size][vectors][0] : kernels.tile[size][vectors][0])(tile);
      tile.ahead += tile.length / tiles * s_.width;
    }
  }

  const RecurrentShape& s_;
  const Problem& problem_;
  const Buffers& b_;
  const Shared& shared_;
  const int direction_;
  const int64_t first_, rows_;
  const int32_t* lengths_;
  float *x_, *wide_, *h_, *next_, *cell_, *reset_, *gemm_, *sums_;
  bool zero_state_ = false, odd_ = false;
};

Shared share(const RecurrentShape& s, const Problem& p, const Buffers& b, const ThreadPool& pool) {
  float* memory = static_cast<float*>(b.workspace);
  const auto take = [&](int64_t floats) {
    float* at = memory;
    memory += round_up(floats, 16);
    return at;
  };
  float* const bias = take(s.form.directions * s.bias_floats());
  float* const peephole = take(s.form.directions * 3 * s.units);
  const auto packed = [&](int input, float* to) -> const float* {
    if (!to) return static_cast<const float*>(b.inputs[input]);
    pool.run(s.form.directions, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t d = begin; d < end; ++d) pack_direction(s, input, d, b.inputs[input], to);
    });
    return to;
  };
  Shared shared{};
  shared.w = packed(kRecurrentW, s.pack_w ? take(s.form.directions * s.w_floats) : nullptr);
  shared.r = packed(kRecurrentR, s.pack_r ? take(s.form.directions * s.r_floats) : nullptr);
  if (p.has(kRecurrentB)) {
    shared.bias = packed(kRecurrentB, p.input(kRecurrentB).is_constant ? nullptr : bias);
  } else {
    std::fill(bias, bias + s.form.directions * s.bias_floats(), 0.0f);
    shared.bias = bias;
  }
  if (s.form.kind == CellKind::kLstm && p.has(kRecurrentP)) {
    std::fill(peephole, peephole + s.form.directions * 3 * s.units, 0.0f);
    for (int64_t row = 0; row < 3 * s.form.directions; ++row)
      to_f32(s.dtype, static_cast<const char*>(b.inputs[kRecurrentP]) + bytes_of(s.dtype, row * s.e.hidden),
             peephole + row * s.units, s.e.hidden);
    shared.peephole = peephole;
  }
  if (p.has(kRecurrentLengths)) shared.lengths = static_cast<const int32_t*>(b.inputs[kRecurrentLengths]);
  shared.sweeps = static_cast<float*>(b.workspace) + s.shared_floats;
  return shared;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& all_threads) {
  const State& state = call.state_as<State>();
  const RecurrentShape& s = state.shape;
  const ThreadPool pool = all_threads.at_most(s.threads);
  if (s.e.batch == 0 || s.e.hidden == 0) return;
  const Shared shared = share(s, call.problem, buffers, pool);
  for (int64_t row = 0; shared.lengths && row < s.e.batch; ++row) {
    if (shared.lengths[row] < 0 || shared.lengths[row] > s.e.steps)
      fail(ErrorCode::kBadInput, "{}: sequence_lens[{}] is {}; allowed: 0 to {}", call.problem.op->name, row,
           shared.lengths[row], s.e.steps);
  }
  const ThreadPool inner = s.share_steps ? pool : pool.at_most(1);
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t slice = task % s.slices, first = s.e.batch * slice / s.slices;
      Sweep(call, buffers, shared, int(task / s.slices), first, s.e.batch * (slice + 1) / s.slices - first,
            shared.sweeps + thread * s.sweep_floats)
          .run(inner);
    }
  };
  const int64_t tasks = s.form.directions * s.slices;
  if (s.share_steps || pool.threads() == 1)
    body(0, tasks, 0);
  else
    pool.run(tasks, 1, body);
  state.epilogue.run(buffers, pool);
}

constexpr Kernel kernel(std::string_view name, std::string_view op) {
  return {.name = name,
          .op = op,
          .supports = supports,
          .estimate = estimate,
          .workspace = workspace,
          .packing = packing,
          .pack = pack,
          .prepare = prepare,
          .run = run};
}

}  // namespace

constinit const Kernel kLstmKernel = kernel("cpu.lstm", "LSTM");
constinit const Kernel kGruKernel = kernel("cpu.gru", "GRU");
constinit const Kernel kRnnKernel = kernel("cpu.rnn", "RNN");

}  // namespace ridgeline::cpu
