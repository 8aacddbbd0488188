// Few rows times constant weights: y[M, N] = x[M, K] w[N, K]^T on tensor cores, the weights as the instruction's left
// operand (16 of N by 16 of K) and the rows as its right one (8 of M), so that one row costs what eight do. The weights
// are packed so that 16 bytes a lane are whole operands: they go from memory to registers, never through shared memory.
// Narrow weights become 16-bit floats in registers, exactly; their scales are applied to sums over a group, in f32.
// Numbers that have more bits than the instruction's type are split into parts that are exact in it.
//
// A block: 16 NT of N, 8 MT of M; its WARPS share out K. Each warp streams its weights DEPTH steps of 64 of K ahead,
// the first ones before it waits for the kernel before (its inputs), and copies its part of x into shared memory.
//
// Floor on an H200: the weights' bytes at 4.5 TB/s; 4096 x 4096 in bf16 7.5 us, i8 3.7, i4 1.9, and about 1 us of start
// and end that consecutive launches share. Other work, 4096 x 4096 in i4: some 14 instructions for 8 weights a lane,
// 1 us.

#define THREADS (WARPS * 32)
#define N_TILE (16 * NT)
#define M_TILE (8 * MT)
#define X_PITCH (X_CHUNK * sizeof(XType) + 64)  // two rows' reads of 16 bytes a lane meet in no bank
#define X_BUFFER (X_ROWS * X_PITCH)

__device__ __forceinline__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

struct Stage {
  uint4 w[NT][W_LOADS];
#if GROUPED
  Scales scales[NT][HALVES == 1 ? 2 : 1];
#endif
};

