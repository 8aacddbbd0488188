// Products without matrix instructions: every type, every stride. A tile of BM x BN in BK steps through shared memory,
// TM x TN sums a thread; the elements of the next step (of the next two where registers are left) are read while this
// one is multiplied. Few tiles and a long k: `split` blocks share k, and matmul_cores_sum adds what they leave.
//
// Given: Value (what is multiplied and summed), Sum (as what it goes into the epilogue), BM, BN, BK, TM, TN, BLOCKS (a
// multiprocessor); A_ALONG_K, B_ALONG_N: in which direction neighbouring threads read; ZERO_POINTS, SPLITS.

constexpr int kThreads = (BM / TM) * (BN / TN);
constexpr int kPad = 16 / sizeof(Value);
constexpr int kAPer = BM * BK / kThreads, kBPer = BN * BK / kThreads;
static_assert(BM * BK % kThreads == 0 && BN * BK % kThreads == 0, "whole elements a thread");
constexpr int kAChunk = TM < 4 ? TM : 4, kBChunk = TN < 4 ? TN : 4;

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }
template <typename T>
__device__ __forceinline__ T multiply_add(T a, T b, T c) {
  return T(a * b + c);
}

struct Tiles {
  Value a[BK][BM + kPad];
  Value b[BK][BN + kPad];
};

