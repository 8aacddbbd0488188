// cuda.conv_split: few output pixels (an image or some): K is split over a cluster of thread blocks.
#include <algorithm>

#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/conv/matrix_epilogue.h"
#include "kernels/cuda/conv/taps.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma_source.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kRows = 64;
constexpr int64_t kMostShared = 227 << 10;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// size: columns, blocks that share a tile, stages.
struct Shape {
  int bn, split, stages;
  int64_t shared_bytes() const { return 1024 + int64_t(stages) * (kRows + bn) * kTapDepth * 2 + 16 * stages; }
};
Shape shape_of(const Tile& t) { return {t.size[0], t.size[1], t.size[2]}; }

Support supports(const Problem& p) {
  if (Support s = supports_taps(p); !s.ok) return s;
  const ConvGeometry g = conv_geometry(p);
  const int64_t tiles = ceil_div(g.images * g.out_pixels(), kRows) * ceil_div(g.out_channels, 128);
  if (tiles > int64_t(16) * target().multiprocessors) return no("{} tiles of 64 x 128: too many for it", tiles);
  return yes();
}

std::vector<Tile> tiles(const Problem& p) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t blocks = tap_blocks(g);
  std::vector<Tile> list;
  for (int bn : {64, 32, 128}) {
    if (bn > 32 && bn / 2 >= g.out_channels) continue;
    for (int split : {1, 2, 4, 8}) {
      if (split > blocks) break;
      const int stages = int(std::clamp<int64_t>(ceil_div(blocks, split), 2, bn == 128 ? 4 : 6));
      list.push_back({{bn, split, stages}});
    }
  }
  return list;
}

TileCheck check_tile(const Problem& p, const Tile& t) {
  TileCheck check;
  const Shape s = shape_of(t);
  const bool split = s.split == 1 || s.split == 2 || s.split == 4 || s.split == 8;
  if (s.bn < 16 || s.bn > 256 || s.bn % 16 || !split || s.split > tap_blocks(conv_geometry(p)) || s.stages < 2 ||
      s.stages > 12)
    check.reason = "sizes are columns (16-256 in steps of 16), blocks that share K (1, 2, 4, 8), stages (2-12)";
  else
    check.bytes = s.shared_bytes(), check.limit = kMostShared;
  return check;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) {
  const Shape s = shape_of(t);
  const ConvGeometry g = conv_geometry(p);
  const int64_t tiles = ceil_div(g.images * g.out_pixels(), kRows) * ceil_div(g.out_channels, s.bn) * s.split;
  const int64_t blocks = ceil_div(tap_blocks(g), s.split), sms = target().multiprocessors;
  const int64_t resident = std::clamp<int64_t>(kMostShared / (s.shared_bytes() + 1024), 1, 8);
  const double products = double(kRows) * s.bn * kTapDepth * 2 / (500e3 / double(sms));
  const double feed = double(kRows + s.bn) * kTapDepth * 2 / 50;
  // Each turn waits for the others' sums and, where there are, for operands of the epilogue: 0.7 us. Blocks of threads
  // that share a multiprocessor hide each other's waits (ResNet-50's 64 to 256 channels with a residual, one image:
  // tiles of 128 columns, seven turns, take 7.6 us).
  const double turns = double(ceil_div(kRows / s.split * s.bn / 8, 160));
  const double finish = 300 + turns * (p.has_epilogue() && p.epilogue_operands() > 0 ? 700 : 250) +
                        (s.split > 1 ? 500 + 30 * s.split : 0);
  const double time = double(ceil_div(tiles, sms) * blocks) * std::max(products, feed) +
                      double(ceil_div(tiles, sms * resident)) * finish;
  return std::max(time, c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) + 1500 + c.launch_ns.at(1, 1);
}

Source source(const Problem& p, const Tile& tile) {
  const Shape s = shape_of(tile);
  Source source;
  source.file = "conv/conv_split.cu";
  source.entry = "conv_split";
  source.defines = {fmt::format("BN={}", s.bn), fmt::format("SPLIT={}", s.split), fmt::format("STAGES={}", s.stages),
                    fmt::format("KIND={}", keeps_pixels(conv_geometry(p)) ? 0 : 1),
                    fmt::format("INPUT={}", storage_type(p.input(0).dtype))};
  source.program = std::string(embedded("conv/bulk.cu")) + std::string(embedded("conv/taps.cu")) +
                   wgmma_function(p.input(0).dtype, s.bn) + matrix_epilogue_source(p, false);
  source.shared_bytes = s.shared_bytes();
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const Shape s = shape_of(call.tile);
  const TapArguments a = tap_arguments(p, buffers, kRows, s.bn, -1);
  const TensorMap map_x = tap_image_map(p, a, kRows), map_w = tap_weight_map(p, buffers.inputs[1], s.bn);
  const std::vector<uint64_t> epilogue = matrix_epilogue_words(p, buffers.inputs);
  launch(call.state_as<LoadedKernel>(), {int64_t(a.tiles) * s.split}, 160, stream, {.dependent = true}, map_x, map_w, a,
         epilogue.front());
}

/// Each element of an operand that lies as the output does is read before it is written, by the same thread.
bool in_place(const Problem& p, int input) {
  const Operand& o = p.inputs[size_t(input)];
  return input >= p.op_inputs && o.present() && info(o.dtype).bits == 16 && o.layout == p.output().layout;
}

}  // namespace

constinit const Kernel kConvSplit = {
    .name = "cuda.conv_split",
    .op = "Conv",
    .device = DeviceKind::kCuda,
    .supports = supports,
    .tiles = tiles,
    .check_tile = check_tile,
    .estimate = estimate,
    .packing = taps_packing,
    .pack = pack_taps,
    .source = source,
    .launch = run,
    .in_place = in_place,
};

}  // namespace ridgeline::cuda
