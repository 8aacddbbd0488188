// cpu.conv_dot: convolutions of bf16 with f32 sums and of 8-bit integers with exact sums (ConvInteger), y channels
// last, on the narrow products' tiles.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/integer.h"
#include "kernels/cpu/conv/dot_plan.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/narrow.h"
#include "kernels/cpu/matmul/dot/dot_epilogue.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

DotType type_of(const Problem& p) { return sums_integers(p) ? DotType::kU8S8 : DotType::kBf16; }

struct State {
  DotConvPlan plan;
  std::vector<NarrowRider> riders;
  std::unique_ptr<DotEpilogue> epilogue;
  bool reads_riders = false;
  int64_t packed_bytes = 0;                                                  // of weights and their sums
  int64_t at_panels = 0, at_terms = 0, at_zeros = 0, at_lines = 0, end = 0;  // in the workspace
};

DotConvPlan plan_of(const Problem& p, const std::vector<NarrowRider>& riders) {
  const ConvGeometry g = conv_geometry(p);
  const Operand &x = p.input(0), &y = p.output();
  const auto last = image_strides(x.layout, kOrder);
  DotConvPlan plan = dot_conv_plan(g, type_of(p), x.dtype, last ? *last : *broadcast_strides(x.layout, x.shape()),
                                   last.has_value(), *image_strides(y.layout, kOrder), p.threads);
  for (const NarrowRider& r : riders) {  // a run over the ends of rows needs all of them to go on
    const bool same = !r.strides.row && !r.strides.pixel;
    plan.flat = plan.flat && (same || r.strides.row == r.strides.pixel * g.out_w);
  }
  return plan;
}

/// Weights in panels, and for integers the sums of each channel's.
int64_t packed_bytes(const DotConvPlan& plan) {
  const int64_t sums = plan.type == DotType::kU8S8 ? round_up(plan.g.out_channels * 4, 64) : 0;
  return dot_conv_weight_bytes(plan) + sums;
}

std::shared_ptr<const State> make_state(const Problem& p) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.riders = narrow_riders(p);
  s.plan = plan_of(p, s.riders);
  const ConvGeometry& g = s.plan.g;
  s.epilogue = std::make_unique<DotEpilogue>(p, sums_integers(p), kinds_of(s.riders),
                                             !sums_integers(p) && p.has(2) ? 2 : -1, g.out_channels);
  s.reads_riders = mark_wanted(s.riders, *s.epilogue);
  s.packed_bytes = packed_bytes(s.plan);
  s.at_panels = s.plan.workspace_bytes();
  s.at_terms = s.at_panels + (p.input(1).is_constant ? 0 : s.packed_bytes);
  const int64_t line = sums_integers(p) ? round_up(g.out_channels + kDotColumns, 16) * 4 : 0;
  s.at_zeros = s.at_terms + line;
  s.at_lines = s.at_zeros + line;
  s.end = s.at_lines + round_up(s.epilogue->bytes(), 64);
  return state;
}

Support supports(const Problem& p) {
  if (Support s = supports_narrow(p); !s.ok) return s;
  if (!dot_kernels(type_of(p)).tile) return no("no dot-product instructions at this instruction set");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& ceilings) {
  const std::vector<NarrowRider> riders = narrow_riders(p);
  const DotConvPlan plan = plan_of(p, riders);
  const ConvGeometry& g = plan.g;
  // Half of the peak on whole tiles; the sums' way into y costs about 0.4 ns a vector, copies their bytes twice.
  const double pixels = double(g.images) * double(g.out_h) * double(plan.width);
  const double k = double(plan.panel_bytes) / kDotColumns / double(plan.element);
  const double flops = 2 * pixels * k * double(g.groups * plan.panels * kDotColumns);
  const double compute = 2 * ceilings.compute_ns(p.input(0).dtype, int64_t(flops), p.threads);
  const double threads = std::max(1, p.threads);
  // Groups of a few channels leave most of a panel unused and end one by one: 25 ns a pixel and group to bf16, 56 to
  // bytes (3 to 16 groups of one channel, 28 and 56 pixels a side; `ridgeline regret` found 3.9 times the best).
  const bool few = g.groups > 1 && g.group_out() < kDotColumns;
  const double per_pixel = few ? (plan.type == DotType::kU8S8 ? 56 : 25) : 2 * 0.4;
  const double finishing = pixels * double(g.groups * plan.panels) * per_pixel / threads;
  double copies = 0;
  if (!plan.on_x)
    copies = double(g.images * g.groups * g.out_h) *
             double(plan.phases_y * plan.phases_x * plan.cell_blocks * plan.row_bytes()) * 0.05 / threads;
  if (!plan.x_channels_last) copies += double(p.input(0).elements()) * 1.5 / threads;
  if (!p.input(1).is_constant) copies += double(p.input(1).elements()) * 2;
  return std::max(compute + finishing + copies, ceilings.stream_ns(p.read_bytes(), p.write_bytes(), p.threads)) + 500 +
         (p.threads > 1 ? ceilings.launch_ns.at(p.threads, ceilings.cores) : 0.0);
}

int64_t workspace(const Problem& p, const Tile&) { return make_state(p)->end; }

Packing packing(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const DotConvPlan plan = plan_of(p, narrow_riders(p));
  const ConvGeometry& g = plan.g;
  return {fmt::format("conv dot {} {}x{}x{} groups {} out {}{}", name(p.input(1).dtype), g.kernel_h, g.kernel_w,
                      g.group_in(), g.groups, g.out_channels, plan.wide ? " wide" : ""),
          packed_bytes(plan)};
}

