// cpu.roi_align: f32. The elements that a bin reads and their weights are found once, some samples at a time, then each
// channel is summed with them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/pool/region_kernels.h"

namespace ridgeline::cpu {

namespace {

constexpr int kChunk = 32;            // samples
constexpr double kFurthest = 0x1p30;  // as the operator has it: further regions are NaN

struct State {
  int64_t channels, height, width, out_height, out_width, images;
  int64_t x_n, x_c, x_h, x_w, y_n, y_c, y_h, y_w;
  double scale, shift;
  int64_t ratio;
  bool half, mean;
};

/// The samples of a bin along one axis.
struct Bin {
  double begin, length, count;
  int64_t first, end;  // those that can lie inside the image
};

Bin bin_of(const State& s, double from, double to, int64_t p, int64_t bins, int64_t extent) {
  const double begin = from * s.scale - s.shift, stop = to * s.scale - s.shift;
  const double length = (s.half ? stop - begin : std::max(stop - begin, 1.0)) / double(bins);
  Bin bin{begin + double(p) * length, length, std::max(0.0, s.ratio > 0 ? double(s.ratio) : std::ceil(length)), 0, 0};
  bin.end = int64_t(bin.count);
  if (const double step = length / bin.count; step > 0) {
    bin.first = int64_t(std::clamp(std::floor((-1 - bin.begin) / step) - 1, 0.0, bin.count));
    bin.end = int64_t(std::clamp(std::ceil((double(extent) - bin.begin) / step) + 1, double(bin.first), bin.count));
  }
  return bin;
}

struct Sample {
  int64_t low, high;
  float of_low, of_high;
};

/// False: outside.
bool sample_of(const Bin& bin, int64_t k, int64_t extent, Sample& sample) {
  const double at = bin.begin + (double(k) + 0.5) * bin.length / bin.count;
  if (!(at >= -1 && at <= double(extent))) return false;
  const double x = std::clamp(at, 0.0, double(extent - 1));
  const int64_t low = int64_t(x);
  sample = {low, std::min(low + 1, extent - 1), float(1 - (x - double(low))), float(x - double(low))};
  return true;
}

struct Chunk {
  int64_t element[4][kChunk];
  float weight[4][kChunk];
  int count = 0;
};

void add_chunk(const State& s, const float* image, const Chunk& chunk, float* y) {
  for (int64_t c = 0; c < s.channels; ++c) {
    const float* x = image + c * s.x_c;
    float& to = y[c * s.y_c];
    float sums[4] = {0, 0, 0, 0};
    if (s.mean) {
      for (int k = 0; k < chunk.count; ++k)
        for (int t = 0; t < 4; ++t) sums[t] += chunk.weight[t][k] * x[chunk.element[t][k]];
      to += (sums[0] + sums[1]) + (sums[2] + sums[3]);
      continue;
    }
    float best = to;
    for (int k = 0; k < chunk.count; ++k)
      for (int t = 0; t < 4; ++t) best = std::max(best, chunk.weight[t][k] * x[chunk.element[t][k]]);
    to = best;
  }
}

void fill(const State& s, float* y, float value) {
  for (int64_t c = 0; c < s.channels; ++c) y[c * s.y_c] = value;
}

void pool_bin(const State& s, const float* image, const Bin& rows, const Bin& columns, float* y) {
  const double count = rows.count * columns.count;
  Chunk chunk;
  int64_t inside = 0;
  fill(s, y, s.mean ? 0 : -std::numeric_limits<float>::infinity());
  for (int64_t v = rows.first; v < rows.end; ++v) {
    Sample down, right;
    if (!sample_of(rows, v, s.height, down)) continue;
    for (int64_t h = columns.first; h < columns.end; ++h) {
      if (!sample_of(columns, h, s.width, right)) continue;
      const int k = chunk.count++;
      ++inside;
      chunk.element[0][k] = down.low * s.x_h + right.low * s.x_w, chunk.weight[0][k] = down.of_low * right.of_low;
      chunk.element[1][k] = down.low * s.x_h + right.high * s.x_w, chunk.weight[1][k] = down.of_low * right.of_high;
      chunk.element[2][k] = down.high * s.x_h + right.low * s.x_w, chunk.weight[2][k] = down.of_high * right.of_low;
      chunk.element[3][k] = down.high * s.x_h + right.high * s.x_w, chunk.weight[3][k] = down.of_high * right.of_high;
      if (chunk.count < kChunk) continue;
      add_chunk(s, image, chunk, y);
      chunk.count = 0;
    }
  }
  if (chunk.count > 0) add_chunk(s, image, chunk, y);
  // What lies outside is zeros, to the mean and to the largest.
  const float divisor = float(std::max(count, 1.0));
  for (int64_t c = 0; c < s.channels; ++c) {
    float& to = y[c * s.y_c];
    if (s.mean)
      to /= divisor;
    else if (double(inside) < count || count == 0)
      to = std::max(to, 0.0f);
  }
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (!p.input(1).layout.is_row_major() || !p.input(2).layout.is_row_major())
    return no("the regions are not row-major");
  if (p.input(0).elements() == 0) return no("an empty image");
  if (p.has_epilogue()) return no("an epilogue on regions");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // About 0.6 ns an element that is read; without a ratio two by two samples a bin.
  const double ratio = p.integer("sampling_ratio") > 0 ? double(p.integer("sampling_ratio")) : 2;
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  0.6 * 4 * ratio * ratio * double(p.output().elements()) / p.threads) +
         300;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  const bool half = p.string("coordinate_transformation_mode") == "half_pixel";
  return std::make_shared<State>(State{x.shape[1], x.shape[2], x.shape[3], y.shape[2], y.shape[3], x.shape[0],
                                       x.strides[0], x.strides[1], x.strides[2], x.strides[3], y.strides[0],
                                       y.strides[1], y.strides[2], y.strides[3], p.number("spatial_scale"),
                                       half ? 0.5 : 0.0, p.integer("sampling_ratio"), half, p.string("mode") == "avg"});
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  const float* rois = static_cast<const float*>(buffers.inputs[1]);
  const int64_t* image = static_cast<const int64_t*>(buffers.inputs[2]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t regions = call.problem.input(2).elements();
  for (int64_t k = 0; k < regions; ++k)
    if (image[k] < 0 || image[k] >= s.images)
      fail(ErrorCode::kBadInput, "RoiAlign: a region is of image {}, there are {}", image[k], s.images);
  parallel(pool, regions * s.out_height, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t region = k / s.out_height, v = k % s.out_height;
      const float* box = rois + 4 * region;
      const bool near =
          std::all_of(box, box + 4, [&](float at) { return std::fabs(double(at) * s.scale) <= kFurthest; });
      const Bin rows = near ? bin_of(s, double(box[1]), double(box[3]), v, s.out_height, s.height) : Bin{};
      for (int64_t h = 0; h < s.out_width; ++h) {
        float* to = y + region * s.y_n + v * s.y_h + h * s.y_w;
        if (!near) {
          fill(s, to, std::numeric_limits<float>::quiet_NaN());
          continue;
        }
        const Bin columns = bin_of(s, double(box[0]), double(box[2]), h, s.out_width, s.width);
        pool_bin(s, x + image[region] * s.x_n, rows, columns, to);
      }
    }
  });
}

}  // namespace

constinit const Kernel kRoiAlignKernel = {.name = "cpu.roi_align",
                                          .op = "RoiAlign",
                                          .supports = supports,
                                          .estimate = estimate,
                                          .prepare = prepare,
                                          .run = run};

}  // namespace ridgeline::cpu
