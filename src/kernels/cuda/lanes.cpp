#include "kernels/cuda/lanes.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kMostAxes = 8;

// Few classes, so that few variants are compiled.
int axes_class(int axes) { return axes <= 1 ? 1 : axes <= 4 ? 4 : kMostAxes; }

// Axes of one kind merged, in the order of an operand's strides.
Loops merge(const LaneView& view, bool member, int lead) {
  Extents shape;
  for (size_t a = 0; a < view.extents.size(); ++a)
    if (bool(view.member[a]) == member) shape.push_back(view.extents[a]);
  std::vector<Layout> layouts;
  for (const LaneOperand& operand : view.operands) {
    Extents strides;
    for (size_t a = 0; a < view.extents.size(); ++a)
      if (bool(view.member[a]) == member) strides.push_back(operand.strides[a]);
    layouts.emplace_back(shape, strides);
  }
  std::vector<const Layout*> pointers;
  for (const Layout& layout : layouts) pointers.push_back(&layout);
  return make_loops(shape, pointers, lead);
}

int column_class(const LaneView& view, int operand) {
  const int64_t stride = view.column_stride(operand);
  return stride == 0 ? 0 : stride == 1 ? 1 : 2;
}

std::string epilogue_text(const LaneView& view, const Problem& p, bool rows) {
  const std::string x = register_type(info(p.input(0).dtype).is_float ? p.input(0).dtype : p.output().dtype);
  std::string text = fmt::format("using OutputType = {};\n", storage_type(p.output().dtype));
  if (!p.has_epilogue())
    return text +
           "template <typename R>\n__device__ __forceinline__ R epilogue_at(R v, const Arguments&, const i64*, i64) { "
           "return v; }\n";
  const Program& program = *p.program;
  text += program_function(program, "epilogue_program");
  std::string loads, arguments;
  for (size_t k = 0; k < view.operands.size(); ++k) {
    const LaneOperand& operand = view.operands[k];
    if (operand.input < p.op_inputs) continue;
    std::string column;
    if (rows && column_class(view, int(k)) == 1) column = " + column";
    if (rows && column_class(view, int(k)) == 2) column = fmt::format(" + column * a.member_stride[{}][0]", k);
    loads += fmt::format("  const {0} e{1} = load_value(((const {2}*)a.address[{1}])[at[{1}]{3}]);\n",
                         register_type(operand.dtype), k, storage_type(operand.dtype), column);
    arguments += fmt::format("e{}, ", k);
  }
  const std::string result = register_type(program.output_dtype()), input = register_type(program.inputs[0].dtype);
  text += fmt::format(
      "__device__ __forceinline__ {0} epilogue_at({1} v, const Arguments& a, const i64* at, i64 column) {{\n{2}  {0} "
      "result;\n  epilogue_program(v, {3}result);\n  return result;\n}}\n",
      result, input, loads, arguments);
  return text;
}

}  // namespace

int LaneView::find(std::string_view role) const {
  for (size_t k = 0; k < operands.size(); ++k)
    if (operands[k].role == role) return int(k);
  return -1;
}

int64_t LaneView::column_stride(int operand) const {
  return members.extents.back() == 1 ? (operand <= 1 ? 1 : 0) : members.strides[size_t(operand)].back();
}

std::vector<int64_t> spread_strides(const Layout& operand, const std::vector<int>& to, size_t axes) {
  std::vector<int64_t> strides(axes, 0);
  const size_t missing = to.size() - operand.shape.size();
  for (size_t a = 0; a < operand.shape.size(); ++a)
    if (const int axis = to[a + missing]; axis >= 0 && operand.shape[a] != 1)
      strides[size_t(axis)] = operand.strides[a];
  return strides;
}

void add_epilogue(LaneView& view, const Problem& p, const std::vector<int>& of_output) {
  for (int k = 0; p.has_epilogue() && k < p.epilogue_operands(); ++k) {
    const Operand& operand = p.inputs[size_t(p.op_inputs + k)];
    view.operands.push_back({fmt::format("E{}", k), operand.dtype, p.op_inputs + k, -1,
                             spread_strides(operand.layout, of_output, view.extents.size())});
  }
}

void merge_lanes(LaneView& view) {
  view.lanes = merge(view, false, 1);
  view.members = merge(view, true, 0);
}

