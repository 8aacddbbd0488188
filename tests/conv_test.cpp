// Every convolution kernel against a naive sum in double: odd sizes, strides, dilations, pads, groups, layouts,
// epilogues; outputs poisoned before, canaries beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "conv_cases.h"
#include "core/thread_pool.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernel.h"

namespace ridgeline {
namespace {

constexpr OpSchema kConv{.name = "Conv", .family = "conv", .kind = OpKind::kContraction};
constexpr OpSchema kConvTranspose{.name = "ConvTranspose", .family = "conv", .kind = OpKind::kContraction};

enum class Order { kPlanar, kChannelsLast };
enum class Epilogue { kNone, kRelu, kClamp, kResidualRelu, kChannelBias, kSwish, kScaledResidual };

std::mt19937 random_engine(7);
std::vector<float> random_floats(int64_t n) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = uniform(random_engine);
  return v;
}

/// y[n,oc,oh,ow] and the sums of absolute terms, which bound the error.
void reference(const Case& c, const std::vector<float>& x, const std::vector<float>& w, const std::vector<float>& b,
               std::vector<double>& y, std::vector<double>& scale) {
  const int64_t oh = c.out_h(), ow = c.out_w(), gi = c.c / c.groups, go = c.oc / c.groups;
  y.assign(size_t(c.n * c.oc * oh * ow), 0);
  scale.assign(y.size(), 0);
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t o = 0; o < c.oc; ++o)
      for (int64_t i = 0; i < oh * ow && c.bias; ++i) y[size_t((n * c.oc + o) * oh * ow + i)] = b[size_t(o)];
  const auto add = [&](int64_t n, int64_t ci, int64_t iy, int64_t ix, int64_t o, int64_t oy, int64_t ox, float weight) {
    if (iy < 0 || ix < 0 || iy >= c.h || ix >= c.w || oy < 0 || ox < 0 || oy >= oh || ox >= ow) return;
    const double term = double(x[size_t(((n * c.c + ci) * c.h + iy) * c.w + ix)]) * double(weight);
    y[size_t(((n * c.oc + o) * oh + oy) * ow + ox)] += term;
    scale[size_t(((n * c.oc + o) * oh + oy) * ow + ox)] += std::fabs(term);
  };
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t o = 0; o < c.oc; ++o)
      for (int64_t i = 0; i < gi; ++i)
        for (int64_t ky = 0; ky < c.kh; ++ky)
          for (int64_t kx = 0; kx < c.kw; ++kx) {
            const int64_t ci = o / go * gi + i;
            if (c.transposed) {
              const float weight = w[size_t(((ci * go + o % go) * c.kh + ky) * c.kw + kx)];
              for (int64_t iy = 0; iy < c.h; ++iy)
                for (int64_t ix = 0; ix < c.w; ++ix)
                  add(n, ci, iy, ix, o, iy * c.sh - c.top + ky * c.dh, ix * c.sw - c.left + kx * c.dw, weight);
            } else {
              const float weight = w[size_t(((o * gi + i) * c.kh + ky) * c.kw + kx)];
              for (int64_t oy = 0; oy < oh; ++oy)
                for (int64_t ox = 0; ox < ow; ++ox)
                  add(n, ci, oy * c.sh - c.top + ky * c.dh, ox * c.sw - c.left + kx * c.dw, o, oy, ox, weight);
            }
          }
}

/// Strides in floats of [n,c,h,w] within a tensor of `stored` channels.
Layout layout_of(Order order, const Case& c, int64_t channels, int64_t h, int64_t w, int64_t stored) {
  Layout l;
  l.shape = {c.n, channels, h, w};
  l.strides =
      order == Order::kPlanar ? Extents{stored * h * w, h * w, w, 1} : Extents{stored * h * w, 1, w * stored, stored};
  if (c.flat_1d) l.shape.erase(l.shape.begin() + 2), l.strides.erase(l.strides.begin() + 2);
  return l;
}
int64_t place(const Layout& l, bool flat_1d, int64_t n, int64_t c, int64_t y, int64_t x) {
  const int64_t base = n * l.strides[0] + c * l.strides[1];
  return flat_1d ? base + x * l.strides[2] : base + y * l.strides[2] + x * l.strides[3];
}

