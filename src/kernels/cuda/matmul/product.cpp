#include "kernels/cuda/matmul/product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/integer.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

struct Axes {
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> batch;
  bool row_vector = false, column_vector = false;  // a is a vector: no axis m in the output; b is one: no axis n
};

// A or B: its last two axes are (first, second), or (second, first) if transposed.
Walk side(const Layout& layout, bool vector, bool vector_is_row, bool transposed, size_t batch_axes) {
  Walk w;
  w.batch.assign(batch_axes, 0);
  const size_t rank = layout.shape.size();
  if (vector) {
    (vector_is_row ? w.column : w.row) = layout.strides[0];
    return w;
  }
  w.row = layout.strides[rank - (transposed ? 1 : 2)];
  w.column = layout.strides[rank - (transposed ? 2 : 1)];
  for (size_t i = 0; i + 2 < rank; ++i)
    if (layout.shape[i] != 1) w.batch[batch_axes + i - (rank - 2)] = layout.strides[i];
  return w;
}

// An operand broadcast onto the output; nothing if it does not fit.
std::optional<Walk> onto(const Layout& operand, const Extents& shape, const Axes& axes) {
  const size_t rank = shape.size(), own = operand.shape.size();
  if (own > rank) return std::nullopt;
  std::vector<int64_t> strides(rank, 0);
  for (size_t i = 0; i < own; ++i) {
    const size_t at = rank - own + i;
    if (operand.shape[i] == shape[at])
      strides[at] = operand.shape[i] == 1 ? 0 : operand.strides[i];
    else if (operand.shape[i] != 1)
      return std::nullopt;
  }
  Walk w;
  if (!axes.column_vector) {
    w.column = strides.back();
    strides.pop_back();
  }
  if (!axes.row_vector) {
    w.row = strides.back();
    strides.pop_back();
  }
  w.batch = std::move(strides);
  return w;
}

// One zero point for all, or one a row or column: the stride of its only axis.
int64_t zero_step(const Operand& zero) {
  int64_t step = 0;
  for (int a = 0; a < zero.layout.rank(); ++a)
    if (zero.shape()[size_t(a)] > 1) step = zero.layout.strides[size_t(a)];
  return step;
}

// Batch axes of extent 1 vanish; the innermost becomes rows where everything's rows go on in it (B's are all 0, so only
// if B is broadcast); neighbours merge.
void collapse(Axes& axes, std::vector<Walk>& walks) {
  const auto erase = [&](size_t axis) {
    axes.batch.erase(axes.batch.begin() + ptrdiff_t(axis));
    for (Walk& w : walks) w.batch.erase(w.batch.begin() + ptrdiff_t(axis));
  };
  const auto all = [&](auto&& holds) { return std::all_of(walks.begin(), walks.end(), holds); };
  for (size_t i = axes.batch.size(); i-- > 0;)
    if (axes.batch[i] == 1) erase(i);
  const Walk& b = walks[1];
  while (!axes.batch.empty() && b.batch.back() == 0) {
    if (axes.m == 1) {
      for (Walk& w : walks) w.row = w.batch.back();
    } else if (!all([&](const Walk& w) { return w.batch.back() == axes.m * w.row; })) {
      break;
    }
    axes.m *= axes.batch.back();
    erase(axes.batch.size() - 1);
  }
  for (size_t i = axes.batch.size(); i-- > 1;) {
    const int64_t extent = axes.batch[i];
    if (!all([&](const Walk& w) { return w.batch[i - 1] == extent * w.batch[i]; })) continue;
    for (Walk& w : walks) w.batch[i - 1] = w.batch[i];
    axes.batch[i - 1] *= extent;
    erase(i);
  }
}

bool has_flags(const Problem& p) { return p.op->name == "Gemm" || p.op->name == "FusedMatMul"; }

// alpha, Gemm's C and the problem's program as one program over (v, further operands), and the inputs that those are.
struct Tail {
  std::shared_ptr<const Program> program;
  std::vector<int> inputs;  // of the problem; of the program's inputs 1 and up
  bool too_long = false;
};

