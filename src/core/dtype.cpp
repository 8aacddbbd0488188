#include "ridgeline/dtype.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace ridgeline {
namespace {

// Formats: IEEE 754 (f64, f32, f16); bf16 is the upper half of f32; f8: OCP 8-bit floating point (e4m3fn, e5m2), 2023.
constexpr std::array<DTypeInfo, kDTypeCount> kTable = {{
    {DType::kNone, "none", 0, false, false, DType::kNone, 0, 0, 0},
    {DType::kF64, "f64", 64, true, true, DType::kF64, 0x1p-52, std::numeric_limits<double>::max(), 11},
    {DType::kF32, "f32", 32, true, true, DType::kF32, 0x1p-23, std::numeric_limits<float>::max(), 1},
    {DType::kF16, "f16", 16, true, true, DType::kF32, 0x1p-10, 65504, 10},
    {DType::kBF16, "bf16", 16, true, true, DType::kF32, 0x1p-7, 3.3895313892515355e38, 16},
    {DType::kF8E4M3, "f8e4m3", 8, true, true, DType::kF32, 0x1p-3, 448, 17},
    {DType::kF8E5M2, "f8e5m2", 8, true, true, DType::kF32, 0x1p-2, 57344, 19},
    {DType::kI8, "i8", 8, false, true, DType::kI32, 0, 127, 3},
    {DType::kI16, "i16", 16, false, true, DType::kI64, 0, 32767, 5},
    {DType::kI32, "i32", 32, false, true, DType::kI64, 0, 2147483647, 6},
    {DType::kI64, "i64", 64, false, true, DType::kI64, 0, 9.2233720368547758e18, 7},
    {DType::kU8, "u8", 8, false, false, DType::kI32, 0, 255, 2},
    {DType::kU16, "u16", 16, false, false, DType::kI64, 0, 65535, 4},
    {DType::kU32, "u32", 32, false, false, DType::kI64, 0, 4294967295.0, 12},
    {DType::kU64, "u64", 64, false, false, DType::kU64, 0, 1.8446744073709552e19, 13},
    {DType::kBool, "bool", 8, false, false, DType::kI64, 0, 1, 9},
    {DType::kI4, "i4", 4, false, true, DType::kI32, 0, 7, 22},
    {DType::kU4, "u4", 4, false, false, DType::kI32, 0, 15, 21},
}};

// A small float of `mantissa` bits and bias `bias`; e4m3fn has no infinity and one NaN pattern.
double small_float(uint8_t bits, int mantissa, int bias, bool has_infinity) {
  const int exponent_bits = 7 - mantissa;
  const int exponent = (bits >> mantissa) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa) - 1);
  const double sign = bits & 0x80 ? -1 : 1;
  const int top = (1 << exponent_bits) - 1;
  if (has_infinity && exponent == top) return fraction ? std::nan("") : sign * INFINITY;
  if (!has_infinity && exponent == top && fraction == (1 << mantissa) - 1) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa);
  return sign * std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
}

uint8_t to_small_float(double value, int mantissa, int bias, bool has_infinity) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const int top = (1 << (7 - mantissa)) - 1;
  const uint8_t nan = uint8_t(has_infinity ? (top << mantissa) | 1 : 0x7f);
  const uint8_t largest = uint8_t(has_infinity ? (top << mantissa) - 1 : 0x7e);
  const double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | nan;
  if (magnitude > small_float(largest, mantissa, bias, has_infinity))
    return sign | largest;  // saturating, as ONNX Cast
  if (magnitude == 0) return sign;
  int exponent;
  std::frexp(magnitude, &exponent);
  const int quantum = std::max(exponent - 1, 1 - bias) - mantissa;
  const double steps = std::nearbyint(std::ldexp(magnitude, -quantum));
  const int base = quantum + mantissa + bias;  // the exponent field for steps in [2^mantissa, 2^(mantissa+1))
  if (steps < (1 << mantissa)) return sign | uint8_t(steps);
  const int encoded = (base << mantissa) + int(steps) - (1 << mantissa);
  return sign | uint8_t(encoded > largest ? largest : encoded);
}

template <typename T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::trunc(value);
  if (rounded <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (rounded >= double(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return T(rounded);
}

int nibble(const void* data, int64_t index) {
  const uint8_t byte = static_cast<const uint8_t*>(data)[index / 2];
  return index % 2 ? byte >> 4 : byte & 15;
}

void set_nibble(void* data, int64_t index, int value) {
  uint8_t& byte = static_cast<uint8_t*>(data)[index / 2];
  byte = uint8_t(index % 2 ? (byte & 0x0f) | ((value & 15) << 4) : (byte & 0xf0) | (value & 15));
}

template <typename T>
const T& at(const void* data, int64_t i) {
  return static_cast<const T*>(data)[i];
}
template <typename T>
T& at(void* data, int64_t i) {
  return static_cast<T*>(data)[i];
}

}  // namespace

const DTypeInfo& info(DType dtype) { return kTable[size_t(dtype)]; }

DType dtype_named(std::string_view name) {
  for (const DTypeInfo& row : kTable) {
    if (row.name == name) return row.dtype;
  }
  return DType::kNone;
}

DType dtype_of_onnx(int onnx_id) {
  for (const DTypeInfo& row : kTable) {
    if (row.onnx_id == onnx_id && onnx_id != 0) return row.dtype;
  }
  return DType::kNone;
}

double load_f64(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kF64:
      return at<double>(data, i);
    case DType::kF32:
      return at<float>(data, i);
    case DType::kF16:
      return f16_to_f32(at<uint16_t>(data, i));
    case DType::kBF16:
      return bf16_to_f32(at<uint16_t>(data, i));
    case DType::kF8E4M3:
      return small_float(at<uint8_t>(data, i), 3, 7, false);
    case DType::kF8E5M2:
      return small_float(at<uint8_t>(data, i), 2, 15, true);
    case DType::kU64:
      return double(at<uint64_t>(data, i));
    default:
      return double(load_i64(dtype, data, i));
  }
}

