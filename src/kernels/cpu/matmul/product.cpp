#include "kernels/cpu/matmul/product.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/matmul/epilogue.h"

namespace ridgeline::cpu {
namespace {

// An operand's steps along the matrix' rows and columns and along the batch axes (outermost first), in elements.
struct Rider {
  int64_t row = 0, col = 0;
  std::vector<int64_t> batch;
};

struct Axes {
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> batch;
  bool row_vector = false, column_vector = false;  // a is a vector: no axis m in the output; b is one: no axis n
};

// A or B: its last two axes are (first, second), or (second, first) if transposed.
Rider side(const Layout& layout, bool vector, bool vector_is_row, bool transposed, size_t batch_axes) {
  Rider r;
  r.batch.assign(batch_axes, 0);
  const size_t rank = layout.shape.size();
  if (vector) {
    (vector_is_row ? r.col : r.row) = layout.strides[0];
    return r;
  }
  r.row = layout.strides[rank - (transposed ? 1 : 2)];
  r.col = layout.strides[rank - (transposed ? 2 : 1)];
  for (size_t i = 0; i + 2 < rank; ++i)
    if (layout.shape[i] != 1) r.batch[batch_axes + i - (rank - 2)] = layout.strides[i];
  return r;
}

// An operand broadcast onto the output; nothing if it does not fit.
std::optional<Rider> onto(const Layout& operand, const Extents& shape, const Axes& axes) {
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
  Rider r;
  if (!axes.column_vector) {
    r.col = strides.back();
    strides.pop_back();
  }
  if (!axes.row_vector) {
    r.row = strides.back();
    strides.pop_back();
  }
  r.batch = std::move(strides);
  return r;
}

// Batch axes of extent 1 vanish; the innermost becomes rows where every rider's rows go on in it (B's are all 0, so
// only if B is broadcast); neighbours merge.
void collapse(Axes& axes, std::vector<Rider>& riders) {
  const auto erase = [&](size_t axis) {
    axes.batch.erase(axes.batch.begin() + ptrdiff_t(axis));
    for (Rider& r : riders) r.batch.erase(r.batch.begin() + ptrdiff_t(axis));
  };
  const auto all = [&](auto&& holds) { return std::all_of(riders.begin(), riders.end(), holds); };
  for (size_t i = axes.batch.size(); i-- > 0;)
    if (axes.batch[i] == 1) erase(i);
  const Rider& b = riders[1];
  while (!axes.batch.empty() && b.batch.back() == 0) {
    if (axes.m == 1) {
      for (Rider& r : riders) r.row = r.batch.back();
    } else if (!all([&](const Rider& r) { return r.batch.back() == axes.m * r.row; })) {
      break;
    }
    axes.m *= axes.batch.back();
    erase(axes.batch.size() - 1);
  }
  for (size_t i = axes.batch.size(); i-- > 1;) {
    const int64_t extent = axes.batch[i];
    if (!all([&](const Rider& r) { return r.batch[i - 1] == extent * r.batch[i]; })) continue;
    for (Rider& r : riders) r.batch[i - 1] = r.batch[i];
    axes.batch[i - 1] *= extent;
    erase(i);
  }
}

// Gemm's C and the problem's program as one program over (v, further operands), and the inputs that those are.
struct Epilogue {
  std::shared_ptr<const Program> program;
  std::vector<int> inputs;  // of the problem; of the program's inputs 1 and up
  bool too_long = false;
};
Epilogue joined_epilogue(const Problem& p) {
  Epilogue e;
  if (p.op->name == "Gemm" && p.has(2) && p.number("beta") != 0) {
    const double beta = p.number("beta");
    const std::array<std::string_view, 2> names{"v", "c"};
    Program program = Program::parse(
        beta == 1 ? "v + c" : "v + c * beta", names, DType::kF32,
        [&](std::string_view name) { return name == "beta" ? std::optional<double>(beta) : std::nullopt; });
    program.inputs[1].dtype = p.input(2).dtype;
    e.program = std::make_shared<const Program>(std::move(program));
    e.inputs.push_back(2);
  }
  if (!p.has_epilogue()) return e;
  if (e.program) {
    const std::optional<Program> both = Program::compose(*e.program, 0, *p.program, 0);
    if (!both) return {nullptr, {}, true};
    e.program = std::make_shared<const Program>(*both);
  } else {
    e.program = p.program;
  }
  for (int i = p.op_inputs; i < int(p.inputs.size()); ++i) e.inputs.push_back(i);
  return e;
}

std::string refuse(const Problem& p, const Epilogue& e, const ProductTypes& types) {
  for (int i : {0, 1}) {
    const DType wanted = i == 0 ? types.a : types.b;
    if (p.input(i).dtype != wanted)
      return fmt::format("{} is {}: {} is wanted", p.op->inputs[i].name, name(p.input(i).dtype), name(wanted));
  }
  if (p.output().dtype != types.y) return fmt::format("y is {}: {} is wanted", name(p.output().dtype), name(types.y));
  if (e.too_long) return "the epilogue with Gemm's C is too long";
  if (!e.program) return {};
  if (e.program->outputs.size() != 1) return fmt::format("the epilogue has {} outputs", e.program->outputs.size());
  return types.own_epilogue ? "" : PreparedProgram::reject(*e.program);
}

void place_further(const Problem& p, const Epilogue& e, const std::vector<Rider>& riders, Product& out) {
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    const Rider& r = riders[3 + i];
    Product::Further further{e.inputs[i], bytes_of(p.input(e.inputs[i]).dtype, 1), r.row, r.col, {}};
    std::copy(r.batch.begin(), r.batch.end(), further.batch.begin());
    out.operands.push_back(further);
  }
}

void place_epilogue(const Problem& p, const Epilogue& e, const Axes& axes, const std::vector<Rider>& riders,
                    Product& out) {
  std::vector<EpilogueOperand> operands(1);
  for (size_t i = 0; i < e.inputs.size(); ++i) {
    const Rider& r = riders[3 + i];
    operands.push_back(
        {p.input(e.inputs[i]).dtype == DType::kF32, r.row == 0 || axes.m == 1, r.col == 1 || axes.n == 1});
  }
  GemmEpilogue& to = out.gemm.epilogue;
  const RegisterEpilogue quick = read_epilogue(*e.program, operands);
  if (quick.ok) {
    to.alpha *= quick.alpha;
    to.low = quick.low;
    to.high = quick.high;
    if (quick.bias) out.bias = e.inputs[size_t(quick.bias) - 1];
    if (quick.residual) {
      out.residual = e.inputs[size_t(quick.residual) - 1];
      to.residual_stride = riders[size_t(quick.residual) + 2].row;
    }
    for (size_t axis = 0; axis < axes.batch.size(); ++axis) {
      if (quick.bias) out.gemm.batch[axis].bias = riders[size_t(quick.bias) + 2].batch[axis];
      if (quick.residual) out.gemm.batch[axis].residual = riders[size_t(quick.residual) + 2].batch[axis];
    }
    return;
  }
  out.program = std::make_shared<const PreparedProgram>(*e.program);
  place_further(p, e, riders, out);
}

constexpr int kMostOperands = 32;

void finish_block(const void* context, const OutputBlock& block) {
  const ProductContext& c = *static_cast<const ProductContext*>(context);
  TileInput inputs[kMostOperands];
  place_operands(*c.product, *c.buffers, block.batch, block.row, block.col, inputs);
  apply_epilogue(*c.product->program, block.c, block.ldc, block.rows, block.cols, inputs);
}

}  // namespace

