// Convolutions by the columns of their windows: Col2Im adds columns up to an image, DeformConv reads its columns at
// positions that are moved. Source: the ONNX operator standard, Col2Im-18, DeformConv-19; Dai et al., Deformable
// Convolutional Networks, 2017; Zhu et al., Deformable ConvNets v2, 2018.
#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "ops/families.h"
#include "ops/movement.h"
#include "ops/windows.h"

namespace ridgeline {
namespace {

constexpr int64_t kLargestExtent = int64_t(1) << 31;

/// Attributes of a window that has no auto_pad.
template <typename Context>
WindowAttributes plain_window(const Context& c, std::vector<int64_t> kernel) {
  WindowAttributes w;
  w.strides = c.integers("strides", std::vector<int64_t>(kernel.size(), 1));
  w.dilations = c.integers("dilations", std::vector<int64_t>(kernel.size(), 1));
  w.pads = c.integers("pads", std::vector<int64_t>(2 * kernel.size(), 0));
  w.auto_pad = "NOTSET";
  w.kernel = std::move(kernel);
  return w;
}

// ---- Col2Im

void infer_col2im(Infer& i) {
  const Shape& x = i.shape(0);
  i.require(x.size() == 3, [&] { return "'input' is " + describe(i, 0) + ": [N, C * block, blocks] is wanted"; });
  const std::vector<Dim> image = i.need_values(1);
  const std::vector<int64_t> block = i.need_integers(2);
  i.require(!block.empty() && image.size() == block.size(), [&] {
    return fmt::format("'image_shape' has {} entries, 'block_shape' {}; allowed: equally many, 1 and more",
                       image.size(), block.size());
  });
  int64_t elements = 1;
  for (size_t a = 0; a < block.size(); ++a) {
    i.require(block[a] >= 1 && block[a] < kLargestExtent,
              [&] { return fmt::format("'block_shape' has the entry {}; allowed: 1 and more", block[a]); });
    i.require(!image[a].known() || (image[a].value() >= 0 && image[a].value() < kLargestExtent),
              [&] { return fmt::format("'image_shape' has the entry {}; allowed: 0 and more", image[a].text()); });
    elements = saturated_product({elements, block[a]});
  }
  i.require(!x[1].known() || x[1].value() % elements == 0, [&] {
    return fmt::format("axis 1 of 'input' has {} elements, no multiple of the block's {}", x[1].text(), elements);
  });
  const Shape blocks = infer_window(i, plain_window(i, block), to_shape(block), image);
  const Dim count = product(blocks);
  i.require(!count.known() || !x[2].known() || count == x[2], [&] {
    return fmt::format("axis 2 of 'input' has {} elements, the image {} holds {} blocks", x[2].text(), text(image),
                       count.text());
  });
  Shape result = {x[0], floor_div(x[1], Dim(elements))};
  result.insert(result.end(), image.begin(), image.end());
  i.output(0, i.dtype(0), std::move(result));
}

void reference_col2im(Reference& r) {
  const RefArray& x = r.in[0];
  RefArray& y = r.out[0];
  const Window w = window_of(plain_window(r, integers_of(r.in[2])), integers_of(r.in[1]));
  const int64_t taps = w.taps(), blocks = element_count(w.out), plane = element_count(w.in);
  const std::vector<int64_t> strides = row_major_strides(w.in);
  if (blocks != x.dim(2)) fail(ErrorCode::kBadInput, "Col2Im: {} blocks are given for {}", x.dim(2), blocks);
  r.parallel_for(y.dim(0) * y.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (Index tap(w.kernel); tap.more(); ++tap) {
        for (Index out(w.out); out.more(); ++out) {
          int64_t place = 0;
          bool inside = true;
          for (int a = 0; a < w.axes(); ++a) {
            const size_t s = size_t(a);
            const int64_t at = out[a] * w.stride[s] + tap[a] * w.dilation[s] - w.begin[s];
            inside = inside && at >= 0 && at < w.in[s];
            place += inside ? at * strides[s] : 0;
          }
          if (!inside) continue;
          const size_t to = size_t(c * plane + place), from = size_t((c * taps + tap.flat()) * blocks + out.flat());
          if (y.is_float())
            y.f[to] += x.f[from];
          else  // integers wrap
            y.i[to] = int64_t(uint64_t(y.i[to]) + uint64_t(x.i[from]));
        }
      }
    }
  });
}