extern "C" __global__ void __launch_bounds__(kThreads, BLOCKS)
    matmul_cores(const __grid_constant__ Arguments p, Value* partial, u32 split) {
  __shared__ __align__(16) Tiles tiles[2];
  const int thread = threadIdx.x;
  const u32 rows = u32((p.m + BM - 1) / BM), columns = u32((p.n + BN - 1) / BN);
#if SPLITS
  const u32 block = blockIdx.x / split, part = blockIdx.x % split;
#else
  const u32 block = blockIdx.x;
#endif
  const i64 batch = block / (i64(rows) * columns);
  u32 tile_row, tile_column;
  place_of_tile(u32(block - batch * rows * columns), rows, columns, 8, tile_row, tile_column);
  const i64 m0 = i64(tile_row) * BM, n0 = i64(tile_column) * BN;
  const BatchPlace place = place_of_batch(p, batch);

  // Element i of a thread: of A at (a_row + i * kARowStep, a_k + i * kAKStep), of B likewise.
  constexpr int kARowStep = A_ALONG_K ? kThreads / BK : 0, kAKStep = A_ALONG_K ? 0 : kThreads / BM;
  constexpr int kBColumnStep = B_ALONG_N ? 0 : kThreads / BK, kBKStep = B_ALONG_N ? kThreads / BN : 0;
  static_assert(A_ALONG_K ? kThreads % BK == 0 : kThreads % BM == 0, "a thread keeps its row or its k");
  static_assert(B_ALONG_N ? kThreads % BN == 0 : kThreads % BK == 0, "a thread keeps its column or its k");
  const int a_row = A_ALONG_K ? thread / BK : thread % BM, a_k = A_ALONG_K ? thread % BK : thread / BM;
  const int b_column = B_ALONG_N ? thread % BN : thread / BK, b_k = B_ALONG_N ? thread / BN : thread % BK;
  i64 first = 0, end = (p.k + BK - 1) / BK;  // steps
#if SPLITS
  first = end * part / split;
  end = end * (part + 1) / split;
#endif
  const AType* a = (const AType*)p.a.address + place.a + (m0 + a_row) * p.a.row + (first * BK + a_k) * p.a.column;
  const BType* b = (const BType*)p.b.address + place.b + (first * BK + b_k) * p.b.row + (n0 + b_column) * p.b.column;
  const i64 a_step = kARowStep * p.a.row + kAKStep * p.a.column;
  const i64 b_step = kBColumnStep * p.b.column + kBKStep * p.b.row;

#if ZERO_POINTS
  Value a_zero[kAPer], b_zero[kBPer];
#pragma unroll
  for (int i = 0; i < kAPer; ++i) {
    const i64 row = m0 + a_row + i * kARowStep;
    a_zero[i] = p.a_zero.address && row < p.m ? Value(((const AType*)p.a_zero.address)[row * p.a_zero.row]) : Value(0);
  }
#pragma unroll
  for (int i = 0; i < kBPer; ++i) {
    const i64 column = n0 + b_column + i * kBColumnStep;
    b_zero[i] =
        p.b_zero.address && column < p.n ? Value(((const BType*)p.b_zero.address)[column * p.b_zero.column]) : Value(0);
  }
#endif

  const auto load = [&](i64 k0, Value(&next_a)[kAPer], Value(&next_b)[kBPer]) {
#pragma unroll
    for (int i = 0; i < kAPer; ++i) {
      const bool inside = m0 + a_row + i * kARowStep < p.m && k0 + a_k + i * kAKStep < p.k;
      next_a[i] = Value(0);
      if (inside) next_a[i] = Value(load_value(a[i * a_step]));
#if ZERO_POINTS
      if (inside) next_a[i] -= a_zero[i];
#endif
    }
#pragma unroll
    for (int i = 0; i < kBPer; ++i) {
      const bool inside = n0 + b_column + i * kBColumnStep < p.n && k0 + b_k + i * kBKStep < p.k;
      next_b[i] = Value(0);
      if (inside) next_b[i] = Value(load_value(b[i * b_step]));
#if ZERO_POINTS
      if (inside) next_b[i] -= b_zero[i];
#endif
    }
    a += BK * p.a.column;
    b += BK * p.b.row;
  };
  const auto put = [&](Tiles& to, const Value(&next_a)[kAPer], const Value(&next_b)[kBPer]) {
#pragma unroll
    for (int i = 0; i < kAPer; ++i) to.a[a_k + i * kAKStep][a_row + i * kARowStep] = next_a[i];
#pragma unroll
    for (int i = 0; i < kBPer; ++i) to.b[b_k + i * kBKStep][b_column + i * kBColumnStep] = next_b[i];
  };

  // A thread's rows lie in chunks of four, BM / (chunks) apart: neighbours read neighbouring words of shared memory.
  const int tx = thread % (BN / TN), ty = thread / (BN / TN);
  Value sum[TM][TN];
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) sum[i][j] = Value(0);

  const auto multiply_step = [&](const Tiles& from) {
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      Value x[TM], y[TN];
#pragma unroll
      for (int i = 0; i < TM; i += kAChunk) {
        const auto v = *reinterpret_cast<const Pack<Value, kAChunk>*>(&from.a[k][ty * kAChunk + i * (BM / TM)]);
#pragma unroll
        for (int c = 0; c < kAChunk; ++c) x[i + c] = v.at[c];
      }
#pragma unroll
      for (int j = 0; j < TN; j += kBChunk) {
        const auto v = *reinterpret_cast<const Pack<Value, kBChunk>*>(&from.b[k][tx * kBChunk + j * (BN / TN)]);
#pragma unroll
        for (int c = 0; c < kBChunk; ++c) y[j + c] = v.at[c];
      }
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = multiply_add(x[i], y[j], sum[i][j]);
    }
  };

  Value a0[kAPer], b0[kBPer];
  if (first < end) {
    load(first * BK, a0, b0);
    put(tiles[0], a0, b0);
  }
  __syncthreads();
  // The other half of the buffer was read by everybody before the last barrier.
#if DEEP
  Value a1[kAPer], b1[kBPer];
  if (first + 1 < end) load((first + 1) * BK, a0, b0);
  const auto step_once = [&](i64 step, Value(&a_here)[kAPer], Value(&b_here)[kBPer], Value(&a_then)[kAPer],
                             Value(&b_then)[kBPer]) {
    if (step + 2 < end) load((step + 2) * BK, a_then, b_then);
    multiply_step(tiles[(step - first) & 1]);
    if (step + 1 < end) put(tiles[(step + 1 - first) & 1], a_here, b_here);
    __syncthreads();
  };
  for (i64 step = first; step < end; step += 2) {
    step_once(step, a0, b0, a1, b1);
    if (step + 1 < end) step_once(step + 1, a1, b1, a0, b0);
  }