// QLinearMatMul: the sum by a_scale * b_scale / y_scale, rounded, shifted and saturated.
Tail requantization_of(const Problem& p) {
  Tail tail;
  const bool is_signed = p.output().dtype == DType::kI8;
  const ProgramInput inputs[] = {{"v", DType::kI32},
                                 {"a", p.input(1).dtype},
                                 {"b", p.input(4).dtype},
                                 {"y", p.input(6).dtype},
                                 {"z", p.input(7).dtype}};
  const std::string text = fmt::format(
      "cast_{}(clamp(round(cast_f32(v) * (cast_f32(a) * cast_f32(b) / cast_f32(y))) + cast_f32(z), {}, {}))",
      name(p.output().dtype), is_signed ? "-128" : "0", is_signed ? "127" : "255");
  tail.program = std::make_shared<const Program>(Program::parse(text, inputs, DType::kF32));
  tail.inputs = {1, 4, 6, 7};
  return tail;
}

bool is_quantized(const Problem& p) { return p.op->name == "QLinearMatMul"; }

Tail tail_of(const Problem& p) {
  if (is_quantized(p)) return requantization_of(p);
  Tail tail;
  const DType type = p.input(0).dtype;
  const bool whole = !is_float(type);
  const auto number = [&](const char* name) { return whole ? std::trunc(p.number(name)) : p.number(name); };
  const double alpha = has_flags(p) ? number("alpha") : 1;
  const bool c = p.op->name == "Gemm" && p.has(2) && number("beta") != 0;
  if (c) tail.inputs.push_back(2);
  if (c || alpha != 1) {
    std::string text = alpha == 1 ? "v" : "v * alpha";
    if (c) text += number("beta") == 1 ? " + c" : " + c * beta";
    const std::array<std::string_view, 2> names{"v", "c"};
    Program program =
        Program::parse(text, {names.data(), size_t(c ? 2 : 1)}, whole || type == DType::kF64 ? type : DType::kF32,
                       [&](std::string_view name) -> std::optional<double> {
                         if (name == "alpha") return alpha;
                         if (name == "beta") return number("beta");
                         return std::nullopt;
                       });
    if (c) program.inputs[1].dtype = p.input(2).dtype;
    tail.program = std::make_shared<const Program>(std::move(program));
  }
  if (!p.has_epilogue()) return tail;
  if (tail.program) {
    const std::optional<Program> both = Program::compose(*tail.program, 0, *p.program, 0);
    if (!both) return {nullptr, {}, true};
    tail.program = std::make_shared<const Program>(*both);
  } else {
    tail.program = p.program;
  }
  for (int i = p.op_inputs; i < int(p.inputs.size()); ++i) tail.inputs.push_back(i);
  return tail;
}

std::string refuse(const Problem& p, const Tail& tail) {
  if (is_quantized(p) && p.has_epilogue()) return "an epilogue after a quantized product";
  for (int i : {0, is_quantized(p) ? 3 : 1})
    if (storage_type(p.input(i).dtype).empty()) return fmt::format("operands of type {}", name(p.input(i).dtype));
  if (storage_type(p.output().dtype).empty()) return fmt::format("results of type {}", name(p.output().dtype));
  if (tail.too_long) return "the epilogue with Gemm's C is too long";
  if (tail.program && (tail.program->outputs.size() != 1 || p.outputs.size() != 1))
    return "an epilogue with several results";
  if (tail.program && !printable(*tail.program)) return "an epilogue with values of a type that kernels do not know";
  const Layout& y = p.output().layout;
  for (int a = 0; a < y.rank(); ++a)
    if (y.strides[size_t(a)] == 0 && y.shape[size_t(a)] > 1) return "y is broadcast";
  return {};
}

// The matrices of B in the order of its own batch, and the axes of a packed one.
int64_t matrices_of(const Layout& b) {
  int64_t matrices = 1;
  for (int a = 0; a + 2 < b.rank(); ++a) matrices *= b.shape[size_t(a)];
  return matrices;
}

struct BShape {
  int64_t n, k;
  int64_t n_stride, k_stride;  // in the row-major source
};
BShape shape_of_b(const Problem& p) {
  const Extents& b = p.input(1).shape();
  if (b.size() == 1) return {1, b[0], 1, 1};
  const int64_t rows = b[b.size() - 2], columns = b.back();
  if (has_flags(p) && p.flag("transB")) return {rows, columns, columns, 1};
  return {columns, rows, 1, columns};
}

int64_t row_of(int64_t k, const PackedB& pack) { return std::max<int64_t>(round_up(k, pack.unit), pack.unit); }

