#include "kernels/cpu/matmul/dot/dot_pieces.h"

#include "kernels/cpu/features.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-int8,amx-bf16")))

constexpr int kRowBytes = kDotColumns * 4;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kTileConfig;  // static: GCC's intrinsic tells the compiler of its first eight bytes alone

template <DotPieceType kType>
RIDGELINE_AMX inline __attribute__((always_inline)) void multiply_first() {
  if constexpr (kType == DotPieceType::kU8S8) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
  } else if constexpr (kType == DotPieceType::kS8U8) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
  } else {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
}
template <DotPieceType kType>
RIDGELINE_AMX inline __attribute__((always_inline)) void multiply_second() {
  if constexpr (kType == DotPieceType::kU8S8) {
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  } else if constexpr (kType == DotPieceType::kS8U8) {
    _tile_dpbsud(2, 5, 6);
    _tile_dpbsud(3, 5, 7);
  } else {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <DotPieceType kType, bool kTwo, bool kKeepA>
RIDGELINE_AMX void tiles(const DotPiece& p) {
  const char* from = static_cast<const char*>(p.from);
  if (from) {
    _tile_loadd(0, from, kRowBytes);
    _tile_loadd(1, from + 64, kRowBytes);
    if constexpr (kTwo) {
      _tile_loadd(2, from + 16 * kRowBytes, kRowBytes);
      _tile_loadd(3, from + 16 * kRowBytes + 64, kRowBytes);
    }
  } else {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTwo) {
      _tile_zero(2);
      _tile_zero(3);
    }
  }
  const uint8_t *b = p.b, *next = p.next, *y = p.y;
  const int64_t pitch = p.a_pitch;
  int y_rows = p.y ? p.rows : 0;  // left
  const int y_step = p.y && p.blocks ? int((p.rows + p.blocks - 1) / p.blocks) : 0;
  for (int64_t block = 0; block < p.blocks; ++block, b += kDotPanelBlock) {
    const uint8_t* a = p.a + (p.offsets ? p.offsets[block] : block * 1024);
    if constexpr (kKeepA) {
      _tile_stream_loadd(6, b, kRowBytes);
      _tile_loadd(4, a, pitch);
      _tile_stream_loadd(7, b + 64, kRowBytes);
      if constexpr (kTwo) _tile_loadd(5, a + p.a_rows, pitch);
    } else {
      _tile_loadd(6, b, kRowBytes);
      _tile_stream_loadd(4, a, pitch);
      _tile_loadd(7, b + 64, kRowBytes);
      if constexpr (kTwo) _tile_stream_loadd(5, a + p.a_rows, pitch);
    }
    multiply_first<kType>();
    if constexpr (kTwo) multiply_second<kType>();
    for (int i = 0; i < p.next_lines && next < p.next_end; ++i, next += 64) __builtin_prefetch(next, 0, 2);
    for (int i = 0; i < y_step && y_rows > 0; ++i, --y_rows, y += p.y_row) {
      __builtin_prefetch(y, 1, 3);
      if (p.y_row_bytes > 64) __builtin_prefetch(y + 64, 1, 3);
    }
  }
  char* to = static_cast<char*>(p.to);
  _tile_stored(0, to, kRowBytes);
  _tile_stored(1, to + 64, kRowBytes);
  if constexpr (kTwo) {
    _tile_stored(2, to + 16 * kRowBytes, kRowBytes);
    _tile_stored(3, to + 16 * kRowBytes + 64, kRowBytes);
  }
}

template <DotPieceType kType>
void piece(const DotPiece& p) {
  if (p.keep_a)
    p.rows > 16 ? tiles<kType, true, true>(p) : tiles<kType, false, true>(p);
  else
    p.rows > 16 ? tiles<kType, true, false>(p) : tiles<kType, false, false>(p);
}

RIDGELINE_AMX void enter() { _tile_loadconfig(&kTileConfig); }
RIDGELINE_AMX void leave() {
  _tile_release();
  _mm_sfence();  // stores past the caches, before another thread is told
}

}  // namespace

DotPieceKernel dot_piece_kernel(DotPieceType type, const Cpu& cpu) {
  if (active_isa() != Isa::kAvx512) return nullptr;
  if (type == DotPieceType::kBf16) return allows(cpu, "amx_bf16") ? piece<DotPieceType::kBf16> : nullptr;
  if (!allows(cpu, "amx_int8")) return nullptr;
  return type == DotPieceType::kU8S8 ? piece<DotPieceType::kU8S8> : piece<DotPieceType::kS8U8>;
}
void dot_pieces_enter() { enter(); }
void dot_pieces_leave() { leave(); }

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
DotPieceKernel dot_piece_kernel(DotPieceType, const Cpu&) { return nullptr; }
void dot_pieces_enter() {}
void dot_pieces_leave() {}
}  // namespace ridgeline::cpu
#endif

namespace ridgeline::cpu {
DotPieceKernel dot_piece_kernel(DotPieceType type) { return dot_piece_kernel(type, this_cpu()); }
}  // namespace ridgeline::cpu
