// cpu.layer_norm, cpu.rms_norm and those with a residual: a row at a time, two passes over L1.
#include <algorithm>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/normalize/norm_kernels.h"
#include "kernels/cpu/normalize/row_steps.h"

namespace ridgeline::cpu {

namespace {

/// Which input and output is what; -1: the operator has none.
struct Roles {
  int residual = -1, scale = 1, bias = -1, sum = -1, mean = -1, inverse = -1;
  bool centered = true;
};

constexpr int64_t kLongestAhead = 64 << 10;  // a row of 256 KiB

struct State {
  LoopNest nest;  // the axes before `axis`; operands x, y, then residual, sum, mean, inverse where there are
  NormRow row;    // what all rows share, pointers apart
  int operand[4] = {-1, -1, -1, -1};  // of the nest: residual, sum, mean, inverse
  bool prefetch = false;              // rows come from beyond L2
  EpiloguePass epilogue;
};

size_t axis_of(const Problem& p) {
  const int64_t axis = p.integer("axis"), rank = p.input(0).layout.rank();
  return size_t(axis < 0 ? axis + rank : axis);
}

bool wants(const Problem& p, int output) {
  return output >= 0 && output < int(p.outputs.size()) && p.outputs[size_t(output)].present();
}
bool has(const Problem& p, int input) { return input >= 0 && p.has(input); }

Layout outer(const Layout& layout, size_t axis) {
  return Layout(Extents(layout.shape.begin(), layout.shape.begin() + int64_t(axis)),
                Extents(layout.strides.begin(), layout.strides.begin() + int64_t(axis)));
}
bool inner_dense(const Layout& layout, size_t axis) {
  return Layout(Extents(layout.shape.begin() + int64_t(axis), layout.shape.end()),
                Extents(layout.strides.begin() + int64_t(axis), layout.strides.end()))
      .is_row_major();
}

template <const Roles& kRoles>
Support supports(const Problem& p) {
  const Roles& r = kRoles;
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  const size_t axis = axis_of(p);
  const Layout& x = p.input(0).layout;
  const int64_t cols = element_count(std::span(x.shape).subspan(axis));
  if (!inner_dense(x, axis) || !inner_dense(p.output().layout, axis)) return no("the normalized axes are strided");
  if (r.residual >= 0 && p.input(r.residual).shape() != x.shape) return no("the residual is broadcast");
  if (r.residual >= 0 && !inner_dense(p.input(r.residual).layout, axis)) return no("the residual's rows are strided");
  if (wants(p, r.sum) && !inner_dense(p.output(r.sum).layout, axis)) return no("the sum's rows are strided");
  for (int parameter : {r.scale, r.bias}) {
    if (!has(p, parameter)) continue;
    const Operand& operand = p.input(parameter);
    if (operand.elements() != 1 && operand.elements() != cols)
      return no("'{}' is broadcast along some of the axes", p.op->inputs[parameter].name);
    if (operand.elements() > 1 && !operand.layout.is_row_major())
      return no("'{}' is strided", p.op->inputs[parameter].name);
  }
  for (int statistic : {r.mean, r.inverse})
    if (wants(p, statistic) && p.output(statistic).dtype != DType::kF32)
      return no("statistics in {}", name(p.output(statistic).dtype));
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // Three walks over a row in L1 (four with a residual).
  const double compute = 4.0 * 4 * double(p.output().elements()) / c.read_gb_s[0].at(p.threads, c.cores);
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), compute) + 100;
}

// Where many cores share a large L3 it answers little faster than DRAM (28 GB/s against 20): a reader loses less by
// finding y there than the stores gain, which do not fetch y first. 4096 rows of 768: 2.20 ms by plain stores, 1.31
// past the caches.
bool leaves_l2(int64_t bytes) {
  constexpr int64_t kMesh = 64 << 20;
  const CacheSizes& caches = this_cpu().caches;
  return caches.l3 > kMesh && bytes >= 2 * caches.l2;
}