Program program_of(Epilogue e) {
  switch (e) {
    case Epilogue::kRelu:
      return Program::parse("relu(v)", std::array<std::string_view, 1>{"v"}, DType::kF32);
    case Epilogue::kClamp:
      return Program::parse("clamp(v, -0.25, 0.5)", std::array<std::string_view, 1>{"v"}, DType::kF32);
    case Epilogue::kSwish:
      return Program::parse("v * sigmoid(v)", std::array<std::string_view, 1>{"v"}, DType::kF32);
    case Epilogue::kScaledResidual:
      return Program::parse("v + 0.5 * r", std::array<std::string_view, 2>{"v", "r"}, DType::kF32);
    case Epilogue::kChannelBias:
      return Program::parse("v + r", std::array<std::string_view, 2>{"v", "r"}, DType::kF32);
    default:
      return Program::parse("relu(v + r)", std::array<std::string_view, 2>{"v", "r"}, DType::kF32);
  }
}
double apply(Epilogue e, double v, double r) {
  switch (e) {
    case Epilogue::kNone:
      return v;
    case Epilogue::kRelu:
      return std::max(v, 0.0);
    case Epilogue::kClamp:
      return std::min(std::max(v, -0.25), 0.5);
    case Epilogue::kSwish:
      return v / (1 + std::exp(-v));
    case Epilogue::kScaledResidual:
      return v + 0.5 * r;
    case Epilogue::kChannelBias:
      return v + r;
    case Epilogue::kResidualRelu:
      return std::max(v + r, 0.0);
  }
  return v;
}