std::string lanes_reject(const LaneView& view, const Problem& p) {
  for (const LaneOperand& operand : view.operands)
    if (storage_type(operand.dtype).empty()) return fmt::format("values of type {}", name(operand.dtype));
  if (view.lanes.axes() > kMostAxes || view.members.axes() > kMostAxes) return "more than 8 axes that do not merge";
  if (!p.has_epilogue()) return "";
  if (p.program->outputs.size() != 1) return "an epilogue with several results";
  if (!printable(*p.program)) return "an epilogue with values of a type that kernels of CUDA do not know";
  return "";
}

bool is_rows(const LaneView& view, std::initializer_list<std::string_view> also) {
  if (view.members.axes() != 1) return false;
  for (int k = 0; k < int(view.operands.size()); ++k) {
    const std::string& role = view.operands[size_t(k)].role;
    const bool row = k <= 1 || std::find(also.begin(), also.end(), role) != also.end();
    if (row && view.members.extents[0] > 1 && view.column_stride(k) != 1) return false;
  }
  return true;
}

std::string lanes_text(const LaneView& view, const Problem& p, std::span<const std::string_view> roles, bool rows) {
  std::string text = fmt::format("#define OPERANDS {}\n#define LANE_AXES {}\n#define MEMBER_AXES {}\n",
                                 view.operands.size(), axes_class(view.lanes.axes()), axes_class(view.members.axes()));
  for (std::string_view role : roles) {
    const int k = view.find(role);
    text += fmt::format("constexpr int k{0} = {1};\nusing {0}Type = {2};\n", role, k,
                        k < 0 ? "float" : storage_type(view.operands[size_t(k)].dtype));
  }
  if (rows) {
    text += "constexpr int kColumn[] = {";
    for (int k = 0; k < int(view.operands.size()); ++k) text += fmt::format("{}, ", column_class(view, k));
    text += "};\n";
  }
  text += embedded("lanes.cu");
  return text + epilogue_text(view, p, rows);
}

std::vector<uint64_t> lanes_words(const LaneView& view, const Buffers& buffers, int per,
                                  const std::vector<double>& numbers) {
  const size_t operands = view.operands.size();
  std::vector<uint64_t> words;
  uint64_t aligned = 0;  // set too for what does not come in packs
  for (size_t k = 0; k < operands; ++k) {
    const LaneOperand& operand = view.operands[k];
    const uint64_t address = reinterpret_cast<uint64_t>(operand.input >= 0 ? buffers.inputs[operand.input]
                                                                           : buffers.outputs[operand.output]);
    words.push_back(address);
    const int64_t bytes = info(operand.dtype).bits / 8, word = std::min<int64_t>(16, per * bytes);
    const bool packs = view.members.axes() == 1 && view.column_stride(int(k)) == 1;
    bool whole = !packs || address % uint64_t(word) == 0;
    for (int a = 0; a < view.lanes.axes(); ++a)
      whole = whole &&
              (!packs || view.lanes.extents[size_t(a)] == 1 || view.lanes.strides[k][size_t(a)] * bytes % word == 0);
    if (whole) aligned |= uint64_t(1) << k;
  }
  const auto append = [&](const Loops& loops, bool extents) {
    const int axes = axes_class(loops.axes()), before = axes - loops.axes();
    if (extents) {
      for (int a = 0; a < axes; ++a) words.push_back(a < before ? 1 : uint64_t(loops.extents[size_t(a - before)]));
      return;
    }
    for (const auto& strides : loops.strides)
      for (int a = 0; a < axes; ++a) words.push_back(a < before ? 0 : uint64_t(strides[size_t(a - before)]));
  };
  append(view.lanes, false), append(view.members, false);
  append(view.lanes, true), append(view.members, true);
  words.push_back(uint64_t(view.lane_count()));
  words.push_back(uint64_t(view.member_count()));
  words.push_back(aligned);
  for (size_t i = 0; i < 4; ++i) words.push_back(i < numbers.size() ? word_of(numbers[i]) : 0);
  return words;
}

void lanes_set_aligned(std::vector<uint64_t>& words, int operand, bool aligned) {
  uint64_t& bits = words[words.size() - 5];  // before the four numbers
  bits = aligned ? bits | uint64_t(1) << operand : bits & ~(uint64_t(1) << operand);
}

uint64_t word_of(double value) { return std::bit_cast<uint64_t>(value); }

}  // namespace ridgeline::cuda