void place_operands(const Product& product, const Buffers& buffers, int64_t batch, int64_t row, int64_t col,
                    TileInput* to) {
  const Gemm& g = product.gemm;
  int64_t at[kMaxBatchAxes] = {};
  for (int axis = g.batch_axes; axis-- > 0;) {
    at[axis] = batch % g.batch[size_t(axis)].extent;
    batch /= g.batch[size_t(axis)].extent;
  }
  for (const Product::Further& o : product.operands) {
    int64_t offset = row * o.row + col * o.col;
    for (int axis = 0; axis < g.batch_axes; ++axis) offset += at[axis] * o.batch[size_t(axis)];
    *to++ = {static_cast<const char*>(buffers.inputs[o.input]) + offset * o.element_bytes, o.row, o.col};
  }
}

bool Product::in_place(int input) const {
  if (input != residual || gemm.epilogue.residual_stride != gemm.ldc) return false;
  for (int axis = 0; axis < gemm.batch_axes; ++axis)
    if (gemm.batch[size_t(axis)].residual != gemm.batch[size_t(axis)].c) return false;
  return true;
}

Product product_of(const Problem& p, bool pack, const ProductTypes& types) {
  Product out;
  const Epilogue e = joined_epilogue(p);
  out.refusal = refuse(p, e, types);
  if (!out.refusal.empty()) return out;

  const Layout &a = p.input(0).layout, &b = p.input(1).layout, &y = p.output().layout;
  const bool gemm = p.op->name == "Gemm", flags = gemm || p.op->name == "FusedMatMul";
  Axes axes;
  axes.row_vector = a.rank() == 1;
  axes.column_vector = b.rank() == 1;
  const bool trans_a = flags && p.flag("transA") && !axes.row_vector,
             trans_b = flags && p.flag("transB") && !axes.column_vector;
  const size_t skipped = size_t(!axes.row_vector) + size_t(!axes.column_vector);
  axes.batch.assign(y.shape.begin(), y.shape.end() - ptrdiff_t(skipped));
  axes.k = a.shape[size_t(a.rank()) - (trans_a ? 2 : 1)];
  if (!axes.row_vector) axes.m = a.shape[size_t(a.rank()) - (trans_a ? 1 : 2)];
  if (!axes.column_vector) axes.n = b.shape[size_t(b.rank()) - (trans_b ? 2 : 1)];

  std::vector<Rider> riders{side(a, axes.row_vector, true, trans_a, axes.batch.size()),
                            side(b, axes.column_vector, false, trans_b, axes.batch.size()), *onto(y, y.shape, axes)};
  for (int input : e.inputs) {
    const std::optional<Rider> r = onto(p.input(input).layout, y.shape, axes);
    if (!r) {
      out.refusal = "an operand of the epilogue does not broadcast to y";
      return out;
    }
    riders.push_back(*r);
  }
  if (int(e.inputs.size()) > kMostOperands)
    out.refusal = fmt::format("the epilogue has {} operands, at most {}", e.inputs.size(), kMostOperands);
  if (axes.n > 1 && riders[2].col != 1)
    out.refusal = fmt::format("y's columns are {} elements apart, not contiguous", riders[2].col);
  if (!out.refusal.empty()) return out;

  out.constant_b = pack;
  const int64_t a_k = riders[0].col, b_k = riders[1].row, b_n = riders[1].col;
  riders[0].col = riders[1].row = 0;  // the batch is laid out over rows and columns of the output alone
  if (pack) {                         // packed matrix by matrix, in the order of B's own batch
    int64_t floats = packed_b_floats(axes.k, axes.n);
    for (size_t i = axes.batch.size(); i-- > 0;) {
      const ptrdiff_t own = ptrdiff_t(i) - ptrdiff_t(axes.batch.size()) + ptrdiff_t(b.rank()) - 2;
      const int64_t extent = own >= 0 ? b.shape[size_t(own)] : 1;
      riders[1].batch[i] = extent == 1 ? 0 : floats;
      floats *= extent;
      out.b_matrices *= extent;
    }
    const Layout source(b.shape);  // constants come row-major
    const Rider r = side(source, axes.column_vector, false, trans_b, axes.batch.size());
    out.b_stride_k = r.row;
    out.b_stride_n = r.col;
  }
  collapse(axes, riders);
  if (int(axes.batch.size()) > kMaxBatchAxes) {
    out.refusal = fmt::format("{} batch axes remain, at most {}", axes.batch.size(), kMaxBatchAxes);
    return out;
  }
  Gemm& g = out.gemm;
  g.m = axes.m;
  g.n = axes.n;
  g.k = axes.k;
  g.a.row_stride = riders[0].row;
  g.a.k_stride = axes.k == 1 ? 1 : a_k;
  g.b.stride_k = b_k;
  g.b.stride_n = axes.n == 1 ? 1 : b_n;
  g.ldc = riders[2].row;
  g.batch_axes = int(axes.batch.size());
  for (size_t i = 0; i < axes.batch.size(); ++i) {
    g.batch[i].extent = axes.batch[i];
    g.batch[i].a = riders[0].batch[i];
    g.batch[i].b = riders[1].batch[i];
    g.batch[i].c = riders[2].batch[i];
  }
  if (flags) g.epilogue.alpha = float(p.number("alpha"));
  if (e.program) types.own_epilogue ? place_further(p, e, riders, out) : place_epilogue(p, e, axes, riders, out);
  // What the workspace depends on besides extents: whether B is packed, and whether there is a hook.
  static constexpr float kSomewhere = 0;
  if (pack) g.b.packed = &kSomewhere;
  if (out.program) g.epilogue.hook = finish_block;
  return out;
}

Gemm bind_product(const ProductContext& context) {
  const Product& p = *context.product;
  void* const* inputs = context.buffers->inputs;
  Gemm g = p.gemm;
  g.a.data = static_cast<const float*>(inputs[0]);
  (p.constant_b ? g.b.packed : g.b.data) = static_cast<const float*>(inputs[1]);
  g.c = static_cast<float*>(context.buffers->outputs[0]);
  if (p.bias >= 0) g.epilogue.bias = static_cast<const float*>(inputs[p.bias]);
  if (p.residual >= 0) g.epilogue.residual = static_cast<const float*>(inputs[p.residual]);
  g.epilogue.context = &context;
  return g;
}

}  // namespace ridgeline::cpu