#else
  for (i64 step = first; step < end; ++step) {
    if (step + 1 < end) load((step + 1) * BK, a0, b0);
    multiply_step(tiles[(step - first) & 1]);
    if (step + 1 < end) put(tiles[(step + 1 - first) & 1], a0, b0);
    __syncthreads();
  }
#endif

#if SPLITS
  Value* const mine = partial + (i64(part) * (gridDim.x / split / (i64(rows) * columns)) + batch) * p.m * p.n;
#pragma unroll
  for (int i = 0; i < TM; ++i)
#pragma unroll
    for (int j = 0; j < TN; ++j) {
      const i64 row = m0 + ty * kAChunk + (i / kAChunk) * (kAChunk * (BM / TM)) + i % kAChunk;
      const i64 column = n0 + tx * kBChunk + (j / kBChunk) * (kBChunk * (BN / TN)) + j % kBChunk;
      if (row < p.m && column < p.n) mine[row * p.n + column] = sum[i][j];
    }
#else
  const Epilogue e = epilogue_at(p, place);
  OutputType* const out = (OutputType*)p.y.address + place.y;
  constexpr int kBytes = sizeof(OutputType) * kBChunk, kWord = kBytes < 16 ? kBytes : 16;
  const bool words = p.y.column == 1 && u64(out) % kWord == 0 && p.y.row * sizeof(OutputType) % kWord == 0;
  // The loop stays a loop: unrolled, a program with erf stands in the code TM x TN times. Its sums are always the
  // first.
#pragma unroll 1
  for (int i = 0; i < TM; ++i) {
    const i64 row = m0 + ty * kAChunk + (i / kAChunk) * (kAChunk * (BM / TM)) + i % kAChunk;
    if (row < p.m) {
#pragma unroll
      for (int j = 0; j < TN; j += kBChunk) {
        const i64 column = n0 + tx * kBChunk + j * (BN / TN);
        OutputType* const to = out + row * p.y.row + column * p.y.column;
        Pack<OutputType, kBChunk> v;
#pragma unroll
        for (int c = 0; c < kBChunk; ++c)
          if (column + c < p.n) v.at[c] = store_value<OutputType>(epilogue(Sum(sum[0][j + c]), e, row, column + c));
        if (column + kBChunk <= p.n && words) {
          store_pack(to, true, v);
        } else {
#pragma unroll
          for (int c = 0; c < kBChunk; ++c)
            if (column + c < p.n) to[c * p.y.column] = v.at[c];
        }
      }
    }
#pragma unroll
    for (int r = 0; r + 1 < TM; ++r)
#pragma unroll
      for (int j = 0; j < TN; ++j) sum[r][j] = sum[r + 1][j];
  }
#endif
}

#if SPLITS
// An element a thread: the parts' sums in their order, and the epilogue.
extern "C" __global__ void __launch_bounds__(256)
    matmul_cores_sum(const __grid_constant__ Arguments p, const Value* partial, u32 split, u64 count) {
  const u64 at = u64(blockIdx.x) * 256 + threadIdx.x;
  if (at >= count) return;
  Value sum = partial[at];
  for (u32 s = 1; s < split; ++s) sum += partial[s * count + at];
  const i64 matrix = p.m * p.n, batch = i64(at) / matrix, rest = i64(at) - batch * matrix;
  const i64 row = rest / p.n, column = rest - row * p.n;
  const BatchPlace place = place_of_batch(p, batch);
  const Epilogue e = epilogue_at(p, place);
  ((OutputType*)p.y.address + place.y)[row * p.y.row + column * p.y.column] =
      store_value<OutputType>(epilogue(Sum(sum), e, row, column));
}
#endif