template <const Roles& kRoles>
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Roles& r = kRoles;
  const size_t axis = axis_of(p);
  const Layout& x = p.input(0).layout;
  std::vector<Layout> layouts = {outer(x, axis), outer(p.output().layout, axis)};
  int operand[4] = {-1, -1, -1, -1};
  auto add = [&](int k, const Layout& layout) {
    operand[k] = int(layouts.size());
    layouts.push_back(outer(layout, axis));
  };
  if (has(p, r.residual)) add(0, p.input(r.residual).layout);
  if (wants(p, r.sum)) add(1, p.output(r.sum).layout);
  if (wants(p, r.mean)) add(2, p.output(r.mean).layout);
  if (wants(p, r.inverse)) add(3, p.output(r.inverse).layout);
  std::vector<const Layout*> pointers;
  for (const Layout& layout : layouts) pointers.push_back(&layout);
  NormRow row;
  row.n = element_count(std::span(x.shape).subspan(axis));
  row.epsilon = float(p.number("epsilon"));
  row.centered = r.centered;
  row.scale_stride = has(p, r.scale) && p.input(r.scale).elements() == 1 ? 0 : 1;
  row.bias_stride = has(p, r.bias) && p.input(r.bias).elements() == 1 ? 0 : 1;
  const int64_t bytes = p.read_bytes() + p.write_bytes();
  row.stream = bytes >= stream_threshold_bytes() || leaves_l2(p.output().bytes());
  State state{make_loop_nest(layouts[0].shape, pointers, 1), row, {}, bytes > this_cpu().caches.l2, EpiloguePass(p)};
  std::copy(operand, operand + 4, state.operand);
  return std::make_shared<State>(std::move(state));
}

template <const Roles& kRoles>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Roles& r = kRoles;
  const State& s = call.state_as<State>();
  const Problem& p = call.problem;
  auto input = [&](int k) { return has(p, k) ? static_cast<const float*>(buffers.inputs[k]) : nullptr; };
  auto output = [&](int k) { return wants(p, k) ? static_cast<float*>(buffers.outputs[k]) : nullptr; };
  const float *x = input(0), *residual = input(r.residual);
  float *y = output(0), *sum = output(r.sum), *mean = output(r.mean), *inverse = output(r.inverse);
  NormRow shared = s.row;
  shared.scale = input(r.scale);
  shared.bias = input(r.bias);
  // The next row, or for short ones that 8 KiB ahead (the time DRAM takes to answer); of long ones the end would push
  // out the beginning.
  const int64_t step = s.nest.cols() > 1 ? s.nest.col_stride(0) : s.nest.row_stride(0);
  if (s.prefetch && s.row.n <= kLongestAhead) shared.ahead = step * std::max<int64_t>(1, 2048 / s.row.n);
  auto body = [&](const int64_t* offsets, int64_t rows, int64_t cols) {
    auto at = [&](int operand, int64_t i, int64_t j) {
      return offsets[operand] + i * s.nest.row_stride(operand) + j * s.nest.col_stride(operand);
    };
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        NormRow row = shared;
        row.x = x + at(0, i, j);
        row.y = y + at(1, i, j);
        if (residual) row.residual = residual + at(s.operand[0], i, j);
        row.sum = sum ? sum + at(s.operand[1], i, j) : row.y;
        if (mean) row.mean = mean + at(s.operand[2], i, j);
        if (inverse) row.inverse = inverse + at(s.operand[3], i, j);
        if (sum && !residual) row.sum = nullptr;
        norm_row(row);
      }
    }
    if (shared.stream) flush_rows();
  };
  s.nest.run(pool, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, s.row.n)), body, 1);
  s.epilogue.run(buffers, pool);
}

/// x, or the residual, may become y: each row is read before it is written.
template <const Roles& kRoles>
bool in_place(const Problem& p, int input) {
  return (input == 0 || input == kRoles.residual) && p.input(input).layout == p.output().layout;
}

template <const Roles& kRoles>
constexpr Kernel norm(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports<kRoles>;
  k.estimate = estimate;
  k.prepare = prepare<kRoles>;
  k.run = run<kRoles>;
  k.in_place = in_place<kRoles>;
  k.version = 2;
  return k;
}

constexpr Roles kLayer = {.bias = 2, .mean = 1, .inverse = 2};
constexpr Roles kRms = {.centered = false};
constexpr Roles kSimplified = {.inverse = 1, .centered = false};
constexpr Roles kAddLayer = {.residual = 1, .scale = 2, .bias = 3, .sum = 1};
constexpr Roles kAddRms = {.residual = 1, .scale = 2, .sum = 1, .centered = false};

}  // namespace

constinit const Kernel kLayerNormKernel = norm<kLayer>("cpu.layer_norm", "LayerNormalization");
constinit const Kernel kRmsNormKernel = norm<kRms>("cpu.rms_norm", "RMSNormalization");
constinit const Kernel kSimplifiedLayerNormKernel =
    norm<kSimplified>("cpu.simplified_layer_norm", "SimplifiedLayerNormalization");
constinit const Kernel kAddLayerNormKernel = norm<kAddLayer>("cpu.add_layer_norm", "AddLayerNormalization");
constinit const Kernel kAddRmsNormKernel = norm<kAddRms>("cpu.add_rms_norm", "AddRMSNormalization");

}  // namespace ridgeline::cpu