/// Runs every kernel that takes the problem; returns how many did.
int check(const Case& c, Order order, Epilogue e = Epilogue::kNone, int threads = 1, bool constant = true) {
  const int64_t oh = c.out_h(), ow = c.out_w();
  if (oh <= 0 || ow <= 0) return 0;
  const std::vector<float> x = random_floats(c.n * c.c * c.h * c.w),
                           w = random_floats(c.c / c.groups * c.oc * c.kh * c.kw), b = random_floats(c.oc);
  std::vector<double> want, scale;
  reference(c, x, w, b, want, scale);

  Problem p;
  p.op = c.transposed ? &kConvTranspose : &kConv;
  p.threads = threads;
  const auto spatial = [&](int64_t h, int64_t w_) {
    return c.flat_1d ? std::vector<int64_t>{w_} : std::vector<int64_t>{h, w_};
  };
  p.attributes.set("strides", spatial(c.sh, c.sw));
  p.attributes.set("dilations", spatial(c.dh, c.dw));
  p.attributes.set("group", c.groups);
  if (c.auto_pad.empty())
    p.attributes.set("pads", c.flat_1d ? std::vector<int64_t>{c.left, c.right}
                                       : std::vector<int64_t>{c.top, c.left, c.bottom, c.right});
  else
    p.attributes.set("auto_pad", c.auto_pad);
  if (c.transposed) p.attributes.set("output_padding", spatial(c.extra_h, c.extra_w));
  const Layout lx = layout_of(order, c, c.c, c.h, c.w, c.c), ly = layout_of(order, c, c.oc, oh, ow, c.oc + c.concat);
  Extents weight_shape = c.transposed ? Extents{c.c, c.oc / c.groups} : Extents{c.oc, c.c / c.groups};
  for (int64_t k : spatial(c.kh, c.kw)) weight_shape.push_back(k);
  const Tensor weights = Tensor::from<float>(weight_shape, w);
  p.inputs.resize(c.bias ? 3 : 2);
  p.inputs[0] = {DType::kF32, lx, false, {}};
  p.inputs[1] = {DType::kF32, Layout(weight_shape), constant, weights};
  if (c.bias) p.inputs[2] = {DType::kF32, Layout(Extents{c.oc}), true, {}};
  p.op_inputs = int(p.inputs.size());
  p.outputs = {{DType::kF32, ly, false, {}}};

  // Operand r of the epilogue: of the output's shape, or one value a channel.
  const bool per_channel = e == Epilogue::kChannelBias;
  const bool with_operand = per_channel || e == Epilogue::kResidualRelu || e == Epilogue::kScaledResidual;
  const Layout lr = per_channel ? Layout(c.flat_1d ? Extents{c.oc, 1} : Extents{1, c.oc, 1, 1})
                                : layout_of(order, c, c.oc, oh, ow, c.oc);
  std::vector<float> r = random_floats(lr.span());
  if (e != Epilogue::kNone) p.program = std::make_shared<Program>(program_of(e));
  if (with_operand) p.inputs.push_back({DType::kF32, lr, false, {}});

  std::vector<float> stored_x(size_t(lx.span()));
  for (int64_t n = 0, i = 0; n < c.n; ++n)
    for (int64_t ci = 0; ci < c.c; ++ci)
      for (int64_t iy = 0; iy < c.h; ++iy)
        for (int64_t ix = 0; ix < c.w; ++ix) stored_x[size_t(place(lx, c.flat_1d, n, ci, iy, ix))] = x[size_t(i++)];

  int ran = 0;
  for (const Kernel* kernel : cpu::conv_kernels()) {
    if (kernel->op != p.op->name) continue;
    const Support support = kernel->supports(p);
    if (!support.ok) {
      EXPECT_FALSE(support.reason.empty()) << kernel->name;
      continue;
    }
    ++ran;
    KernelCall call;
    call.kernel = kernel, call.problem = p;
    const std::vector<Tile> tiles = kernel->tiles ? kernel->tiles(p) : std::vector<Tile>{{}};
    for (const Tile& tile : tiles) {
      call.tile = tile;
      call.state = kernel->prepare ? kernel->prepare(p, tile) : nullptr;
      call.workspace_bytes = kernel->workspace ? kernel->workspace(p, tile) : 0;
      Tensor packed = weights;
      if (constant && kernel->packing) {
        const Packing packing = kernel->packing(p, tile, 1);
        if (!packing.key.empty()) {
          packed = Tensor(DType::kU8, {packing.bytes});
          std::memset(packed.data(), 0xFF, size_t(packing.bytes));
          kernel->pack(p, tile, 1, weights, packed.data());
        }
      }
      // Exactly as large as asked for: the address sanitizer watches their ends.
      std::unique_ptr<char[]> workspace(new char[size_t(call.workspace_bytes) + 64]);
      std::memset(workspace.get(), 0xFF, size_t(call.workspace_bytes) + 64);
      char* aligned = workspace.get() + (64 - reinterpret_cast<uintptr_t>(workspace.get()) % 64) % 64;
      constexpr int64_t kCanary = 8;
      constexpr float kPoison = 12345.0f;
      const float nan = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> y(size_t(ly.span() + 2 * kCanary), kPoison);
      for (int64_t n = 0; n < c.n; ++n)
        for (int64_t o = 0; o < c.oc; ++o)
          for (int64_t oy = 0; oy < oh; ++oy)
            for (int64_t ox = 0; ox < ow; ++ox) y[size_t(kCanary + place(ly, c.flat_1d, n, o, oy, ox))] = nan;
      std::vector<void*> inputs{stored_x.data(), packed.data()};
      std::vector<float> bias = b;
      if (c.bias) inputs.push_back(bias.data());
      if (with_operand) inputs.push_back(r.data());
      void* outputs[] = {y.data() + kCanary};
      kernel->run(call, Buffers{inputs.data(), outputs, aligned}, ThreadPool(threads));

      const bool filtered = kernel->name.find("winograd") != std::string_view::npos;
      // What is summed for a filtered output are the pixels of its whole tile, those of its neighbours too: a corner
      // that sees only padding is 0 but for their rounding.
      const double largest = scale.empty() ? 0 : *std::max_element(scale.begin(), scale.end());
      const Layout full_r = per_channel ? Layout() : lr;
      for (int64_t n = 0, i = 0; n < c.n; ++n)
        for (int64_t o = 0; o < c.oc; ++o)
          for (int64_t oy = 0; oy < oh; ++oy)
            for (int64_t ox = 0; ox < ow; ++ox, ++i) {
              const float operand = !with_operand ? 0
                                    : per_channel ? r[size_t(o)]
                                                  : r[size_t(place(full_r, c.flat_1d, n, o, oy, ox))];
              const double expected = apply(e, want[size_t(i)], operand);
              float& got = y[size_t(kCanary + place(ly, c.flat_1d, n, o, oy, ox))];
              const double bound = filtered ? 3e-6 * (1 + largest) : 3e-7 * (1 + scale[size_t(i)]);
              if (!(std::fabs(double(got) - expected) <= bound)) {
                ADD_FAILURE() << kernel->name << " " << c.text() << " order " << int(order) << " epilogue " << int(e)
                              << " threads " << threads << " at n" << n << " c" << o << " y" << oy << " x" << ox << ": "
                              << got << " for " << expected;
                return ran;
              }
              got = kPoison;
            }
      for (float v : y)
        if (v != kPoison) {
          ADD_FAILURE() << kernel->name << " " << c.text() << ": wrote beside its output";
          return ran;
        }
    }
  }
  return ran;
}
TEST(Conv, FixedShapes) {
  for (const Case& c : fixed_cases())
    for (Order order : {Order::kPlanar, Order::kChannelsLast}) EXPECT_GE(check(c, order), c.n == 0 ? 0 : 1) << c.text();
}

