// The inner loops of LowBitMatMul. Plain pointers only: this is included by per-target code.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// A panel's scales as the tiles want them: [chunks][32], w = scale * (level - offset) - low.
struct LowScales {
  const float* scale = nullptr;
  const float* low = nullptr;  // null: 0 throughout
};

/// What stands behind a panel's scales, each [groups][32] in its panel; null where absent.
struct LowSources {
  const void *scale = nullptr, *zero = nullptr, *min = nullptr, *super_scale = nullptr, *super_min = nullptr;
  int scale_bytes = 4, min_bytes = 4, super_scale_bytes = 4, super_min_bytes = 4;  // f32, f16, or u8
  int64_t groups = 1, super_groups = 1, super_min_groups = 1;
  int64_t repeat = 1;  // chunks a group
};
void low_scales(const LowSources& from, float* scale, float* low);
/// How they can be used as they stand; kSuper: u8 by f16, scale and low; kConverted: not, low_scales first.
enum class LowScaleForm : uint8_t { kF32, kF16, kF32Low, kSuper, kConverted };
LowScaleForm low_form(const LowSources& from);

/// Rows of activations in f32 (from f32, f16 or bf16).
void low_widen(const void* a, int64_t n, int kind, float* to);  // kind: 0 f32, 1 f16, 2 bf16
/// One row, quantized in blocks: levels, and for each chunk: scale, scale * sum of levels, -offset * sum of levels.
void low_quantize(const float* a, int64_t k, int64_t block, int64_t chunk, int offset, int8_t* levels, float* scale,
                  float* weighted, int32_t* start);

/// sums[rows][32] = A (f32) times a panel.
struct LowTile {
  const float* a = nullptr;
  int64_t a_pitch = 0;  // floats
  const uint8_t* w = nullptr;
  LowScales scales;
  int64_t chunks = 0, chunk = 0;
  int bits = 0;
  int kind = 0;  // of 16 bits: 1 f16, 2 bf16
  int offset = 0;
  float* sums = nullptr;
};
inline constexpr int kLowRows = 6, kLowRows16 = 8;  // at most; of 16-bit weights
void low_tile_f32(const LowTile& tile, int rows);
/// Two panels of 16-bit weights for up to kLowPairRows rows; `other` tells w and sums.
inline constexpr int kLowPairRows = 3;
void low_pair_f32(const LowTile& tile, const LowTile& other, int rows);

/// The same with quantized activations. Each row has its levels, scales, weighted sums and starts, `chunk_pitch` apart.
struct LowDotTile {
  const int8_t* a = nullptr;
  int64_t a_pitch = 0;
  const float *scale = nullptr, *weighted = nullptr;
  const int32_t* start = nullptr;
  int64_t chunk_pitch = 0;
  bool one_scale = false;  // of a row
  const uint8_t* w = nullptr;
  LowScales scales;
  int64_t chunks = 0, chunk = 0;
  int bits = 0;
  float* sums = nullptr;
};
struct LowDotKernels {
  int rows = 0;      // of the largest tile
  bool few = false;  // by low_few_tile, `tile` is null
  void (*tile)(const LowDotTile& tile, int rows) = nullptr;
};
LowDotKernels low_dot_kernels();

/// The same on VNNI. Up to kLowFewPairs rows take two panels at once (both the same: one alone), more the first.
struct LowFewTile {
  const int8_t* a = nullptr;
  int64_t a_pitch = 0;
  const float *scale = nullptr, *weighted = nullptr;  // of the rows, `chunk_pitch` apart, as in LowDotTile
  const int32_t* start = nullptr;
  int64_t chunk_pitch = 0;
  bool one_scale = false;
  LowScaleForm form = LowScaleForm::kF32;
  int64_t within = 1;  // chunks of one wider scale
  struct Panel {
    const uint8_t* w = nullptr;
    const void *scale = nullptr, *low = nullptr;  // [chunks][32]
    const void *super_scale = nullptr, *super_low = nullptr;
    float* sums = nullptr;
  };
  Panel panels[2];
  int64_t chunks = 0, chunk = 0;
  int bits = 0;
};
inline constexpr int kLowFewRows = 8, kLowFewPairs = 6;
void low_few_tile(const LowFewTile& tile, int rows);

/// The same for more rows, all MR of a tile together: a [k / 4][MR][4], the others [chunks][MR]; w one level a byte.
struct LowPackedTile {
  const int8_t* a = nullptr;
  const float *scale = nullptr, *weighted = nullptr;
  const int32_t* start = nullptr;
  bool one_scale = false;
  const uint8_t* w = nullptr;
  LowScales scales;
  int64_t chunks = 0, chunk = 0;
  float* sums = nullptr;          // [MR][32]
  const uint8_t* next = nullptr;  // fetched meanwhile, with each 32 (or 4) of k
  int next_lines = 0;
};
/// MR for m rows in all; 0: not by these tiles.
int low_packed_rows(int64_t m, int64_t chunks);
void low_packed_tile(const LowPackedTile& tile, int rows);
/// from [rows][pitch] to [k / 4][rows][4]; k a multiple of 4.
void low_interleave(const int8_t* from, int64_t pitch, int64_t rows, int64_t k, int8_t* to);
/// Levels of k (a multiple of 8) of a panel less their offset (8 bits: 128), one a byte, [k / 4][32][4].
void low_signed_levels(const uint8_t* panel, int64_t k, int bits, int offset, int8_t* to);

}  // namespace ridgeline::cpu
