// cuda.conv_mma and cuda.conv_fma: convolutions and transposed ones of any strides, groups and layouts as matrix
// products whose operands are gathered; f16 and bf16 by mma.sync, f32 by FMAs.
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

constexpr int kRows = 128, kStages = 4, kThreads = 256;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }
bool is_f32(const Problem& p) { return p.input(0).dtype == DType::kF32; }
int step_of(const Problem& p) { return is_f32(p) ? 16 : 32; }
int64_t depth_of(const Problem& p, const ConvGeometry& g) {
  return ceil_div(g.taps() * g.group_in(), step_of(p)) * step_of(p);
}

Support supports(const Problem& p, bool f32) {
  if (f32 ? !is_f32(p) : !is_half(p.input(0).dtype)) return no("takes {}", f32 ? "f32" : "f16 and bf16");
  const DType out = p.output().dtype;
  if (!is_half(out) && out != DType::kF32) return no("writes f32, f16 and bf16");
  const int axes = p.input(0).layout.rank() - 2;
  if (axes < 1 || axes > 3) return no("takes one to three spatial axes, not {}", axes);
  if (!p.input(1).is_constant) return no("the weights are no constant");
  if (const std::string why = strided_epilogue_reject(p); !why.empty()) return no("{}", why);
  const ConvGeometry g = conv_geometry(p);
  if (p.output().elements() == 0 || g.group_in() == 0) return no("an empty image");
  if (g.images * g.out_pixels() >= int64_t(1) << 30) return no("2^30 pixels and more");
  return yes();
}
Support supports_mma(const Problem& p) { return supports(p, false); }
Support supports_fma(const Problem& p) { return supports(p, true); }

bool by_matrix(const Problem& p) { return is_pixel_matrix(p.output().layout) && matrix_epilogue_reject(p).empty(); }

// Eight channels of a group follow each other wherever one begins.
bool by_vectors(const Problem& p, const ConvGeometry& g) {
  return g.group_in() % 8 == 0 && image_strides(p.input(0).layout)[1] == 1;
}

std::vector<Tile> tiles_of(const Problem& p, std::initializer_list<int> widths) {
  const ConvGeometry g = conv_geometry(p);
  std::vector<Tile> list;
  for (int bn : widths)
    if (bn == *(widths.end() - 1) || bn / 2 < g.group_out()) list.push_back({{bn}});
  return list;
}
std::vector<Tile> tiles_mma(const Problem& p) { return tiles_of(p, {128, 64, 32}); }
std::vector<Tile> tiles_fma(const Problem& p) { return tiles_of(p, {128, 64}); }

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const ConvGeometry g = conv_geometry(p);
  const int bn = t.size[0], step = step_of(p);
  const int64_t blocks = ceil_div(g.images * g.out_pixels(), kRows) * ceil_div(g.group_out(), bn) * g.groups;
  const int64_t sms = target().multiprocessors, steps = depth_of(p, g) / step;
  const double tflops = is_f32(p) ? 34e3 : 300e3;
  const double products = 2.0 * kRows * bn * step / (tflops / double(sms));
  // Elements one by one: 0.46 ns each (ResNet-50's first layer at batch 64: 490 us).
  const double gather = by_vectors(p, g) ? (kRows + bn) * step * 2 / 50.0 : kRows * step * 0.46;
  const double turns = double(ceil_div(blocks, 2 * sms)) * (blocks > sms ? 2 : 1);
  // Operands of the epilogue come in pairs, straight from memory.
  const bool operands = p.has_epilogue() && p.epilogue_operands() > 0;
  const double finish = (by_matrix(p) && !operands ? 15.0 : 40.0) * bn;
  // Bulk copies keep memory busier than gathers: where both are bound by it, those of conv_wgmma are taken.
  return std::max(turns * (double(steps) * std::max(products, gather) + finish) + 2500,
                  1.25 * c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) +
         c.launch_ns.at(1, 1);
}

Packing packing(const Problem& p, const Tile& t, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(p);
  const int64_t depth = depth_of(p, g);
  const std::string what = fmt::format("{} groups={} m={} c={} taps={} {}", g.transposed ? "transposed" : "plain",
                                       g.groups, g.group_out(), g.group_in(), g.taps(), name(p.input(1).dtype));
  if (!is_f32(p)) return {"cuda gather rows " + what, g.out_channels * depth * 2};
  const int64_t columns = ceil_div(g.group_out(), t.size[0]) * t.size[0];
  return {fmt::format("cuda gather columns={} {}", columns, what), g.groups * depth * columns * 4};
}

// T: the bits of an element. f32: [groups][depth][columns]; 16 bits: [groups][columns][depth].
template <typename T>
void pack_as(const ConvGeometry& g, int64_t depth, int64_t columns, bool columns_last, const T* from, T* to) {
  const int64_t taps = g.taps(), in = g.group_in(), out = g.group_out();
  std::fill(to, to + g.groups * depth * columns, T(0));
  for (int64_t group = 0; group < g.groups; ++group) {
    T* const part = to + group * depth * columns;
    for (int64_t m = 0; m < out; ++m) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        for (int64_t c = 0; c < in; ++c) {
          const int64_t row = g.transposed ? (group * in + c) * out + m : (group * out + m) * in + c;
          const int64_t k = tap * in + c;
          part[columns_last ? k * columns + m : m * depth + k] = from[row * taps + tap];
        }
      }
    }
  }
}
void pack(const Problem& p, const Tile& t, int, const Tensor& source, void* packed) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t depth = depth_of(p, g);
  if (is_f32(p))
    pack_as(g, depth, ceil_div(g.group_out(), t.size[0]) * t.size[0], true, source.as<uint32_t>(),
            static_cast<uint32_t*>(packed));
  else
    pack_as(g, depth, g.group_out(), false, source.as<uint16_t>(), static_cast<uint16_t*>(packed));
}

