// Tiles of narrow products: groups of four bytes (four u8 x s8, or two bf16) are multiplied and added into 32-bit sums.
//
// B stands in panels of 32 columns, [step][32][4 bytes]; a step is one group. Four-byte groups are what VNNI and
// AVX512-BF16 take as a lane and AMX as a tile's column, so one packing serves them all. Steps come in blocks of 16 (64
// bytes of k, a tile's row), the missing ones zero; A's rows are padded alike.
#pragma once

#include <cstdint>
#include <string_view>

namespace ridgeline::cpu {

enum class DotType : uint8_t { kU8S8, kBf16 };  // sums in i32, exact modulo 2^32; sums in f32

inline constexpr int kDotColumns = 32;                                  // of a panel
inline constexpr int kDotBlock = 64;                                    // bytes of k that A and B are padded to
inline constexpr int kDotPanelBlock = kDotBlock / 4 * kDotColumns * 4;  // bytes of a panel for one block of k
inline constexpr int kMostDotRows = 32;                                 // of a tile
inline constexpr int64_t kDotNoOffset = 0;

/// Rows of A: row r's k are `taps` runs of `blocks` blocks, run t at data + r * pitch + offsets[t] (bytes). A matrix
/// has one run, a convolution one a tap.
struct DotRows {
  const uint8_t* data = nullptr;
  int64_t pitch = 0;
  int64_t blocks = 0;
  int64_t taps = 1;
  const int64_t* offsets = &kDotNoOffset;
};

/// sums[r][32] (4 bytes each, 128 bytes a row) = sum over all blocks of k of A's row r and B's panel, whose blocks
/// stand in the order of the runs.
using DotTile = void (*)(const DotRows& a, const uint8_t* panel, int rows, void* sums);

struct DotKernels {
  std::string_view isa;    // "amx", "avx512_vnni", ...
  int rows = 0;            // of the largest tile
  DotTile tile = nullptr;  // null: this machine has no such instructions
};

/// The machine's best for the type, as RIDGELINE_ISA allows, but for AMX (dot_pieces.h).
const DotKernels& dot_kernels(DotType type);

}  // namespace ridgeline::cpu