/// The columns of the image: a convolution with one kernel a tap, which has a single one.
void gradient_col2im(Gradient& g) {
  V dy = g.gradient(), x = g.input(0);
  const std::vector<int64_t> block = g.values(g.input(2)), image = g.values(g.input(1));
  if (block.empty() || image.size() != block.size())
    fail(ErrorCode::kUnsupported, "the gradient of Col2Im is unsupported while its shapes are symbolic: bind them");
  const int64_t taps = element_count(block);
  if (taps > 4096) fail(ErrorCode::kUnsupported, "the gradient of Col2Im is unsupported for blocks of {}", taps);
  Extents kernel = {taps, 1};
  kernel.insert(kernel.end(), block.begin(), block.end());
  Tensor ones = Tensor::zeros(g.dtype(x), kernel);
  for (int64_t t = 0; t < taps; ++t) store_f64(ones.dtype(), ones.data(), t * taps + t, 1);
  std::vector<int64_t> planes = {-1, 1};
  planes.insert(planes.end(), image.begin(), image.end());
  const WindowAttributes w = plain_window(g, block);
  Attributes a;
  a.set("strides", w.strides);
  a.set("dilations", w.dilations);
  a.set("pads", w.pads);
  V columns =
      g.op("Conv", {g.reshape(dy, planes), V{&g, g.graph().add_constant(g.graph().fresh_name("taps"), ones)}}, a);
  g.input_gradient(0, g.op("Reshape", {columns, g.op("Shape", {x})}));
}

// ---- DeformConv

enum DeformInput { kX, kW, kOffset, kB, kMask };

void require_shape(const Infer& i, int input, const Shape& wanted) {
  const Shape& given = i.shape(input);
  bool fits = given.size() == wanted.size();
  for (size_t a = 0; fits && a < given.size(); ++a)
    fits = !given[a].known() || !wanted[a].known() || given[a] == wanted[a];
  i.require(fits, [&] {
    return fmt::format("'{}' is {}; allowed: {}", i.op().inputs[input].name, text(given), text(wanted));
  });
}

void infer_deform_conv(Infer& i) {
  const Shape &x = i.shape(kX), &w = i.shape(kW);
  i.require(x.size() >= 3 && w.size() == x.size(), [&] {
    return fmt::format("'X' is {}, 'W' {}; allowed: [N, C, spatial...], [M, C/group, spatial...]", text(x), text(w));
  });
  const Shape kernel(w.begin() + 2, w.end());
  const std::vector<int64_t> given = i.integers("kernel_shape");
  for (size_t a = 0; !given.empty() && a < kernel.size(); ++a)
    i.require(given.size() == kernel.size() && (!kernel[a].known() || kernel[a].is(given[a])),
              [&] { return fmt::format("kernel_shape = {} for 'W' {}", fmt::join(given, ","), text(w)); });
  for (const Dim& extent : kernel)
    i.require(!extent.is(0), [&] { return fmt::format("'W' is {}: a kernel of no elements", text(w)); });
  const int64_t group = i.integer("group"), offset_group = i.integer("offset_group");
  i.require(group >= 1 && offset_group >= 1 && group < kLargestExtent && offset_group < kLargestExtent,
            [&] { return fmt::format("group = {}, offset_group = {}; allowed: 1 and more", group, offset_group); });
  i.require((!w[0].known() || w[0].value() % group == 0) && (!x[1].known() || x[1].value() % offset_group == 0) &&
                (!x[1].known() || !w[1].known() || x[1] == w[1] * Dim(group)),
            [&] {
              return fmt::format("'X' {} and 'W' {} do not make {} groups and {} offset groups", text(x), text(w),
                                 group, offset_group);
            });
  const Shape out =
      infer_window(i, plain_window(i, std::vector<int64_t>(kernel.size(), 1)), kernel, Shape(x.begin() + 2, x.end()));
  const Dim taps = product(kernel) * Dim(offset_group);
  Shape offsets = {x[0], taps * Dim(int64_t(kernel.size()))}, masks = {x[0], taps}, result = {x[0], w[0]};
  for (Shape* shape : {&offsets, &masks, &result}) shape->insert(shape->end(), out.begin(), out.end());
  require_shape(i, kOffset, offsets);
  if (i.has(kB)) require_shape(i, kB, {w[0]});
  if (i.has(kMask)) require_shape(i, kMask, masks);
  i.output(0, i.dtype(0), std::move(result));
}

