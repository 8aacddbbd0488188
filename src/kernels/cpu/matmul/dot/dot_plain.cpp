// The tile of u8 x s8 for levels without integer dot products: the scalar baseline, and NEON. Four multiply-adds a
// group of four bytes, on vectors of four that any compiler has an instruction for, or takes apart.
#include "kernels/cpu/matmul/dot/dot_plain.h"

#include <cstring>

namespace ridgeline::cpu {
namespace {

using Unsigned = uint32_t __attribute__((vector_size(16)));  // sums are exact modulo 2^32: they wrap
using Signed = int32_t __attribute__((vector_size(16)));

constexpr int kStepBytes = kDotColumns * 4;
constexpr int kRows = 4;

// Eight columns at a time: 2 MR sums and two of B in 16 registers (32 on ARM).
template <int MR>
void tile(const DotRows& from, const uint8_t* b, void* sums) {
  for (int part = 0; part < kStepBytes; part += 32) {
    const uint8_t* at = b + part;
    Unsigned acc[MR][2] = {};
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t step = 0; step < from.blocks * 16; ++step, at += kStepBytes) {
        Unsigned w[2];
        std::memcpy(w, at, sizeof w);
#pragma GCC unroll 4
        for (int byte = 0; byte < 4; ++byte) {
          const int up = 24 - 8 * byte;
          const Unsigned w0 = Unsigned(Signed(w[0] << up) >> 24), w1 = Unsigned(Signed(w[1] << up) >> 24);
#pragma GCC unroll 4
          for (int r = 0; r < MR; ++r) {
            const uint32_t x = a[r * from.pitch + step * 4 + byte];
            acc[r][0] += w0 * x;
            acc[r][1] += w1 * x;
          }
        }
      }
    }
    for (int r = 0; r < MR; ++r) std::memcpy(static_cast<char*>(sums) + r * kStepBytes + part, acc[r], sizeof acc[r]);
  }
}

void any_rows(const DotRows& a, const uint8_t* panel, int rows, void* sums) {
  switch (rows) {
    case 1:
      return tile<1>(a, panel, sums);
    case 2:
      return tile<2>(a, panel, sums);
    case 3:
      return tile<3>(a, panel, sums);
    default:
      return tile<kRows>(a, panel, sums);
  }
}

constexpr DotKernels kNone;
constexpr DotKernels kPlain{"plain", kRows, any_rows};

}  // namespace

const DotKernels& dot_plain_kernels(DotType type) { return type == DotType::kU8S8 ? kPlain : kNone; }

}  // namespace ridgeline::cpu