TEST(Conv, Epilogues) {
  for (const Case& c : fixed_cases())
    for (Order order : {Order::kPlanar, Order::kChannelsLast})
      for (Epilogue e : {Epilogue::kRelu, Epilogue::kClamp, Epilogue::kResidualRelu, Epilogue::kChannelBias,
                         Epilogue::kSwish, Epilogue::kScaledResidual})
        check(c, order, e);
}

TEST(Conv, Threads) {
  for (const Case& c : fixed_cases())
    for (Order order : {Order::kPlanar, Order::kChannelsLast})
      for (int threads : {2, 3, 5}) check(c, order, threads == 3 ? Epilogue::kSwish : Epilogue::kResidualRelu, threads);
}

TEST(Conv, Transposed) {
  for (const Case& c : transposed_cases())
    for (Order order : {Order::kPlanar, Order::kChannelsLast}) {
      EXPECT_GE(check(c, order), 1) << c.text();
      check(c, order, Epilogue::kSwish, 2);
      check(c, order, Epilogue::kResidualRelu, 3);
    }
}

TEST(Conv, WeightsThatAreNoConstant) {
  for (Order order : {Order::kPlanar, Order::kChannelsLast}) {
    for (const Case& c : fixed_cases()) check(c, order, Epilogue::kRelu, 2, false);
    for (const Case& c : transposed_cases()) check(c, order, Epilogue::kRelu, 2, false);
  }
}

TEST(Conv, AutoPad) {
  // SAME_UPPER puts the odd zero below and right, SAME_LOWER above and left.
  Case upper{.c = 5, .h = 11, .w = 12, .oc = 6, .kh = 4, .kw = 3, .sh = 2, .sw = 2};
  upper.auto_pad = "SAME_UPPER";
  upper.top = 1, upper.bottom = 2, upper.left = 0, upper.right = 1;
  Case lower = upper;
  lower.auto_pad = "SAME_LOWER";
  lower.top = 2, lower.bottom = 1, lower.left = 1, lower.right = 0;
  Case valid{.c = 5, .h = 11, .w = 12, .oc = 6, .kh = 4, .kw = 3, .sh = 2, .sw = 2};
  valid.auto_pad = "VALID";
  for (const Case& c : {upper, lower, valid})
    for (Order order : {Order::kPlanar, Order::kChannelsLast}) EXPECT_GE(check(c, order), 1);
}

TEST(Conv, RandomShapes) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_engine);
  };
  for (int i = 0; i < 120; ++i) {
    Case c;
    c.transposed = i % 4 == 3;
    c.n = pick(1, 2), c.groups = pick(0, 2) ? 1 : pick(1, 4);
    c.c = c.groups * pick(1, 20), c.oc = c.groups * pick(1, 40);
    if (pick(0, 3) == 0) c.groups = c.oc = c.c;
    c.h = pick(1, 18), c.w = pick(1, 36), c.kh = pick(1, 5), c.kw = pick(1, 5);
    c.sh = pick(1, 3), c.sw = pick(1, 3), c.dh = pick(1, 2), c.dw = pick(1, 2);
    if (pick(0, 1)) c.kh = c.kw = 3, c.sh = c.sw = c.dh = c.dw = 1;
    c.top = pick(0, 3), c.bottom = pick(0, 3), c.left = pick(0, 3), c.right = pick(0, 3);
    c.bias = pick(0, 1), c.concat = pick(0, 1) * 7;
    if (c.transposed) c.extra_h = pick(0, c.sh - 1), c.extra_w = pick(0, c.sw - 1);
    check(c, pick(0, 1) ? Order::kPlanar : Order::kChannelsLast, Epilogue(pick(0, 6)), int(pick(1, 3)));
  }
}

TEST(Conv, OtherInstructionSets) {
  for (const char* isa : {"scalar", "avx2"}) {
    cpu::limit_isa(isa);
    for (const Case& c : fixed_cases())
      for (Order order : {Order::kPlanar, Order::kChannelsLast}) check(c, order, Epilogue::kResidualRelu, 2);
    for (const Case& c : transposed_cases())
      for (Order order : {Order::kPlanar, Order::kChannelsLast}) check(c, order);
  }
  cpu::limit_isa("native");
}

}  // namespace
}  // namespace ridgeline
