// cuda.program_interpreted: any elementwise program by one compilation. For work too small to be worth a compilation of
// its own; the check of the compiled kernel.
#include <bit>
#include <cstring>

#include "core/loops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/elementwise/elementwise_kernels.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

// The capacities that interpreted.cu is compiled for: its arguments must stay below the 4 KiB of a launch.
constexpr int kRank = 6, kOperands = 20, kConstants = 48, kSteps = Program::kMostInstructions;
constexpr int kValues = kOperands + kConstants + kSteps;
constexpr int kThreads = 128;

struct DeviceOperand {
  uint64_t address;
  std::array<int64_t, kRank> stride;
  uint64_t type;
};
struct DeviceStep {
  uint8_t op, type;
  int16_t a, b, c;
};
struct Arguments {
  std::array<DeviceOperand, kOperands> operand;
  std::array<uint64_t, kRank> extent;
  uint64_t count;
  std::array<int64_t, kConstants> constant;
  std::array<DeviceStep, kSteps> step;
  std::array<int16_t, kOperands> result;
  std::array<uint8_t, kValues> type;
  int16_t inputs, outputs, constants, steps;
};
static_assert(sizeof(Arguments) <= 4096);

Loops loops_of(const Problem& p) {
  std::vector<const Layout*> layouts;
  for (const Operand& in : p.inputs) layouts.push_back(&in.layout);
  for (const Operand& out : p.outputs) layouts.push_back(&out.layout);
  return make_loops(p.output().shape(), layouts, int(p.inputs.size()));
}

Support supports(const Problem& p) {
  const Support compiled = kProgram.supports(p);
  if (!compiled.ok) return compiled;
  if (int(p.inputs.size() + p.outputs.size()) > kOperands) return no("more than {} tensors", kOperands);
  if (int(p.program->constants.size()) > kConstants) return no("more than {} constants", kConstants);
  if (int(p.program->code.size()) > kSteps) return no("more than {} instructions", kSteps);
  if (const int axes = loops_of(p).axes(); axes > kRank)
    return no("{} axes that do not merge, at most {}", axes, kRank);
  return yes();
}

// Measured nowhere near a roof: what counts is that the compiled kernel is taken wherever it is at hand.
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  constexpr double kNsPerStep = 0.02, kStartNs = 6000;
  return kStartNs + c.launch_ns.at(1, 1) +
         kNsPerStep * double(p.output().elements()) * double(p.program->code.size() + p.inputs.size());
}

Source source(const Problem&, const Tile&) {
  Source source;
  source.file = "elementwise/interpreted.cu";
  source.entry = "interpreted";
  source.defines = {fmt::format("RANK={}", kRank), fmt::format("OPERANDS={}", kOperands),
                    fmt::format("CONSTANTS={}", kConstants), fmt::format("STEPS={}", kSteps),
                    fmt::format("VALUES={}", kValues)};
  const std::pair<const char*, DType> types[] = {
      {"F64", DType::kF64}, {"F32", DType::kF32}, {"F16", DType::kF16},  {"BF16", DType::kBF16}, {"I8", DType::kI8},
      {"I16", DType::kI16}, {"I32", DType::kI32}, {"I64", DType::kI64},  {"U8", DType::kU8},     {"U16", DType::kU16},
      {"U32", DType::kU32}, {"U64", DType::kU64}, {"BOOL", DType::kBool}};
  for (const auto& [name, type] : types) source.defines.push_back(fmt::format("T_{}={}", name, int(type)));
  // In the order of ScalarOp.
  const char* const operations[] = {"Cast",
                                    "Add",
                                    "Sub",
                                    "Mul",
                                    "Div",
                                    "Mod",
                                    "Fmod",
                                    "Pow",
                                    "Min",
                                    "Max",
                                    "Neg",
                                    "Abs",
                                    "Sign",
                                    "Reciprocal",
                                    "Sqrt",
                                    "Rsqrt",
                                    "Square",
                                    "Exp",
                                    "Log",
                                    "Erf",
                                    "Erfc",
                                    "Sin",
                                    "Cos",
                                    "Tan",
                                    "Asin",
                                    "Acos",
                                    "Atan",
                                    "Sinh",
                                    "Cosh",
                                    "Tanh",
                                    "Asinh",
                                    "Acosh",
                                    "Atanh",
                                    "Sigmoid",
                                    "Softplus",
                                    "Relu",
                                    "Floor",
                                    "Ceil",
                                    "Round",
                                    "Clamp",
                                    "Fma",
                                    "Select",
                                    "Equal",
                                    "Less",
                                    "LessOrEqual",
                                    "Greater",
                                    "GreaterOrEqual",
                                    "And",
                                    "Or",
                                    "Xor",
                                    "Not",
                                    "IsNan",
                                    "IsInf",
                                    "BitAnd",
                                    "BitOr",
                                    "BitXor",
                                    "BitNot",
                                    "ShiftLeft",
                                    "ShiftRight"};
  static_assert(std::size(operations) == kScalarOpCount);
  for (size_t i = 0; i < std::size(operations); ++i)
    source.defines.push_back(fmt::format("OP_{}={}", operations[i], i));
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const Program& program = *p.program;
  const Loops loops = loops_of(p);
  Arguments a{};
  const size_t ins = p.inputs.size();
  const size_t missing = size_t(kRank - loops.axes());
  a.extent.fill(1);
  for (int axis = 0; axis < loops.axes(); ++axis)
    a.extent[size_t(axis) + missing] = uint64_t(loops.extents[size_t(axis)]);
  a.count = uint64_t(loops.elements());
  for (size_t k = 0; k < loops.strides.size(); ++k) {
    DeviceOperand& o = a.operand[k];
    o.address = reinterpret_cast<uint64_t>(k < ins ? buffers.inputs[k] : buffers.outputs[k - ins]);
    o.type = uint64_t(k < ins ? p.inputs[k].dtype : p.outputs[k - ins].dtype);
    for (size_t axis = 0; axis < loops.strides[k].size(); ++axis) o.stride[axis + missing] = loops.strides[k][axis];
  }
  for (size_t c = 0; c < program.constants.size(); ++c) {
    const ProgramConstant& constant = program.constants[c];
    a.constant[c] = is_float(constant.dtype) ? std::bit_cast<int64_t>(constant.f) : constant.i;
  }
  for (size_t s = 0; s < program.code.size(); ++s) {
    const Instruction& in = program.code[s];
    a.step[s] = {uint8_t(in.op), uint8_t(in.dtype), in.a, in.b, in.c};
  }
  for (int v = 0; v < program.operands(); ++v) a.type[size_t(v)] = uint8_t(program.dtype_of(v));
  for (size_t o = 0; o < program.outputs.size(); ++o) a.result[o] = int16_t(program.outputs[o]);
  a.inputs = int16_t(ins);
  a.outputs = int16_t(p.outputs.size());
  a.constants = int16_t(program.constants.size());
  a.steps = int16_t(program.code.size());
  void* parameters[] = {&a};
  launch(call.state_as<LoadedKernel>(), {(int64_t(a.count) + kThreads - 1) / kThreads}, kThreads, stream, parameters,
         {.dependent = true});
}

}  // namespace

constinit const Kernel kInterpreted = {
    .name = "cuda.program_interpreted",
    .op = "Elementwise",
    .device = DeviceKind::kCuda,
    .supports = supports,
    .estimate = estimate,
    .source = source,
    .launch = run,
    .in_place = [](const Problem& p, int input) { return kProgram.in_place(p, input); },
};

}  // namespace ridgeline::cuda
