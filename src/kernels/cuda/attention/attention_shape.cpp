#include "kernels/cuda/attention/attention_shape.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

using Rows = AttentionArguments::Rows;

constexpr int kQ = 0, kK = 1, kV = 2, kMask = 3, kPastKey = 4, kPastValue = 5, kLengths = 6;
constexpr int kPresentKey = 1, kPresentValue = 2, kScores = 3;

bool is_standard(const Problem& p) { return p.op->name == "Attention"; }
bool has_output(const Problem& p, int o) { return size_t(o) < p.outputs.size() && p.output(o).dtype != DType::kNone; }

// [batch, heads, length, depth], or [batch, length, heads * depth] (the standard), or [batch, length, depth].
Rows rows_of(const Layout& l, int64_t depth) {
  if (l.rank() == 4) return {l.strides[0], l.strides[1], l.strides[2], l.strides[3]};
  return {l.strides[0], depth * l.strides[2], l.strides[1], l.strides[2]};
}

// An operand that broadcasts to the rows and columns of `axes` (batch, head, row, column as axes of the output).
Rows broadcast_rows(const Layout& l, int rank, const std::array<int, 4>& axes) {
  const auto stride = [&](int axis) -> int64_t {
    const int own = axis - (rank - l.rank());
    return axis < 0 || own < 0 || l.shape[size_t(own)] == 1 ? 0 : l.strides[size_t(own)];
  };
  return {stride(axes[0]), stride(axes[1]), stride(axes[2]), stride(axes[3])};
}

int64_t value_depth_of(const Problem& p) {
  const Extents& v = p.input(kV).shape();
  return v.size() == 3 && is_standard(p) ? v[2] / p.integer("kv_num_heads") : v.back();
}

Rows epilogue_rows(const Problem& p, const Layout& operand) {
  const int rank = p.output().layout.rank();
  if (rank == 4) return broadcast_rows(operand, rank, {0, 1, 2, 3});
  Rows rows = broadcast_rows(operand, rank, {0, -1, 1, 2});
  if (is_standard(p)) rows.head = rows.column * value_depth_of(p);
  return rows;
}

bool sixteen(uint64_t address, const Rows& rows, int64_t bytes) {
  return rows.column == 1 && address % 16 == 0 && rows.batch * bytes % 16 == 0 && rows.head * bytes % 16 == 0 &&
         rows.row * bytes % 16 == 0;
}

}  // namespace

Support attention_support(const Problem& p) {
  for (int i : {kQ, kK, kV, kMask, kPastKey, kPastValue}) {
    if (!p.has(i)) continue;
    if (!is_float(p.input(i).dtype) && !(i == kMask && p.input(i).dtype == DType::kBool))
      return no("'{}' in {}: floats are wanted", p.op->inputs[size_t(i)].name, name(p.input(i).dtype));
    if (storage_type(p.input(i).dtype).empty()) return no("operands of type {}", name(p.input(i).dtype));
  }
  for (const Operand& o : p.outputs)
    for (int a = 0; a < o.layout.rank(); ++a)
      if (o.layout.strides[size_t(a)] == 0 && o.shape()[size_t(a)] > 1) return no("an output is broadcast");
  for (size_t i = 0; i < p.inputs.size(); ++i)
    for (int64_t extent : p.inputs[i].shape())
      if (extent >= int64_t(1) << 31) return no("an extent of {}: below 2^31 is wanted", extent);
  if (storage_type(p.output().dtype).empty()) return no("results of type {}", name(p.output().dtype));
  if (p.has_epilogue()) {
    if (p.program->outputs.size() != 1) return no("an epilogue with several results");
    if (!printable(*p.program)) return no("an epilogue with values of a type that kernels of CUDA do not know");
  }
  return yes();
}

Support attention_half_support(const Problem& p) {
  if (Support s = attention_support(p); !s.ok) return s;
  const DType dtype = p.input(kQ).dtype;
  if (dtype != DType::kF16 && dtype != DType::kBF16) return no("operands in {}: f16 or bf16 is wanted", name(dtype));
  for (int i : {kK, kV, kPastKey, kPastValue})
    if (p.has(i) && p.input(i).dtype != dtype) return no("operands of different types");
  if (p.has(kMask) && p.input(kMask).dtype == DType::kF64) return no("a mask in f64");
  for (int i : {kQ, kK, kV, kPastKey, kPastValue}) {
    if (!p.has(i)) continue;
    const Layout& l = p.input(i).layout;
    if (l.shape.back() > 1 && l.strides.back() != 1)
      return no("the last axis of '{}' is strided", p.op->inputs[size_t(i)].name);
  }
  if (has_output(p, kScores)) return no("the scores are wanted as a whole (qk_matmul_output)");
  return yes();
}

