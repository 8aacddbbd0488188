// cpu.conv_winograd: 3x3 convolutions of stride 1, channels last, by minimal filtering: F(4x4,3x3) needs 36 products
// for 16 outputs where the direct sum needs 144. Changes the order and the size of rounding errors: against the direct
// algorithm's 1.5e-7 (rms error over rms output) F(2x2) has 2 to 6e-7 and F(4x4) 1.3 to 2.4e-6, measured on 64 to 512
// channels; the worst element stayed below 2e-5 of the sum of absolute terms in all tests.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "core/integer.h"
#include "core/saturate.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/winograd_transform.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

/// Transformed input and products of a block of tiles stay in the second-level cache.
constexpr int64_t kBlockBytes = 1200 << 10;

/// Transformed weights up to here stream at the bandwidth of memory.
constexpr int64_t kNearBytes = 2 << 20;

struct State {
  ConvGeometry g;
  ImageStrides x, y;
  ConvEpilogue epilogue;
  int m_h = 4, m_w = 4;
  int64_t products = 0, tiles_h = 0, tiles_w = 0, tiles = 0;  // of all images
  int64_t block_tiles = 0, blocks = 0;
  int64_t v_row = 0, v_step = 0, m_row = 0, m_step = 0;  // floats from tile to tile and from product to product
  int64_t out_padded = 0;                                // output channels in whole vectors
  int64_t panels = 0, panel_width = 0;
  bool shared = false;  // a block at a time by all threads, instead of a block a thread
  int64_t block_floats = 0;
  int threads = 1;
};

Support supports(const Problem& problem) {
  if (direct_kernels().lanes < 8) return no("needs vectors of eight floats: not at this instruction set");
  if (Support s = supports_conv(problem); !s.ok) return s;
  const ConvGeometry g = conv_geometry(problem);
  if (g.kernel_h != 3 || g.kernel_w != 3) return no("takes 3x3 kernels, not {}x{}", g.kernel_h, g.kernel_w);
  if (g.stride_h != 1 || g.stride_w != 1 || g.dilation_h != 1 || g.dilation_w != 1)
    return no("takes stride and dilation 1");
  if (g.groups != 1) return no("takes one group, not {}", g.groups);
  if (g.in_channels < 32 || g.out_channels < 16)
    return no("under 32 channels, or to under 16, the transforms cost more than they save");
  if (!problem.input(1).is_constant) return no("the weights are no constant: each run would have to transform them");
  return supports_images(problem, kOrder);
}

/// size[0], size[1]: output pixels of a tile.
std::vector<Tile> tiles(const Problem&) {
  std::vector<Tile> list;
  for (const auto& [h, w] : {std::pair{4, 4}, {4, 2}, {2, 2}}) {
    Tile t;
    t.size[0] = h, t.size[1] = w;
    list.push_back(t);
  }
  return list;
}

// Outputs beyond the image's edge are computed and thrown away.
TileCheck check_tile(const Problem& problem, const Tile& tile) {
  TileCheck check;
  const std::vector<Tile> list = tiles(problem);
  if (std::find(list.begin(), list.end(), tile) == list.end()) {
    check.reason = "its tiles of outputs are 4x4, 4x2 and 2x2";
    return check;
  }
  const ConvGeometry g = conv_geometry(problem);
  check.unit = fmt::format("{}x{}", tile.size[0], tile.size[1]);
  const double padded =
      double(ceil_div(g.out_h, tile.size[0]) * tile.size[0]) * double(ceil_div(g.out_w, tile.size[1]) * tile.size[1]);
  if (padded > 0) check.padding_share = 1 - double(g.out_h * g.out_w) / padded;
  return check;
}

int64_t padded_channels(int64_t channels) { return round_up(channels, int64_t(direct_kernels().lanes)); }

