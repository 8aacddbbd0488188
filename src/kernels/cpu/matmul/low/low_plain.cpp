// LowBitMatMul's tile with quantized activations for levels without integer dot products: the scalar baseline, and
// NEON.
#include "kernels/cpu/matmul/low/low_plain.h"

#include <cstring>

namespace ridgeline::cpu {
namespace {

using Unsigned = uint32_t __attribute__((vector_size(16)));  // a chunk's sum is exact modulo 2^32, and fits
using Signed = int32_t __attribute__((vector_size(16)));
using Float = float __attribute__((vector_size(16)));

constexpr int kColumns = 32, kLanes = 4, kRows = 4;
constexpr int64_t kStepBytes = kColumns * 4;

template <class V>
V load(const void* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

// Four columns at a time. Eight bits: a step is four of k; four: eight, the low halves first.
template <int MR, int kBits>
void tile(const LowDotTile& t) {
  for (int column = 0; column < kColumns; column += kLanes) {
    const uint8_t* w = t.w + column * 4;
    const int8_t* a = t.a;
    Float total[MR] = {};
    for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
      Unsigned acc[MR];
      for (int r = 0; r < MR; ++r) acc[r] = Unsigned{} + uint32_t(t.start[r * t.chunk_pitch + chunk]);
      for (int64_t k = 0; k < t.chunk; k += 32 / kBits, w += kStepBytes, a += 32 / kBits) {
        const Unsigned all = load<Unsigned>(w);
#pragma GCC unroll 8
        for (int i = 0; i < 32 / kBits; ++i) {
          const int up = kBits == 8 ? 8 * i : i < 4 ? 8 * i : 8 * i - 28;
          const Unsigned level = (all >> up) & ((1u << kBits) - 1);
#pragma GCC unroll 4
          for (int r = 0; r < MR; ++r) acc[r] += level * uint32_t(int32_t(a[r * t.a_pitch + i]));
        }
      }
      const Float scale = load<Float>(t.scales.scale + chunk * kColumns + column);
      for (int r = 0; r < MR; ++r) {
        total[r] += __builtin_convertvector(Signed(acc[r]), Float) * (scale * t.scale[r * t.chunk_pitch + chunk]);
        if (t.scales.low)
          total[r] -= load<Float>(t.scales.low + chunk * kColumns + column) * t.weighted[r * t.chunk_pitch + chunk];
      }
    }
    for (int r = 0; r < MR; ++r) std::memcpy(t.sums + r * kColumns + column, &total[r], sizeof total[r]);
  }
}

template <int MR>
void any_bits(const LowDotTile& t) {
  t.bits == 8 ? tile<MR, 8>(t) : tile<MR, 4>(t);
}

void any_rows(const LowDotTile& t, int rows) {
  static constexpr void (*kTable[])(const LowDotTile&) = {any_bits<1>, any_bits<2>, any_bits<3>, any_bits<kRows>};
  kTable[rows - 1](t);
}

}  // namespace

LowDotKernels low_plain_kernels() { return {kRows, false, any_rows}; }

}  // namespace ridgeline::cpu