template <typename T>
void transpose(const T* from, const BShape& b, int64_t row, T* to) {
  constexpr int64_t kBlock = 64;
  for (int64_t n0 = 0; n0 < b.n; n0 += kBlock) {
    const int64_t n1 = std::min(b.n, n0 + kBlock);
    for (int64_t k0 = 0; k0 < b.k; k0 += kBlock) {
      const int64_t k1 = std::min(b.k, k0 + kBlock);
      for (int64_t n = n0; n < n1; ++n)
        for (int64_t k = k0; k < k1; ++k) to[n * row + k] = from[n * b.n_stride + k * b.k_stride];
    }
    for (int64_t n = n0; n < n1; ++n)
      for (int64_t k = b.k; k < row; ++k) to[n * row + k] = T(0);
  }
}

}  // namespace

int64_t Product::batches() const {
  int64_t count = 1;
  for (const int64_t extent : batch) count *= extent;
  return count;
}

Product product_of(const Problem& p, const PackedB& pack) {
  Product out;
  const Tail tail = tail_of(p);
  out.refusal = refuse(p, tail);
  if (!out.refusal.empty()) return out;
  const bool quantized = is_quantized(p);
  out.b_input = quantized ? 3 : 1;
  const Layout &a = p.input(0).layout, &b = p.input(out.b_input).layout, &y = p.output().layout;
  Axes axes;
  axes.row_vector = a.rank() == 1;
  axes.column_vector = b.rank() == 1;
  const bool trans_a = has_flags(p) && p.flag("transA") && !axes.row_vector,
             trans_b = has_flags(p) && p.flag("transB") && !axes.column_vector;
  const size_t skipped = size_t(!axes.row_vector) + size_t(!axes.column_vector);
  axes.batch.assign(y.shape.begin(), y.shape.end() - ptrdiff_t(skipped));
  axes.k = a.shape[size_t(a.rank()) - (trans_a ? 2 : 1)];
  if (!axes.row_vector) axes.m = a.shape[size_t(a.rank()) - (trans_a ? 1 : 2)];
  if (!axes.column_vector) axes.n = b.shape[size_t(b.rank()) - (trans_b ? 2 : 1)];

  std::vector<Walk> walks{side(a, axes.row_vector, true, trans_a, axes.batch.size()),
                          side(b, axes.column_vector, false, trans_b, axes.batch.size()), *onto(y, y.shape, axes)};
  // Zero points and scales: one for all, or one a row of A or a column of B.
  const auto along = [&](int input, bool rows) {
    Walk w;
    w.batch.assign(axes.batch.size(), 0);
    if (input >= 0) (rows ? w.row : w.column) = zero_step(p.input(input));
    walks.push_back(w);
  };
  const bool zeros = quantized || p.op->name == "MatMulInteger";
  if (zeros && p.has(2)) out.a_zero_input = 2;
  if (zeros && p.has(quantized ? 5 : 3)) out.b_zero_input = quantized ? 5 : 3;
  along(out.a_zero_input, true);
  along(out.b_zero_input, false);
  for (int input : tail.inputs) {
    if (quantized) {
      along(input, input == 1);
      continue;
    }
    const std::optional<Walk> w = onto(p.input(input).layout, y.shape, axes);
    if (!w) {
      out.refusal = "an operand of the epilogue does not broadcast to y";
      return out;
    }
    walks.push_back(*w);
  }
  if (pack.packed) {
    const BShape shape = shape_of_b(p);
    walks[1].row = 1;
    walks[1].column = row_of(shape.k, pack);
    int64_t elements = walks[1].column * shape.n;
    for (size_t i = axes.batch.size(); i-- > 0;) {
      const ptrdiff_t own = ptrdiff_t(i) - ptrdiff_t(axes.batch.size()) + ptrdiff_t(b.rank()) - 2;
      const int64_t extent = own >= 0 ? b.shape[size_t(own)] : 1;
      walks[1].batch[i] = extent == 1 ? 0 : elements;
      elements *= extent;
    }
  }
  const int64_t a_k = walks[0].column, b_k = walks[1].row;
  walks[0].column = walks[1].row = 0;  // the batch is laid out over rows and columns of the output alone
  collapse(axes, walks);
  walks[0].column = a_k, walks[1].row = b_k;
  if (int(axes.batch.size()) > kBatchAxes) {
    out.refusal = fmt::format("{} batch axes remain, at most {}", axes.batch.size(), kBatchAxes);
    return out;
  }
  out.m = axes.m, out.n = axes.n, out.k = axes.k;
  out.batch = axes.batch;
  out.a = walks[0], out.b = walks[1], out.y = walks[2], out.a_zero = walks[3], out.b_zero = walks[4];
  out.inputs = tail.inputs;
  out.tail.op = p.op;
  out.tail.program = tail.program;
  out.tail.outputs.push_back({p.output().dtype, Layout({out.m, out.n})});
  for (size_t i = 0; i < tail.inputs.size(); ++i) {
    const Walk& w = walks[5 + i];
    out.further.push_back(w);
    out.tail.inputs.push_back({p.input(tail.inputs[i]).dtype, Layout({out.m, out.n}, {w.row, w.column})});
  }
  return out;
}