Source source(const Problem& p, const Tile& t) {
  const ConvGeometry g = conv_geometry(p);
  const bool matrix = by_matrix(p), deep = g.in[0] != 1 || g.out[0] != 1 || g.kernel[0] != 1;
  const int bn = t.size[0], operands = matrix || !p.has_epilogue() ? 0 : p.epilogue_operands();
  Source source;
  source.file = is_f32(p) ? "conv/conv_fma.cu" : "conv/conv_mma.cu";
  source.entry = is_f32(p) ? "conv_fma" : "conv_mma";
  source.defines = {fmt::format("AXES={}", deep ? 3 : 2),
                    fmt::format("TRANSPOSED={}", int(g.transposed)),
                    fmt::format("OPERANDS={}", std::max(1, operands)),
                    fmt::format("BN={}", bn),
                    fmt::format("VECTOR={}", int(by_vectors(p, g))),
                    fmt::format("MATRIX={}", int(matrix))};
  if (!is_f32(p)) {
    const std::string type = storage_type(p.input(0).dtype);
    source.defines.insert(source.defines.end(),
                          {fmt::format("STAGES={}", kStages), "INPUT=" + type, fmt::format("MMA_TYPE=\"{}\"", type)});
    source.shared_bytes = int64_t(kStages) * (kRows + bn) * 64;
  }
  source.program =
      matrix ? matrix_epilogue_source(p, false) : strided_epilogue_source(p) + "struct Epilogue { u64 none; };\n";
  source.program += embedded("conv/gather.cu");
  return source;
}

// struct Arguments of gather.cu, without the epilogue's words that follow.
struct Arguments {
  const void *x, *w, *bias;
  void* y;
  ImageStrides x_stride, y_stride;
  int64_t bias_stride;
  int pixels, depth, group_in, group_out, tiles_m, tiles_n;
  int in[3], out[3], kernel[3], stride[3], dilation[3], begin[3];
  int vectors, pairs;
};
static_assert(sizeof(Arguments) % 8 == 0);

bool aligned_vectors(const Problem& p, const void* x) {
  const Layout& layout = p.input(0).layout;
  const int64_t size = info(p.input(0).dtype).bits / 8;
  for (size_t axis = 0; axis < layout.shape.size(); ++axis)
    if (axis != 1 && layout.shape[axis] > 1 && layout.strides[axis] * size % 16) return false;
  return reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const ConvGeometry g = conv_geometry(p);
  const int bn = call.tile.size[0];
  Arguments a{};
  a.x = buffers.inputs[0], a.w = buffers.inputs[1], a.bias = p.has(2) ? buffers.inputs[2] : nullptr;
  a.y = buffers.outputs[0];
  a.x_stride = image_strides(p.input(0).layout), a.y_stride = image_strides(p.output().layout);
  a.bias_stride = p.has(2) && p.input(2).shape()[0] > 1 ? p.input(2).layout.strides[0] : 0;
  a.pixels = int(g.images * g.out_pixels()), a.depth = int(depth_of(p, g));
  a.group_in = int(g.group_in()), a.group_out = int(g.group_out());
  a.tiles_m = int(ceil_div(a.pixels, kRows)), a.tiles_n = int(ceil_div(a.group_out, bn));
  for (size_t axis = 0; axis < 3; ++axis) {
    a.in[axis] = int(g.in[axis]), a.out[axis] = int(g.out[axis]), a.kernel[axis] = int(g.kernel[axis]);
    a.stride[axis] = int(g.stride[axis]), a.dilation[axis] = int(g.dilation[axis]), a.begin[axis] = int(g.begin[axis]);
  }
  a.vectors = by_vectors(p, g) && aligned_vectors(p, a.x);
  const int64_t pair = info(p.output().dtype).bits / 4;
  a.pairs = g.group_out() % 2 == 0 && reinterpret_cast<uintptr_t>(a.y) % uintptr_t(pair) == 0;

  const bool matrix = by_matrix(p);
  std::vector<uint64_t> words(sizeof(Arguments) / 8);
  std::memcpy(words.data(), &a, sizeof(Arguments));
  const std::vector<uint64_t> strided =
                                  matrix ? std::vector<uint64_t>(6, 0) : strided_epilogue_words(p, buffers.inputs),
                              epilogue =
                                  matrix ? matrix_epilogue_words(p, buffers.inputs) : std::vector<uint64_t>(1, 0);
  words.insert(words.end(), strided.begin(), strided.end());
  launch(call.state_as<LoadedKernel>(), {int64_t(a.tiles_m) * a.tiles_n * g.groups}, kThreads, stream,
         {.dependent = true}, words.front(), epilogue.front());
}

constexpr Kernel gathered(std::string_view op, bool f32) {
  return {.name = f32 ? "cuda.conv_fma" : "cuda.conv_mma",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = f32 ? supports_fma : supports_mma,
          .tiles = f32 ? tiles_fma : tiles_mma,
          .estimate = estimate,
          .packing = packing,
          .pack = pack,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const std::array<Kernel, 4> kConvGathered = {gathered("Conv", false), gathered("ConvTranspose", false),
                                                       gathered("Conv", true), gathered("ConvTranspose", true)};

}  // namespace ridgeline::cuda