std::shared_ptr<const State> make_state(const Problem& problem, const Tile& tile) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(problem);
  s.x = *image_strides(problem.input(0).layout, kOrder);
  s.y = *image_strides(problem.output().layout, kOrder);
  s.epilogue = conv_epilogue(problem, kOrder);
  s.threads = std::max(1, problem.threads);
  s.m_h = tile.size[0], s.m_w = tile.size[1];
  s.products = (s.m_h + 2) * (s.m_w + 2);
  s.tiles_h = ceil_div(s.g.out_h, s.m_h), s.tiles_w = ceil_div(s.g.out_w, s.m_w);
  s.tiles = s.g.images * s.tiles_h * s.tiles_w;
  const DirectKernels kernels = direct_kernels();
  s.panel_width = 2 * kernels.lanes;
  s.out_padded = padded_channels(s.g.out_channels);
  s.panels = ceil_div(s.out_padded, s.panel_width);
  // Rows a multiple of 2 KiB apart would evict each other.
  const auto apart = [](int64_t floats) { return floats % 512 == 0 ? floats + 16 : floats; };
  s.v_row = apart(padded_channels(s.g.in_channels)), s.m_row = apart(s.out_padded);
  if (s.tiles == 0) return state;
  const int64_t tile_bytes = s.products * (s.v_row + s.m_row) * 4, unit = kernels.max_tile;
  int64_t most = std::max<int64_t>(unit, kBlockBytes / tile_bytes / unit * unit);
  most = std::min<int64_t>(most, 4 * unit);
  s.blocks = ceil_div(s.tiles, most);
  if (s.threads > 1 && s.blocks < 2 * s.threads)
    s.shared = true;
  else if (s.threads > 1)
    s.blocks = ceil_div(s.blocks, s.threads) * s.threads;
  s.block_tiles = ceil_div(s.tiles, s.blocks);
  s.blocks = ceil_div(s.tiles, s.block_tiles);
  s.v_step = s.block_tiles * s.v_row + 16, s.m_step = s.block_tiles * s.m_row + 16;
  s.block_floats = ceil_div(s.products * (s.v_step + s.m_step), 32) * 32;
  return state;
}

double estimate(const Problem& problem, const Tile& tile, const Ceilings& ceilings) {
  const auto state = make_state(problem, tile);
  const State& s = *state;
  const double channels = double(s.g.in_channels);
  const double chains = std::min(1.0, double(s.block_tiles) / 8.0);
  const double flops = 2.0 * double(s.tiles) * double(s.products) * channels * double(s.out_padded);
  const double products = ceilings.compute_ns(DType::kF32, int64_t(flops), problem.threads) /
                          (0.8 * std::max(0.05, chains) * channels / (channels + 12));
  // Both transforms read and write their share of the second-level cache once.
  const double moved = double(s.tiles * s.products) * double(padded_channels(s.g.in_channels) + s.out_padded) * 8.0;
  const double transforms =
      moved / (ceilings.copy_gb_s[size_t(MemoryLevel::kL2)].at(problem.threads, ceilings.cores) * 0.7);
  // Within a model these weights, up to four times the filters' own bytes, come from memory in each run, not hidden
  // behind the products: the first 2 MB at its bandwidth, the rest at a third of it. Fitted to 45 shapes of 4 to 56
  // pixels a side and 64 to 720 channels (`ridgeline tune`, all tiles and the direct kernel): choosing by it costs 1.06
  // of the best's time, by twice the bytes at any size 1.16, with 14x14x352->112 and 10x10x96->320 left to the direct
  // kernel at 1.4 to 1.8 times Winograd's time. Taking most of the bytes for hidden lost at 14x14x256.
  const int64_t bytes = int64_t(s.products * s.g.in_channels * s.out_padded * 4);
  const double weights =
      ceilings.stream_ns(bytes + 2 * std::max<int64_t>(0, bytes - kNearBytes), 0, problem.threads, MemoryLevel::kDram);
  return std::max(conv_estimate_ns(problem, ceilings, flops, 1.0), products + weights + transforms);
}

// The products alone; the transforms are additions that a better schedule hides.
int64_t executed_flops(const Problem& problem, const Tile& tile) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t tiles = g.images * ceil_div(g.out_h, tile.size[0]) * ceil_div(g.out_w, tile.size[1]);
  return saturated_product({2, tiles, (tile.size[0] + 2) * (tile.size[1] + 2), g.in_channels, g.out_channels});
}

double amplification(const Problem& problem, const Tile& tile, int64_t element) {
  const Extents& shape = problem.output().shape();
  const int64_t w = element % shape.back(), h = element / shape.back() % shape[shape.size() - 2];
  return winograd_amplification(tile.size[0], int(h % tile.size[0])) *
         winograd_amplification(tile.size[1], int(w % tile.size[1]));
}

