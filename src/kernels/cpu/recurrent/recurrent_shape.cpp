#include "kernels/cpu/recurrent/recurrent_shape.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/matmul/micro.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

int64_t panels_of(const RecurrentShape& s, const RecurrentPass& p) {
  return ceil_div(s.blocks * p.gates * s.lanes, s.width);
}

bool usual(const RecurrentForm& form) {
  for (size_t i = 0; i < form.activation.size(); ++i) {
    const bool gate = form.kind != CellKind::kRnn && i % size_t(form.functions) == 0;
    if (form.activation[i].function != (gate ? GateFunction::kSigmoid : GateFunction::kTanh)) return false;
  }
  return form.clip == 0;
}

// Rows of projections that one product makes: enough for whole tiles, few enough that they stay in the second cache
// until their step comes.
constexpr int64_t kProjectedRows = 128;
// A region of the pool costs a microsecond: a step that is divided should have some ten.
constexpr double kSharedStepFlops = 2e6;

void divide(RecurrentShape& s) {
  const int64_t tasks = s.form.directions, step_bytes = s.r_floats * int64_t(sizeof(float));
  const double step_flops = 2.0 * double(s.e.batch) * double(s.r_floats);
  // Slices of under four rows would each read all weights for less arithmetic than that takes.
  s.slices = std::clamp<int64_t>(ceil_div(s.threads, tasks), 1, std::max<int64_t>(1, s.e.batch / 4));
  // Weights that no core's cache holds are read again in each step, by each slice: divided between cores they stay.
  const bool far = step_bytes > this_cpu().caches.l2, idle = tasks * s.slices < s.threads;
  s.share_steps = s.threads > 1 && step_flops >= kSharedStepFlops && (far || idle);
  if (s.share_steps) s.slices = 1;
  s.rows = ceil_div(s.e.batch, s.slices);
  s.sweeps = s.share_steps ? 1 : std::min<int64_t>(s.threads, tasks * s.slices);
  s.chunk =
      std::clamp<int64_t>(ceil_div(kProjectedRows, std::max<int64_t>(1, s.rows)), 1, std::max<int64_t>(1, s.e.steps));
}

void size_workspace(RecurrentShape& s) {
  const int step_threads = s.share_steps ? s.threads : 1;
  const auto line = [](int64_t floats) { return round_up(floats, 16); };
  // Biases, peepholes, and weights that are no constants.
  s.shared_floats = line(s.form.directions * s.bias_floats()) + line(s.form.directions * 3 * s.units) +
                    (s.pack_w ? s.form.directions * s.w_floats : 0) + (s.pack_r ? s.form.directions * s.r_floats : 0);
  int64_t cols = 0;
  for (int p = 0; p < s.passes; ++p) cols = std::max(cols, s.group_cols(s.pass[size_t(p)]));
  s.sums_floats = line(s.rows * cols) + 16;
  const Gemm g = projection(s, s.chunk, s.rows);
  s.gemm_floats = line(std::max(gemm_workspace_bytes(g, step_threads), matvec_workspace_bytes(g, step_threads)) /
                       int64_t(sizeof(float)));
  s.sweep_floats = line(s.chunk * s.rows * s.x_cols) + line(s.narrow() ? s.chunk * s.rows * s.e.input : 0) +
                   4 * line(s.rows * s.state_row) + step_threads * s.sums_floats + s.gemm_floats;
}

}  // namespace

int64_t RecurrentShape::group_cols(const RecurrentPass& p) const { return round_up(p.group * p.gates * lanes, width); }

RecurrentShape recurrent_shape(const Problem& problem) {
  RecurrentShape s;
  s.form = recurrent_form(*problem.op, problem.attributes);
  s.e = recurrent_extents(problem, s.form);
  s.dtype = problem.input(kRecurrentX).dtype;
  s.lanes = micro_kernels().lanes, s.width = panel_width();
  s.blocks = ceil_div(s.e.hidden, s.lanes), s.units = s.blocks * s.lanes;
  if (s.form.kind == CellKind::kGru && !s.form.linear_before_reset) {
    s.passes = 2;
    s.pass[0] = {.first_gate = 0, .gates = 2};
    s.pass[1] = {.first_gate = 2, .gates = 1};
  } else {
    s.pass[0] = {.first_gate = 0, .gates = s.form.gates};
  }
  for (int p = 0; p < s.passes; ++p) {
    RecurrentPass& pass = s.pass[size_t(p)];
    pass.group = pass.gates % 2 == 0 ? 1 : 2;
    pass.x_col = s.x_cols;
    pass.r_floats = s.r_floats;
    const int64_t panels = panels_of(s, pass);
    s.x_cols += panels * s.width;
    s.r_floats += panels * s.width * s.e.hidden;
  }
  s.w_floats = round_up(s.x_cols * s.e.input, 16);
  s.r_floats = round_up(s.r_floats, 16);
  // Rows a multiple of a page apart share the sets of the first cache.
  s.state_row = s.units + 16;
  s.pack_w = !problem.input(kRecurrentW).is_constant;
  s.pack_r = !problem.input(kRecurrentR).is_constant;
  s.usual = usual(s.form);
  s.threads = std::max(1, problem.threads);
  divide(s);
  size_workspace(s);
  return s;
}

