#include "kernels/cpu/conv/winograd_transform.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/winograd_transform.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/conv/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

HWY_INLINE V Times(float a, V b, V c) { return hn::MulAdd(hn::Set(d, a), b, c); }  // a * b + c

/// One axis of Bt d B: d and the result are step floats' vectors apart in arrays.
template <int M>
HWY_INLINE void InputAxis(const V* from, int from_step, V* to, int to_step) {
  const V d0 = from[0], d1 = from[from_step], d2 = from[2 * from_step], d3 = from[3 * from_step];
  if constexpr (M == 2) {
    to[0] = hn::Sub(d0, d2);
    to[to_step] = hn::Add(d1, d2);
    to[2 * to_step] = hn::Sub(d2, d1);
    to[3 * to_step] = hn::Sub(d1, d3);
  } else {
    const V d4 = from[4 * from_step], d5 = from[5 * from_step];
    const V a = Times(-4, d2, d4), b = Times(-4, d1, d3), c = hn::Sub(d4, d2), e = hn::Sub(d3, d1);
    to[0] = Times(4, d0, Times(-5, d2, d4));
    to[to_step] = hn::Add(a, b);
    to[2 * to_step] = hn::Sub(a, b);
    to[3 * to_step] = Times(2, e, c);
    to[4 * to_step] = Times(-2, e, c);
    to[5 * to_step] = Times(4, d1, Times(-5, d3, d5));
  }
}

/// One axis of At m A.
template <int M>
HWY_INLINE void OutputAxis(const V* from, int from_step, V* to, int to_step) {
  const V m0 = from[0], m1 = from[from_step], m2 = from[2 * from_step], m3 = from[3 * from_step];
  if constexpr (M == 2) {
    to[0] = hn::Add(hn::Add(m0, m1), m2);
    to[to_step] = hn::Sub(hn::Sub(m1, m2), m3);
  } else {
    const V m4 = from[4 * from_step], m5 = from[5 * from_step];
    const V a = hn::Add(m1, m2), b = hn::Sub(m1, m2), c = hn::Add(m3, m4), e = hn::Sub(m3, m4);
    to[0] = hn::Add(hn::Add(m0, a), c);
    to[to_step] = Times(2, e, b);
    to[2 * to_step] = Times(4, c, a);
    to[3 * to_step] = hn::Add(Times(8, e, b), m5);
  }
}

/// The vector of channels at c; kTail: its first `count`.
template <int H, int W, bool kTail>
HWY_INLINE void InputChannels(const WinogradInput& g, bool inside, int64_t c, int64_t count) {
  constexpr int kRows = H + 2, kColumns = W + 2;
  const auto load = [&](const float* at) HWY_ATTR { return kTail ? LoadFirst(at, count) : hn::LoadU(d, at); };
  V rows[kRows * kColumns];
  for (int j = 0; j < kColumns; ++j) {
    V column[kRows];
    if (inside) {
      const float* at = g.x + g.top * g.row + (g.left + j) * g.pixel + c;
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) column[i] = load(at + i * g.row);
    } else {
      const int64_t x = g.left + j;
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        const int64_t y = g.top + i;
        const bool in = y >= 0 && x >= 0 && y < g.height && x < g.width;
        column[i] = in ? load(g.x + y * g.row + x * g.pixel + c) : hn::Zero(d);
      }
    }
    InputAxis<H>(column, 1, rows + j, kColumns);
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    V row[kColumns];
    InputAxis<W>(rows + i * kColumns, 1, row, 1);
#pragma GCC unroll 6
    for (int j = 0; j < kColumns; ++j) hn::StoreU(row[j], d, g.v + (i * kColumns + j) * g.v_step + c);
  }
}

template <int H, int W>
void Input(const WinogradInput& g) {
  const bool inside = g.top >= 0 && g.left >= 0 && g.top + H + 2 <= g.height && g.left + W + 2 <= g.width;
  int64_t c = 0;
  for (; c + kLanes <= g.channels; c += kLanes) InputChannels<H, W, false>(g, inside, c, kLanes);
  if (c < g.channels) InputChannels<H, W, true>(g, inside, c, g.channels - c);
}

