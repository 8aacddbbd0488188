#include "kernels/cuda/conv/matrix_epilogue.h"

#include <optional>

#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

struct Strides {
  int64_t row = 0, column = 0;
};

// One stride over images and spatial axes, one over channels; nothing if the operand does not lie so.
std::optional<Strides> strides_of(const Extents& shape, const Layout& operand) {
  const size_t rank = shape.size(), missing = rank - operand.shape.size();
  const auto stride = [&](size_t axis) -> int64_t {
    const bool repeats = axis < missing || operand.shape[axis - missing] == 1;
    return repeats ? 0 : operand.strides[axis - missing];
  };
  std::optional<int64_t> row;
  int64_t below = 1;
  for (size_t k = 0; k + 1 < rank; ++k) {
    const size_t axis = k + 2 < rank ? rank - 1 - k : 0;  // the last spatial axis first, the images last
    if (shape[axis] == 1) continue;
    if (!row)
      row = stride(axis);
    else if (stride(axis) != *row * below)
      return std::nullopt;
    below *= shape[axis];
  }
  return Strides{row.value_or(0), stride(1)};
}

const Operand& operand_of(const Problem& p, int k) { return p.inputs[size_t(p.op_inputs + k)]; }
int operands_of(const Problem& p) { return p.has_epilogue() ? p.epilogue_operands() : 0; }
bool is_float_of_ours(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

constexpr const char* kHelpers = R"(
__device__ __forceinline__ float staged_value(const u32* words, int i, f16) {
  return load_value(f16{u16(words[i / 2] >> (i % 2 * 16))});
}
__device__ __forceinline__ float staged_value(const u32* words, int i, bf16) {
  return load_value(bf16{u16(words[i / 2] >> (i % 2 * 16))});
}
template <int N, typename T, typename V>
__device__ __forceinline__ void load_columns(const T* p, u64 aligned, V (&to)[N]) {
  Pack<T, N> pack;
  load_pack(p, aligned != 0, pack);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = load_value(pack.at[i]);
}
)";

}  // namespace

std::string matrix_epilogue_reject(const Problem& p) {
  if (!is_float_of_ours(p.output().dtype)) return fmt::format("results of type {}", name(p.output().dtype));
  if (!p.has_epilogue()) return "";
  if (p.outputs.size() != 1 || p.program->outputs.size() != 1) return "an epilogue with several results";
  if (!printable(*p.program)) return "an epilogue with values of a type that kernels of CUDA do not know";
  if (!is_float_of_ours(p.program->inputs[0].dtype)) return "an epilogue of sums that are not f32, f16 or bf16";
  for (int k = 0; k < operands_of(p); ++k)
    if (!strides_of(p.output().shape(), operand_of(p, k).layout))
      return fmt::format("epilogue operand {} of {} has no one stride over pixels", k, text(operand_of(p, k).shape()));
  return "";
}

int staged_operand(const Problem& p) {
  for (int k = 0; k < operands_of(p); ++k) {
    const Operand& o = operand_of(p, k);
    if ((o.dtype == DType::kF16 || o.dtype == DType::kBF16) && !o.is_constant && o.shape() == p.output().shape() &&
        is_pixel_matrix(o.layout))
      return k;
  }
  return -1;
}

std::string matrix_epilogue_source(const Problem& p, bool staged) {
  std::string source = fmt::format("using OutputType = {};\n{}", storage_type(p.output().dtype), kHelpers);
  const int operands = operands_of(p), from_shared = staged ? staged_operand(p) : -1;
  if (p.has_epilogue()) source += program_function(*p.program, "epilogue_program");
  source += fmt::format("struct Epilogue {{ u64 words[{}]; }};\n", 3 * operands + 1);
  source +=
      "template <int N>\n__device__ __forceinline__ void epilogue_columns(float (&v)[N], const Epilogue& e, i64 row, "
      "i64 column, const u32* staged) {\n";
  std::string arguments;
  for (int k = 0; k < operands; ++k) {
    const Operand& o = operand_of(p, k);
    const Strides s = *strides_of(p.output().shape(), o.layout);
    const std::string type = storage_type(o.dtype);
    source += fmt::format("  {} a{}[N];\n", register_type(o.dtype), k);
    arguments += fmt::format("a{}[i], ", k);
    if (k == from_shared) {
      source += fmt::format(
          "#pragma unroll\n  for (int i = 0; i < N; ++i) a{}[i] = staged_value(staged, i, {}{{0}});\n", k, type);
      continue;
    }
    const std::string row = s.row ? fmt::format(" + row * i64(e.words[{}])", 3 * k + 1) : "";
    const std::string from = fmt::format("((const {}*)e.words[{}]{})", type, 3 * k, row);
    if (s.column == 1) {
      source += fmt::format("  load_columns({} + column, e.words[{}] >> {} & 1, a{});\n", from, 3 * operands, k, k);
    } else if (s.column == 0) {
      source += fmt::format("#pragma unroll\n  for (int i = 0; i < N; ++i) a{}[i] = load_value({}[0]);\n", k, from);
    } else {
      source += fmt::format(
          "#pragma unroll\n  for (int i = 0; i < N; ++i) a{}[i] = load_value({}[(column + i) * i64(e.words[{}])]);\n",
          k, from, 3 * k + 2);
    }
  }
  if (p.has_epilogue())
    source += fmt::format(
        "#pragma unroll\n  for (int i = 0; i < N; ++i) {{\n    {} result;\n    epilogue_program(v[i], {}result);\n"
        "    v[i] = float(result);\n  }}\n",
        register_type(p.program->output_dtype()), arguments);
  return source + "}\n";
}

std::vector<uint64_t> matrix_epilogue_words(const Problem& p, void* const* inputs) {
  std::vector<uint64_t> words;
  uint64_t aligned = 0;
  for (int k = 0; k < operands_of(p); ++k) {
    const Operand& o = operand_of(p, k);
    const Strides s = *strides_of(p.output().shape(), o.layout);
    const uint64_t address = reinterpret_cast<uint64_t>(inputs[size_t(p.op_inputs + k)]);
    words.insert(words.end(), {address, uint64_t(s.row), uint64_t(s.column)});
    if (address % 16 == 0 && uint64_t(s.row) * uint64_t(info(o.dtype).bits) / 8 % 16 == 0) aligned |= uint64_t(1) << k;
  }
  words.push_back(aligned);
  return words;
}

}  // namespace ridgeline::cuda
