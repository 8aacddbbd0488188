// cpu.program: every elementwise operator and fused program. The f32 interpreter where it can, the exact one elsewhere.
#include "kernels/cpu/elementwise/program_kernel.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/elementwise/exact_block.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/elementwise/stream.h"

namespace ridgeline::cpu {

namespace {

struct State {
  LoopNest nest;  // operands: inputs, then outputs
  std::optional<PreparedProgram> fast;
  std::optional<ExactProgram> exact;
  std::vector<int> input_bytes, output_bytes;
  int64_t grain = 0;
  bool stream = false;
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
  return state;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
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
};

}  // namespace ridgeline::cpu