int64_t workspace(const Problem& problem, const Tile& tile) {
  const auto state = make_state(problem, tile);
  return state->block_floats * 4 * (state->shared ? 1 : state->threads);
}

Packing packing(const Problem& problem, const Tile& tile, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = direct_kernels().lanes;
  return {fmt::format("minimal filtering {}x{} of {}x{} lanes {}", tile.size[0], tile.size[1], g.in_channels,
                      g.out_channels, lanes),
          int64_t(tile.size[0] + 2) * (tile.size[1] + 2) * g.in_channels * padded_channels(g.out_channels) * 4};
}

/// [product][panel][channel][channels of the panel]; the last panel may be one vector wide.
void pack(const Problem& problem, const Tile& tile, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  const ConvGeometry g = conv_geometry(problem);
  const int64_t width = 2 * direct_kernels().lanes, products = int64_t(tile.size[0] + 2) * (tile.size[1] + 2);
  const int64_t padded = padded_channels(g.out_channels);
  if (padded != g.out_channels) std::memset(packed, 0, size_t(products * g.in_channels * padded) * 4);
  for (int64_t o = 0; o < g.out_channels; ++o) {
    const int64_t first = o / width * width, panel = std::min(width, padded - first);
    for (int64_t c = 0; c < g.in_channels; ++c) {
      double u[36];
      winograd_weight(tile.size[0], tile.size[1], source.as<float>() + (o * g.in_channels + c) * 9, u);
      float* to = static_cast<float*>(packed) + first * g.in_channels + c * panel + o % width;
      for (int64_t p = 0; p < products; ++p) to[p * g.in_channels * padded] = float(u[p]);
    }
  }
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile& tile) { return make_state(problem, tile); }

class Runner {
 public:
  Runner(const State& state, const Buffers& buffers)
      : s_(state),
        b_(buffers),
        kernels_(direct_kernels()),
        input_(winograd_input(state.m_h, state.m_w)),
        output_(winograd_output(state.m_h, state.m_w)) {}

  int64_t tiles_of(int64_t block) const { return std::min(s_.block_tiles, s_.tiles - block * s_.block_tiles); }

  void transform_input(int64_t block, int64_t begin, int64_t end, float* v) const {
    WinogradInput in;
    in.row = s_.x.row, in.pixel = s_.x.pixel, in.height = s_.g.in_h, in.width = s_.g.in_w;
    in.channels = s_.g.in_channels, in.v_step = s_.v_step;
    for (int64_t t = begin; t < end; ++t) {
      const Position p = position(block * s_.block_tiles + t);
      in.x = static_cast<const float*>(b_.inputs[0]) + p.image * s_.x.image;
      in.top = p.y - s_.g.pad_top, in.left = p.x - s_.g.pad_left;
      in.v = v + t * s_.v_row;
      input_(in);
    }
  }

