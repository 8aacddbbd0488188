// cuda.conv_stem: few input channels (images), on Hopper.
#include <algorithm>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/conv/matrix_epilogue.h"
#include "kernels/cuda/conv/taps.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kMostRows = 8, kThreads = 256;
constexpr int64_t kMostShared = 112 << 10;  // two blocks a multiprocessor

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }

int64_t run_of(const ConvGeometry& g) { return g.kernel[2] * g.in_channels; }
int64_t parts_of(const ConvGeometry& g) { return ceil_div(run_of(g), 8); }
int64_t blocks_of(const ConvGeometry& g) { return ceil_div(ceil_div(g.kernel[1] * parts_of(g), 2), 4); }
// Elements of a row of the image in shared memory: up to the end of the last window, a multiple of 8 and one.
int64_t pitch_of(const ConvGeometry& g) { return (g.out[2] - 1) * g.stride[2] * g.in_channels + parts_of(g) * 8 + 2; }
// In steps of 16 KiB: one code serves many widths.
int64_t shared_bytes(const ConvGeometry& g, int rows) {
  const int64_t bytes = 1024 + blocks_of(g) * g.out_channels * 128 + 2 * 64 * g.out_channels * 2 + 16 +
                        ((rows - 1) * g.stride[1] + g.kernel[1]) * ((pitch_of(g) + 1) & ~int64_t(1)) * 2;
  return ceil_div(bytes, 16 << 10) * (16 << 10);
}

Support supports(const Problem& p) {
  for (const Capability wanted : {Capability::kWgmma, Capability::kBulkCopies})
    if (const std::string why = missing(wanted); !why.empty()) return no("{}", why);
  if (!is_half(p.input(0).dtype) || !is_half(p.output().dtype)) return no("takes and writes f16 and bf16");
  if (p.input(0).layout.rank() != 4) return no("takes two spatial axes");
  if (!p.input(1).is_constant || (p.has(2) && !p.input(2).is_constant)) return no("weights or bias are no constant");
  const ConvGeometry g = conv_geometry(p);
  if (g.groups != 1 || g.in_channels > 4 || g.in_channels == 0) return no("wants at most four channels in one group");
  if (g.out_channels != 16 && g.out_channels != 32 && g.out_channels != 64)
    return no("{} output channels: 16, 32 or 64 are wanted", g.out_channels);
  if (!is_pixel_matrix(p.input(0).layout) || !is_pixel_matrix(p.output().layout))
    return no("the images are not channels last without gaps");
  if (g.dilation[1] != 1 || g.dilation[2] != 1) return no("dilated");
  if (g.stride[2] * g.in_channels % 2) return no("windows begin at odd elements");
  if (g.begin[1] < 0 || g.begin[2] < 0) return no("negative padding");
  if (g.kernel[1] * parts_of(g) > 32 || run_of(g) > 64) return no("the window is too large for registers");
  if (p.output().elements() == 0 || p.input(0).elements() == 0) return no("an empty image");
  if (g.images * std::max(g.out_pixels(), g.in_pixels()) >= int64_t(1) << 28) return no("2^28 pixels and more");
  if (shared_bytes(g, 1) > kMostShared) return no("rows of {} pixels are too long", g.in[2]);
  if (const std::string why = matrix_epilogue_reject(p); !why.empty()) return no("{}", why);
  return yes();
}

// size: rows of output that a block of threads takes at a time; fewer where images are few.
std::vector<Tile> tiles(const Problem& p) {
  const ConvGeometry g = conv_geometry(p);
  std::vector<Tile> list;
  for (int rows : {kMostRows, 4, 2, 1})
    if (shared_bytes(g, rows) <= kMostShared) list.push_back({{rows}});
  return list;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const ConvGeometry g = conv_geometry(p);
  const int rows = t.size[0];
  const int64_t tiles = g.images * ceil_div(g.out[1], rows), slots = int64_t(2) * target().multiprocessors;
  // ResNet-50's at batch 64 takes 87 us: four tiles a block of threads, 14 x 64 pixels each.
  const double turn = 500 + 20.0 * double(g.kernel[1] * parts_of(g)), filling = 1500 + 300.0 * rows;
  const double tile = double(ceil_div(rows * g.out[2], 128)) * turn + filling;
  return std::max(double(ceil_div(tiles, slots)) * tile + 2500,
                  c.stream_ns(p.read_bytes(), p.write_bytes(), 1) + 2500) +
         c.launch_ns.at(1, 1);
}

