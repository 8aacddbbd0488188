#include "kernels/cpu/conv/geometry.h"

#include "ops/windows.h"

namespace ridgeline::cpu {
namespace {

/// [N,C,L] as [N,C,1,L].
ImageStrides strides_of(const Layout& layout) {
  const std::vector<int64_t>& s = layout.strides;
  if (layout.rank() == 3) return {s[0], s[1], s[2] * layout.shape[2], s[2]};
  return {s[0], s[1], s[2], s[3]};
}

struct Shape4 {
  int64_t n, c, h, w;
};
Shape4 shape_of(const Extents& shape) {
  if (shape.size() == 3) return {shape[0], shape[1], 1, shape[2]};
  return {shape[0], shape[1], shape[2], shape[3]};
}

}  // namespace

double ConvGeometry::flops() const {
  const double pixels = transposed ? double(in_h * in_w) : double(out_h * out_w);
  return 2.0 * double(images) * pixels * double(taps()) * double(group_in()) * double(out_channels);
}

ConvGeometry conv_geometry(const Problem& problem, int weights) {
  ConvGeometry g;
  g.transposed = problem.op && problem.op->name == "ConvTranspose";
  const Extents &x = problem.input(0).shape(), &kernel = problem.input(weights).shape(), &y = problem.output().shape();
  const Window w = g.transposed ? transposed_window(problem, x, kernel) : conv_window(problem, x, kernel);
  g.images = x[0];
  g.groups = problem.integer("group");
  g.in_channels = x[1];
  g.out_channels = y[1];
  const size_t last = size_t(w.axes()) - 1;
  g.in_w = w.in[last], g.out_w = y.back(), g.kernel_w = w.kernel[last];
  g.stride_w = w.stride[last], g.dilation_w = w.dilation[last], g.pad_left = w.begin[last];
  if (last == 1) {
    g.in_h = w.in[0], g.out_h = y[2], g.kernel_h = w.kernel[0];
    g.stride_h = w.stride[0], g.dilation_h = w.dilation[0], g.pad_top = w.begin[0];
  }
  return g;
}

Support supports_conv(const Problem& problem) {
  for (size_t i = 0; i < size_t(problem.op_inputs); ++i)
    if (problem.inputs[i].present() && problem.inputs[i].dtype != DType::kF32) return no("computes in f32 only");
  if (problem.output().dtype != DType::kF32) return no("writes f32 only");
  const int rank = problem.input(0).layout.rank();
  if (rank != 3 && rank != 4) return no("takes one or two spatial axes, not {}", rank - 2);
  if (problem.input(1).layout.rank() != rank) return no("the weight's rank is not the input's");
  if (problem.input(1).elements() == 0) return no("empty weights");
  if (!problem.input(1).layout.is_row_major()) return no("the weights are not row-major");
  if (problem.has(2) && !problem.input(2).layout.is_row_major()) return no("the bias is strided");
  return yes();
}

namespace {

std::optional<ImageStrides> channels_last_strides(const Layout& layout) {
  ImageStrides s = strides_of(layout);
  const Shape4 e = shape_of(layout.shape);
  if (e.c != 1 && s.channel != 1) return std::nullopt;
  s.channel = 1;
  if (e.w == 1) s.pixel = e.c;
  if (e.h == 1) s.row = s.pixel * e.w;
  if (e.n == 1) s.image = s.row * e.h;
  return s;
}

std::optional<ImageStrides> planar_strides(const Layout& layout) {
  ImageStrides s = strides_of(layout);
  const Shape4 e = shape_of(layout.shape);
  if (e.w == 1) s.pixel = 1;
  if (e.h == 1) s.row = s.pixel * e.w;
  if (s.pixel != 1 || s.row != e.w) return std::nullopt;
  if (e.c == 1) s.channel = e.h * e.w;
  if (e.n == 1) s.image = s.channel * e.c;
  return s;
}

}  // namespace

std::optional<ImageStrides> image_strides(const Layout& layout, ImageOrder order) {
  return order == ImageOrder::kChannelsLast ? channels_last_strides(layout) : planar_strides(layout);
}

std::optional<ImageStrides> broadcast_strides(const Layout& operand, const Extents& shape) {
  const size_t rank = shape.size(), missing = rank - size_t(operand.rank());
  if (size_t(operand.rank()) > rank) return std::nullopt;
  Layout full;
  full.shape = shape;
  full.strides.assign(rank, 0);
  for (size_t i = missing; i < rank; ++i) {
    const int64_t extent = operand.shape[i - missing];
    if (extent != 1 && extent != shape[i]) return std::nullopt;
    full.strides[i] = extent == 1 ? 0 : operand.strides[i - missing];
  }
  return strides_of(full);
}

}  // namespace ridgeline::cpu
