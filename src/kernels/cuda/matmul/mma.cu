// Products on the matrix units of sm_80 and later: tiles of BM x BN, WARPS_M x WARPS_N warps, k in steps of 32 that
// asynchronous copies bring STAGES - 1 steps ahead. What does not lie in words of 16 bytes is copied element by
// element.
//
// Given: BM, BN, WARPS_M, WARPS_N, STAGES, A_ALONG_K, B_ALONG_K (the direction in which neighbours follow each other),
// EVEN_N, and `multiply` (mma.m16n8k16 of AType).
//
// Sources: PTX ISA 7.0, 9.7.13 (mma, ldmatrix and their fragments), 9.7.8.22 (cp.async).

constexpr int BK = 32;
constexpr int kThreads = WARPS_M * WARPS_N * 32;
constexpr int kABytes = BM * BK * 2, kBBytes = BN * BK * 2, kStageBytes = kABytes + kBBytes;
constexpr int kM = BM / WARPS_M / 16, kN = BN / WARPS_N / 16;  // blocks of 16 of a warp

// Where 8 elements lie in a stage, so that ldmatrix meets all banks. Along k: rows of 64 bytes. Else: rows of k.
template <int EXTENT, bool ALONG_K>
__device__ __forceinline__ u32 place_of(int across, int k) {
  if (ALONG_K) return u32(across * 64 + (((k >> 3) ^ ((across >> 1) & 3)) << 4));
  return u32(k * EXTENT * 2 + (((across >> 3) ^ (k & 7)) << 4));
}

__device__ __forceinline__ void copy_16(u32 to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void load_matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

// One operand's part of a stage: EXTENT rows or columns from `first`, 32 of k from k0.
template <int EXTENT, bool ALONG_K, typename T>
__device__ __forceinline__ void copy_stage(u32 to, const T* from, i64 across_stride, i64 k_stride, int first,
                                           int extent, int k0, int depth, bool words) {
  constexpr int kChunks = EXTENT * BK / 8;
  static_assert(kChunks % kThreads == 0, "whole chunks a thread");
#pragma unroll
  for (int i = 0; i < kChunks / kThreads; ++i) {
    const int chunk = i * kThreads + threadIdx.x;
    const int across = ALONG_K ? chunk / 4 : chunk % (EXTENT / 8) * 8;
    const int k = k0 + (ALONG_K ? chunk % 4 * 8 : chunk / (EXTENT / 8));
    const u32 at = to + place_of<EXTENT, ALONG_K>(across, k - k0);
    // Of eight neighbours, how many there are.
    const int left = ALONG_K ? (first + across < extent ? depth - k : 0) : (k < depth ? extent - (first + across) : 0);
    const int count = left < 0 ? 0 : left > 8 ? 8 : left;
    const T* const p = from + (first + across) * across_stride + k * k_stride;
    if (words) {
      copy_16(at, count > 0 ? p : from, count * 2);
    } else {
      Pack<T, 8> v;
      const i64 step = ALONG_K ? k_stride : across_stride;
#pragma unroll
      for (int j = 0; j < 8; ++j) v.at[j] = j < count ? p[j * step] : T{0};
      const uint4 w = *reinterpret_cast<const uint4*>(&v);
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
                   : "memory");
    }
  }
}

__device__ __forceinline__ void finish_pair(float& v0, float& v1, const Epilogue& e, const Arguments& p, i64 row,
                                            i64 column) {
#if defined(EPILOGUE_PAIRS) && EVEN_N
  if (row < p.m && column < p.n) epilogue_pair(v0, v1, e, row, column);
#else
  if (row < p.m && column < p.n) v0 = epilogue(v0, e, row, column);
  if (row < p.m && column + 1 < p.n) v1 = epilogue(v1, e, row, column + 1);
#endif
}

