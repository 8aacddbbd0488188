// The tiles on x86: AVX2, AVX-VNNI, AVX-512 with VNNI or BF16, AMX. Each function is compiled for its own instruction
// set and is reached only where the CPU has it. Source of the instructions: Intel 64 and IA-32 manual, volume 2.
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/simd.h"
#include "machine/probe.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

constexpr int kStepBytes = kDotColumns * 4;

// ---- AVX-512

#define RIDGELINE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define RIDGELINE_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// 14 rows x 2 vectors: 28 sums, two of B, one of A in 32 registers.
template <int MR>
RIDGELINE_VNNI void tile_vnni(const DotRows& from, const uint8_t* b, void* sums) {
  __m512i acc[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint8_t* a = from.data + from.offsets[t];
    for (int64_t step = 0; step < from.blocks * 16; ++step, b += kStepBytes) {
      const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        int32_t four;
        __builtin_memcpy(&four, a + r * from.pitch + step * 4, 4);
        const __m512i x = _mm512_set1_epi32(four);
        acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], x, b0);
        acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_si512(static_cast<char*>(sums) + r * kStepBytes, acc[r][0]);
    _mm512_storeu_si512(static_cast<char*>(sums) + r * kStepBytes + 64, acc[r][1]);
  }
}

template <int MR>
RIDGELINE_BF16 void tile_bf16(const DotRows& from, const uint8_t* b, void* sums) {
  __m512 acc[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint8_t* a = from.data + from.offsets[t];
    for (int64_t step = 0; step < from.blocks * 16; ++step, b += kStepBytes) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 64);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        int32_t two;
        __builtin_memcpy(&two, a + r * from.pitch + step * 4, 4);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_ps(static_cast<float*>(sums) + r * kDotColumns, acc[r][0]);
    _mm512_storeu_ps(static_cast<float*>(sums) + r * kDotColumns + 16, acc[r][1]);
  }
}

// ---- AVX2

#define RIDGELINE_AVX2 __attribute__((target("avx2,fma")))

// u8 x s8 into i16 saturates above 7 bits, so A is cut into its low seven bits and its top one; exact on every value.
template <int MR>
RIDGELINE_AVX2 void tile_maddubs(const DotRows& from, const uint8_t* b, void* sums) {
  const __m256i ones = _mm256_set1_epi16(1), high_weight = _mm256_set1_epi16(128), low_bits = _mm256_set1_epi8(0x7f);
  for (int part = 0; part < 4; ++part) {  // 8 columns at a time
    const uint8_t* at = b + part * 32;
    __m256i acc[MR];
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = _mm256_setzero_si256();
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t step = 0; step < from.blocks * 16; ++step, at += kStepBytes) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r) {
          int32_t four;
          __builtin_memcpy(&four, a + r * from.pitch + step * 4, 4);
          const __m256i x = _mm256_set1_epi32(four);
          const __m256i low = _mm256_and_si256(x, low_bits);
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 7), _mm256_set1_epi8(1));
          acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(low, w), ones));
          acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(high, w), high_weight));
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(sums) + r * kStepBytes + part * 32), acc[r]);
  }
}

// bf16 is the upper half of f32: the pair's first number is shifted up, the second masked; two FMAs a group.
template <int MR>
RIDGELINE_AVX2 void tile_bf16_fma(const DotRows& from, const uint8_t* b, void* sums) {
  const __m256i upper = _mm256_set1_epi32(int(0xffff0000));
  for (int part = 0; part < 4; ++part) {
    const uint8_t* at = b + part * 32;
    __m256 acc[MR];
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = _mm256_setzero_ps();
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t step = 0; step < from.blocks * 16; ++step, at += kStepBytes) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        const __m256 w0 = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)),
                     w1 = _mm256_castsi256_ps(_mm256_and_si256(w, upper));
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r) {
          uint32_t two;
          __builtin_memcpy(&two, a + r * from.pitch + step * 4, 4);
          acc[r] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32(int(two << 16))), w0, acc[r]);
          acc[r] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32(int(two & 0xffff0000u))), w1, acc[r]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) _mm256_storeu_ps(static_cast<float*>(sums) + r * kDotColumns + part * 8, acc[r]);
  }
}

// ---- one entry for all numbers of rows

using Rows = void (*)(const DotRows&, const uint8_t*, void*);

template <Rows (*kOf)(int)>
void any_rows(const DotRows& a, const uint8_t* panel, int rows, void* sums) {
  kOf(rows)(a, panel, sums);
}

