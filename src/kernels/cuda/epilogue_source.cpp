// How epilogue operands are walked: output 0 seen as rows and columns.
#include <algorithm>
#include <optional>

#include "core/loops.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

struct Strides {
  int64_t row = 0, column = 0;
};

// One stride over several axes of these extents (outermost first), or nothing. Extents of 1 have no say.
std::optional<int64_t> merged(const std::vector<int64_t>& extents, const std::vector<int64_t>& strides) {
  std::optional<int64_t> stride;
  int64_t below = 1;
  for (size_t a = extents.size(); a-- > 0;) {
    if (extents[a] == 1) continue;
    if (!stride) {
      stride = strides[a];
    } else if (strides[a] != *stride * below) {
      return std::nullopt;
    }
    below *= extents[a];
  }
  return stride.value_or(0);
}

// The axes of output 0 in the order that it lies in memory, rows first; channels last puts axis 1 behind.
std::vector<size_t> order_of(const Layout& out) {
  std::vector<size_t> order(size_t(out.rank()));
  for (size_t a = 0; a < order.size(); ++a) order[a] = a;
  if (!out.is_row_major())
    std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return out.strides[x] > out.strides[y]; });
  return order;
}

std::optional<Strides> strides_of(const Layout& out, const Layout& operand, int row_axes) {
  const std::vector<size_t> order = order_of(out);
  std::vector<int64_t> extents[2], strides[2];
  const int missing = out.rank() - operand.rank();
  for (size_t at = 0; at < order.size(); ++at) {
    const size_t axis = order[at];
    const bool column = int(at) >= row_axes;
    const int own = int(axis) - missing;
    const bool repeats = own < 0 || operand.shape[size_t(own)] == 1;
    extents[column].push_back(out.shape[axis]);
    strides[column].push_back(repeats ? 0 : operand.strides[size_t(own)]);
  }
  const auto row = merged(extents[0], strides[0]), column = merged(extents[1], strides[1]);
  if (!row || !column) return std::nullopt;
  return Strides{*row, *column};
}

}  // namespace

std::string epilogue_reject(const Problem& p, int row_axes) {
  if (storage_type(p.output().dtype).empty()) return fmt::format("results of type {}", name(p.output().dtype));
  if (!p.has_epilogue()) return "";
  if (p.outputs.size() != 1 || p.program->outputs.size() != 1) return "an epilogue with several results";
  if (!printable(*p.program)) return "an epilogue with values of a type that kernels of CUDA do not know";
  for (size_t i = size_t(p.op_inputs); i < p.inputs.size(); ++i) {
    if (!strides_of(p.output().layout, p.inputs[i].layout, row_axes))
      return fmt::format("epilogue operand {} of {} has no one stride over rows", i - size_t(p.op_inputs),
                         text(p.inputs[i].shape()));
  }
  return "";
}

EpilogueSource epilogue_source(const Problem& p, int row_axes) {
  EpilogueSource source;
  source.code = fmt::format("using OutputType = {};\n", storage_type(p.output().dtype));
  if (!p.has_epilogue()) {
    source.code +=
        "struct Epilogue { u64 none; };\n"
        "template <typename V>\n"
        "__device__ __forceinline__ V epilogue(V v, const Epilogue&, i64, i64) { return v; }\n"
        "#define EPILOGUE_PAIRS 1\n"
        "__device__ __forceinline__ void epilogue_pair(float&, float&, const Epilogue&, i64, i64) {}\n";
    return source;
  }
  const Program& program = *p.program;
  source.operands = p.epilogue_operands();
  source.code += program_function(program, "epilogue_program");
  source.code += fmt::format("struct Epilogue {{ u64 words[{}]; }};\n", std::max(1, 3 * source.operands));
  const std::string result = register_type(program.output_dtype()), input = register_type(program.inputs[0].dtype);
  std::string loads, arguments, pair_loads, second;
  bool pairs = result == "float" && input == "float";
  for (int k = 0; k < source.operands; ++k) {
    const Operand& operand = p.inputs[size_t(p.op_inputs + k)];
    const Strides s = *strides_of(p.output().layout, operand.layout, row_axes);
    const std::string type = storage_type(operand.dtype);
    std::string row, column;
    if (s.row) row = fmt::format(" + row * i64(e.words[{}])", 3 * k + 1);
    if (s.column == 1) column = " + column";
    if (s.column > 1) column = fmt::format(" + column * i64(e.words[{}])", 3 * k + 2);
    loads += fmt::format("  const {0} a{1} = load_value(((const {2}*)e.words[{3}])[0{4}{5}]);\n",
                         register_type(operand.dtype), k, type, 3 * k, row, column);
    arguments += fmt::format("a{}, ", k);
    if (s.column == 0) {
      pair_loads += fmt::format("  const {0} a{1} = load_value(((const {2}*)e.words[{3}])[0{4}]), b{1} = a{1};\n",
                                register_type(operand.dtype), k, type, 3 * k, row);
    } else if (s.column == 1 && s.row % 2 == 0 && (type == "bf16" || type == "f16" || type == "float")) {
      pair_loads += fmt::format("  float a{0}, b{0};\n  load_pair((const {1}*)e.words[{2}] + (0{3}{4}), a{0}, b{0});\n",
                                k, type, 3 * k, row, column);
    } else {
      pairs = false;
    }
    second += fmt::format("b{}, ", k);
  }
  source.code += fmt::format(
      "__device__ __forceinline__ {0} epilogue({1} v, const Epilogue& e, i64 row, i64 column) {{\n{2}  {0} result;\n"
      "  epilogue_program(v, {3}result);\n  return result;\n}}\n",
      result, input, loads, arguments);
  if (pairs)
    source.code += fmt::format(
        "#define EPILOGUE_PAIRS 1\n__device__ __forceinline__ void epilogue_pair(float& v0, float& v1, const Epilogue& "
        "e, "
        "i64 row, i64 column) {{\n{0}  epilogue_program(v0, {1}v0);\n  epilogue_program(v1, {2}v1);\n}}\n",
        pair_loads, arguments, second);
  return source;
}

std::vector<uint64_t> epilogue_words(const Problem& p, int row_axes, void* const* inputs) {
  std::vector<uint64_t> words;
  for (int k = 0; p.has_epilogue() && k < p.epilogue_operands(); ++k) {
    const size_t i = size_t(p.op_inputs + k);
    const Strides s = *strides_of(p.output().layout, p.inputs[i].layout, row_axes);
    words.insert(words.end(), {reinterpret_cast<uint64_t>(inputs[i]), uint64_t(s.row), uint64_t(s.column)});
  }
  if (words.empty()) words.push_back(0);
  return words;
}

}  // namespace ridgeline::cuda