/// An element of one channel's plane near a position between elements.
struct Corner {
  int64_t place;
  double weight;
};

/// The corners of `at` that lie in the plane; beyond it are zeros.
void corners_of(const std::vector<double>& at, const Extents& plane, std::vector<Corner>& corners) {
  corners.assign(1, {0, 1});
  for (size_t a = 0; a < plane.size(); ++a) {
    const bool near = at[a] > -1 && at[a] < double(plane[a]);  // false for NaN
    const double below = near ? std::floor(at[a]) : 0;
    const int64_t low = int64_t(below);
    std::vector<Corner> next;
    for (const Corner& corner : corners) {
      if (near && low >= 0) next.push_back({corner.place * plane[a] + low, corner.weight * (1 - (at[a] - below))});
      if (near && low + 1 < plane[a])
        next.push_back({corner.place * plane[a] + low + 1, corner.weight * (at[a] - below)});
    }
    corners = std::move(next);
  }
}

void reference_deform_conv(Reference& r) {
  const RefArray &x = r.in[kX], &weights = r.in[kW], &offset = r.in[kOffset];
  RefArray& y = r.out[0];
  const Window w = window_of(plain_window(r, Extents(weights.shape.begin() + 2, weights.shape.end())),
                             Extents(x.shape.begin() + 2, x.shape.end()));
  const int64_t channels = x.dim(1), filters = weights.dim(0), group = r.integer("group"),
                places = element_count(w.out), taps = w.taps(), plane = element_count(w.in),
                offset_groups = r.integer("offset_group"), axes = w.axes(), shared = channels / offset_groups;
  r.parallel_for(x.dim(0), [&](int64_t begin, int64_t end) {
    std::vector<double> column(size_t(channels * taps)), at(static_cast<size_t>(axes));
    std::vector<Corner> corners;
    for (int64_t n = begin; n < end; ++n) {
      for (Index out(w.out); out.more(); ++out) {
        for (int64_t g = 0; g < offset_groups; ++g) {
          for (Index tap(w.kernel); tap.more(); ++tap) {
            const int64_t entry = (n * offset_groups + g) * taps + tap.flat();
            for (int a = 0; a < w.axes(); ++a) {
              const size_t s = size_t(a);
              at[s] = double(out[a] * w.stride[s] + tap[a] * w.dilation[s] - w.begin[s]) +
                      offset.f[size_t((entry * axes + a) * places + out.flat())];
            }
            corners_of(at, w.in, corners);
            const double mask = r.has(kMask) ? r.in[kMask].f[size_t(entry * places + out.flat())] : 1;
            for (int64_t c = g * shared; c < (g + 1) * shared; ++c) {
              double sum = 0;
              for (const Corner& corner : corners)
                sum += corner.weight * x.f[size_t((n * channels + c) * plane + corner.place)];
              column[size_t(c * taps + tap.flat())] = sum * mask;
            }
          }
        }
        const int64_t depth = channels / group * taps;
        for (int64_t m = 0; m < filters; ++m) {
          double sum = r.has(kB) ? r.in[kB].f[size_t(m)] : 0;
          for (int64_t k = 0; k < depth; ++k)
            sum += weights.f[size_t(m * depth + k)] * column[size_t(m / (filters / group) * depth + k)];
          y.f[size_t((n * filters + m) * places + out.flat())] = sum;
        }
      }
    }
  });
}