Rows vnni_of(int rows) {
  static constexpr Rows kTable[] = {tile_vnni<1>,  tile_vnni<1>,  tile_vnni<2>,  tile_vnni<3>,  tile_vnni<4>,
                                    tile_vnni<5>,  tile_vnni<6>,  tile_vnni<7>,  tile_vnni<8>,  tile_vnni<9>,
                                    tile_vnni<10>, tile_vnni<11>, tile_vnni<12>, tile_vnni<13>, tile_vnni<14>};
  return kTable[rows];
}
Rows bf16_of(int rows) {
  static constexpr Rows kTable[] = {tile_bf16<1>,  tile_bf16<1>,  tile_bf16<2>,  tile_bf16<3>,  tile_bf16<4>,
                                    tile_bf16<5>,  tile_bf16<6>,  tile_bf16<7>,  tile_bf16<8>,  tile_bf16<9>,
                                    tile_bf16<10>, tile_bf16<11>, tile_bf16<12>, tile_bf16<13>, tile_bf16<14>};
  return kTable[rows];
}
Rows maddubs_of(int rows) {
  static constexpr Rows kTable[] = {tile_maddubs<1>, tile_maddubs<1>, tile_maddubs<2>, tile_maddubs<3>,
                                    tile_maddubs<4>, tile_maddubs<5>, tile_maddubs<6>};
  return kTable[rows];
}
Rows bf16_fma_of(int rows) {
  static constexpr Rows kTable[] = {tile_bf16_fma<1>, tile_bf16_fma<1>, tile_bf16_fma<2>, tile_bf16_fma<3>,
                                    tile_bf16_fma<4>, tile_bf16_fma<5>, tile_bf16_fma<6>};
  return kTable[rows];
}

// ---- AMX: tiles of 16 rows by 64 bytes; 0 to 3 are the sums of 32 x 32, 4 and 5 rows of A, 6 and 7 columns of B.

#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Not on the stack: GCC's intrinsic tells the compiler of its first eight bytes alone, and the stores of the others
// went away.
constexpr TileConfig kTileConfig;
RIDGELINE_AMX void enter_amx() { _tile_loadconfig(&kTileConfig); }
RIDGELINE_AMX void leave_amx() { _tile_release(); }

template <DotType kType>
RIDGELINE_AMX void tile_amx(const DotRows& from, const uint8_t* b, int rows, void* sums) {
  const size_t pitch = size_t(from.pitch);
  _tile_zero(0);
  _tile_zero(1);
  if (rows <= 16) {
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t block = 0; block < from.blocks; ++block, a += kDotBlock, b += kDotPanelBlock) {
        _tile_loadd(4, a, pitch);
        _tile_loadd(6, b, kStepBytes);
        _tile_loadd(7, b + 64, kStepBytes);
        if constexpr (kType == DotType::kU8S8) {
          _tile_dpbusd(0, 4, 6);
          _tile_dpbusd(1, 4, 7);
        } else {
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
        }
      }
    }
  } else {
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t *a = from.data + from.offsets[t], *a2 = a + 16 * from.pitch;
      for (int64_t block = 0; block < from.blocks; ++block, a += kDotBlock, a2 += kDotBlock, b += kDotPanelBlock) {
        _tile_loadd(6, b, kStepBytes);
        _tile_loadd(4, a, pitch);
        _tile_loadd(7, b + 64, kStepBytes);
        _tile_loadd(5, a2, pitch);
        if constexpr (kType == DotType::kU8S8) {
          _tile_dpbusd(0, 4, 6);
          _tile_dpbusd(1, 4, 7);
          _tile_dpbusd(2, 5, 6);
          _tile_dpbusd(3, 5, 7);
        } else {
          _tile_dpbf16ps(0, 4, 6);
          _tile_dpbf16ps(1, 4, 7);
          _tile_dpbf16ps(2, 5, 6);
          _tile_dpbf16ps(3, 5, 7);
        }
      }
    }
    _tile_stored(2, static_cast<char*>(sums) + 16 * kStepBytes, kStepBytes);
    _tile_stored(3, static_cast<char*>(sums) + 16 * kStepBytes + 64, kStepBytes);
  }
  _tile_stored(0, sums, kStepBytes);
  _tile_stored(1, static_cast<char*>(sums) + 64, kStepBytes);
}

constexpr DotKernels kNone;
constexpr DotKernels kVnni{"avx512_vnni", 14, any_rows<vnni_of>};
constexpr DotKernels kBf16{"avx512_bf16", 14, any_rows<bf16_of>};
constexpr DotKernels kMaddubs{"avx2", 6, any_rows<maddubs_of>};
constexpr DotKernels kBf16Fma{"avx2", 6, any_rows<bf16_fma_of>};
constexpr DotKernels kAmxInt8{"amx_int8", 32, tile_amx<DotType::kU8S8>, enter_amx, leave_amx};
constexpr DotKernels kAmxBf16{"amx_bf16", 32, tile_amx<DotType::kBf16>, enter_amx, leave_amx};

}  // namespace

const DotKernels& dot_kernels(DotType type, bool want_amx) {
  if (active_isa() == Isa::kScalar) return kNone;
  const bool wide = active_isa() == Isa::kAvx512;
  if (type == DotType::kU8S8) {
    if (wide && want_amx && has_feature("amx_int8")) return kAmxInt8;
    return wide && has_feature("avx512_vnni") ? kVnni : kMaddubs;
  }
  if (wide && want_amx && has_feature("amx_bf16")) return kAmxBf16;
  return wide && has_feature("avx512_bf16") ? kBf16 : kBf16Fma;
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
const DotKernels& dot_kernels(DotType, bool) {
  static constexpr DotKernels kNone;
  return kNone;
}
}  // namespace ridgeline::cpu
#endif
