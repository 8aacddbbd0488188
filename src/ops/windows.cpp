#include "ops/windows.h"

#include <algorithm>

#include "ops/common.h"

namespace ridgeline {
namespace {

bool is_same(const std::string& auto_pad) { return auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER"; }

int64_t ceil_of(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }
int64_t floor_of(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

/// Half of the total on each side, the odd one after (SAME_UPPER) or before (SAME_LOWER). A negative total, where a
/// transposed convolution is asked for more than it makes, stands after.
void split_padding(Window& w, int64_t total, bool odd_one_after) {
  if (total < 0) {
    w.begin.push_back(0);
    w.end.push_back(total);
    return;
  }
  const int64_t half = total / 2;
  w.begin.push_back(odd_one_after ? half : total - half);
  w.end.push_back(odd_one_after ? total - half : half);
}

void check_attributes(Infer& i, const WindowAttributes& w, size_t axes) {
  auto check = [&](std::string_view name, const std::vector<int64_t>& values, size_t count, int64_t least) {
    i.require(values.size() == count, fmt::format("attribute '{}' has {} entries, {} are wanted for {} spatial axes",
                                                  name, values.size(), count, axes));
    for (int64_t v : values)
      i.require(v >= least && v < (int64_t(1) << 31),
                fmt::format("attribute '{}' has the entry {}: at least {} is wanted", name, v, least));
  };
  check("strides", w.strides, axes, 1);
  check("dilations", w.dilations, axes, 1);
  check("pads", w.pads, 2 * axes, 0);
  i.require(w.auto_pad == "NOTSET" || w.auto_pad == "VALID" || is_same(w.auto_pad),
            fmt::format("auto_pad '{}': allowed are NOTSET, VALID, SAME_UPPER and SAME_LOWER", w.auto_pad));
}

}  // namespace

Window window_of(const WindowAttributes& a, const Extents& in) {
  Window w;
  w.in = in, w.kernel = a.kernel, w.stride = a.strides, w.dilation = a.dilations;
  const size_t axes = in.size();
  for (size_t axis = 0; axis < axes; ++axis) {
    const int64_t reach = w.reach(int(axis)), stride = w.stride[axis];
    if (is_same(a.auto_pad)) {
      const int64_t out = ceil_of(in[axis], stride);
      split_padding(w, std::max<int64_t>(0, (out - 1) * stride + reach - in[axis]), a.auto_pad == "SAME_UPPER");
      w.out.push_back(out);
      continue;
    }
    const bool valid = a.auto_pad == "VALID";
    w.begin.push_back(valid ? 0 : a.pads[axis]);
    w.end.push_back(valid ? 0 : a.pads[axis + axes]);
    const int64_t room = in[axis] + w.begin[axis] + w.end[axis] - reach;
    int64_t out = (a.ceil_mode ? ceil_of(room, stride) : floor_of(room, stride)) + 1;
    // A window that would start in the padding after the image is left out.
    if (a.ceil_mode) out = std::min(out, ceil_of(in[axis] + w.begin[axis], stride));
    w.out.push_back(std::max<int64_t>(0, out));
  }
  return w;
}

Shape infer_window(Infer& i, const WindowAttributes& a, const Shape& kernel, const Shape& in) {
  const size_t axes = in.size();
  check_attributes(i, a, axes);
  Shape out;
  for (size_t axis = 0; axis < axes; ++axis) {
    const Dim stride = a.strides[axis];
    if (is_same(a.auto_pad)) {
      out.push_back(ceil_div(in[axis], stride));
      continue;
    }
    const bool valid = a.auto_pad == "VALID";
    const Dim begin = valid ? 0 : a.pads[axis], padded = in[axis] + begin + Dim(valid ? 0 : a.pads[axis + axes]);
    const Dim reach = Dim(a.dilations[axis]) * (kernel[axis] - Dim(1)) + Dim(1), room = padded - reach;
    i.require(!room.known() || room.value() >= 0 || in[axis].is(0),
              fmt::format("the window reaches over {} elements of spatial axis {}, which has {} with its padding",
                          reach.text(), axis, padded.text()));
    Dim extent = (a.ceil_mode ? ceil_div(room, stride) : floor_div(room, stride)) + Dim(1);
    if (a.ceil_mode) extent = min(extent, ceil_div(in[axis] + begin, stride));
    out.push_back(extent.known() ? Dim(std::max<int64_t>(0, extent.value())) : extent);
  }
  return out;
}

Window transposed_window_of(const TransposedAttributes& t, const Extents& in) {
  const WindowAttributes& a = t.window;
  Window w;
  w.in = in, w.kernel = a.kernel, w.stride = a.strides, w.dilation = a.dilations;
  const size_t axes = in.size();
  for (size_t axis = 0; axis < axes; ++axis) {
    // The full result, before anything is cut off.
    const int64_t full = (in[axis] - 1) * w.stride[axis] + w.reach(int(axis)) + t.output_padding[axis];
    if (t.output_shape.empty() && !is_same(a.auto_pad)) {
      const bool valid = a.auto_pad == "VALID";
      w.begin.push_back(valid ? 0 : a.pads[axis]);
      w.end.push_back(valid ? 0 : a.pads[axis + axes]);
      w.out.push_back(std::max<int64_t>(0, full - w.begin[axis] - w.end[axis]));
      continue;
    }
    const int64_t out =
        t.output_shape.empty() ? in[axis] * w.stride[axis] : t.output_shape[t.output_shape.size() - axes + axis];
    split_padding(w, full - out, a.auto_pad == "SAME_UPPER");
    w.out.push_back(out);
  }
  return w;
}

Shape infer_transposed_window(Infer& i, const TransposedAttributes& t, const Shape& kernel, const Shape& in) {
  const WindowAttributes& a = t.window;
  const size_t axes = in.size();
  check_attributes(i, a, axes);
  i.require(t.output_padding.size() == axes,
            fmt::format("attribute 'output_padding' has {} entries, {} are wanted", t.output_padding.size(), axes));
  i.require(t.output_shape.empty() || t.output_shape.size() == axes || t.output_shape.size() == axes + 2,
            fmt::format("attribute 'output_shape' has {} entries, {} are wanted", t.output_shape.size(), axes));
  Shape out;
  for (size_t axis = 0; axis < axes; ++axis) {
    const Dim stride = a.strides[axis];
    const Dim full = (in[axis] - Dim(1)) * stride + Dim(a.dilations[axis]) * (kernel[axis] - Dim(1)) + Dim(1) +
                     Dim(t.output_padding[axis]);
    if (!t.output_shape.empty()) {
      const int64_t extent = t.output_shape[t.output_shape.size() - axes + axis];
      i.require(extent >= 0, fmt::format("attribute 'output_shape' has the entry {}", extent));
      out.push_back(extent);
    } else if (is_same(a.auto_pad)) {
      out.push_back(in[axis] * stride);
    } else {
      const Dim extent = a.auto_pad == "VALID" ? full : full - Dim(a.pads[axis]) - Dim(a.pads[axis + axes]);
      i.require(!extent.known() || extent.value() >= 0 || in[axis].is(0),
                fmt::format("the pads cut off more than the {} elements of spatial axis {}", full.text(), axis));
      out.push_back(extent.known() ? Dim(std::max<int64_t>(0, extent.value())) : extent);
    }
  }
  return out;
}

}  // namespace ridgeline
