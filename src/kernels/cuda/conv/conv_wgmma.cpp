// cuda.conv_wgmma: convolutions of channels-last images in f16 and bf16 as one matrix product, on Hopper.
#include <algorithm>

#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/conv/matrix_epilogue.h"
#include "kernels/cuda/conv/taps.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/mma_source.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kDepth = kTapDepth;
constexpr int64_t kRoom = 227 << 10, kRoomOfTwo = 113 << 10;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// size: rows / 64, columns, stages, buffers of finished tiles, blocks of threads that share a multiprocessor.
struct Shape {
  int groups, bn, stages, buffers, resident;
  int bm() const { return 64 * groups; }
  int64_t room() const { return resident == 2 ? kRoomOfTwo : kRoom; }
  int64_t shared_bytes() const {
    return 1024 + int64_t(stages) * (bm() + bn) * 2 * kDepth + int64_t(buffers) * bm() * bn * 2 +
           16 * (stages + buffers);
  }
};
Shape shape_of(const Tile& t) { return {t.size[0], t.size[1], t.size[2], t.size[3], std::max(1, t.size[4])}; }

// The most stages that fit, up to eight.
Shape filled(int groups, int bn, int buffers, int resident) {
  Shape s{groups, bn, 8, buffers, resident};
  while (s.stages > 1 && s.shared_bytes() > s.room()) --s.stages;
  return s;
}

double tile_ns(const Problem& p, const Shape& s, const Ceilings& c) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t rows = g.images * g.out_pixels(), tiles = ceil_div(rows, s.bm()) * ceil_div(g.out_channels, s.bn);
  const int64_t blocks = g.taps() * ceil_div(g.in_channels, kDepth), sms = target().multiprocessors;
  // A multiprocessor's share of 740 TFLOP/s, and what it gets from L2.
  const double products = double(s.bm()) * s.bn * kDepth * 2 / (740e3 / double(sms));
  const double feed = double(s.bm() + s.bn) * kDepth * 2 / 75;
  const double finish = (300 + 3.0 * s.bn + (staged_operand(p) >= 0 ? 1.0 * s.bn : 0)) / s.resident;
  const double turns = double(ceil_div(tiles, sms * s.resident) * s.resident);
  const double fill = 1500 + 600.0 / s.stages;
  return std::max(turns * (double(blocks) * std::max(products, feed) + finish) + fill,
                  c.stream_ns(p.read_bytes(), p.write_bytes(), 1) + (s.buffers == 1 ? 2000 : 1000)) +
         c.launch_ns.at(1, 1);
}

std::vector<Tile> tiles(const Problem& p) {
  const ConvGeometry g = conv_geometry(p);
  std::vector<Tile> list;
  for (int groups : {2, 1, 3}) {
    for (int bn : {128, 64, 256, 32, 96, 112, 192}) {
      if (bn > 32 && bn / 2 >= g.out_channels) continue;
      if (groups == 3 && bn > 128) continue;  // 146 registers a thread
      if (groups > 1 && int64_t(64) * (groups - 1) >= g.images * g.out_pixels()) continue;
      for (int resident : {1, 2}) {
        // Two want at most 102 registers a thread, with three warps of 64 sums each.
        if (resident == 2 && (groups == 3 || bn > 128)) continue;
        for (int buffers : {2, 1}) {
          const Shape s = filled(groups, bn, buffers, resident);
          if (s.stages >= 2) list.push_back({{groups, bn, s.stages, buffers, resident}});
        }
      }
    }
  }
  return list;
}

double estimate(const Problem& p, const Tile& t, const Ceilings& c) { return tile_ns(p, shape_of(t), c); }

TileCheck check_tile(const Problem&, const Tile& t) {
  TileCheck check;
  const Shape s = shape_of(t);
  if (s.groups < 1 || s.groups > 3 || s.bn < 16 || s.bn > 256 || s.bn % 16 || s.stages < 1 || s.stages > 16 ||
      s.buffers < 1 || s.buffers > 4 || s.resident > 2)
    check.reason =
        "sizes are groups of 64 rows (1-3), columns (16-256 in steps of 16), stages (1-16), buffers (1-4), blocks a "
        "multiprocessor (1, 2)";
  else
    check.bytes = s.shared_bytes(), check.limit = s.room();
  return check;
}

Source source(const Problem& p, const Tile& tile) {
  const Shape s = shape_of(tile);
  Source source;
  source.file = "conv/conv_wgmma.cu";
  source.entry = "conv_wgmma";
  const bool staged = staged_operand(p) >= 0;
  source.defines = {fmt::format("WARPGROUPS={}", s.groups),
                    fmt::format("BN={}", s.bn),
                    fmt::format("STAGES={}", s.stages),
                    fmt::format("BUFFERS={}", s.buffers),
                    fmt::format("KIND={}", keeps_pixels(conv_geometry(p)) ? 0 : 1),
                    fmt::format("STAGED={}", int(staged)),
                    fmt::format("INPUT={}", storage_type(p.input(0).dtype)),
                    fmt::format("MINIMUM={}", s.resident)};
  source.program = std::string(embedded("conv/bulk.cu")) + std::string(embedded("conv/taps.cu")) +
                   wgmma_function(p.input(0).dtype, s.bn) + matrix_epilogue_source(p, staged);
  source.shared_bytes = s.shared_bytes();
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const Shape s = shape_of(call.tile);
  const int staged = staged_operand(p);
  const TapArguments a = tap_arguments(p, buffers, s.bm(), s.bn, staged);
  const TensorMap map_x = tap_image_map(p, a, s.bm()), map_w = tap_weight_map(p, buffers.inputs[1], s.bn);
  TensorMap map_y, map_staged;
  const int chunk = s.bn % 64 == 0 ? 64 : s.bn % 32 == 0 ? 32 : 16;
  const int64_t extents[2] = {a.out_channels, a.pixels}, stride[1] = {int64_t(a.out_channels) * 2};
  const int box[2] = {chunk, s.bm()};
  if (a.bulk_y) map_y = tensor_map(half_map_type(p.output().dtype), 2, a.y, extents, stride, box, chunk * 2);
  if (staged >= 0 && a.bulk_staged)
    map_staged = tensor_map(half_map_type(p.inputs[size_t(p.op_inputs + staged)].dtype), 2, a.staged, extents, stride,
                            box, chunk * 2);
  const std::vector<uint64_t> epilogue = matrix_epilogue_words(p, buffers.inputs);
  const int64_t grid = std::min<int64_t>(a.tiles, int64_t(target().multiprocessors) * s.resident);
  launch(call.state_as<LoadedKernel>(), {grid}, s.groups * 128 + 64, stream, {.dependent = true}, map_x, map_w, map_y,
         map_staged, a, epilogue.front());
}

/// Each element of an operand that lies as the output does is read before it is written, by the same block of threads.
bool in_place(const Problem& p, int input) {
  const Operand& o = p.inputs[size_t(input)];
  return input >= p.op_inputs && o.present() && info(o.dtype).bits == 16 && o.layout == p.output().layout;
}

}  // namespace

constinit const Kernel kConvWgmma = {
    .name = "cuda.conv_wgmma",
    .op = "Conv",
    .device = DeviceKind::kCuda,
    .supports = supports_taps,
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