extern "C" __global__ void __launch_bounds__(kThreads, BM == 128 ? 2 : 4)
    matmul_mma(const __grid_constant__ Arguments p) {
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 base = u32(__cvta_generic_to_shared(memory));
  const u32 rows = u32((p.m + BM - 1) / BM), columns = u32((p.n + BN - 1) / BN);
  const i64 batch = blockIdx.x / (i64(rows) * columns);
  u32 tile_row, tile_column;
  place_of_tile(u32(blockIdx.x - batch * rows * columns), rows, columns, 8, tile_row, tile_column);
  const i64 m0 = i64(tile_row) * BM, n0 = i64(tile_column) * BN;
  const BatchPlace place = place_of_batch(p, batch);
  const AType* const a = (const AType*)p.a.address + place.a;
  const BType* const b = (const BType*)p.b.address + place.b;
  const bool a_words =
      u64(a) % 16 == 0 && (A_ALONG_K ? p.a.column == 1 && p.a.row % 8 == 0 : p.a.row == 1 && p.a.column % 8 == 0);
  const bool b_words =
      u64(b) % 16 == 0 && (B_ALONG_K ? p.b.row == 1 && p.b.column % 8 == 0 : p.b.column == 1 && p.b.row % 8 == 0);
  const auto copy = [&](int step, int stage) {
    const u32 to = base + stage * kStageBytes;
    copy_stage<BM, A_ALONG_K>(to, a, p.a.row, p.a.column, int(m0), int(p.m), step * BK, int(p.k), a_words);
    copy_stage<BN, B_ALONG_K>(to + kABytes, b, p.b.column, p.b.row, int(n0), int(p.n), step * BK, int(p.k), b_words);
  };

  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int warp_m = warp / WARPS_N * (BM / WARPS_M), warp_n = warp % WARPS_N * (BN / WARPS_N);
  float sum[kM][2 * kN][4];
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int j = 0; j < 2 * kN; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0;

  const int steps = int((p.k + BK - 1) / BK);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) copy(s, s);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // this step's elements are there, and everybody has left the stage that is filled next
    if (step + STAGES - 1 < steps) copy(step + STAGES - 1, (step + STAGES - 1) % STAGES);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const u32 at_a = base + step % STAGES * kStageBytes, at_b = at_a + kABytes;
#pragma unroll
    for (int k = 0; k < BK; k += 16) {
      u32 x[kM][4], y[kN][4];
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int row = warp_m + i * 16;
        if (A_ALONG_K)
          load_matrices(x[i], at_a + place_of<BM, true>(row + (lane & 15), k + (lane >> 4) * 8));
        else
          load_transposed(x[i],
                          at_a + place_of<BM, false>(row + ((lane >> 3) & 1) * 8, k + (lane & 7) + (lane >> 4) * 8));
      }
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int column = warp_n + j * 16;
        if (B_ALONG_K)
          load_matrices(y[j],
                        at_b + place_of<BN, true>(column + (lane & 7) + (lane >> 4) * 8, k + ((lane >> 3) & 1) * 8));
        else
          load_transposed(y[j], at_b + place_of<BN, false>(column + (lane >> 4) * 8, k + (lane & 15)));
      }
#pragma unroll
      for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          multiply(sum[i][2 * j], x[i], y[j][0], y[j][1]);
          multiply(sum[i][2 * j + 1], x[i], y[j][2], y[j][3]);
        }
    }
  }

  const Epilogue e = epilogue_at(p, place);
  OutputType* const out = (OutputType*)p.y.address + place.y;
  constexpr int kWord = sizeof(OutputType) * 2;
  const bool words = p.y.column == 1 && u64(out) % kWord == 0 && p.y.row % 2 == 0;
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = m0 + warp_m + i * 16 + half * 8 + (lane >> 2);
      if (row >= p.m) continue;
#pragma unroll
      for (int j = 0; j < 2 * kN; ++j) {
        const i64 column = n0 + warp_n + j * 8 + (lane & 3) * 2;
        float v0 = sum[i][j][2 * half], v1 = sum[i][j][2 * half + 1];
        finish_pair(v0, v1, e, p, row, column);
        OutputType* const to = out + row * p.y.row + column * p.y.column;
        Pack<OutputType, 2> v;
        v.at[0] = store_value<OutputType>(v0), v.at[1] = store_value<OutputType>(v1);
        if (words && column + 2 <= p.n) {
          store_pack(to, true, v);
        } else {
          if (column < p.n) to[0] = v.at[0];
          if (column + 1 < p.n) to[p.y.column] = v.at[1];
        }
      }
    }
}