  /// Work items: panels of all products, in the order of the packed weights.
  void multiply(int64_t block, int64_t begin, int64_t end, const float* v, float* m) const {
    const int64_t count = tiles_of(block), parts = ceil_div(count, kernels_.max_tile);
    const int64_t base = count / parts, longer = count % parts;
    const float* weights = static_cast<const float*>(b_.inputs[1]);
    DirectTile g;
    g.a_step = s_.v_row, g.outer = g.inner = 1, g.outer_step = g.inner_step = 0, g.run = s_.g.in_channels;
    g.y_step = s_.m_row, g.residual = g.residual_high = nullptr, g.residual_step = 0;
    g.low = -std::numeric_limits<float>::infinity(), g.high = std::numeric_limits<float>::infinity();
    // The next panel comes from the third level or memory: each part fetches its share ahead.
    g.prefetch_step = (s_.panel_width * 4 + parts - 1) / parts;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t product = i / s_.panels, first = i % s_.panels * s_.panel_width;
      g.cols = std::min(s_.panel_width, s_.out_padded - first);
      g.w = weights + (product * s_.out_padded + first) * s_.g.in_channels;
      const DirectMicro* table = g.cols > kernels_.lanes ? kernels_.two : kernels_.one;
      const float* a = v + product * s_.v_step;
      float* y = m + product * s_.m_step + first;
      for (int64_t t = 0; t < parts; ++t) {
        const int64_t rows = base + (t < longer), half = (rows + 1) / 2;
        g.a = a, g.a_high = a + half * s_.v_row, g.y = y, g.y_high = y + half * s_.m_row;
        g.prefetch =
            reinterpret_cast<const char*>(g.w + s_.panel_width * s_.g.in_channels) + t * g.prefetch_step * g.run;
        table[rows](g);
        a += rows * s_.v_row, y += rows * s_.m_row;
      }
    }
  }

  void transform_output(int64_t block, int64_t begin, int64_t end, const float* m) const {
    const ConvEpilogue& e = s_.epilogue;
    WinogradOutput out;
    out.m_step = s_.m_step, out.row = s_.y.row, out.pixel = s_.y.pixel, out.channels = s_.g.out_channels;
    out.bias = e.bias >= 0 ? static_cast<const float*>(b_.inputs[e.bias]) : nullptr;
    out.residual = nullptr, out.residual_row = e.residual_strides.row, out.residual_pixel = e.residual_strides.pixel;
    out.low = e.low, out.high = e.high;
    for (int64_t t = begin; t < end; ++t) {
      const Position p = position(block * s_.block_tiles + t);
      out.m = m + t * s_.m_row;
      out.y = static_cast<float*>(b_.outputs[0]) + p.image * s_.y.image + p.y * s_.y.row + p.x * s_.y.pixel;
      if (e.residual >= 0)
        out.residual = static_cast<const float*>(b_.inputs[e.residual]) + p.image * e.residual_strides.image +
                       p.y * out.residual_row + p.x * out.residual_pixel;
      out.rows = std::min<int64_t>(s_.m_h, s_.g.out_h - p.y), out.columns = std::min<int64_t>(s_.m_w, s_.g.out_w - p.x);
      output_(out);
      if (e.program)
        for (int64_t r = 0; r < out.rows; ++r)
          apply_program(e, b_, out.y + r * s_.y.row, s_.y.pixel, 1, p.image, 0, p.y + r, p.x, out.columns,
                        out.channels);
    }
  }

 private:
  struct Position {
    int64_t image, y, x;
  };
  Position position(int64_t tile) const {
    return {tile / s_.tiles_w / s_.tiles_h, tile / s_.tiles_w % s_.tiles_h * s_.m_h, tile % s_.tiles_w * s_.m_w};
  }

  const State& s_;
  const Buffers& b_;
  const DirectKernels kernels_;
  const WinogradInputTransform input_;
  const WinogradOutputTransform output_;
};

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.tiles == 0) return;
  const Runner runner(s, buffers);
  float* workspace = static_cast<float*>(buffers.workspace);
  const int64_t products = s.products * s.panels;
  if (!s.shared) {
    const auto body = [&](int64_t begin, int64_t end, int thread) {
      float* v = workspace + thread * s.block_floats;
      float* m = v + s.products * s.v_step;
      for (int64_t block = begin; block < end; ++block) {
        runner.transform_input(block, 0, runner.tiles_of(block), v);
        runner.multiply(block, 0, products, v, m);
        runner.transform_output(block, 0, runner.tiles_of(block), m);
      }
    };
    return pool.at_most(s.threads).run(s.blocks, 1, std::ref(body));
  }
  float* v = workspace;
  float* m = v + s.products * s.v_step;
  for (int64_t block = 0; block < s.blocks; ++block) {
    const auto input = [&](int64_t begin, int64_t end, int) { runner.transform_input(block, begin, end, v); };
    const auto multiply = [&](int64_t begin, int64_t end, int) { runner.multiply(block, begin, end, v, m); };
    const auto output = [&](int64_t begin, int64_t end, int) { runner.transform_output(block, begin, end, m); };
    pool.run(runner.tiles_of(block), 1, std::ref(input));
    pool.run(products, 1, std::ref(multiply));
    pool.run(runner.tiles_of(block), 1, std::ref(output));
  }
}

}  // namespace

const Kernel kConvWinograd = {
    .name = "cpu.conv_winograd",
    .op = "Conv",
    .supports = supports,
    .tiles = tiles,
    .check_tile = check_tile,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
    .in_place = residual_in_place<kOrder>,
    .executed_flops = executed_flops,
    .amplification = amplification,
    .version = 2,
};

}  // namespace ridgeline::cpu
