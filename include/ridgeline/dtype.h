// Element types: one table row each. Adding one is one row in src/core/dtype.cpp and its codec.
#pragma once

#include <cstdint>
#include <string_view>

namespace ridgeline {

enum class DType : uint8_t {
  kNone,
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  kI4,
  kU4,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kF8E8M0,
  kF4E2M1,
  kF6E2M3,
  kF6E3M2,
  kI2,
  kU2,
};
inline constexpr int kDTypeCount = 26;

struct DTypeInfo {
  DType dtype;
  std::string_view name;  // f32, bf16, i64, ...
  int bits;               // storage of one element
  bool is_float;
  bool is_signed;
  DType accumulator;  // what sums of this type are kept in
  double epsilon;     // floats: distance from 1 to the next number (unit roundoff times two); else 0
  double largest;     // largest finite value
  int onnx_id;        // TensorProto.DataType, 0 if the standard has none
};

const DTypeInfo& info(DType dtype);
inline std::string_view name(DType dtype) { return info(dtype).name; }
inline bool is_float(DType dtype) { return info(dtype).is_float; }
inline bool is_integer(DType dtype) { return dtype != DType::kNone && dtype != DType::kBool && !info(dtype).is_float; }
/// u8 or i8: what quantized tensors are stored in.
inline bool is_byte(DType dtype) { return dtype == DType::kU8 || dtype == DType::kI8; }

/// Bytes that `elements` contiguous elements take. Those below a byte are one stream of bits, the lowest first: two of
/// 4 bits a byte, low nibble first; four of 2 bits a byte; four of 6 bits in three bytes.
inline int64_t bytes_of(DType dtype, int64_t elements) { return (elements * info(dtype).bits + 7) / 8; }

/// kNone if there is no such name or id.
DType dtype_named(std::string_view name);
DType dtype_of_onnx(int onnx_id);

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<int8_t>() {
  return DType::kI8;
}
template <>
constexpr DType dtype_of<int16_t>() {
  return DType::kI16;
}
template <>
constexpr DType dtype_of<int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<uint16_t>() {
  return DType::kU16;
}
template <>
constexpr DType dtype_of<uint32_t>() {
  return DType::kU32;
}
template <>
constexpr DType dtype_of<uint64_t>() {
  return DType::kU64;
}
template <>
constexpr DType dtype_of<bool>() {
  return DType::kBool;
}

/// One element, read as double (exact for all but 64-bit integers above 2^53) or as int64 (u64 keeps its bits).
double load_f64(DType dtype, const void* data, int64_t index);
int64_t load_i64(DType dtype, const void* data, int64_t index);
/// Stores rounded to nearest even; integers saturate from double, wrap from int64. What is too large for a float
/// becomes infinity, NaN where it has none, and its largest number where it has neither (f4, f6) or stands for a scale
/// (e8m0, which rounds up).
void store_f64(DType dtype, void* data, int64_t index, double value);
void store_i64(DType dtype, void* data, int64_t index, int64_t value);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);  // round to nearest even
inline float bf16_to_f32(uint16_t bits) { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
uint16_t f32_to_bf16(float value);  // round to nearest even

}  // namespace ridgeline