// [M, K]: window rows of parts_of x 8 elements each, rounded up to blocks of 64 elements.
Packing packing(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(p);
  return {fmt::format("cuda stem m={} kernel={}x{} c={} {}", g.out_channels, g.kernel[1], g.kernel[2], g.in_channels,
                      name(p.input(1).dtype)),
          g.out_channels * blocks_of(g) * 128};
}
void pack(const Problem& p, const Tile&, int, const Tensor& source, void* packed) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t depth = blocks_of(g) * 64, channels = g.in_channels;
  const uint16_t* from = source.as<uint16_t>();
  uint16_t* to = static_cast<uint16_t*>(packed);
  std::fill(to, to + g.out_channels * depth, uint16_t(0));
  for (int64_t m = 0; m < g.out_channels; ++m)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t kh = 0; kh < g.kernel[1]; ++kh)
        for (int64_t kw = 0; kw < g.kernel[2]; ++kw)
          to[m * depth + kh * parts_of(g) * 8 + kw * channels + c] =
              from[((m * channels + c) * g.kernel[1] + kh) * g.kernel[2] + kw];
}

// wgmma with the left operand in registers: PTX ISA 8.0, 9.7.15.5.
std::string wgmma_rows_function(DType dtype, int n) {
  std::string registers, operands;
  for (int i = 0; i < n / 2; ++i) {
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(sum[{}])", i ? ", " : "", i);
  }
  const int at = n / 2;
  const char* const type = dtype == DType::kF16 ? "f16" : "bf16";
  return fmt::format(
      "__device__ __forceinline__ void wgmma_rows(float (&sum)[{0}], const u32 (&a)[4], u64 b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{1}, 0;\\n\"\n"
      "               \"wgmma.mma_async.sync.aligned.m64n{2}k16.f32.{3}.{3} {{{4}}}, {{%{5}, %{6}, %{7}, %{8}}}, %{9}, "
      "p, 1, 1, 0;\\n}}\\n\"\n"
      "               : {10}\n"
      "               : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(add));\n}}\n",
      n / 2, at + 5, n, type, registers, at, at + 1, at + 2, at + 3, at + 4, operands);
}

Source source(const Problem& p, const Tile& t) {
  const ConvGeometry g = conv_geometry(p);
  Source source;
  source.file = "conv/conv_stem.cu";
  source.entry = "conv_stem";
  source.defines = {fmt::format("CHANNELS={}", g.in_channels),
                    fmt::format("KERNEL={}", g.kernel[1]),
                    fmt::format("RUN={}", run_of(g)),
                    fmt::format("BN={}", g.out_channels),
                    fmt::format("ROWS={}", t.size[0]),
                    fmt::format("INPUT={}", storage_type(p.input(0).dtype)),
                    fmt::format("SHARED_BYTES={}", shared_bytes(g, t.size[0]))};
  source.program = std::string(embedded("conv/bulk.cu")) + wgmma_rows_function(p.input(0).dtype, int(g.out_channels)) +
                   matrix_epilogue_source(p, false);
  source.shared_bytes = shared_bytes(g, t.size[0]);
  return source;
}

// struct Arguments of conv_stem.cu.
struct Arguments {
  const void *x, *y, *bias;
  int images, in_h, in_w, out_h, out_w;
  int stride_h, stride_w, pad_h, pad_w;
  int pitch;
  int blocks_h, tiles;
  int vectors_y;
};

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const ConvGeometry g = conv_geometry(p);
  Arguments a{};
  a.x = buffers.inputs[0], a.y = buffers.outputs[0], a.bias = p.has(2) ? buffers.inputs[2] : nullptr;
  a.images = int(g.images), a.in_h = int(g.in[1]), a.in_w = int(g.in[2]), a.out_h = int(g.out[1]);
  a.out_w = int(g.out[2]);
  a.stride_h = int(g.stride[1]), a.stride_w = int(g.stride[2]), a.pad_h = int(g.begin[1]), a.pad_w = int(g.begin[2]);
  a.pitch = int((pitch_of(g) + 1) & ~int64_t(1));
  a.blocks_h = int(ceil_div(g.out[1], call.tile.size[0])), a.tiles = int(g.images) * a.blocks_h;
  a.vectors_y = reinterpret_cast<uintptr_t>(a.y) % 16 == 0;
  const int64_t depth = blocks_of(g) * 64, extents[2] = {depth, g.out_channels}, stride[1] = {depth * 2};
  const int box[2] = {64, int(g.out_channels)};
  const TensorMap map_w = tensor_map(half_map_type(p.input(0).dtype), 2, buffers.inputs[1], extents, stride, box, 128);
  const std::vector<uint64_t> epilogue = matrix_epilogue_words(p, buffers.inputs);
  const int64_t grid = std::min<int64_t>(a.tiles, int64_t(2) * target().multiprocessors);
  launch(call.state_as<LoadedKernel>(), {grid}, kThreads, stream, {.dependent = true}, map_w, a, epilogue.front());
}

}  // namespace

constinit const Kernel kConvStem = {
    .name = "cuda.conv_stem",
    .op = "Conv",
    .device = DeviceKind::kCuda,
    .supports = supports,
    .tiles = tiles,
    .estimate = estimate,
    .packing = packing,
    .pack = pack,
    .source = source,
    .launch = run,
};

}  // namespace ridgeline::cuda