int64_t load_i64(DType dtype, const void* data, int64_t i) {
  switch (dtype) {
    case DType::kI8:
      return at<int8_t>(data, i);
    case DType::kI16:
      return at<int16_t>(data, i);
    case DType::kI32:
      return at<int32_t>(data, i);
    case DType::kI64:
      return at<int64_t>(data, i);
    case DType::kU8:
      return at<uint8_t>(data, i);
    case DType::kU16:
      return at<uint16_t>(data, i);
    case DType::kU32:
      return at<uint32_t>(data, i);
    case DType::kU64:
      return int64_t(at<uint64_t>(data, i));
    case DType::kBool:
      return at<uint8_t>(data, i) != 0;
    case DType::kI4: {
      const int n = nibble(data, i);
      return n >= 8 ? n - 16 : n;
    }
    case DType::kU4:
      return nibble(data, i);
    case DType::kNone:
      return 0;
    default:
      return saturate<int64_t>(load_f64(dtype, data, i));
  }
}

void store_f64(DType dtype, void* data, int64_t i, double value) {
  switch (dtype) {
    case DType::kF64:
      at<double>(data, i) = value;
      return;
    case DType::kF32:
      at<float>(data, i) = float(value);
      return;
    case DType::kF16:
      at<uint16_t>(data, i) = f32_to_f16(float(value));
      return;
    case DType::kBF16:
      at<uint16_t>(data, i) = f32_to_bf16(float(value));
      return;
    case DType::kF8E4M3:
      at<uint8_t>(data, i) = to_small_float(value, 3, 7, false);
      return;
    case DType::kF8E5M2:
      at<uint8_t>(data, i) = to_small_float(value, 2, 15, true);
      return;
    case DType::kI8:
      at<int8_t>(data, i) = saturate<int8_t>(value);
      return;
    case DType::kI16:
      at<int16_t>(data, i) = saturate<int16_t>(value);
      return;
    case DType::kI32:
      at<int32_t>(data, i) = saturate<int32_t>(value);
      return;
    case DType::kI64:
      at<int64_t>(data, i) = saturate<int64_t>(value);
      return;
    case DType::kU8:
      at<uint8_t>(data, i) = saturate<uint8_t>(value);
      return;
    case DType::kU16:
      at<uint16_t>(data, i) = saturate<uint16_t>(value);
      return;
    case DType::kU32:
      at<uint32_t>(data, i) = saturate<uint32_t>(value);
      return;
    case DType::kU64:
      at<uint64_t>(data, i) = saturate<uint64_t>(value);
      return;
    case DType::kBool:
      at<uint8_t>(data, i) = value != 0;
      return;
    case DType::kI4:
      set_nibble(data, i, int(std::fmin(7, std::fmax(-8, std::trunc(value)))));
      return;
    case DType::kU4:
      set_nibble(data, i, int(std::fmin(15, std::fmax(0, std::trunc(value)))));
      return;
    case DType::kNone:
      return;
  }
}

void store_i64(DType dtype, void* data, int64_t i, int64_t value) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      at<uint8_t>(data, i) = uint8_t(value);
      return;
    case DType::kI16:
    case DType::kU16:
      at<uint16_t>(data, i) = uint16_t(value);
      return;
    case DType::kI32:
    case DType::kU32:
      at<uint32_t>(data, i) = uint32_t(value);
      return;
    case DType::kI64:
    case DType::kU64:
      at<int64_t>(data, i) = value;
      return;
    case DType::kBool:
      at<uint8_t>(data, i) = value != 0;
      return;
    case DType::kI4:
    case DType::kU4:
      set_nibble(data, i, int(value));
      return;
    default:
      store_f64(dtype, data, i, double(value));
      return;
  }
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t rest = bits & 0x7fff;
  if (rest >= 0x7c00) return __builtin_bit_cast(float, sign | 0x7f800000 | ((rest & 0x3ff) << 13));
  if (rest < 0x400) {  // zero and subnormals: rest * 2^-24
    const float magnitude = float(rest) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return __builtin_bit_cast(float, sign | ((rest + 0x1c000) << 13));
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00 | uint16_t((magnitude >> 13) & 0x3ff);
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to 2^16 or above: infinity
  if (magnitude < 0x38800000) {                       // below 2^-14: a multiple of 2^-24; the FPU rounds to even
    const float steps = __builtin_bit_cast(float, magnitude) * 0x1p24f;
    return sign | uint16_t(std::nearbyintf(steps));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | uint16_t((rounded - 0x38000000) >> 13);
}

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace ridgeline
