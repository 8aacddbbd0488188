// Up to 8 rows times constant weights on sm_90. As rows.cu, but weights come through shared memory by bulk copies
// (cp.async.bulk): a warp's part of K is one stretch of the packed weights, so that one lane keeps STAGES copies of 2
// KB in flight without a register, and the copies of the next launch begin while this one ends. x goes from memory to
// registers: all loads of a round of 256 of K at once, a round ahead.
//
// One row fills the instruction's 8 columns with 8 stretches of 32 of K (column c has every eighth), whose sums are
// added at the end: so a lane holds x of 256 of K in one register of 16 bytes.
//
// The next launch may start its blocks at once (EARLY), or when this one's weights are all under way. H200, one row, N
// x K = 4096 x 4096, us by tile (tiles of 16 N, warps, copies) and start: bf16     2x8x4 8.2 either way; 1x8x6 8.6;
// 1x16x2 8.6; 1x8x4 10.4; 1x8x3 14.1 early, 12.3 late; 1x8x2 28 early i8       1x8x4 6.6 early, 5.5 late, 7.8 without
// dependent launch; 1x16x2 6.3 i4:g128  1x8x2 7.5 early, 4.3 late, 6.1 without Where more blocks fit a multiprocessor
// than the launch has, they fall on them unevenly, and one takes in no more than some 37 GB/s by bulk copies. That is
// why long K is left to rows.cu (4096 x 16384 in bf16: 45 us here, 37 there), and why one block a multiprocessor that
// goes from tile to tile lost (9.2 to 11.2 in bf16, 6.7 in i8, 4.8 in i4; 11008 x 4096 in bf16 35 against 21.5).

#define THREADS (WARPS * 32)
#define STAGE_STEPS (W_BITS < 16 ? 16 / W_BITS : 1)
#define STAGE_BYTES (STAGE_STEPS * W_LOADS * 512)
#define ROUND 4  // steps of 64
#define ROWS (SPREAD ? 1 : 8)
#define EIGHTS (SPREAD ? 1 : 2 * ROUND)
#define AHEAD (SPREAD || sizeof(XType) == 2 ? 2 : 1)
#define SUM_PITCH (16 * NT + 4)

#if W_BITS < 16 && !GROUPED
template <typename T>
__device__ __forceinline__ float one_of(u64 address, i64 n) {
  return float(load_value(reinterpret_cast<const T*>(address)[n / 16 * 16 + n % 8 * 2 + n / 8 % 2]));
}
__device__ __forceinline__ float row_scale(const Arguments& a, i64 n) {
  if (n >= a.n) return 0;
  float s = one_of<ScaleType>(a.scale, n);
#if HAS_SUPER
  s *= one_of<SuperType>(a.super_scale, n);
#endif
  return s;
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) few(const __grid_constant__ Arguments a,
                                                          const __grid_constant__ Epilogue e) {
  // Each warp's own: stages of weights, scales, barriers, a round of x where it cannot be read as it lies.
  extern __shared__ __align__(128) char shared[];
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const i64 tile0 = i64(blockIdx.x) * NT;
  const int first = a.steps * warp / WARPS, count = a.steps * (warp + 1) / WARPS - first;
  const int copies = (count + STAGE_STEPS - 1) / STAGE_STEPS;
  if (EARLY) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  char* const mine = shared + warp * WARP_BYTES;
  char* const scales_at = mine + STAGES * NT * STAGE_BYTES;
  char* const staging = scales_at + SCALE_ROOM;
  const u32 ring = shared_address(mine), barriers = shared_address(staging + ROUND * 64 * sizeof(XType));

  if (lane == 0) {
#pragma unroll
    for (int i = 0; i <= STAGES; ++i) start_barrier(barriers + i * 8, 1);
    publish_barriers();
  }
  __syncwarp();

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
  if (count > 0) {
    const int group = HALVES_SOME ? first * 2 / HALVES_OR_1 : 0;
    int last = HALVES_SOME ? ((first + count) * 2 - 1) / HALVES_OR_1 : 0;
    last = last < GROUPS ? last : GROUPS - 1;
    SliceScales slice{scales_at, barriers + STAGES * 8, group, last - group + 1, lane, g, 0};
#pragma unroll
    for (int i = 0; i < NT; ++i) slice.place(a, tiles[i], bases[i], lane == 0);
    if (lane == 0) expect(barriers + STAGES * 8, slice.bytes);
  }
#endif
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < STAGES; ++i)
      if (i < copies) issue(i, i);
  }
#if W_BITS < 16 && !GROUPED
  const float own_scale = row_scale(a, tile0 * 16 + threadIdx.x % (16 * NT));
#endif

  asm volatile("griddepcontrol.wait;" ::: "memory");
  if (!EARLY && copies <= STAGES) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  Eight x[AHEAD][EIGHTS];
  const auto load_round = [&](Eight (&to)[EIGHTS], int begin) {
    if (begin >= count) return;
    const int step_end = begin + ROUND < count ? begin + ROUND : count;
    const i64 k0 = i64(first + begin) * 64;
    const XType* const from = reinterpret_cast<const XType*>(a.x) + k0 * a.x_k;
    const int block = SPREAD ? g : 0;  // of 32 of k; the others from 0
    if (a.aligned && i64(first + step_end) * 64 <= a.k) {
#pragma unroll
      for (int i = 0; i < EIGHTS; ++i) {
        to[i] = Eight{};
        if (begin + (block + i) / 2 < count && (SPREAD || g < a.m))
          load_pack(from + (SPREAD ? 0 : g * a.x_row) + (block + i) * 32 + 8 * t, true, to[i]);
      }
      return;
    }
    XType* const row_of_x = reinterpret_cast<XType*>(staging);
#pragma unroll 1
    for (int row = 0; row < ROWS; ++row) {
      __syncwarp();
#pragma unroll 1
      for (int i = lane; i < ROUND * 64; i += 32)
        row_of_x[i] = row < a.m && k0 + i < a.k ? from[row * a.x_row + i * a.x_k] : XType{};
      __syncwarp();
      if (SPREAD || g == row) {
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i) load_pack(row_of_x + (block + i) * 32 + 8 * t, true, to[i]);
      }
    }
  };
