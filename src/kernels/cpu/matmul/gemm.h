// The contraction engine of the CPU, f32: C[m,n] = epilogue(sum over k of A[m,k] B[k,n]), with batches. It serves
// matmul and attention. Nothing here allocates; the caller gives the workspace.
//
// Panels: B is packed as [ceil(n / w)][k][w] floats, w = panel_width() columns (two vectors of the active ISA), missing
// columns zero. One panel is one sequential stream, which is also what a matrix-vector product wants.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "core/thread_pool.h"

namespace ridgeline::cpu {

// ---- packing of B

/// Columns of a panel: 32 with AVX-512, 16 with AVX2. Depends on active_isa() alone.
int panel_width();
int64_t packed_b_floats(int64_t k, int64_t n);
/// Packs columns [first, last) of B (element (i, j) at b[i * stride_k + j * stride_n], times `scale`) into the whole
/// packed buffer at `packed` (64-byte aligned). `first` must be a multiple of panel_width().
void pack_b(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n, float* packed, float scale,
            int64_t first, int64_t last);
inline void pack_b(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n, float* packed) {
  pack_b(b, stride_k, stride_n, k, n, packed, 1.0f, 0, n);
}

// ---- the problem

/// A: rows `row_stride` floats apart, elements of a row `k_stride` apart (1: used in place).
struct MatrixA {
  const float* data = nullptr;
  int64_t row_stride = 0, k_stride = 1;
};

/// B: packed ahead, or strided and packed by each call (or used in place when that is cheaper).
struct MatrixB {
  const float* packed = nullptr;
  const float* data = nullptr;
  int64_t stride_k = 0, stride_n = 1;
};

/// A finished block of C, still in cache.
struct OutputBlock {
  float* c;  // its first element
  int64_t ldc;
  int64_t batch, row, col, rows, cols;  // where it lies; `batch` is the flattened batch index
  int thread;                           // < ThreadPool::threads()
};
using OutputHook = void (*)(const void* context, const OutputBlock& block);

/// What happens to C before it leaves the registers, in this order: * alpha, + bias[col], + residual, clamp. Then,
/// while it is in cache, the hook. NaN passes the clamp.
struct GemmEpilogue {
  float alpha = 1.0f;
  const float* bias = nullptr;      // [n]
  const float* residual = nullptr;  // [m,n]; may be C itself
  int64_t residual_stride = 0;      // between rows, in floats
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  OutputHook hook = nullptr;
  const void* context = nullptr;
};

/// One axis of the batch: how far each operand moves a step (0: broadcast), in floats (for a packed B those of its
/// packed form).
struct BatchAxis {
  int64_t extent = 1, a = 0, b = 0, c = 0, bias = 0, residual = 0;
};
inline constexpr int kMaxBatchAxes = 6;

/// What a block holds at most, where a measurement or a user says so; 0: by the rule (blocking.cpp).
struct GemmTile {
  int64_t rows = 0, cols = 0, k = 0;
};

struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  GemmTile tile;
  int64_t parts_k = 1;  // over 1: so many parts of k are summed apart, then added in order (wants workspace)
  MatrixA a;
  MatrixB b;
  float* c = nullptr;
  int64_t ldc = 0;  // between rows of C, in floats
  GemmEpilogue epilogue;
  int batch_axes = 0;
  std::array<BatchAxis, kMaxBatchAxes> batch{};  // outermost first
};

/// Bytes of workspace that `gemm` wants for this problem (pointers are not looked at, except which of them are set).
int64_t gemm_workspace_bytes(const Gemm& problem, int threads);
/// `workspace` is 64-byte aligned and may be null if 0 bytes are wanted.
void gemm(const Gemm& problem, void* workspace, const ThreadPool& pool);

/// y[m,n] for m of 1 to kMaxMatvecRows with packed B: walks each panel once, as one stream a thread. A's k_stride must
/// be 1. Wants workspace only where k is split.
inline constexpr int64_t kMaxMatvecRows = 4;
int64_t matvec_workspace_bytes(const Gemm& problem, int threads);
void matvec(const Gemm& problem, void* workspace, const ThreadPool& pool);

}  // namespace ridgeline::cpu