void pack_weights(const DotConvPlan& plan, DType dtype, const void* source, void* packed) {
  uint8_t* panels = static_cast<uint8_t*>(packed);
  dot_conv_pack(plan, dtype, source, panels);
  if (plan.type == DotType::kU8S8)
    dot_conv_weight_sums(plan, panels, reinterpret_cast<int32_t*>(panels + dot_conv_weight_bytes(plan)));
}

void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_weights(plan_of(p, narrow_riders(p)), p.input(1).dtype, source.data(), packed);
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) { return make_state(p); }

struct Context {
  const State* state;
  const Buffers* buffers;
  DotEpilogue::Bound bound;
  const int32_t *terms = nullptr, *zeros = nullptr;
  int64_t y_bytes = 1;
};

void finish(const void* context, const DotConvBlock& b) {
  const Context& c = *static_cast<const Context*>(context);
  const State& s = *c.state;
  const ImageStrides& to = s.plan.y;
  DotFinish f;
  f.sums = b.sums;
  f.rows = b.rows, f.cols = b.cols;
  f.y = static_cast<char*>(c.buffers->outputs[0]) +
        (b.image * to.image + b.oy * to.row + b.ox * to.pixel + b.channel) * c.y_bytes;
  f.y_row = to.pixel;
  if (c.terms) f.terms = c.terms + b.channel;
  if (c.zeros) f.zeros = c.zeros + b.channel, f.row_sums = b.row_sums;
  if (s.epilogue->integers() && s.epilogue->sums_alone()) {
    finish_i32(static_cast<const int32_t*>(b.sums), b.row_sums, f.terms, f.zeros, b.rows, b.cols,
               static_cast<int32_t*>(f.y), f.y_row);
    return;
  }
  if (!s.reads_riders) return s.epilogue->finish(c.bound, f, b.channel, nullptr);
  TileInput operands[DotEpilogue::kMostOperands];
  place_riders(s.riders, *c.buffers, b.image, b.channel, b.oy, b.ox, operands);
  s.epilogue->finish(c.bound, f, b.channel, operands);
}

/// As in matmul's dot_kernels.cpp: the tiles see x' = x + 128 of i8 and w' = w - 128 of u8, zero points move alike, and
/// sum (x' - zx)(w' - zw) = sum x' w' - zx (sum w' - k zw) - zw sum x'. Padding is written as zx.
void zero_terms(const Problem& p, const Buffers& buffers, const State& s, const int32_t* weight_sums, int32_t zx,
                int32_t* terms, int32_t* zeros, Context& context) {
  const ConvGeometry& g = s.plan.g;
  const bool many = p.has(3) && p.input(3).elements() > 1;
  const uint32_t k = uint32_t(g.taps() * g.group_in());
  const int32_t moved = p.input(1).dtype == DType::kU8 ? 128 : 0;
  const int32_t first = narrow_zero(p, buffers, 3, 0) - moved;
  bool any = first != 0;
  std::fill(zeros, zeros + g.out_channels, first);
  if (many) {
    for (int64_t c = 0; c < g.out_channels; ++c) zeros[c] = narrow_zero(p, buffers, 3, c) - moved;
    any = std::any_of(zeros, zeros + g.out_channels, [](int32_t z) { return z != 0; });
  }
  const int32_t* bias = context.bound.integer_bias;
  for (int64_t c = 0; c < g.out_channels; ++c) {
    const uint32_t sum = uint32_t(weight_sums[c]) - (any ? k * uint32_t(zeros[c]) : 0u);
    terms[c] = int32_t((bias ? uint32_t(bias[c]) : 0u) - uint32_t(zx) * sum);
  }
  for (int64_t c = g.out_channels; c < g.out_channels + kDotColumns; ++c) terms[c] = zeros[c] = 0;
  context.terms = terms;
  context.zeros = any ? zeros : nullptr;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const Problem& p = call.problem;
  char* workspace = static_cast<char*>(buffers.workspace);
  const uint8_t* panels = static_cast<const uint8_t*>(buffers.inputs[1]);
  if (!p.input(1).is_constant) {
    pack_weights(s.plan, p.input(1).dtype, panels, workspace + s.at_panels);
    panels = reinterpret_cast<const uint8_t*>(workspace + s.at_panels);
  }
  Context context{&s, &buffers, {}, nullptr, nullptr, bytes_of(p.output().dtype, 1)};
  s.epilogue->bind(buffers, workspace + s.at_lines, context.bound);
  DotConvCall conv;
  conv.x = static_cast<const uint8_t*>(buffers.inputs[0]);
  conv.panels = panels;
  conv.workspace = workspace;
  conv.finish = finish;
  conv.context = &context;
  if (sums_integers(p)) {
    const int32_t zx = narrow_zero(p, buffers, 2, 0) + (p.input(0).dtype == DType::kI8 ? 128 : 0);
    zero_terms(p, buffers, s, reinterpret_cast<const int32_t*>(panels + dot_conv_weight_bytes(s.plan)), zx,
               reinterpret_cast<int32_t*>(workspace + s.at_terms), reinterpret_cast<int32_t*>(workspace + s.at_zeros),
               context);
    conv.zero = uint8_t(zx);
    conv.want_row_sums = context.zeros != nullptr;
  }
  dot_conv(s.plan, conv, pool);
}

constexpr Kernel dot_kernel(std::string_view op) {
  return {.name = "cpu.conv_dot",
          .op = op,
          .supports = supports,
          .estimate = estimate,
          .workspace = workspace,
          .packing = packing,
          .pack = pack,
          .prepare = prepare,
          .run = run,
          .in_place = narrow_in_place,
          .version = 3};
}

}  // namespace

const Kernel kConvDot[2] = {dot_kernel("Conv"), dot_kernel("ConvInteger")};

}  // namespace ridgeline::cpu