int64_t packed_row(const Product& product, const PackedB& pack) { return row_of(product.k, pack); }

Packing packing_of(const Problem& p, const PackedB& pack) {
  const BShape b = shape_of_b(p);
  if (b.k_stride == 1 && row_of(b.k, pack) == b.k) return {};
  const int64_t matrices = matrices_of(p.input(1).layout);
  return {fmt::format("columns {}x n={} k={} row={} {}{}", matrices, b.n, b.k, row_of(b.k, pack),
                      name(p.input(1).dtype), b.k_stride == 1 ? "" : " transposed"),
          bytes_of(p.input(1).dtype, matrices * b.n * row_of(b.k, pack))};
}

void pack_b(const Problem& p, const PackedB& pack, const Tensor& source, void* packed) {
  const BShape b = shape_of_b(p);
  const int64_t row = row_of(b.k, pack), matrices = matrices_of(p.input(1).layout);
  const auto all = [&](auto zero) {
    using T = decltype(zero);
    for (int64_t m = 0; m < matrices; ++m)
      transpose(source.as<T>() + m * b.n * b.k, b, row, static_cast<T*>(packed) + m * b.n * row);
  };
  switch (info(p.input(1).dtype).bits) {
    case 8:
      return all(uint8_t{});
    case 16:
      return all(uint16_t{});
    case 32:
      return all(uint32_t{});
    default:
      return all(uint64_t{});
  }
}

std::string product_source(const Problem& p, const Product& product) {
  // Operands of the epilogue may lie at odd places, which is known at launch alone: pairs are loaded by a function that
  // looks (matmul/pairs.cu).
  std::string epilogue = epilogue_source(product.tail, 1).code;
  for (size_t at = 0; (at = epilogue.find("load_pair(", at)) != std::string::npos; at += 14)
    epilogue.replace(at, 9, "load_pair_any");
  return fmt::format("using AType = {};\nusing BType = {};\n#define AXES {}\n#define OPERANDS {}\n{}{}{}",
                     storage_type(p.input(0).dtype), storage_type(p.input(product.b_input).dtype), kBatchAxes,
                     product.further.size(), embedded("matmul/pairs.cu"), epilogue, embedded("matmul/arguments.cu"));
}

std::vector<uint64_t> argument_words(const Product& product, const Buffers& buffers) {
  std::vector<uint64_t> words;
  const auto batch = [&](const std::vector<int64_t>& axes, int64_t scale, int64_t rest) {
    for (int i = 0; i < kBatchAxes; ++i)
      words.push_back(uint64_t(i < int(axes.size()) ? axes[size_t(i)] * scale : rest));
  };
  const auto matrix = [&](const void* address, const Walk& w) {
    words.insert(words.end(), {reinterpret_cast<uint64_t>(address), uint64_t(w.row), uint64_t(w.column)});
    batch(w.batch, 1, 0);
  };
  const auto input = [&](int i) { return i < 0 ? nullptr : buffers.inputs[i]; };
  matrix(input(0), product.a);
  matrix(input(product.b_input), product.b);
  matrix(buffers.outputs[0], product.y);
  matrix(input(product.a_zero_input), product.a_zero);
  matrix(input(product.b_zero_input), product.b_zero);
  words.insert(words.end(), {uint64_t(product.m), uint64_t(product.n), uint64_t(product.k)});
  batch(product.batch, 1, 1);
  std::vector<void*> addresses;
  for (size_t i = 0; i < product.further.size(); ++i) {
    batch(product.further[i].batch, bytes_of(product.tail.inputs[i].dtype, 1), 0);
    addresses.push_back(buffers.inputs[product.inputs[i]]);
  }
  if (product.further.empty()) batch({}, 1, 0);
  const std::vector<uint64_t> epilogue = epilogue_words(product.tail, 1, addresses.data());
  words.insert(words.end(), epilogue.begin(), epilogue.end());
  return words;
}

}  // namespace ridgeline::cuda
