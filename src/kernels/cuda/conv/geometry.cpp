#include "kernels/cuda/conv/geometry.h"

#include "ops/windows.h"

namespace ridgeline::cuda {

double ConvGeometry::flops() const {
  const double pixels = double(transposed ? in_pixels() : out_pixels());
  return 2.0 * double(images) * pixels * double(taps()) * double(group_in()) * double(out_channels);
}

int weights_of(const Problem& problem) { return problem.op->name == "QLinearConv" ? 3 : 1; }

ConvGeometry conv_geometry(const Problem& problem) {
  ConvGeometry g;
  g.transposed = problem.op->name == "ConvTranspose";
  const Extents &x = problem.input(0).shape(), &kernel = problem.input(weights_of(problem)).shape(),
                &y = problem.output().shape();
  const Window w = g.transposed ? transposed_window(problem, x, kernel) : conv_window(problem, x, kernel);
  g.images = x[0];
  g.groups = problem.integer("group");
  g.in_channels = x[1];
  g.out_channels = y[1];
  const size_t axes = size_t(w.axes());
  for (size_t a = 0; a < axes; ++a) {
    const size_t to = 3 - axes + a;
    g.in[to] = x[a + 2], g.out[to] = y[a + 2], g.kernel[to] = w.kernel[a];
    g.stride[to] = w.stride[a], g.dilation[to] = w.dilation[a], g.begin[to] = w.begin[a];
  }
  return g;
}

ImageStrides image_strides(const Layout& layout) {
  ImageStrides s{};
  const size_t axes = size_t(layout.rank()) - 2;
  s[0] = layout.strides[0], s[1] = layout.strides[1];
  for (size_t a = 0; a < axes; ++a) s[5 - axes + a] = layout.strides[a + 2];
  return s;
}

bool is_pixel_matrix(const Layout& layout) {
  if (layout.rank() < 3) return false;
  int64_t next = 1;
  const auto follows = [&](size_t axis) {
    if (layout.shape[axis] != 1 && layout.strides[axis] != next) return false;
    next *= layout.shape[axis];
    return true;
  };
  if (!follows(1)) return false;
  for (size_t axis = size_t(layout.rank()) - 1; axis >= 2; --axis)
    if (!follows(axis)) return false;
  return follows(0);
}

}  // namespace ridgeline::cuda