AttentionArguments attention_arguments(const Problem& p, const Buffers* b) {
  AttentionArguments a;
  const bool standard = is_standard(p);
  const Layout &q = p.input(kQ).layout, &k = p.input(kK).layout, &v = p.input(kV).layout, &y = p.output().layout;
  int64_t heads = 1, kv_heads = 1;
  if (q.rank() == 4) {
    heads = q.shape[1], kv_heads = k.shape[1];
  } else if (standard) {
    heads = p.integer("q_num_heads"), kv_heads = p.integer("kv_num_heads");
  }
  const size_t length = size_t(q.rank() - 2), last = size_t(q.rank() - 1);
  const bool packed = q.rank() == 3 && standard;
  const int64_t depth = packed ? q.shape[last] / heads : q.shape[last], value_depth = value_depth_of(p);
  const int64_t past = standard && p.has(kPastKey) ? p.input(kPastKey).shape()[2] : 0;
  a.batch = int(q.shape[0]), a.heads = int(heads), a.kv_heads = int(kv_heads), a.queries = int(q.shape[length]);
  a.depth = int(depth), a.value_depth = int(value_depth), a.past = int(past);
  a.keys = a.mask_keys = int(k.shape[length] + past);
  const auto separate = [&](Rows rows) {  // rank 3 without packed heads
    if (!packed && q.rank() == 3) rows.head = 0;
    return rows;
  };
  a.q = separate(rows_of(q, depth)), a.k = separate(rows_of(k, depth)), a.v = separate(rows_of(v, value_depth));
  a.y = separate(rows_of(y, value_depth));
  a.first_place = a.keys - a.queries;
  a.empty_is_zero = standard || a.keys == 0;
  if (!standard) {
    a.scale = p.number("scale");
    a.causal = p.flag("causal");
  } else {
    a.scale = p.attributes.has("scale") ? p.number("scale") : 1 / std::sqrt(double(depth));
    a.causal = p.flag("is_causal");
    a.softcap = p.number("softcap");
    constexpr int64_t kFar = int64_t(1) << 40;
    a.left = std::min(p.integer("left_window_size"), kFar), a.right = std::min(p.integer("right_window_size"), kFar);
    a.first_place = past;
    if (p.has(kLengths)) {
      a.has_lengths = 1;
      a.length_stride = p.input(kLengths).layout.strides[0];
    }
    if (p.has(kPastKey)) {
      a.past_k = rows_of(p.input(kPastKey).layout, depth);
      a.past_v = rows_of(p.input(kPastValue).layout, value_depth);
    }
    if (has_output(p, kPresentKey)) a.present_k = rows_of(p.output(kPresentKey).layout, depth);
    if (has_output(p, kPresentValue)) a.present_v = rows_of(p.output(kPresentValue).layout, value_depth);
    if (has_output(p, kScores)) {
      a.scores = rows_of(p.output(kScores).layout, a.keys);
      a.scores_mode = int(p.integer("qk_matmul_output_mode"));
    }
  }
  if (p.has(kMask)) {
    const Layout& m = p.input(kMask).layout;
    const bool four = standard || q.rank() == 4;
    a.mask = four ? broadcast_rows(m, 4, {0, 1, 2, 3}) : broadcast_rows(m, 3, {0, -1, 1, 2});
    if (m.rank() > 0 && m.shape.back() != 1) a.mask_keys = int(std::min<int64_t>(a.keys, m.shape.back()));
  }
  a.plain = !a.has_lengths && a.left < 0 && a.right < 0;
  if (!b) return a;
  const auto in = [&](int i) { return p.has(i) ? reinterpret_cast<uint64_t>(b->inputs[i]) : 0; };
  const auto out = [&](int o) { return has_output(p, o) ? reinterpret_cast<uint64_t>(b->outputs[o]) : 0; };
  a.q_address = in(kQ), a.k_address = in(kK), a.v_address = in(kV), a.y_address = out(0);
  a.mask_address = in(kMask), a.past_k_address = in(kPastKey), a.past_v_address = in(kPastValue);
  a.lengths_address = in(kLengths), a.present_k_address = out(kPresentKey), a.present_v_address = out(kPresentValue);
  a.scores_address = out(kScores);
  const int64_t k_bytes = bytes_of(p.input(kK).dtype, 1), v_bytes = bytes_of(p.input(kV).dtype, 1);
  const bool k_words = sixteen(a.k_address, a.k, k_bytes) && (!past || sixteen(a.past_k_address, a.past_k, k_bytes));
  const bool v_words = sixteen(a.v_address, a.v, v_bytes) && (!past || sixteen(a.past_v_address, a.past_v, v_bytes));
  a.wide_k = k_words && depth * k_bytes % 16 == 0 && sixteen(a.present_k_address, a.present_k, k_bytes);
  a.wide_v = v_words && value_depth * v_bytes % 16 == 0 && sixteen(a.present_v_address, a.present_v, v_bytes);
  a.aligned = k_words && v_words && sixteen(a.q_address, a.q, bytes_of(p.input(kQ).dtype, 1));
  a.y_in_words = sixteen(a.y_address, a.y, bytes_of(p.output().dtype, 1));
  return a;
}

