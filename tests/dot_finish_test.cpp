// The ends of narrow sums: every level does to the bit what one number after the other gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/matmul/dot/dot_segments.h"
#include "kernels/cpu/simd.h"

namespace ridgeline::cpu {
namespace {

constexpr int kRows = 31, kPitch = 40;

/// What a level of instructions makes of the block: y with what lies beside it.
template <typename T>
std::vector<T> finished(const std::string& level, DotFinish f, const std::vector<DotSegment>& segments) {
  limit_isa(level);
  std::vector<T> y(size_t(kRows * kPitch), T(77));
  f.y = y.data();
  dot_finish_segments(f, segments.data(), int(segments.size()));
  limit_isa("native");
  return y;
}

/// Those of this machine. (The scalar baseline has no fused multiply-add: the sweep holds it to a tolerance.)
std::vector<std::string> levels_with_fma() {
  std::vector<std::string> levels;
  for (const char* level : {"avx2", "avx512", "neon", "native"}) {
    limit_isa(level);
    if (active_isa() != Isa::kScalar) levels.push_back(level);
  }
  limit_isa("native");
  return levels;
}

/// To even; a NaN keeps its sign and becomes quiet.
float rounded_to_bf16(float v) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  bits = std::isnan(v) ? bits | 0x00400000u : bits + 0x7fff + (bits >> 16 & 1);
  bits &= 0xffff0000u;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}
uint16_t bf16_bits(float v) {
  uint32_t bits;
  v = rounded_to_bf16(v);
  std::memcpy(&bits, &v, sizeof bits);
  return uint16_t(bits >> 16);
}
float from_bf16(uint16_t half) {
  const uint32_t bits = uint32_t(half) << 16;
  float v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

float at(const DotLine& line, int column, float absent) {
  return line.data ? line.data[line.stride ? column : 0] : absent;
}

/// One number through a segment, as dot_segments.h says it.
float through(const DotSegment& s, float v, int column, float residual) {
  v -= at(s.before, column, 0);
  v = s.fused ? std::fma(v, at(s.scale, column, 1), at(s.bias, column, 0))
              : v * at(s.scale, column, 1) + at(s.bias, column, 0);
  if (s.round_bias) v = rounded_to_bf16(v);
  if (s.has_residual) v += s.r_affine ? (residual - s.r_before) * s.r_scale + s.r_bias : residual;
  if (v < s.low) v = s.low;
  if (v > s.high) v = s.high;
  if (!s.quantizes) return v;
  const float level = std::nearbyint(v / s.step) + float(s.zero);
  return std::min(std::max(level, float(s.least)), float(s.most));
}

TEST(DotFinish, RoundsSubnormalsAndNaNsToBf16) {
  std::mt19937 random(3);
  std::vector<float> sums(size_t(kRows * kDotColumns)), bias(kDotColumns);
  std::vector<uint16_t> residual(size_t(kRows * kPitch));
  for (float& v : sums) v = std::ldexp(float(int(random() % 65536) - 32768), int(random() % 30) - 20);
  for (uint16_t& r : residual) r = uint16_t(random() % 2 << 15 | (0x3c00 + random() % 1024));
  for (size_t c = 0; c < bias.size(); ++c) bias[c] = c % 3 == 0 ? 0.0f : float(c);
  const float special[] = {
      1e-40f, -3e-39f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0.0f, 3.4e38f};
  for (size_t i = 0; i < std::size(special); ++i) {
    const size_t at = (4 * i + 1) * kDotColumns + 3 * i;  // where the bias is 0
    sums[at] = special[i];
    residual[(4 * i + 1) * kPitch + 3 * i] = 0;
  }
  DotFinish f;
  f.sums = sums.data();
  f.rows = kRows, f.cols = kDotColumns;
  f.y_row = kPitch;
  f.y_dtype = DType::kBF16;
  f.residuals[0] = {residual.data(), kPitch};
  const std::vector<std::string> levels = levels_with_fma();
  for (const int cols : {kDotColumns, 24, 7})
    for (const bool has_residual : {false, true})
      for (const bool rounds : {false, true})
        for (const bool low : {false, true}) {
          f.cols = cols;
          DotSegment s;
          s.bf16_instructions = has_feature("avx512_bf16");
          s.bias = {bias.data(), 1};
          s.has_residual = has_residual;
          s.residual_dtype = DType::kBF16;
          s.round_bias = rounds && has_residual;
          if (low) s.low = 0;
          std::vector<uint16_t> wanted(size_t(kRows * kPitch), 77);
          for (int r = 0; r < kRows; ++r)
            for (int c = 0; c < cols; ++c) {
              const float beside = from_bf16(residual[size_t(r * kPitch + c)]);
              wanted[size_t(r * kPitch + c)] = bf16_bits(through(s, sums[size_t(r * kDotColumns + c)], c, beside));
            }
          for (const std::string& level : levels)
            EXPECT_EQ(finished<uint16_t>(level, f, {s}), wanted) << level << cols << has_residual << rounds << low;
        }
}

TEST(DotFinish, QuantizesOnceAndTwice) {
  std::mt19937 random(5);
  std::vector<int32_t> sums(size_t(kRows * kDotColumns)), terms(kDotColumns);
  std::vector<float> scale(kDotColumns), bias(kDotColumns);
  std::vector<uint8_t> residual(size_t(kRows * kPitch));
  for (int32_t& v : sums) v = int32_t(random() % 200000) - 100000;
  for (int32_t& v : terms) v = int32_t(random() % 2000) - 1000;
  for (float& v : scale) v = float(random() % 1000 + 1) * 1e-6f;
  for (float& v : bias) v = float(int(random() % 200) - 100) * 0.03f;
  for (uint8_t& v : residual) v = uint8_t(random());
  scale[5] = 0.0131f, bias[5] = 0, terms[5] = 0;  // quotients of the step 0.0262 in the middle between levels
  const float before = 117, second = 0.0646f;
  DotFinish f;
  f.sums = sums.data();
  f.integers = true;
  f.terms = terms.data();
  f.y_row = kPitch;
  f.y_dtype = DType::kU8;
  const auto level = [](float step, int zero, int least) {
    DotSegment s;
    s.quantizes = s.divides = s.tame = s.small = true;
    s.step = step, s.inverse = 1 / step;
    s.zero = zero, s.least = least, s.most = 255;
    return s;
  };
  const std::vector<std::string> levels = levels_with_fma();
  int differ = 0;
  for (const int rows : {1, 2, kRows})
    for (const int cols : {kDotColumns, 19, 5})
      for (const int zero : {0, 117})
        for (const bool two : {false, true})
          for (const bool has_residual : {false, true}) {
            f.rows = rows, f.cols = cols;
            std::vector<DotSegment> segments{level(0.0262f, zero, 0)};
            segments[0].scale = {scale.data(), 1};
            segments[0].bias = {bias.data(), 1};
            segments[0].fused = true;
            if (two) {
              segments[0].zero = int(before);
              segments.push_back(level(0.0311f, zero, zero));
              segments[1].before = {&before, 0};
              segments[1].scale = {&second, 0};
            }
            DotSegment& last = segments.back();
            last.has_residual = has_residual;
            last.residual_dtype = DType::kU8;
            last.r_affine = true;
            last.r_before = float(zero), last.r_scale = 0.0517f;
            f.residuals[segments.size() - 1] = {residual.data(), kPitch};
            std::vector<uint8_t> wanted(size_t(kRows * kPitch), 77);
            for (int r = 0; r < rows; ++r)
              for (int c = 0; c < cols; ++c) {
                float v = float(sums[size_t(r * kDotColumns + c)] + terms[size_t(c)]);
                for (const DotSegment& s : segments) v = through(s, v, c, float(residual[size_t(r * kPitch + c)]));
                wanted[size_t(r * kPitch + c)] = uint8_t(v);
              }
            for (const std::string& name : levels)
              EXPECT_EQ(finished<uint8_t>(name, f, segments), wanted)
                  << name << rows << ' ' << cols << ' ' << zero << two;
            for (const uint8_t v : wanted) differ += v != 77 && v != 0 && v != 255;
          }
  EXPECT_GT(differ, 2000);  // not all at the ends of the range
}

}  // namespace
}  // namespace ridgeline::cpu
