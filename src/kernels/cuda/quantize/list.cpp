// cuda.quantize, cuda.dequantize: Programs with a scale for all, for each slice or for each block.
#include "kernels/cuda/elementwise/as_program.h"
#include "kernels/cuda/families.h"

namespace ridgeline::cuda {
namespace {

size_t axis_of(const Problem& p) {
  const int64_t axis = p.integer("axis"), rank = p.input(0).layout.rank();
  return size_t(axis < 0 ? axis + rank : axis);
}

bool single(const Problem& p) { return p.integer("block_size") == 0 && p.input(1).elements() == 1; }

std::string reject(const Problem& p) {
  const auto known = [](const Operand& operand) { return !contains(kSmall, operand.dtype); };
  for (int k = 0; k < p.op_inputs; ++k)
    if (p.has(k) && !known(p.input(k))) return fmt::format("values of type {}", name(p.input(k).dtype));
  if (!known(p.output())) return fmt::format("results of type {}", name(p.output().dtype));
  if (p.op->name == "QuantizeLinear" && p.integer("precision") > 1) return "a division in another type than f32";
  const int64_t block = p.integer("block_size");
  if (block > 0 && p.input(0).shape()[axis_of(p)] % block)
    return fmt::format("blocks of {} along an extent of {}", block, p.input(0).shape()[axis_of(p)]);
  return "";
}

// The axis of blocks in two: blocks, and what is in one.
Layout split(Layout layout, size_t axis, int64_t block) {
  const int64_t stride = layout.strides[axis];
  layout.shape[axis] /= block;
  layout.strides[axis] *= block;
  layout.shape.insert(layout.shape.begin() + int64_t(axis) + 1, block);
  layout.strides.insert(layout.strides.begin() + int64_t(axis) + 1, stride);
  return layout;
}

Layout parameter(const Problem& p, const Layout& own) {
  const size_t rank = p.input(0).shape().size();
  if (single(p)) return Layout(Extents{}, Extents{});
  const size_t axis = axis_of(p);
  if (p.integer("block_size") > 0) {
    Layout layout = own;
    layout.shape.insert(layout.shape.begin() + int64_t(axis) + 1, 1);
    layout.strides.insert(layout.strides.begin() + int64_t(axis) + 1, 0);
    return layout;
  }
  Layout layout(Extents(rank, 1), Extents(rank, 0));
  layout.shape[axis] = own.shape[0];
  layout.strides[axis] = own.strides[0];
  return layout;
}

Rewritten rewrite(const Problem& p, bool quantize) {
  const bool zero = p.has(2);
  const DType x = p.input(0).dtype, s = p.input(1).dtype, y = p.output().dtype;
  const bool wide = x == DType::kF64 || s == DType::kF64 || y == DType::kF64 || (quantize ? s : x) == DType::kI32;
  const std::string type = wide ? "f64" : "f32";
  std::vector<ProgramInput> inputs = {{"x", x}, {"s", s}};
  if (zero) inputs.push_back({"z", p.input(2).dtype});
  std::string text =
      quantize ? fmt::format("round(cast_{0}(x) / cast_{0}(s))", type) : fmt::format("cast_{0}(x)", type);
  if (zero) text = fmt::format("({1} {2} cast_{0}(z))", type, text, quantize ? "+" : "-");
  text = quantize ? fmt::format("cast_{0}({1})", name(y), text)
                  : fmt::format("cast_{0}({2} * cast_{1}(s))", name(y), type, text);
  const int64_t block = p.integer("block_size");
  const auto seen = [&](const Layout& layout) { return block > 0 ? split(layout, axis_of(p), block) : layout; };
  std::vector<std::pair<int, Layout>> operands = {{0, seen(p.input(0).layout)}, {1, parameter(p, p.input(1).layout)}};
  if (zero) operands.push_back({2, parameter(p, p.input(2).layout)});
  Rewritten r = rewritten(p, Program::parse(text, inputs, wide ? DType::kF64 : DType::kF32), operands);
  r.problem.outputs[0].layout = seen(p.output().layout);
  return r;
}

Rewritten quantized(const Problem& p) { return rewrite(p, true); }
Rewritten dequantized(const Problem& p) { return rewrite(p, false); }

constinit const Kernel kQuantize = as_program<quantized, reject>("cuda.quantize", "QuantizeLinear");
constinit const Kernel kDequantize = as_program<dequantized, reject>("cuda.dequantize", "DequantizeLinear");

}  // namespace

std::span<const Kernel* const> quantize_kernels() {
  static constexpr const Kernel* kList[] = {&kQuantize, &kDequantize};
  return kList;
}

}  // namespace ridgeline::cuda