#pragma unroll
  for (int i = 0; i < AHEAD; ++i) load_round(x[i], i * ROUND);

  // Sums of a group, or of all; two of each, or every product would wait for the one before it (33 cycles).
  float sum[NT][4] = {}, part[2][NT][4] = {};
#if GROUPED
  if (count > 0) wait_for(barriers + STAGES * 8, 0);
#endif
#if HAS_LOW
  float of_x[2][4] = {};
#endif
#if GROUPED
  const auto scale_part = [&](int group) {
#pragma unroll
    for (int i = 0; i < NT; ++i) {
      Scales scales;
      scales.load(bases[i], group);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float factor = scales.factor(r);
#if HAS_LOW
        const float lower = scales.lower(r);
#endif
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float v = fmaf(factor, part[0][i][2 * r + c] + part[1][i][2 * r + c], sum[i][2 * r + c]);
#if HAS_LOW
          v = fmaf(-lower, of_x[0][c] + of_x[1][c], v);
#endif
          sum[i][2 * r + c] = v;
          part[0][i][2 * r + c] = part[1][i][2 * r + c] = 0;
        }
      }
    }
#if HAS_LOW
#pragma unroll
    for (int c = 0; c < 4; ++c) of_x[0][c] = of_x[1][c] = 0;
#endif
  };
#endif

  int slot = 0, copied = 0;
  u32 parity = 0;
  const auto compute = [&](const Eight (&from)[EIGHTS], int begin) {
#if SPREAD
    u32 split[X_PARTS][4];
    split_rows(from[0], split);
#endif
#pragma unroll
    for (int s = 0; s < ROUND; ++s) {
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
        u32 b[X_PARTS][4];
#if SPREAD
#pragma unroll
        for (int v = 0; v < X_PARTS; ++v)
#pragma unroll
          for (int i = 0; i < 4; ++i) b[v][i] = g == s * 2 + h ? split[v][i] : 0;
#else
        split_rows(from[s * 2 + h], b);
#endif
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
                if (u + v < 4) multiply(part[p][i], left[u], b[v][2 * p], b[v][2 * p + 1]);
          }
#if HAS_LOW
          const u32 ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
          for (int v = 0; v < X_PARTS; ++v) multiply(of_x[p], ones, b[v][2 * p], b[v][2 * p + 1]);
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
        if (lane == 0 && copied + STAGES < copies) {
          issue(copied + STAGES, slot);
          if (!EARLY && copied + STAGES + 1 == copies && warp == WARPS - 1)
            asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        }
        ++copied;
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
  };
  for (int begin = 0; begin < count; begin += AHEAD * ROUND) {
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
      compute(x[i], begin + i * ROUND);
      load_round(x[i], begin + (i + AHEAD) * ROUND);
    }
  }

#if !GROUPED
#pragma unroll
  for (int i = 0; i < NT; ++i)
#pragma unroll
    for (int c = 0; c < 4; ++c) sum[i][c] = part[0][i][c] + part[1][i][c];
#endif

  // The warps' sums meet.
  float* const sums = reinterpret_cast<float*>(shared + WARPS * WARP_BYTES);
#pragma unroll
  for (int i = 0; i < NT; ++i) {
#if SPREAD
    float low = sum[i][0] + sum[i][1], high = sum[i][2] + sum[i][3];
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      low += __shfl_xor_sync(0xffffffffu, low, step);
      high += __shfl_xor_sync(0xffffffffu, high, step);
    }
    if (t == 0) {
      sums[warp * SUM_PITCH + i * 16 + g] = low;
      sums[warp * SUM_PITCH + i * 16 + g + 8] = high;
    }
#else
#pragma unroll
    for (int c = 0; c < 4; ++c) sums[(warp * 8 + 2 * t + c % 2) * SUM_PITCH + i * 16 + g + c / 2 * 8] = sum[i][c];
#endif
  }
  __syncthreads();
  for (int at = threadIdx.x; at < 16 * NT * ROWS; at += THREADS) {
    const int r = at / (16 * NT), column = at % (16 * NT);
    const i64 n = tile0 * 16 + column;
    if (r >= a.m || n >= a.n) continue;
    float v = 0;
#pragma unroll
    for (int u = 0; u < WARPS; ++u) v += sums[(u * ROWS + r) * SUM_PITCH + column];
#if W_BITS < 16 && !GROUPED
    v *= THREADS % (16 * NT) == 0 || at == threadIdx.x ? own_scale : row_scale(a, n);
#endif
    v *= a.alpha;
#if HAS_C
    v = fmaf(a.beta, load_value(reinterpret_cast<const CType*>(a.c)[r * a.c_row + n * a.c_column]), v);
#endif
    reinterpret_cast<OutputType*>(a.y)[r * a.y_row + n * a.y_column] = store_value<OutputType>(epilogue(v, e, r, n));
  }
}