// ---- x: chunks of X_CHUNK of k of the warp's part, in one or two buffers. What lies outside is zero.
__device__ __forceinline__ void copy_chunk(const Arguments& a, char* buffer, i64 row0, i64 k0, i64 k_end, int lane) {
  const XType* const x = reinterpret_cast<const XType*>(a.x) + row0 * a.x_row + k0 * a.x_k;
  const int rows = a.m - row0 < X_ROWS ? int(a.m - row0) : X_ROWS;
  const int columns = k_end - k0 < X_CHUNK ? int(k_end - k0) : X_CHUNK;
  if (a.aligned) {
    constexpr int kPer = 16 / sizeof(XType), kWords = X_CHUNK / kPer;
#pragma unroll 2
    for (int i = lane; i < X_ROWS * kWords; i += 32) {
      const int row = i / kWords, at = i % kWords * kPer, left = row < rows ? columns - at : 0;
      const int bytes = left >= kPer ? 16 : left > 0 ? left * int(sizeof(XType)) : 0;
      const XType* const from = bytes ? x + row * a.x_row + at : x;
      const u32 to = u32(__cvta_generic_to_shared(buffer + row * X_PITCH + at * int(sizeof(XType))));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
  } else {
#pragma unroll 1
    for (int i = lane; i < X_ROWS * X_CHUNK; i += 32) {
      const int row = i / X_CHUNK, at = i % X_CHUNK;
      XType v{};
      if (row < rows && at < columns) v = x[row * a.x_row + at * a.x_k];
      *reinterpret_cast<XType*>(buffer + row * X_PITCH + at * int(sizeof(XType))) = v;
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS) rows(const __grid_constant__ Arguments a,
                                                           const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(16) char shared[];
  // The same in all lanes, which the compiler sees of a shuffle alone.
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const i64 tile0 = i64(blockIdx.x) * NT, row0 = i64(blockIdx.y) * M_TILE;
  const int first = a.steps * warp / WARPS, count = a.steps * (warp + 1) / WARPS - first;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif

  const uint4* w[NT];
#if GROUPED
  ScaleBases bases[NT];
#endif
#pragma unroll
  for (int i = 0; i < NT; ++i) {
    const i64 tile = tile0 + i < a.tiles ? tile0 + i : a.tiles - 1;
    w[i] = reinterpret_cast<const uint4*>(a.w) + (tile * a.steps + first) * (W_LOADS * 32) + lane;
#if GROUPED
    bases[i].place(a, tile, g);
#endif
  }
  Stage stages[DEPTH];
  const auto fetch = [&](Stage& s, int step) {
#pragma unroll
    for (int i = 0; i < NT; ++i)
#pragma unroll
      for (int l = 0; l < W_LOADS; ++l) s.w[i][l] = load_weights(w[i] + (step * W_LOADS + l) * 32);
#if GROUPED && HALVES == 1
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if ((first + step) * 2 + h < GROUPS) {
#pragma unroll
        for (int i = 0; i < NT; ++i) s.scales[i][h].load(bases[i], (first + step) * 2 + h);
      }
#elif GROUPED
    if (ends_group(first + step) || step + 1 == count) {
#pragma unroll
      for (int i = 0; i < NT; ++i) s.scales[i][0].load(bases[i], group_of(first + step));
    }
#endif
  };
#pragma unroll
  for (int d = 0; d < DEPTH; ++d)
    if (d < count) fetch(stages[d], d);

#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  char* const mine = shared + warp * (a.buffers * X_BUFFER);
  constexpr int kChunkSteps = X_CHUNK / 64;
  static_assert(kChunkSteps % DEPTH == 0, "chunks of x end with a round of the pipeline");
  const i64 k0 = first * 64, end = k0 + count * 64, k_end = end < a.k ? end : a.k;
  // As many copies as buffers are under way; groups may be empty, so that their number tells which have arrived.
  copy_chunk(a, mine, row0, k0, k_end, lane);
  if (count > kChunkSteps) copy_chunk(a, mine + X_BUFFER, row0, k0 + X_CHUNK, k_end, lane);
  else asm volatile("cp.async.commit_group;" ::: "memory");

  float sum[NT][MT][4] = {};
#if GROUPED
  float part[NT][MT][4] = {};
#else
  auto& part = sum;
#endif
#if HAS_LOW
  float of_x[MT][4] = {};  // sums of x
#endif
#if GROUPED
  const auto scale_part = [&](const Scales (&scales)[NT][HALVES == 1 ? 2 : 1], int h) {
#pragma unroll
    for (int i = 0; i < NT; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = scales[i][h].factor(r);
#if HAS_LOW
        const float lower = scales[i][h].lower(r);
#endif
#pragma unroll
        for (int j = 0; j < MT; ++j)
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float v = fmaf(factor, part[i][j][2 * r + c], sum[i][j][2 * r + c]);
#if HAS_LOW
            v = fmaf(-lower, of_x[j][c], v);
#endif
            sum[i][j][2 * r + c] = v;
            part[i][j][2 * r + c] = 0;
          }
      }
    }
#if HAS_LOW
#pragma unroll
    for (int j = 0; j < MT; ++j)
#pragma unroll
      for (int c = 0; c < 4; ++c) of_x[j][c] = 0;
#endif
  };
#endif

  const char* x = mine + 8 * t * int(sizeof(XType)) + g * X_PITCH;
  for (int begin = 0, chunk = 0; begin < count; begin += DEPTH) {
    if (begin % kChunkSteps == 0) {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
      __syncwarp();
    }
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
      const int step = begin + d;
      if (step >= count) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        u32 b[MT][X_PARTS][4];
#pragma unroll
        for (int j = 0; j < MT; ++j) {
          Eight v{};
          if (j * 8 + g < X_ROWS)
            load_pack(reinterpret_cast<const XType*>(x + j * 8 * X_PITCH) + d * 64 + h * 32, true, v);
          split_rows(v, b[j]);
        }
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
          for (int i = 0; i < NT; ++i) {
            u32 left[W_PARTS][4];
            operand(stages[d].w[i], h, p, left);
#pragma unroll
            for (int j = 0; j < MT; ++j)
#pragma unroll
              for (int u = 0; u < W_PARTS; ++u)
#pragma unroll
                for (int v = 0; v < X_PARTS; ++v)
                  if (u + v < 4) multiply(part[i][j], left[u], b[j][v][2 * p], b[j][v][2 * p + 1]);
          }
#if HAS_LOW
          const u32 ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
          for (int j = 0; j < MT; ++j)
#pragma unroll
            for (int v = 0; v < X_PARTS; ++v) multiply(of_x[j], ones, b[j][v][2 * p], b[j][v][2 * p + 1]);
#endif
        }
#if GROUPED && HALVES == 1
        if ((first + step) * 2 + h < GROUPS) scale_part(stages[d].scales, h);
#endif
      }
#if GROUPED && HALVES != 1
      if (ends_group(first + step) || step + 1 == count) scale_part(stages[d].scales, 0);
#endif
      if (step + DEPTH < count) fetch(stages[d], step + DEPTH);
    }
    x += DEPTH * 64 * int(sizeof(XType));
    if ((begin + DEPTH) % kChunkSteps == 0) {
      __syncwarp();
      char* const used = mine + (chunk & 1) * X_BUFFER;
      if (begin + DEPTH + kChunkSteps < count) copy_chunk(a, used, row0, k0 + i64(chunk + 2) * X_CHUNK, k_end, lane);
      else asm volatile("cp.async.commit_group;" ::: "memory");
      ++chunk;
      x = mine + (chunk & 1) * X_BUFFER + 8 * t * int(sizeof(XType)) + g * X_PITCH;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");

  // The warps' sums meet where x was.
  __syncthreads();
  float4* const sums = reinterpret_cast<float4*>(shared);
#pragma unroll
  for (int i = 0; i < NT; ++i)
#pragma unroll
    for (int j = 0; j < MT; ++j)
      sums[((warp * NT + i) * MT + j) * 32 + lane] =
          float4{sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]};
  __syncthreads();
  for (int at = threadIdx.x; at < NT * MT * 32; at += THREADS) {
    const i64 row = row0 + (at / 32 % MT) * 8 + t * 2, column = (tile0 + at / (32 * MT)) * 16 + g;
    if (row >= a.m) continue;
    float v[4] = {};
#pragma unroll
    for (int u = 0; u < WARPS; ++u) {
      const float4 one = sums[u * (NT * MT * 32) + at];
      v[0] += one.x, v[1] += one.y, v[2] += one.z, v[3] += one.w;
    }
#if W_BITS < 16 && !GROUPED
    Scales scales;
    if (tile0 + at / (32 * MT) < a.tiles) {
      ScaleBases from;
      from.place(a, tile0 + at / (32 * MT), g);
      scales.load(from, 0);
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] *= scales.factor(i / 2);
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i64 r = row + i % 2, n = column + i / 2 * 8;
      if (r >= a.m || n >= a.n) continue;
      float one = v[i] * a.alpha;
#if HAS_C
      one = fmaf(a.beta, load_value(reinterpret_cast<const CType*>(a.c)[r * a.c_row + n * a.c_column]), one);
#endif
      reinterpret_cast<OutputType*>(a.y)[r * a.y_row + n * a.y_column] =
          store_value<OutputType>(epilogue(one, e, r, n));
    }
  }
}
