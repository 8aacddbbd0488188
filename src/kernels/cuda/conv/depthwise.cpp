// cuda.depthwise: convolutions of one input channel a group.
#include <algorithm>
#include <cstring>

#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/conv/matrix_epilogue.h"
#include "kernels/cuda/conv/strided_epilogue.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool is_known(DType t) { return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32; }
int bytes_of(DType t) { return info(t).bits / 8; }

Support supports(const Problem& p) {
  if (!is_known(p.input(0).dtype) || !is_known(p.output().dtype)) return no("takes and writes f32, f16 and bf16");
  const int axes = p.input(0).layout.rank() - 2;
  if (axes < 1 || axes > 2) return no("takes one or two spatial axes, not {}", axes);
  const ConvGeometry g = conv_geometry(p);
  if (g.group_in() != 1) return no("{} channels a group", g.group_in());
  if (!p.input(1).layout.is_row_major()) return no("the weights are strided");
  if (const std::string why = strided_epilogue_reject(p); !why.empty()) return no("{}", why);
  if (p.output().elements() == 0) return no("an empty image");
  if (p.output().elements() >= int64_t(1) << 31 || g.images * g.in_pixels() * g.in_channels >= int64_t(1) << 31)
    return no("2^31 elements and more");
  return yes();
}

struct Shape {
  bool last = false;
  int vector = 1, strip = 1, window = 0, step = 0;
};

// Whole vectors of channels, one output channel an input channel, results as rows of channels.
bool is_last(const Problem& p, const ConvGeometry& g) {
  return g.group_out() == 1 && g.out_channels % (16 / bytes_of(p.input(0).dtype)) == 0 && p.input(1).is_constant &&
         image_strides(p.input(0).layout)[1] == 1 && is_pixel_matrix(p.output().layout) &&
         matrix_epilogue_reject(p).empty();
}

Shape shape_of(const Problem& p, const ConvGeometry& g) {
  Shape s;
  s.last = is_last(p, g);
  if (s.last) s.vector = 16 / bytes_of(p.input(0).dtype);
  const size_t along = s.last ? 2 : 1;
  const int64_t window = g.kernel[along], step = g.stride[along];
  if (g.dilation[along] == 1 && (window == 3 || window == 5 || window == 7) && step <= 2) {
    s.window = int(window), s.step = int(step);
    s.strip = window == 7 && s.last ? 2 : 4;
  }
  return s;
}

Packing packing(const Problem& p, const Tile&, int input) {
  const ConvGeometry g = conv_geometry(p);
  if (input != 1 || !is_last(p, g)) return {};
  return {fmt::format("cuda depthwise taps={} channels={} {}", g.taps(), g.out_channels, name(p.input(1).dtype)),
          p.input(1).bytes()};
}

template <typename T>
void transpose(const T* from, T* to, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
}
void pack(const Problem& p, const Tile&, int, const Tensor& source, void* packed) {
  const ConvGeometry g = conv_geometry(p);
  if (bytes_of(p.input(1).dtype) == 4)
    transpose(source.as<uint32_t>(), static_cast<uint32_t*>(packed), g.out_channels, g.taps());
  else
    transpose(source.as<uint16_t>(), static_cast<uint16_t*>(packed), g.out_channels, g.taps());
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const ConvGeometry g = conv_geometry(p);
  const Shape s = shape_of(p, g);
  // Of the FMA peak: loads, conversions and borders beside each product.
  const double share = s.window ? (s.last ? 0.4 : 0.15) : 0.06;
  return std::max(c.compute_ns(DType::kF32, int64_t(g.flops()), 1) / share,
                  c.stream_ns(p.read_bytes(), p.write_bytes(), 1) * 1.1) +
         1500 + c.launch_ns.at(1, 1);
}

