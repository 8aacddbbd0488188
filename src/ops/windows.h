// Windows that slide over the spatial axes of [N, C, spatial...]: kernel extents, strides, dilations and pads of
// convolutions and pools, with `auto_pad` resolved. Used by infer, references, cost and kernels alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/infer.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

/// One entry a spatial axis.
struct Window {
  Extents in, out, kernel, stride, dilation, begin, end;  // `begin`, `end`: padding before and after
  int axes() const { return int(kernel.size()); }
  int64_t reach(int axis) const { return dilation[size_t(axis)] * (kernel[size_t(axis)] - 1) + 1; }
  int64_t taps() const { return element_count(kernel); }
};

/// Attributes of the node as the standard writes them, with their defaults put in.
struct WindowAttributes {
  std::vector<int64_t> kernel, strides, dilations, pads;
  std::string auto_pad;
  bool ceil_mode = false;
};

/// `Context`: Infer, Reference, Problem or Builder.
template <typename Context>
WindowAttributes window_attributes(const Context& c, std::vector<int64_t> kernel, bool has_ceil_mode) {
  const std::vector<int64_t> ones(kernel.size(), 1), zeros(2 * kernel.size(), 0);
  WindowAttributes w;
  w.strides = c.integers("strides", ones);
  w.dilations = c.integers("dilations", ones);
  w.pads = c.integers("pads", zeros);
  w.auto_pad = c.string("auto_pad");
  w.ceil_mode = has_ceil_mode && c.flag("ceil_mode");
  w.kernel = std::move(kernel);
  return w;
}

/// Extents of what slides over `in`.
Window window_of(const WindowAttributes& attributes, const Extents& in);

/// Checks the attributes against the rank, and gives the extents of the output; kernel extents may be symbolic (a
/// weight's).
Shape infer_window(Infer& i, const WindowAttributes& attributes, const Shape& kernel, const Shape& in);

/// The window of a convolution or pool at its problem's, reference's operands.
template <typename Context>
Window conv_window(const Context& c, const Extents& x, const Extents& w) {
  return window_of(window_attributes(c, {w.begin() + 2, w.end()}, false), {x.begin() + 2, x.end()});
}
template <typename Context>
Window pool_window(const Context& c, const Extents& x) {
  return window_of(window_attributes(c, c.integers("kernel_shape"), true), {x.begin() + 2, x.end()});
}

/// ConvTranspose: `in` is the small side, `out` the large one; pads are cut off the result.
struct TransposedAttributes {
  WindowAttributes window;
  std::vector<int64_t> output_padding, output_shape;
};
template <typename Context>
TransposedAttributes transposed_attributes(const Context& c, std::vector<int64_t> kernel) {
  const std::vector<int64_t> zeros(kernel.size(), 0);
  return {window_attributes(c, std::move(kernel), false), c.integers("output_padding", zeros),
          c.integers("output_shape")};
}
Window transposed_window_of(const TransposedAttributes& attributes, const Extents& in);
Shape infer_transposed_window(Infer& i, const TransposedAttributes& attributes, const Shape& kernel, const Shape& in);
template <typename Context>
Window transposed_window(const Context& c, const Extents& x, const Extents& w) {
  return transposed_window_of(transposed_attributes(c, {w.begin() + 2, w.end()}), {x.begin() + 2, x.end()});
}

}  // namespace ridgeline
