// Up to 8 rows times constant weights on sm_90. As rows.cu, but weights come through shared memory by bulk copies
// (cp.async.bulk): a warp's part of K is one stretch of the packed weights, so that one lane keeps STAGES copies of 2
// KB in flight without a register. One block a multiprocessor takes every so-manieth group of NT tiles, and the copies
// go on from one group to the next and, by dependent launch, from one kernel to the next: half the shared memory is
// left to the blocks of the next launch. x goes from memory to registers once (RESIDENT) or a round of 256 of K ahead.
//
// One row fills the instruction's 8 columns with 8 stretches of 32 of K (column c has every eighth), whose sums are
// added at the end: so a lane holds x of 256 of K in one register of 16 bytes.
//
// H200, 4096 x 4096, one row, us in bf16, i8, i4:g128: rows.cu 9.4, 7.2, 4.4. A block a group, several of them a
// multiprocessor: 8.2 to 28 by how unevenly they fell, for a multiprocessor takes in some 37 GB/s by bulk copies.

#define THREADS (WARPS * 32)
#define STAGE_STEPS (W_BITS < 16 ? 16 / W_BITS : 1)
#define STAGE_BYTES (STAGE_STEPS * W_LOADS * 512)
#define ROUND 4  // steps of 64
#define ROWS (SPREAD ? 1 : 8)
#define EIGHTS (SPREAD ? 1 : 2 * ROUND)
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

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS) few(const __grid_constant__ Arguments a,
                                                             const __grid_constant__ Epilogue e) {
  // Each warp's own: stages of weights, scales of two groups of tiles, a row of x where it cannot be read as it lies,
  // barriers. Then the warps' sums, twice.
  extern __shared__ __align__(128) char shared[];
  const int warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first = a.steps * warp / WARPS, count = a.steps * (warp + 1) / WARPS - first;
  const int copies = (count + STAGE_STEPS - 1) / STAGE_STEPS;  // of a group of NT tiles
  const int groups = int((a.tiles + NT - 1) / NT), mine_of = (groups - int(blockIdx.x) - 1) / int(gridDim.x) + 1;
  char* const mine = shared + warp * WARP_BYTES;
  char* const scales_at = mine + STAGES * NT * STAGE_BYTES;
  char* const staging = scales_at + 2 * SCALE_ROOM;
  const u32 ring = shared_address(mine), barriers = shared_address(staging + ROUND * 64 * sizeof(XType));
  if (lane == 0) {
#pragma unroll
    for (int i = 0; i < STAGES + 2; ++i) start_barrier(barriers + i * 8, 1);
    publish_barriers();
  }
  __syncwarp();

  const auto tile_of = [&](int group, int i) {
    const i64 tile = (i64(blockIdx.x) + i64(group) * gridDim.x) * NT + i;
    return tile < a.tiles ? tile : a.tiles - 1;
  };
  // The next copy: of which group, and where in it.
  int next_group = 0, next_copy = 0;
  const auto issue = [&](int slot) {
    const int left = count * (W_LOADS * 512) - next_copy * STAGE_BYTES, bytes = left < STAGE_BYTES ? left : STAGE_BYTES;
    expect(barriers + slot * 8, NT * bytes);
#pragma unroll
    for (int i = 0; i < NT; ++i)
      bulk_copy(ring + (slot * NT + i) * STAGE_BYTES,
                reinterpret_cast<const char*>(a.w) + (tile_of(next_group, i) * a.steps + first) * (W_LOADS * 512) +
                    i64(next_copy) * STAGE_BYTES,
                bytes, barriers + slot * 8);
  };
  const auto advance = [&] {
    if (++next_copy == copies) next_copy = 0, ++next_group;
  };
#if GROUPED
  const auto place_scales = [&](int group, ScaleBases (&to)[NT], bool copy) {
    const int begin = HALVES_SOME ? first * 2 / HALVES_OR_1 : 0;
    int last = HALVES_SOME ? ((first + count) * 2 - 1) / HALVES_OR_1 : 0;
    last = last < GROUPS ? last : GROUPS - 1;
    const u32 barrier = barriers + (STAGES + group % 2) * 8;
    SliceScales slice{scales_at + group % 2 * SCALE_ROOM, barrier, begin, last - begin + 1, lane, g, 0};
#pragma unroll
    for (int i = 0; i < NT; ++i) slice.place(a, tile_of(group, i), to[i], copy);
    if (copy) expect(barrier, slice.bytes);
  };
  if (lane == 0 && count > 0) {
    ScaleBases unused[NT];
    for (int group = 0; group < 2 && group < mine_of; ++group) place_scales(group, unused, true);
  }
#endif
#pragma unroll
  for (int i = 0; i < STAGES; ++i) {
    if (count > 0 && next_group < mine_of) {
      if (lane == 0) issue(i);
      advance();
    }
  }

  // The next launch may begin when all the weights of this one are under way: earlier, its blocks would fill the
  // multiprocessors unevenly. Not before the wait: then at most two are there at a time.
  asm volatile("griddepcontrol.wait;" ::: "memory");
  bool told = count == 0 || next_group >= mine_of;
  if (told) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");

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
  const int span = (count + AHEAD * ROUND - 1) / (AHEAD * ROUND) * (AHEAD * ROUND);

  // Sums of a group of scales, or of all; two of each, or every product would wait for the one before it (33 cycles).
  float sum[NT][4] = {}, part[2][NT][4] = {};
#if HAS_LOW
  float of_x[2][4] = {};
#endif
#if GROUPED
  ScaleBases bases[NT];
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

  int slot = 0;
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
      if (s % STAGE_STEPS == STAGE_STEPS - 1 || step + 1 == count) {
        __syncwarp();
        if (next_group < mine_of) {
          if (lane == 0) issue(slot);
          advance();
        } else if (!told) {
          told = true;
          asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
        }
        if (++slot == STAGES) slot = 0, parity ^= 1;
      }
    }
  };

  for (int group = 0; group < mine_of; ++group) {
#if GROUPED
    if (count > 0) {
      place_scales(group, bases, false);
      wait_for(barriers + (STAGES + group % 2) * 8, group / 2 & 1);
    }
#endif
#pragma unroll
    for (int i = 0; i < NT; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[i][c] = part[0][i][c] = part[1][i][c] = 0;
    for (int begin = 0; begin < span; begin += AHEAD * ROUND) {
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        compute(x[i], begin + i * ROUND);
#if !RESIDENT
        const int next = begin + (i + AHEAD) * ROUND;
        load_round(x[i], next < span ? next : next - span);
#endif
      }
    }
#if GROUPED
    __syncwarp();
    if (lane == 0 && count > 0 && group + 2 < mine_of) {
      ScaleBases unused[NT];
      place_scales(group + 2, unused, true);
    }
#else
#pragma unroll
    for (int i = 0; i < NT; ++i)
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[i][c] = part[0][i][c] + part[1][i][c];
#endif

    // The warps' sums meet; warps take turns to finish, while the others go on.
    float* const sums = reinterpret_cast<float*>(shared + WARPS * WARP_BYTES) + group % 2 * (WARPS * ROWS * SUM_PITCH);
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
    const i64 n0 = (i64(blockIdx.x) + i64(group) * gridDim.x) * (16 * NT);
    const int turn = (threadIdx.x + THREADS - group % WARPS * 32) % THREADS;
#if W_BITS < 16 && !GROUPED
    float own_scale = 0;
    if (turn < 16 * NT * ROWS) own_scale = row_scale(a, n0 + turn % (16 * NT));
#endif
    __syncthreads();
    for (int at = turn; at < 16 * NT * ROWS; at += THREADS) {
      const int r = at / (16 * NT), column = at % (16 * NT);
      const i64 n = n0 + column;
      if (r >= a.m || n >= a.n) continue;
      float v = 0;
#pragma unroll
      for (int u = 0; u < WARPS; ++u) v += sums[(u * ROWS + r) * SUM_PITCH + column];
#if W_BITS < 16 && !GROUPED
      v *= THREADS % (16 * NT) == 0 || at == turn ? own_scale : row_scale(a, n);
#endif
      v *= a.alpha;
#if HAS_C
      v = fmaf(a.beta, load_value(reinterpret_cast<const CType*>(a.c)[r * a.c_row + n * a.c_column]), v);
#endif
      reinterpret_cast<OutputType*>(a.y)[r * a.y_row + n * a.y_column] = store_value<OutputType>(epilogue(v, e, r, n));
    }
  }
}