Source source(const Problem& p, const Tile&) {
  const Shape s = shape_of(p, conv_geometry(p));
  Source source;
  source.file = "conv/depthwise.cu";
  source.entry = "depthwise";
  const int operands = s.last || !p.has_epilogue() ? 0 : p.epilogue_operands();
  source.defines = {fmt::format("ELEMENT={}", storage_type(p.input(0).dtype)),
                    fmt::format("LAST={}", int(s.last)),
                    fmt::format("VECTOR={}", s.vector),
                    fmt::format("STRIP={}", s.strip),
                    fmt::format("WINDOW={}", s.window),
                    fmt::format("STEP={}", s.step),
                    fmt::format("OPERANDS={}", std::max(1, operands))};
  source.program =
      s.last ? matrix_epilogue_source(p, false) : strided_epilogue_source(p) + "struct Epilogue { u64 none; };\n";
  return source;
}

// struct Arguments of depthwise.cu, without the epilogue's words that follow.
struct Arguments {
  const void *x, *w, *bias;
  void* y;
  ImageStrides x_stride, y_stride;
  int64_t bias_stride;
  uint32_t count;
  int channels, group_out, strips;
  int in[2], out[2], kernel[2], stride[2], dilation[2], begin[2];
  int vectors_x, vectors_y;
};
static_assert(sizeof(Arguments) % 8 == 0);

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const ConvGeometry g = conv_geometry(p);
  const Shape s = shape_of(p, g);
  Arguments a{};
  a.x = buffers.inputs[0], a.w = buffers.inputs[1], a.bias = p.has(2) ? buffers.inputs[2] : nullptr;
  a.y = buffers.outputs[0];
  a.x_stride = image_strides(p.input(0).layout), a.y_stride = image_strides(p.output().layout);
  a.bias_stride = p.has(2) && p.input(2).shape()[0] > 1 ? p.input(2).layout.strides[0] : 0;
  a.channels = int(g.out_channels), a.group_out = int(g.group_out());
  for (size_t axis = 0; axis < 2; ++axis) {
    const size_t from = axis + 1;
    a.in[axis] = int(g.in[from]), a.out[axis] = int(g.out[from]), a.kernel[axis] = int(g.kernel[from]);
    a.stride[axis] = int(g.stride[from]), a.dilation[axis] = int(g.dilation[from]), a.begin[axis] = int(g.begin[from]);
  }
  a.strips = int(ceil_div(s.last ? g.out[2] : g.out[1], s.strip));
  const int64_t count = s.last ? g.images * g.out[1] * a.strips * (g.out_channels / s.vector)
                               : g.images * g.out_channels * a.strips * g.out[2];
  a.count = uint32_t(count);
  const Layout& layout = p.input(0).layout;
  a.vectors_x = reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
  for (size_t axis = 0; axis < layout.shape.size(); ++axis)
    if (axis != 1 && layout.shape[axis] > 1 && layout.strides[axis] * bytes_of(p.input(0).dtype) % 16) a.vectors_x = 0;
  a.vectors_y = reinterpret_cast<uintptr_t>(a.y) % 16 == 0;
  std::vector<uint64_t> words(sizeof(Arguments) / 8);
  std::memcpy(words.data(), &a, sizeof(Arguments));
  const std::vector<uint64_t> strided =
                                  s.last ? std::vector<uint64_t>(6, 0) : strided_epilogue_words(p, buffers.inputs),
                              epilogue =
                                  s.last ? matrix_epilogue_words(p, buffers.inputs) : std::vector<uint64_t>(1, 0);
  words.insert(words.end(), strided.begin(), strided.end());
  launch(call.state_as<LoadedKernel>(), {ceil_div(count, kThreads)}, kThreads, stream, {.dependent = true},
         words.front(), epilogue.front());
}

}  // namespace

constinit const Kernel kDepthwise = {
    .name = "cuda.depthwise",
    .op = "Conv",
    .device = DeviceKind::kCuda,
    .supports = supports,
    .estimate = estimate,
    .packing = packing,
    .pack = pack,
    .source = source,
    .launch = run,
};

}  // namespace ridgeline::cuda