template <int H, int W, bool kTail>
HWY_INLINE void OutputChannels(const WinogradOutput& g, int64_t c, int64_t count) {
  constexpr int kRows = H + 2, kColumns = W + 2;
  const auto load = [&](const float* at) HWY_ATTR { return kTail ? LoadFirst(at, count) : hn::LoadU(d, at); };
  const V low = hn::Set(d, g.low), high = hn::Set(d, g.high);
  V rows[H * kColumns];
#pragma GCC unroll 6
  for (int j = 0; j < kColumns; ++j) {
    V column[kRows];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) column[i] = hn::LoadU(d, g.m + (i * kColumns + j) * g.m_step + c);
    OutputAxis<H>(column, 1, rows + j, kColumns);
  }
  const V bias = g.bias ? load(g.bias + c) : hn::Zero(d);
#pragma GCC unroll 4
  for (int i = 0; i < H; ++i) {
    if (i >= g.rows) break;
    V row[W];
    OutputAxis<W>(rows + i * kColumns, 1, row, 1);
#pragma GCC unroll 4
    for (int j = 0; j < W; ++j) {
      if (j >= g.columns) break;
      V v = hn::Add(row[j], bias);
      if (g.residual) v = hn::Add(v, load(g.residual + i * g.residual_row + j * g.residual_pixel + c));
      v = Clamp(v, low, high);
      float* to = g.y + i * g.row + j * g.pixel + c;
      kTail ? StoreFirst(v, to, count) : hn::StoreU(v, d, to);
    }
  }
}

template <int H, int W>
void Output(const WinogradOutput& g) {
  int64_t c = 0;
  for (; c + kLanes <= g.channels; c += kLanes) OutputChannels<H, W, false>(g, c, kLanes);
  if (c < g.channels) OutputChannels<H, W, true>(g, c, g.channels - c);
}

WinogradInputTransform ChooseInput(int h, int w) {
  return h == 4 && w == 4 ? &Input<4, 4> : h == 4 && w == 2 ? &Input<4, 2> : h == 2 && w == 2 ? &Input<2, 2> : nullptr;
}
WinogradOutputTransform ChooseOutput(int h, int w) {
  return h == 4 && w == 4   ? &Output<4, 4>
         : h == 4 && w == 2 ? &Output<4, 2>
         : h == 2 && w == 2 ? &Output<2, 2>
                            : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {

HWY_EXPORT(ChooseInput);
HWY_EXPORT(ChooseOutput);

constexpr double kG4[6][3] = {{.25, 0, 0},
                              {-1. / 6, -1. / 6, -1. / 6},
                              {-1. / 6, 1. / 6, -1. / 6},
                              {1. / 24, 1. / 12, 1. / 6},
                              {1. / 24, -1. / 12, 1. / 6},
                              {0, 0, 1}};
constexpr double kG2[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
// What InputAxis and OutputAxis compute, as matrices.
constexpr double kB4[6][6] = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                              {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
constexpr double kB2[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
constexpr double kA4[4][6] = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};
constexpr double kA2[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};

double squares(std::span<const double> v) { return std::inner_product(v.begin(), v.end(), v.begin(), 0.0); }

}  // namespace

WinogradInputTransform winograd_input(int m_h, int m_w) { return HWY_DYNAMIC_DISPATCH(ChooseInput)(m_h, m_w); }
WinogradOutputTransform winograd_output(int m_h, int m_w) { return HWY_DYNAMIC_DISPATCH(ChooseOutput)(m_h, m_w); }

void winograd_weight(int m_h, int m_w, const float* w, double* u) {
  const auto* gh = m_h == 4 ? kG4 : kG2;
  const auto* gw = m_w == 4 ? kG4 : kG2;
  for (int i = 0; i < m_h + 2; ++i) {
    double row[3];
    for (int k = 0; k < 3; ++k) row[k] = gh[i][0] * w[k] + gh[i][1] * w[3 + k] + gh[i][2] * w[6 + k];
    for (int j = 0; j < m_w + 2; ++j) *u++ = gw[j][0] * row[0] + gw[j][1] * row[1] + gw[j][2] * row[2];
  }
}

double winograd_amplification(int m, int row) {
  double variance = 0;
  for (int i = 0; i < m + 2; ++i) {
    variance += m == 4 ? kA4[row][i] * kA4[row][i] * squares(kG4[i]) * squares(kB4[i])
                       : kA2[row][i] * kA2[row][i] * squares(kG2[i]) * squares(kB2[i]);
  }
  return std::max(1.0, std::sqrt(variance / 3));
}

}  // namespace ridgeline::cpu
#endif
