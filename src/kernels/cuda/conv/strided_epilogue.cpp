#include "kernels/cuda/conv/strided_epilogue.h"

#include <algorithm>

#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {

std::string strided_epilogue_reject(const Problem& p) {
  if (storage_type(p.output().dtype).empty()) return fmt::format("results of type {}", name(p.output().dtype));
  if (!p.has_epilogue()) return "";
  if (p.outputs.size() != 1 || p.program->outputs.size() != 1) return "an epilogue with several results";
  if (!printable(*p.program)) return "an epilogue with values of a type that kernels of CUDA do not know";
  return "";
}

std::string strided_epilogue_source(const Problem& p) {
  std::string text = fmt::format("using OutputType = {};\n", storage_type(p.output().dtype));
  if (!p.has_epilogue())
    return text +
           "template <typename V, typename A>\n"
           "__device__ __forceinline__ V finish(V v, const A&, const i64 (&)[5]) { return v; }\n";
  const Program& program = *p.program;
  text += program_function(program, "epilogue_program");
  text += fmt::format(
      "template <typename A>\n"
      "__device__ __forceinline__ {} finish({} v, const A& a, const i64 (&at)[5]) {{\n",
      register_type(program.output_dtype()), register_type(program.inputs[0].dtype));
  std::string arguments;
  for (int k = 0; k < p.epilogue_operands(); ++k) {
    const DType dtype = p.inputs[size_t(p.op_inputs + k)].dtype;
    text += fmt::format(
        "  i64 o{} = 0;\n#pragma unroll\n  for (int i = 0; i < 5; ++i) o{} += at[i] * "
        "a.epilogue_stride[{}][i];\n  const {} e{} = load_value(((const {}*)a.epilogue_address[{}])[o{}]);\n",
        k, k, k, register_type(dtype), k, storage_type(dtype), k, k);
    arguments += fmt::format("e{}, ", k);
  }
  return text + fmt::format("  {} result;\n  epilogue_program(v, {}result);\n  return result;\n}}\n",
                            register_type(program.output_dtype()), arguments);
}

std::vector<uint64_t> strided_epilogue_words(const Problem& p, void* const* inputs) {
  const size_t operands = p.has_epilogue() ? size_t(p.epilogue_operands()) : 0, room = std::max<size_t>(1, operands);
  std::vector<uint64_t> words(6 * room, 0);
  const Layout& out = p.output().layout;
  for (size_t k = 0; k < operands; ++k) {
    const size_t i = size_t(p.op_inputs) + k;
    const Layout& operand = p.inputs[i].layout;
    words[k] = reinterpret_cast<uint64_t>(inputs[i]);
    Layout full(out.shape, std::vector<int64_t>(out.shape.size(), 0));
    const size_t missing = out.shape.size() - operand.shape.size();
    for (size_t axis = missing; axis < out.shape.size(); ++axis)
      if (operand.shape[axis - missing] != 1) full.strides[axis] = operand.strides[axis - missing];
    const ImageStrides strides = image_strides(full);
    std::copy(strides.begin(), strides.end(), words.begin() + std::ptrdiff_t(room + 5 * k));
  }
  return words;
}

}  // namespace ridgeline::cuda