std::string attention_text(const Problem& p) {
  std::string text =
      fmt::format("using QType = {};\nusing VType = {};\nusing OutputType = {};\n", storage_type(p.input(kQ).dtype),
                  storage_type(p.input(kV).dtype), storage_type(p.output().dtype));
  text += fmt::format("#define MASK {}\n", int(p.has(kMask)));
  if (p.has(kMask)) text += fmt::format("using MaskType = {};\n", storage_type(p.input(kMask).dtype));
  text += embedded("attention/common.cu");
  if (!p.has_epilogue())
    return text +
           "struct Epilogue { u64 none; };\ntemplate <typename V>\n__device__ __forceinline__ V epilogue(V v, const "
           "Epilogue&, i64, i64, i64, i64) { return v; }\n";
  const Program& program = *p.program;
  const int operands = p.epilogue_operands();
  text += program_function(program, "epilogue_program");
  text += fmt::format("struct Epilogue {{ u64 word[{}]; }};\n", std::max(1, 5 * operands));
  const std::string result = register_type(program.output_dtype());
  text += fmt::format(
      "__device__ __forceinline__ {} epilogue({} v, const Epilogue& e, i64 batch, i64 head, i64 row, i64 column) {{\n",
      result, register_type(program.inputs[0].dtype));
  std::string arguments;
  for (int i = 0; i < operands; ++i) {
    const Operand& o = p.inputs[size_t(p.op_inputs + i)];
    text += fmt::format(
        "  const {0} a{1} = load_value(reinterpret_cast<const {2}*>(e.word[{3}])[batch * i64(e.word[{4}]) + head * "
        "i64(e.word[{5}]) + row * i64(e.word[{6}]) + column * i64(e.word[{7}])]);\n",
        register_type(o.dtype), i, storage_type(o.dtype), 5 * i, 5 * i + 1, 5 * i + 2, 5 * i + 3, 5 * i + 4);
    arguments += fmt::format("a{}, ", i);
  }
  return text +
         fmt::format("  {} result;\n  epilogue_program(v, {}result);\n  return result;\n}}\n", result, arguments);
}

std::vector<uint64_t> attention_epilogue(const Problem& p, void* const* inputs) {
  std::vector<uint64_t> words;
  for (int i = 0; p.has_epilogue() && i < p.epilogue_operands(); ++i) {
    const size_t at = size_t(p.op_inputs + i);
    const Rows rows = epilogue_rows(p, p.inputs[at].layout);
    words.insert(words.end(), {reinterpret_cast<uint64_t>(inputs[at]), uint64_t(rows.batch), uint64_t(rows.head),
                               uint64_t(rows.row), uint64_t(rows.column)});
  }
  if (words.empty()) words.push_back(0);
  return words;
}

int64_t attention_copy_blocks(const AttentionArguments& a, int threads) {
  if (a.present_k.column == 0 && a.present_v.column == 0) return 0;
  const int64_t elements = int64_t(a.batch) * a.kv_heads * a.keys * std::max(a.depth, a.value_depth);
  return std::min<int64_t>((elements + threads * 8 - 1) / (threads * 8), 2 * target().multiprocessors);
}

int64_t attention_any_bytes(const AttentionArguments& a) {
  return (int64_t(a.depth) + a.value_depth + kAttentionAnyTile) * kAttentionAnyRows * 4;
}

void attention_any_launch(const LoadedKernel& kernel, const Problem& p, const Buffers& buffers, int rows,
                          Stream stream) {
  AttentionArguments a = attention_arguments(p, &buffers);
  const int64_t group_rows = a.kv_heads ? int64_t(a.heads / a.kv_heads) * a.queries : 0;
  a.attention_blocks = a.batch * int64_t(a.kv_heads) * ((group_rows + rows - 1) / rows);
  std::vector<uint64_t> epilogue = attention_epilogue(p, buffers.inputs);
  void* parameters[] = {&a, epilogue.data()};
  const int64_t blocks = a.attention_blocks + attention_copy_blocks(a, kAttentionAnyTile);
  if (kernel.shared_bytes) return launch(kernel, {blocks}, kAttentionAnyTile, stream, parameters);
  LoadedKernel beside = kernel;
  beside.shared_bytes = attention_any_bytes(a);
  launch(beside, {blocks}, kAttentionAnyTile, stream, parameters);
}

std::string attention_half_text(const Problem& p) {
  std::string text = attention_text(p);
  text += fmt::format("#define ELEMENT_BF16 {}\n", int(p.input(kQ).dtype == DType::kBF16));
  text += embedded("attention/warp.cu");
  return text += embedded("attention/any.cu");
}
std::vector<std::string> attention_half_defines() {
  return {"Sum=float", fmt::format("ROWS={}", kAttentionAnyRows), fmt::format("TILE={}", kAttentionAnyTile),
          "SCORES=0"};
}

bool attention_in_words(const Rows& rows) { return rows.batch % 8 == 0 && rows.head % 8 == 0 && rows.row % 8 == 0; }

double attention_flops(const Problem& p) { return double(p.op->cost(p).flops); }

}  // namespace ridgeline::cuda
