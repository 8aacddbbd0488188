#include "ridgeline/dtype.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/small_float.h"

namespace ridgeline {
namespace {

// Formats: IEEE 754 (f64, f32, f16); bf16 is the upper half of f32; what is smaller: core/small_float.h.
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
    {DType::kF8E4M3Fnuz, "f8e4m3fnuz", 8, true, true, DType::kF32, 0x1p-3, 240, 18},
    {DType::kF8E5M2Fnuz, "f8e5m2fnuz", 8, true, true, DType::kF32, 0x1p-2, 57344, 20},
    {DType::kF8E8M0, "f8e8m0", 8, true, false, DType::kF32, 1, 0x1p127, 24},
    {DType::kF4E2M1, "f4e2m1", 4, true, true, DType::kF32, 0x1p-1, 6, 23},
    {DType::kF6E2M3, "f6e2m3", 6, true, true, DType::kF32, 0x1p-3, 7.5, 27},
    {DType::kF6E3M2, "f6e3m2", 6, true, true, DType::kF32, 0x1p-2, 28, 28},
    {DType::kI2, "i2", 2, false, true, DType::kI32, 0, 1, 26},
    {DType::kU2, "u2", 2, false, false, DType::kI32, 0, 3, 25},
}};

template <typename T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  const double rounded = std::trunc(value);
  if (rounded <= double(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (rounded >= double(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return T(rounded);
}

// Element `i` of a stream of `bits` bits each (2, 4, 6 or 8), the lowest first; one of 6 may lie in two bytes.
unsigned field(const void* data, int64_t i, int bits) {
  const auto* bytes = static_cast<const uint8_t*>(data) + (i * bits >> 3);
  const int shift = int(i * bits & 7);
  unsigned both = bytes[0];
  if (shift + bits > 8) both |= unsigned(bytes[1]) << 8;
  return (both >> shift) & ((1u << bits) - 1);
}

void set_field(void* data, int64_t i, int bits, unsigned value) {
  auto* bytes = static_cast<uint8_t*>(data) + (i * bits >> 3);
  const int shift = int(i * bits & 7);
  const unsigned mask = ((1u << bits) - 1) << shift;
  value = (value << shift) & mask;
  bytes[0] = uint8_t((bytes[0] & ~mask) | value);
  if (shift + bits > 8) bytes[1] = uint8_t((bytes[1] & ~(mask >> 8)) | (value >> 8));
}

int64_t small_integer(const DTypeInfo& type, const void* data, int64_t i) {
  const int64_t value = field(data, i, type.bits);
  return type.is_signed && value >> (type.bits - 1) ? value - (int64_t(1) << type.bits) : value;
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
    case DType::kU64:
      return double(at<uint64_t>(data, i));
    default:
      if (is_float(dtype)) return decode_small(dtype, field(data, i, info(dtype).bits));
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
    case DType::kNone:
      return 0;
    default:
      if (!is_float(dtype)) return small_integer(info(dtype), data, i);
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
    case DType::kNone:
      return;
    default: {
      const DTypeInfo& type = info(dtype);
      if (type.is_float) return set_field(data, i, type.bits, encode_small(dtype, value));
      const double least = type.is_signed ? -type.largest - 1 : 0;
      set_field(data, i, type.bits, unsigned(int(std::clamp(std::isnan(value) ? 0 : value, least, type.largest))));
      return;
    }
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
    case DType::kI2:
    case DType::kU2:
      set_field(data, i, info(dtype).bits, unsigned(value & 15));
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
