// cpu.batch_norm, cpu.instance_norm, cpu.group_norm: each becomes y = x * a + b with a and b a channel, which is a
// program. Statistics, where they are the input's own, come from a walk over contiguous blocks before.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/normalize/norm_kernels.h"
#include "kernels/cpu/normalize/row_steps.h"

namespace ridgeline::cpu {

namespace {

enum class Kind { kBatch, kInstance, kGroup };

struct State {
  LoopNest nest;  // operands x, m, a, b, y
  PreparedProgram affine;
  EpiloguePass epilogue;
  int64_t batch = 1, channels = 1, groups = 1, inner = 1;
  bool stream = false;
};

Program affine_program() {
  static constexpr std::string_view kNames[] = {"x", "m", "a", "b"};
  Program p = Program::parse("(x - m) * a + b", kNames, DType::kF32);
  p.simplify();
  return p;
}

template <Kind kKind>
Support supports(const Problem& p) {
  for (int k = 0; k < p.op_inputs; ++k)
    if (p.has(k) && p.input(k).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(k).dtype));
  if (p.input(0).layout.rank() < 2) return no("there is no axis of channels");
  if (kKind == Kind::kBatch && p.flag("training_mode")) return no("training_mode = 1: statistics come from the batch");
  if (kKind != Kind::kBatch && !p.input(0).layout.is_row_major()) return no("the images' planes are not contiguous");
  for (int k = 1; k < p.op_inputs; ++k)
    if (p.has(k) && !p.input(k).layout.is_row_major()) return no("'{}' is strided", p.op->inputs[k].name);
  for (size_t k = 1; k < p.outputs.size(); ++k)
    if (p.outputs[k].present()) return no("running statistics are wanted");
  return EpiloguePass::check(p);
}

template <Kind kKind>
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double affine = c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads);
  // Statistics: two walks over blocks that are in L2 the second time.
  return (kKind == Kind::kBatch ? affine : affine + 1.5 * c.stream_ns(p.input(0).bytes(), 0, p.threads)) + 200;
}

template <Kind kKind>
std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Extents& shape = p.input(0).shape();
  const int64_t batch = shape[0], channels = shape[1];
  Layout parameter(shape, Extents(shape.size(), 0));
  parameter.strides[1] = 1;
  if (kKind != Kind::kBatch) parameter.strides[0] = channels;
  const Layout* const layouts[] = {&p.input(0).layout, &parameter, &parameter, &parameter, &p.output().layout};
  const int64_t groups = kKind == Kind::kGroup ? p.integer("num_groups") : channels;
  return std::make_shared<State>(State{
      make_loop_nest(shape, layouts, 4), PreparedProgram(affine_program()), EpiloguePass(p), batch, channels, groups,
      element_count(std::span(shape).subspan(2)), p.read_bytes() + p.write_bytes() >= stream_threshold_bytes()});
}

template <Kind kKind>
int64_t workspace(const Problem& p, const Tile&) {
  const Extents& shape = p.input(0).shape();
  return 3 * int64_t(sizeof(float)) * shape[1] * (kKind == Kind::kBatch ? 1 : shape[0]);
}

template <Kind kKind>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.nest.elements() == 0) return;
  const float *x = static_cast<const float*>(buffers.inputs[0]), *scale = static_cast<const float*>(buffers.inputs[1]),
              *bias = static_cast<const float*>(buffers.inputs[2]);
  const double epsilon = call.problem.number("epsilon");
  const int64_t parameters = s.channels * (kKind == Kind::kBatch ? 1 : s.batch);
  float* m = static_cast<float*>(buffers.workspace);
  float *a = m + parameters, *b = a + parameters;
  auto set = [&](int64_t at, int64_t channel, float mean, double variance) {
    m[at] = mean;
    a[at] = float(double(scale[channel]) / std::sqrt(variance + epsilon));
    b[at] = bias[channel];
  };
  if constexpr (kKind == Kind::kBatch) {
    const float *mean = static_cast<const float*>(buffers.inputs[3]),
                *variance = static_cast<const float*>(buffers.inputs[4]);
    for (int64_t c = 0; c < s.channels; ++c) set(c, c, mean[c], variance[c]);
  } else {
    const int64_t members = s.channels / s.groups, block = members * s.inner;
    parallel(pool, s.batch * s.groups, std::max<int64_t>(1, 16384 / block), [&](int64_t begin, int64_t end, int) {
      for (int64_t g = begin; g < end; ++g) {
        float mean, variance;
        moments(x + g * block, block, &mean, &variance);
        for (int64_t c = g * members; c < (g + 1) * members; ++c) set(c, c % s.channels, mean, variance);
      }
    });
  }
  s.nest.run(pool, 16 << 10, [&](const int64_t* offsets, int64_t rows, int64_t cols) {
    const float* data[4] = {x, m, a, b};
    TileInput in[4];
    for (int k = 0; k < 4; ++k) in[k] = {data[k] + offsets[k], s.nest.row_stride(k), s.nest.col_stride(k)};
    const TileOutput out = {static_cast<float*>(buffers.outputs[0]) + offsets[4], s.nest.row_stride(4),
                            s.nest.col_stride(4), s.stream};
    run_tile(s.affine, rows, cols, in, &out);
  });
  s.epilogue.run(buffers, pool);
}

bool in_place(const Problem& p, int input) { return input == 0 && p.input(0).layout == p.output().layout; }

template <Kind kKind>
constexpr Kernel affine_kernel(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports<kKind>;
  k.estimate = estimate<kKind>;
  k.workspace = workspace<kKind>;
  k.prepare = prepare<kKind>;
  k.run = run<kKind>;
  k.in_place = in_place;
  return k;
}

}  // namespace

constinit const Kernel kBatchNormKernel = affine_kernel<Kind::kBatch>("cpu.batch_norm", "BatchNormalization");
constinit const Kernel kInstanceNormKernel =
    affine_kernel<Kind::kInstance>("cpu.instance_norm", "InstanceNormalization");
constinit const Kernel kGroupNormKernel = affine_kernel<Kind::kGroup>("cpu.group_norm", "GroupNormalization");

}  // namespace ridgeline::cpu
