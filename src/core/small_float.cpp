#include "core/small_float.h"

#include <algorithm>
#include <cmath>

namespace ridgeline {
namespace {

// What stands in the place where IEEE 754 has infinity and NaN.
enum class Top : uint8_t {
  kIeee,    // both, in the largest exponent
  kNan,     // a NaN, of all ones; no infinity ("fn")
  kNegNan,  // one NaN in the place of -0; no infinity ("fnuz")
  kNumbers  // numbers: neither NaN nor infinity
};

struct Format {
  DType dtype;
  int mantissa, bias;
  Top top;
};

// A sign, the exponent, the mantissa; the rest of info(dtype).bits is the exponent.
constexpr Format kFormats[] = {
    {DType::kF8E4M3, 3, 7, Top::kNan},        {DType::kF8E5M2, 2, 15, Top::kIeee},
    {DType::kF8E4M3Fnuz, 3, 8, Top::kNegNan}, {DType::kF8E5M2Fnuz, 2, 16, Top::kNegNan},
    {DType::kF4E2M1, 1, 1, Top::kNumbers},    {DType::kF6E2M3, 3, 1, Top::kNumbers},
    {DType::kF6E3M2, 2, 3, Top::kNumbers},
};

const Format& format_of(DType dtype) {
  return *std::find_if(std::begin(kFormats), std::end(kFormats) - 1,
                       [dtype](const Format& f) { return f.dtype == dtype; });
}

constexpr int kScaleBias = 127;
constexpr unsigned kScaleNan = 0xff;

unsigned encode_scale(double value) {
  if (std::isnan(value) || value < 0) return kScaleNan;
  if (value <= std::ldexp(1, -kScaleBias)) return 0;
  if (value > std::ldexp(1, kScaleBias)) return kScaleNan - 1;
  int exponent;  // value = m * 2^exponent, m in [1/2, 1)
  return unsigned((std::frexp(value, &exponent) == 0.5 ? exponent - 1 : exponent) + kScaleBias);
}

}  // namespace

double decode_small(DType dtype, unsigned code) {
  if (dtype == DType::kF8E8M0) return code == kScaleNan ? std::nan("") : std::ldexp(1, int(code) - kScaleBias);
  const Format& f = format_of(dtype);
  const unsigned sign_bit = 1u << (info(dtype).bits - 1), magnitude = code & (sign_bit - 1);
  const double sign = code & sign_bit ? -1 : 1;
  const int exponent = int(magnitude >> f.mantissa), fraction = int(magnitude & ((1u << f.mantissa) - 1));
  const int top = int((sign_bit - 1) >> f.mantissa);
  if (f.top == Top::kIeee && exponent == top) return std::copysign(fraction ? std::nan("") : INFINITY, sign);
  if (f.top == Top::kNan && magnitude == sign_bit - 1) return std::copysign(std::nan(""), sign);
  if (f.top == Top::kNegNan && code == sign_bit) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias - f.mantissa);
  return sign * std::ldexp((1 << f.mantissa) + fraction, exponent - f.bias - f.mantissa);
}

unsigned encode_small(DType dtype, double value) {
  if (dtype == DType::kF8E8M0) return encode_scale(value);
  const Format& f = format_of(dtype);
  const unsigned sign_bit = 1u << (info(dtype).bits - 1), ones = sign_bit - 1;
  const unsigned infinity = ones >> f.mantissa << f.mantissa;
  const unsigned sign = std::signbit(value) ? sign_bit : 0;
  if (std::isnan(value)) {
    if (f.top == Top::kIeee) return sign | infinity | 1u << (f.mantissa - 1);
    return f.top == Top::kNan ? sign | ones : sign_bit;
  }
  const double magnitude = std::fabs(value);
  unsigned code = ones + 1;  // beyond
  if (magnitude == 0) {
    code = 0;
  } else if (magnitude < 2 * info(dtype).largest) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int quantum = std::max(exponent - 1, 1 - f.bias) - f.mantissa;
    const auto steps = unsigned(std::nearbyint(std::ldexp(magnitude, -quantum)));
    // Rounding up into the next exponent carries into its field by itself. Below the least exponent the field is 0.
    const int field = quantum + f.mantissa + f.bias - 1;
    code = (unsigned(field) << f.mantissa) + steps;
  }
  if (f.top == Top::kIeee) return sign | std::min(code, infinity);
  if (f.top == Top::kNegNan) return code > ones ? sign_bit : code == 0 ? 0 : sign | code;
  return sign | std::min(code, ones);
}

}  // namespace ridgeline
