// 9 rows and more times constant weights on sm_90. Operands as in rows.cu, weights by bulk copies as in few.cu; but the
// rows of x are now more bytes than the weights of a tile, so that the warps of a block share them: all WARPS work on
// the same part of K, each on 16 NT of N, and copy x together, X_CHUNK of K at a time, into a ring of X_STAGES. K is
// split over the CLUSTER of blocks, whose sums meet through distributed shared memory.
//
// What lost: one more warp that brings x by bulk copies of 512 bytes a row (a lane issues them one after the other):
// 13.0 us for 32 x 4096 x 4096 in i4 as in i8.
//
// Floor on an H200, 32 x 4096 x 4096: weights as in few.cu; x through the second cache once a block, 8 MB for 128
// blocks of 32 x 1024 (one block a tile of N with all of K would read 34 MB, 5 us); mma.sync 1.9 us.

#define THREADS (WARPS * 32)
#define STAGE_STEPS (W_BITS < 16 ? 16 / W_BITS : 1)
#define STAGE_BYTES (STAGE_STEPS * W_LOADS * 512)
#define M_TILE (8 * MT)
#define X_CHUNK 256
#define X_PITCH (X_CHUNK * sizeof(XType) + 64)  // two rows' reads of 16 bytes a lane meet in no bank
#define X_STAGE (M_TILE * X_PITCH)
#define CHUNK_STEPS (X_CHUNK / 64)