Cost cost_of_deform_conv(const Problem& p) {
  const Extents& w = p.input(kW).shape();
  int64_t taps = 1;
  for (size_t a = 2; a < w.size(); ++a) taps = saturated_product({taps, w[a]});
  const int64_t places = p.output().elements() / std::max<int64_t>(1, w[0]);
  const int64_t products = saturated_product({2, p.output().elements(), w[1], taps});
  const int64_t reads = saturated_product({8, places, p.input(kX).shape()[1], taps});
  return {.flops = saturated_sum(products, reads), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
}

}  // namespace

constinit const OpSchema kCol2Im = {
    .name = "Col2Im",
    .family = "conv",
    .kind = OpKind::kReduction,
    .doc =
        "blocks, a column each, added up where they lie in an image: what a transposed convolution does after its "
        "product. Integers wrap. Source: ONNX Col2Im-18",
    .since = 18,
    .versions = {18},
    .inputs = {{"input", kNumbers}, {"image_shape", kInt64}, {"block_shape", kInt64}},
    .outputs = {{"output"}},
    .attributes = {{"dilations", AttributeType::kInts},
                   {"pads", AttributeType::kInts},
                   {"strides", AttributeType::kInts}},
    .infer = infer_col2im,
    .cost =
        [](const Problem& p) {
          return Cost{.flops = p.input(0).elements(), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .reference = reference_col2im,
    .gradient = gradient_col2im,
    .samples = {"input=f32[2,10,15] image_shape=i64{5,5} block_shape=i64{1,5} strides=1,1 pads=0,1,0,1 dilations=1,1",
                "input=f32[1,9,4] image_shape=i64{5,5} block_shape=i64{3,3} strides=2,2",
                "input=f32[1,8,4] image_shape=i64{6,6} block_shape=i64{2,2} strides=2,3 dilations=3,1",
                "input=f32[1,6,6] image_shape=i64{3,3,4} block_shape=i64{1,1,3} strides=1,3,1",
                "input=i32[1,4,9] image_shape=i64{4,4} block_shape=i64{2,2}",
                "input=f16[2,3,7] image_shape=i64{9} block_shape=i64{3}"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kDeformConv = {
    .name = "DeformConv",
    .family = "conv",
    .kind = OpKind::kOpaque,
    .doc =
        "a convolution that reads each tap at its place plus an offset, between elements by linear interpolation, "
        "times a mask. Source: ONNX DeformConv-19",
    .since = 19,
    .versions = {19, 22},
    .inputs = {{"X", kFloats},
               {"W", kFloats, "X"},
               {"offset", kFloats, "X"},
               optional_input("B", kFloats, "X"),
               optional_input("mask", kFloats, "X")},
    .outputs = {{"Y"}},
    .attributes = {{"dilations", AttributeType::kInts},
                   {"group", 1},
                   {"kernel_shape", AttributeType::kInts},
                   {"offset_group", 1},
                   {"pads", AttributeType::kInts},
                   {"strides", AttributeType::kInts}},
    .infer = infer_deform_conv,
    .cost = cost_of_deform_conv,
    .reference = reference_deform_conv,
    .no_gradient = "not written yet: needs each sample's gradient scattered to the elements around it",
    .samples = {"X=f32[2,4,5,6] W=f32[3,4,3,3] offset=f32[2,18,5,6] B=f32[3] mask=f32[2,9,5,6] pads=1,1,1,1",
                "X=f32[1,4,7,7] W=f32[6,2,2,3] offset=f32[1,24,3,3] group=2 offset_group=2 strides=2,2 pads=0,1,0,0",
                "X=f32[1,2,9] W=f32[2,2,3] offset=f32[1,3,5] dilations=2",
                "X=f64[0,2,4,4] W=f64[1,2,2,2] offset=f64[0,8,3,3]",
                "X=f32[1,2,3,4,3] W=f32[2,2,2,2,2] offset=f32[1,24,2,3,2]"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> conv_columns_ops() {
  static constexpr const OpSchema* kOps[] = {&kCol2Im, &kDeformConv};
  return kOps;
}

}  // namespace ridgeline
