// cpu.program: every elementwise operator and fused program. The f32 interpreter where it can, the exact one elsewhere.
#include "kernels/cpu/elementwise/program_kernel.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "kernels/cpu/elementwise/exact_block.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/movement/copy_tile.h"

namespace ridgeline::cpu {

namespace {

struct State {
  LoopNest nest;  // operands: inputs, then outputs
  std::optional<PreparedProgram> fast;
  std::optional<ExactProgram> exact;
  std::vector<int> input_bytes, output_bytes;
  int64_t grain = 0;
  bool stream = false;
  int64_t woven = 0, plane = 0;  // planes of each image that are woven into one; their pixels
};

constexpr int kMostTensors = 32;

/// Element work in units of a vector instruction on eight f32: what an instruction costs beside its loads.
double step_weight(ScalarOp op) {
  switch (op) {
    case ScalarOp::kSigmoid:
    case ScalarOp::kTanh:
    case ScalarOp::kErf:
    case ScalarOp::kErfc:
    case ScalarOp::kSoftplus:
    case ScalarOp::kLog:
    case ScalarOp::kExp:
    case ScalarOp::kSin:
    case ScalarOp::kCos:
      return 8;
    case ScalarOp::kPow:
      return 40;
    case ScalarOp::kTan:
    case ScalarOp::kAsin:
    case ScalarOp::kAcos:
    case ScalarOp::kAtan:
    case ScalarOp::kSinh:
    case ScalarOp::kCosh:
    case ScalarOp::kAsinh:
    case ScalarOp::kAcosh:
    case ScalarOp::kAtanh:
    case ScalarOp::kMod:
    case ScalarOp::kFmod:
      return 300;
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
    case ScalarOp::kRsqrt:
    case ScalarOp::kReciprocal:
      return 4;
    default:
      return 1;
  }
}

/// From planes to channels last with few channels (an image that a convolution takes in another type): plane by plane,
/// and the results of a block woven together. How many; 0: it is not that.
int64_t woven_planes(const Problem& p) {
  const Operand& out = p.output();
  if (p.outputs.size() != 1 || out.layout.rank() != 4 || out.elements() == 0 || info(out.dtype).bits > 32) return 0;
  const int64_t channels = out.shape()[1];
  if (channels < 2 || channels > 4 || out.layout != Layout::channels_last(out.shape())) return 0;
  if (out.layout.is_row_major() || !PreparedProgram::reject(*p.program).empty()) return 0;
  for (const Operand& in : p.inputs)
    if (in.elements() != 1 && (in.shape() != out.shape() || !in.layout.is_row_major())) return 0;
  return channels;
}

double program_weight(const Program& p) {
  double weight = 1;
  for (const Instruction& in : p.code) weight += step_weight(in.op);
  return weight;
}

Support supports(const Problem& p) {
  if (!p.program) return no("the problem has no program");
  if (p.inputs.size() + p.outputs.size() > size_t(kMostTensors))
    return no("{} tensors, at most {}", p.inputs.size() + p.outputs.size(), kMostTensors);
  if (p.program->inputs.size() != p.inputs.size() || p.program->outputs.size() != p.outputs.size())
    return no("the program has {} inputs and {} outputs, the problem {} and {}", p.program->inputs.size(),
              p.program->outputs.size(), p.inputs.size(), p.outputs.size());
  for (const Operand& out : p.outputs) {
    if (out.shape() != p.output().shape()) return no("outputs of different shapes");
    for (int a = 0; a < out.layout.rank(); ++a)
      if (out.layout.strides[size_t(a)] == 0 && out.shape()[size_t(a)] > 1) return no("an output is broadcast");
  }
  if (std::string why = ExactProgram::reject(*p.program); !why.empty()) return no("{}", why);
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double stream = c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads);
  const int64_t n = p.output().elements();
  const bool fast = PreparedProgram::reject(*p.program).empty();
  // A step of the interpreter moves eight bytes of each operand through L1; the exact one takes some 4 ns an
  // instruction.
  double compute = fast ? program_weight(*p.program) * double(n) * 4 / c.read_gb_s[0].at(p.threads, c.cores)
                        : 2.0 * double(n) * double(p.program->code.size() + p.inputs.size()) / p.threads;
  return std::max(stream, compute) + 100;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  auto state = std::make_shared<State>();
  std::vector<const Layout*> layouts;
  int64_t bytes = 0;
  for (const Operand& in : p.inputs) {
    layouts.push_back(&in.layout);
    state->input_bytes.push_back(info(in.dtype).bits / 8);
    bytes += in.bytes();
  }
  for (const Operand& out : p.outputs) {
    layouts.push_back(&out.layout);
    state->output_bytes.push_back(info(out.dtype).bits / 8);
    bytes += out.bytes();
  }
  state->nest = make_loop_nest(p.output().shape(), layouts, int(p.inputs.size()));
  if (PreparedProgram::reject(*p.program).empty()) {
    Program program = *p.program;
    program.simplify();
    const bool same = program.inputs == p.program->inputs && PreparedProgram::reject(program).empty();
    state->fast.emplace(same ? program : *p.program);
  } else {
    state->exact.emplace(*p.program);
  }
  // About 2 us of work on one thread are worth a second one.
  const double per_element_ns = 0.05 * program_weight(*p.program) * (state->fast ? 1 : 40);
  state->grain = std::max<int64_t>(1, int64_t(2000 / per_element_ns));
  state->stream = bytes >= stream_threshold_bytes();
  state->woven = woven_planes(p);
  if (state->woven) state->plane = p.output().elements() / p.output().shape()[0] / state->woven;
  return state;
}

void run_woven(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  constexpr int64_t kPixels = PreparedProgram::kBlock;
  const int64_t blocks = (s.plane + kPixels - 1) / kPixels, images = call.problem.output().shape()[0];
  const int bytes = s.output_bytes[0];
  const auto body = [&](int64_t begin, int64_t end, int) {
    alignas(64) char results[4 * kPixels * 4];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, first = i % blocks * kPixels, n = std::min(kPixels, s.plane - first);
      for (int64_t c = 0; c < s.woven; ++c) {
        TileInput in[kMostTensors];
        for (size_t k = 0; k < s.input_bytes.size(); ++k) {
          const bool one = call.problem.input(int(k)).elements() == 1;
          const int64_t at = one ? 0 : (image * s.woven + c) * s.plane + first;
          in[k] = {static_cast<const char*>(buffers.inputs[k]) + at * s.input_bytes[k], 0, one ? 0 : 1};
        }
        const TileOutput out{results + c * kPixels * bytes, 0, 1, false};
        run_tile(*s.fast, 1, n, in, &out);
      }
      copy_tile(bytes, results, 1, kPixels,
                static_cast<char*>(buffers.outputs[0]) + (image * s.plane + first) * s.woven * bytes, s.woven, 1, n,
                s.woven, false);
    }
  };
  pool.run(images * blocks, std::max<int64_t>(1, s.grain / (kPixels * s.woven)), std::cref(body));
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.woven) return run_woven(call, buffers, pool);
  const size_t ins = s.input_bytes.size(), outs = s.output_bytes.size();
  s.nest.run(pool, s.grain, [&](const int64_t* offsets, int64_t rows, int64_t cols) {
    TileInput in[kMostTensors];
    TileOutput out[kMostTensors];
    for (size_t k = 0; k < ins; ++k)
      in[k] = {static_cast<const char*>(buffers.inputs[k]) + offsets[k] * s.input_bytes[k], s.nest.row_stride(int(k)),
               s.nest.col_stride(int(k))};
    for (size_t k = 0; k < outs; ++k) {
      const int o = int(ins + k);
      out[k] = {static_cast<char*>(buffers.outputs[k]) + offsets[o] * s.output_bytes[k], s.nest.row_stride(o),
                s.nest.col_stride(o), s.stream};
    }
    if (s.fast)
      run_tile(*s.fast, rows, cols, in, out);
    else
      s.exact->run(rows, cols, in, out);
  });
}

/// Every element is read before it is written if the input lies as the output does.
bool in_place(const Problem& p, int input) {
  const Operand& in = p.input(input);
  return in.present() && info(in.dtype).bits == info(p.output().dtype).bits && in.layout == p.output().layout;
}

}  // namespace

constinit const Kernel kProgram = {
    .name = "cpu.program",
    .op = "Elementwise",
    .supports = supports,
    .estimate = estimate,
    .prepare = prepare,
    .run = run,
    .in_place = in_place,
    .version = 2,
};

}  // namespace ridgeline::cpu