// All threads copy a chunk of x; where rows cannot be copied 16 bytes at a time, element by element.
__device__ __forceinline__ void copy_x(const Arguments& a, char* to, i64 row0, i64 k0, int steps) {
  const int rows = a.m - row0 < M_TILE ? int(a.m - row0) : M_TILE;
  const XType* const from = reinterpret_cast<const XType*>(a.x) + row0 * a.x_row + k0 * a.x_k;
  if (a.aligned && k0 + steps * 64 <= a.k) {
    constexpr int kPer = 16 / sizeof(XType), kWords = X_CHUNK / kPer;
#pragma unroll 4
    for (int i = threadIdx.x; i < M_TILE * kWords; i += THREADS) {
      const int row = i / kWords, at = i % kWords * kPer;
      if (row < rows && at < steps * 64)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         shared_address(to + row * X_PITCH + at * int(sizeof(XType)))),
                     "l"(from + row * a.x_row + at)
                     : "memory");
    }
  } else {
#pragma unroll 1
    for (int i = threadIdx.x; i < rows * X_CHUNK; i += THREADS) {
      const int row = i / X_CHUNK, at = i % X_CHUNK;
      reinterpret_cast<XType*>(to + row * X_PITCH)[at] =
          at < steps * 64 && k0 + at < a.k ? from[row * a.x_row + at * a.x_k] : XType{};
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    many(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  // Each warp's stages of weights and scales; the ring of x; barriers.
  extern __shared__ __align__(128) char shared[];
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int rank = blockIdx.x % CLUSTER;
  const i64 tile0 = (i64(blockIdx.x / CLUSTER) * WARPS + warp) * NT, row0 = i64(blockIdx.y) * M_TILE;
  const int first = a.steps * rank / CLUSTER, count = a.steps * (rank + 1) / CLUSTER - first;
  const int copies = (count + STAGE_STEPS - 1) / STAGE_STEPS;
  char* const mine = shared + warp * WARP_BYTES;
  char* const scales_at = mine + STAGES * NT * STAGE_BYTES;
  char* const ring_of_x = shared + WARPS * WARP_BYTES;
  const u32 ring = shared_address(mine), barriers = shared_address(scales_at + SCALE_ROOM);
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i <= STAGES; ++i) start_barrier(barriers + i * 8, 1);
    publish_barriers();
  }
  __syncwarp();

  float sum[NT][MT][4] = {};
  if (count > 0) {
    const char* w[NT];
    i64 tiles[NT];
#pragma unroll
    for (int i = 0; i < NT; ++i) {
      tiles[i] = tile0 + i < a.tiles ? tile0 + i : a.tiles - 1;
      w[i] = reinterpret_cast<const char*>(a.w) + (tiles[i] * a.steps + first) * (W_LOADS * 512);
    }
    const auto issue = [&](int copy, int slot) {
      const int left = count * (W_LOADS * 512) - copy * STAGE_BYTES, bytes = left < STAGE_BYTES ? left : STAGE_BYTES;
      expect(barriers + slot * 8, NT * bytes);
#pragma unroll
      for (int i = 0; i < NT; ++i)
        bulk_copy(ring + (slot * NT + i) * STAGE_BYTES, w[i] + i64(copy) * STAGE_BYTES, bytes, barriers + slot * 8);
    };
#if GROUPED
    ScaleBases bases[NT];
    const int group = HALVES_SOME ? first * 2 / HALVES_OR_1 : 0;
    int last = HALVES_SOME ? ((first + count) * 2 - 1) / HALVES_OR_1 : 0;
    last = last < GROUPS ? last : GROUPS - 1;
    SliceScales slice{scales_at, barriers + STAGES * 8, group, last - group + 1, lane, g, 0};
#pragma unroll
    for (int i = 0; i < NT; ++i) slice.place(a, tiles[i], bases[i], lane == 0);
    if (lane == 0) expect(barriers + STAGES * 8, slice.bytes);
#endif
    if (lane == 0) {
#pragma unroll
      for (int i = 0; i < STAGES; ++i)
        if (i < copies) issue(i, i);
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const auto copy_chunk = [&](int chunk) {
      const int left = count - chunk * CHUNK_STEPS;
      if (left > 0)
        copy_x(a, ring_of_x + chunk % X_STAGES * X_STAGE, row0, i64(first + chunk * CHUNK_STEPS) * 64,
               left < CHUNK_STEPS ? left : CHUNK_STEPS);
      asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll 1
    for (int i = 0; i < X_STAGES; ++i) copy_chunk(i);
#if GROUPED
    float part[NT][MT][4] = {};
    wait_for(barriers + STAGES * 8, 0);
#else
    auto& part = sum;
#endif
#if HAS_LOW
    float of_x[MT][4] = {};
#endif
#if GROUPED
    const auto scale_part = [&](int group_of_w) {
#pragma unroll
      for (int i = 0; i < NT; ++i) {
        Scales scales;
        scales.load(bases[i], group_of_w);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float factor = scales.factor(r);
#if HAS_LOW
          const float lower = scales.lower(r);
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

    int slot = 0, copied = 0;
    u32 parity = 0;
    for (int begin = 0, chunk = 0; begin < count; begin += CHUNK_STEPS, ++chunk) {
      // One group of copies a chunk, empty or not: the newest of them may be under way still.
      if (chunk == 0) asm volatile("cp.async.wait_group %0;" ::"n"(X_STAGES - 1) : "memory");
      else asm volatile("cp.async.wait_group %0;" ::"n"(X_STAGES - 2) : "memory");
      __syncthreads();
      if (chunk > 0) copy_chunk(chunk - 1 + X_STAGES);
      const char* const x = ring_of_x + chunk % X_STAGES * X_STAGE + g * X_PITCH + 8 * t * int(sizeof(XType));
#pragma unroll
      for (int s = 0; s < CHUNK_STEPS; ++s) {
        const int step = begin + s;
        if (step >= count) break;
        if (s % STAGE_STEPS == 0) wait_for(barriers + slot * 8, parity);
        uint4 words[NT][W_LOADS];
#pragma unroll
        for (int i = 0; i < NT; ++i)
#pragma unroll
          for (int l = 0; l < W_LOADS; ++l)
            words[i][l] = *reinterpret_cast<const uint4*>(
                mine + (slot * NT + i) * STAGE_BYTES + (s % STAGE_STEPS * W_LOADS + l) * 512 + lane * 16);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          u32 b[MT][X_PARTS][4];
#pragma unroll
          for (int j = 0; j < MT; ++j) {
            Eight v;
            load_pack(reinterpret_cast<const XType*>(x + j * 8 * X_PITCH) + s * 64 + h * 32, true, v);
            split_rows(v, b[j]);
          }
#pragma unroll
          for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int i = 0; i < NT; ++i) {
              u32 left[W_PARTS][4];
              operand(words[i], h, p, left);
#pragma unroll
              for (int u = 0; u < W_PARTS; ++u)
#pragma unroll
                for (int v = 0; v < X_PARTS; ++v)
#pragma unroll
                  for (int j = 0; j < MT; ++j)
                    if (u + v < 4) multiply(part[i][j], left[u], b[j][v][2 * p], b[j][v][2 * p + 1]);
            }
#if HAS_LOW
            const u32 ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
            for (int v = 0; v < X_PARTS; ++v)
#pragma unroll
              for (int j = 0; j < MT; ++j) multiply(of_x[j], ones, b[j][v][2 * p], b[j][v][2 * p + 1]);
#endif
          }
#if GROUPED && HALVES == 1
          if ((first + step) * 2 + h < GROUPS) scale_part((first + step) * 2 + h);
#endif
        }
#if GROUPED && HALVES != 1
        if (ends_group(first + step) || step + 1 == count) scale_part(group_of(first + step));
#endif
        if (s % STAGE_STEPS == STAGE_STEPS - 1) {
          __syncwarp();
          if (lane == 0 && copied + STAGES < copies) issue(copied + STAGES, slot);
          ++copied;
          if (++slot == STAGES) slot = 0, parity ^= 1;
        }
      }
    }
  } else {
    asm volatile("griddepcontrol.wait;" ::: "memory");  // of the epilogue's operands some may be of the kernel before
  }
  const auto finish = [&](i64 tile, int j, const float (&v)[4]) {
    float factor[2] = {1, 1};
#if W_BITS < 16 && !GROUPED
    if (tile < a.tiles) {
      ScaleBases from;
      from.place(a, tile, g);
      Scales scales;
      scales.load(from, 0);
      factor[0] = scales.factor(0), factor[1] = scales.factor(1);
    }
#endif
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i64 r = row0 + j * 8 + t * 2 + i % 2, n = tile * 16 + g + i / 2 * 8;
      if (r >= a.m || n >= a.n) continue;
      float one = v[i] * factor[i / 2] * a.alpha;
#if HAS_C
      one = fmaf(a.beta, load_value(reinterpret_cast<const CType*>(a.c)[r * a.c_row + n * a.c_column]), one);
#endif
      reinterpret_cast<OutputType*>(a.y)[r * a.y_row + n * a.y_column] =
          store_value<OutputType>(epilogue(one, e, r, n));
    }
  };
#if CLUSTER == 1
#pragma unroll
  for (int i = 0; i < NT; ++i)
#pragma unroll
    for (int j = 0; j < MT; ++j) finish(tile0 + i, j, sum[i][j]);
#else
  // Each block finishes its share of the sums of all.
  __syncthreads();
  float4* const sums = reinterpret_cast<float4*>(shared);
#pragma unroll
  for (int i = 0; i < NT; ++i)
#pragma unroll
    for (int j = 0; j < MT; ++j)
      sums[((warp * NT + i) * MT + j) * 32 + lane] = float4{sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]};
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  constexpr int kUnits = WARPS * NT * MT;  // of a tile's 16 x 8
  for (int unit = kUnits * rank / CLUSTER + warp; unit < kUnits * (rank + 1) / CLUSTER; unit += WARPS) {
    float v[4] = {};
#pragma unroll
    for (int other = 0; other < CLUSTER; ++other) {
      u32 address;
      float4 one;
      asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(address)
                   : "r"(shared_address(sums + unit * 32 + lane)), "r"(other));
      asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(one.x), "=f"(one.y), "=f"(one.z), "=f"(one.w)
                   : "r"(address)
                   : "memory");
      v[0] += one.x, v[1] += one.y, v[2] += one.z, v[3] += one.w;
    }
    finish((i64(blockIdx.x / CLUSTER) * WARPS) * NT + unit / MT, unit % MT, v);
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