Gemm projection(const RecurrentShape& s, int64_t steps, int64_t rows) {
  Gemm g;
  g.n = s.x_cols, g.k = s.e.input;
  g.a.row_stride = s.e.input;
  g.ldc = s.x_cols;
  g.m = steps * rows;
  if (s.narrow() || steps == 1 || (!s.form.batch_first && rows == s.e.batch)) {
    if (!s.narrow() && s.form.batch_first) g.a.row_stride = s.e.steps * s.e.input;  // one step: a row a batch item
    return g;
  }
  g.batch_axes = 1;
  if (s.form.batch_first) {
    g.m = steps;
    g.ldc = rows * s.x_cols;
    g.batch[0] = {.extent = rows, .a = s.e.steps * s.e.input, .c = s.x_cols};
  } else {
    g.m = rows;
    g.batch[0] = {.extent = steps, .a = s.e.batch * s.e.input, .c = rows * s.x_cols};
  }
  return g;
}

void pack_bias(const RecurrentShape& s, const void* source, float* packed) {
  constexpr int64_t kMostLanes = 16;
  const int64_t h = s.e.hidden;
  const auto units = [&](int64_t at, int64_t count, float* to) {
    to_f32(s.dtype, static_cast<const char*>(source) + bytes_of(s.dtype, at), to, count);
  };
  std::fill(packed, packed + s.bias_floats(), 0.0f);
  float of_r[kMostLanes];
  for (int p = 0; p < s.passes; ++p) {
    const RecurrentPass& pass = s.pass[size_t(p)];
    for (int64_t v = 0; v < s.blocks * pass.gates; ++v) {
      const int64_t first = v / pass.gates * s.lanes, there = std::min(s.lanes, h - first);
      const int64_t gate = pass.first_gate + v % pass.gates, row = gate * h + first;
      float* to = packed + pass.x_col + v * s.lanes;
      units(row, there, to);
      if (s.form.linear_before_reset && gate == 2) {
        units(s.form.gates * h + row, there, packed + s.x_cols + first);
        continue;
      }
      units(s.form.gates * h + row, there, of_r);
      for (int64_t l = 0; l < there; ++l) to[l] += of_r[l];
    }
  }
}

void pack_recurrent(const RecurrentShape& s, const void* source, int64_t k, float* packed) {
  constexpr int64_t kPiece = 64, kMostLanes = 16;
  const int64_t bytes = bytes_of(s.dtype, 1), n = s.lanes;
  float rows[kMostLanes][kPiece];
  for (int p = 0; p < s.passes; ++p) {
    const RecurrentPass& pass = s.pass[size_t(p)];
    const int64_t panels = panels_of(s, pass);
    for (int64_t v = 0; v < 2 * panels; ++v) {
      const int64_t block = v / pass.gates, gate = pass.first_gate + v % pass.gates;
      const int64_t first = block * n, there = std::clamp<int64_t>(s.e.hidden - first, 0, n);
      float* to = packed + v / 2 * s.width * k + v % 2 * n;
      const char* from = static_cast<const char*>(source) + (gate * s.e.hidden + first) * k * bytes;
      for (int64_t at = 0; at < k; at += kPiece) {
        const int64_t piece = std::min(kPiece, k - at);
        for (int64_t l = 0; l < there; ++l) to_f32(s.dtype, from + (l * k + at) * bytes, rows[l], piece);
        for (int64_t t = 0; t < piece; ++t) {
          float* line = to + (at + t) * s.width;
          for (int64_t l = 0; l < there; ++l) line[l] = rows[l][t];
          std::fill(line + there, line + n, 0.0f);
        }
      }
    }
    packed += panels * s.width * k;
  }
}

}  // namespace ridgeline::cpu
