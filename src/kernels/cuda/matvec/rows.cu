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

struct Arguments {
  u64 x, w, scale, zero, low, super_scale, super_low, y, c;
  i64 x_row, x_k, y_row, y_column, c_row, c_column;  // in elements
  i64 m, n, k, tiles;                                // tiles of 16 of n
  float alpha, beta;
  int steps, buffers;  // steps of 64 of k; chunks of x that a warp keeps
  int aligned, none;   // rows of x may be copied 16 bytes at a time
};

__device__ __forceinline__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

__device__ __forceinline__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if MMA_F16
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
               "%1, %2, %3};"
#else
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
#endif
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#if MMA_F16
#define ONES 0x3c003c00u
#else
#define ONES 0x3f803f80u
#endif

template <u32 AND, u32 OR>
__device__ __forceinline__ u32 and_or(u32 x) {
  u32 y;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(y) : "r"(x), "n"(AND), "n"(OR));
  return y;
}
// Pairs of 16-bit floats: a times b plus c.
__device__ __forceinline__ u32 pair_fma(u32 a, u32 b, u32 c) {
  u32 y;
#if MMA_F16
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
#endif
  return y;
}
// The upper halves of two floats: bf16 by truncation, so that what is left is exact and no finite number overflows.
__device__ __forceinline__ u32 upper_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}
__device__ __forceinline__ float truncated(float x) { return __uint_as_float(__float_as_uint(x) & 0xffff0000u); }
__device__ __forceinline__ float rest(float x, float part) { return x == part ? 0.0f : x - part; }  // of infinity: 0
__device__ __forceinline__ u32 rounded_pair(float low, float high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

// ---- weights: the operand of 16 x 16, four registers, of product `j` of half `h` of a step.
#if W_BITS == 16
#define W_LOADS 4
__device__ __forceinline__ void operand(const uint4 (&w)[W_LOADS], int h, int j, u32 (&a)[W_PARTS][4]) {
  const uint4 v = w[h * 2 + j];
  const u32 r[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if W_PARTS == 1
    a[0][i] = r[i];
#else  // f16 as two bf16
    const float low = load_value(f16{u16(r[i])}), high = load_value(f16{u16(r[i] >> 16)});
    a[0][i] = upper_halves(low, high);
    a[1][i] = upper_halves(rest(low, truncated(low)), rest(high, truncated(high)));
#endif
  }
}
#elif W_BITS == 8
#define W_LOADS 2
// Bytes 0 and 2, 1 and 3 of a word are a register each.
__device__ __forceinline__ void bytes_to_pairs(u32 v, u32& even, u32& odd) {
#if MMA_F16
  v ^= 0x80808080u;  // now level + 128: as the low bits of 1024
  even = pair_fma(__byte_perm(v, 0x64646464u, 0x4240), ONES, 0xe480e480u);
  odd = pair_fma(__byte_perm(v, 0x64646464u, 0x4341), ONES, 0xe480e480u);
#else
  // bf16 has 7 bits behind the point: 128 + the low seven, less 128 or 256 as the sign bit says.
  const u32 w = v >> 8;
  even = pair_fma(and_or<0x00800080u, 0x43004300u>(v), 0xbf80bf80u, and_or<0x007f007fu, 0x43004300u>(v));
  odd = pair_fma(and_or<0x00800080u, 0x43004300u>(w), 0xbf80bf80u, and_or<0x007f007fu, 0x43004300u>(w));
#endif
}
__device__ __forceinline__ void operand(const uint4 (&w)[W_LOADS], int h, int j, u32 (&a)[W_PARTS][4]) {
  bytes_to_pairs(j ? w[h].z : w[h].x, a[0][0], a[0][1]);
  bytes_to_pairs(j ? w[h].w : w[h].y, a[0][2], a[0][3]);
}
#else
#define W_LOADS 1
// Nibble i of each 16 bits of a word is register i. W_OFFSET (8 or 0) is taken off.
__device__ __forceinline__ void operand(const uint4 (&w)[W_LOADS], int h, int j, u32 (&a)[W_PARTS][4]) {
  const u32 v = h ? (j ? w[0].w : w[0].z) : (j ? w[0].y : w[0].x);
#if MMA_F16
  constexpr u32 kMinus = W_OFFSET ? 0xe408e408u : 0xe400e400u;          // -(1024 + offset)
  constexpr u32 kMinusSixteenth = W_OFFSET ? 0xd480d480u : 0xd400d400u;  // -(64 + offset)
  const u32 u = v >> 8;
  a[0][0] = pair_fma(and_or<0x000f000fu, 0x64006400u>(v), ONES, kMinus);
  a[0][1] = pair_fma(and_or<0x00f000f0u, 0x64006400u>(v), 0x2c002c00u, kMinusSixteenth);
  a[0][2] = pair_fma(and_or<0x000f000fu, 0x64006400u>(u), ONES, kMinus);
  a[0][3] = pair_fma(and_or<0x00f000f0u, 0x64006400u>(u), 0x2c002c00u, kMinusSixteenth);
#else
  constexpr u32 kMinus = W_OFFSET ? 0xc308c308u : 0xc300c300u;  // -(128 + offset)
#pragma unroll
  for (int i = 0; i < 4; ++i) a[0][i] = pair_fma(and_or<0x000f000fu, 0x43004300u>(v >> (4 * i)), ONES, kMinus);
#endif
}
#endif

// ---- scales of two rows of a tile, 8 apart: they lie side by side.
template <typename T>
struct Two {
  Pack<T, 2> raw;
  __device__ __forceinline__ void load(const char* base, int group) {
    load_pack(reinterpret_cast<const T*>(base) + group * 16, true, raw);
  }
  __device__ __forceinline__ float operator[](int i) const { return float(load_value(raw.at[i])); }
};
template <typename T>
__device__ __forceinline__ const char* pairs_of(u64 address, i64 tile, int groups, int row) {
  return reinterpret_cast<const char*>(reinterpret_cast<const T*>(address) + tile * groups * 16 + row * 2);
}
#if W_BITS != 16
#define HAS_LOW (HAS_ZERO || HAS_MIN)
// Where the scales of a tile begin.
struct ScaleBases {
  const char *scale, *zero, *low, *super_scale, *super_low;
  __device__ __forceinline__ void place(const Arguments& a, i64 tile, int row) {
    scale = pairs_of<ScaleType>(a.scale, tile, GROUPS, row);
#if HAS_ZERO
    zero = pairs_of<unsigned char>(a.zero, tile, GROUPS, row);
#endif
#if HAS_MIN
    low = pairs_of<MinType>(a.low, tile, GROUPS, row);
#endif
#if HAS_SUPER
    super_scale = pairs_of<SuperType>(a.super_scale, tile, SUPER_GROUPS, row);
#endif
#if HAS_SUPER_MIN
    super_low = pairs_of<SuperMinType>(a.super_low, tile, SUPER_MIN_GROUPS, row);
#endif
  }
};
struct Scales {
  Two<ScaleType> scale;
#if HAS_ZERO
  Two<unsigned char> zero;
#endif
#if HAS_MIN
  Two<MinType> low;
#endif
#if HAS_SUPER
  Two<SuperType> super_scale;
#endif
#if HAS_SUPER_MIN
  Two<SuperMinType> super_low;
#endif
  __device__ __forceinline__ void load(const ScaleBases& from, int group) {
    scale.load(from.scale, group);
#if HAS_ZERO
    zero.load(from.zero, group);
#endif
#if HAS_MIN
    low.load(from.low, group);
#endif
#if HAS_SUPER
    super_scale.load(from.super_scale, group / (GROUPS / SUPER_GROUPS));
#endif
#if HAS_SUPER_MIN
    super_low.load(from.super_low, group / (GROUPS / SUPER_MIN_GROUPS));
#endif
  }
  __device__ __forceinline__ float factor(int i) const {
    float s = scale[i];
#if HAS_SUPER
    s *= super_scale[i];
#endif
    return s;
  }
#if HAS_LOW
  // What every weight of the group is less by.
  __device__ __forceinline__ float lower(int i) const {
    float s = 0;
#if HAS_MIN
    s = low[i];
#endif
#if HAS_SUPER_MIN
    s *= super_low[i];
#endif
#if HAS_ZERO
    s = fmaf(factor(i), zero[i], s);
#endif
    return s;
  }
#endif
};
#else
#define HAS_LOW 0
#endif
// Groups of HALVES x 32 of k; 0: one for the whole row. Sums of a group stand apart until they are scaled; those of a
// whole row without zeros are scaled at the very end.
#define GROUPED (W_BITS != 16 && (HALVES > 0 || HAS_LOW))
#if W_BITS != 16
#define HALVES_SOME (HALVES > 0)
#define HALVES_OR_1 (HALVES > 0 ? HALVES : 1)

__device__ __forceinline__ bool ends_group(int step) { return HALVES_SOME && (step * 2 + 2) % HALVES_OR_1 == 0; }
__device__ __forceinline__ int group_of(int step) { return HALVES_SOME ? step * 2 / HALVES_OR_1 : 0; }
#endif

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
    for (int i = lane; i < X_ROWS * X_CHUNK; i += 32) {
      const int row = i / X_CHUNK, at = i % X_CHUNK;
      XType v{};
      if (row < rows && at < columns) v = x[row * a.x_row + at * a.x_k];
      *reinterpret_cast<XType*>(buffer + row * X_PITCH + at * int(sizeof(XType))) = v;
    }
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Eight neighbours of a row as four registers, in X_PARTS parts.
__device__ __forceinline__ void load_rows(const char* p, bool there, u32 (&x)[X_PARTS][4]) {
#if X_DIRECT
  const uint4 v = there ? *reinterpret_cast<const uint4*>(p) : uint4{0, 0, 0, 0};
  x[0][0] = v.x, x[0][1] = v.y, x[0][2] = v.z, x[0][3] = v.w;
#else
  Pack<XType, 8> v{};
  if (there) load_pack(reinterpret_cast<const XType*>(p), true, v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float low = load_value(v.at[2 * i]), high = load_value(v.at[2 * i + 1]);
#if X_PARTS == 1
    x[0][i] = rounded_pair(low, high);
#else
#pragma unroll
    for (int part = 0; part < X_PARTS; ++part) {
      x[part][i] = upper_halves(low, high);
      low = rest(low, truncated(low)), high = rest(high, truncated(high));
    }
#endif
  }
#endif
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
        for (int j = 0; j < MT; ++j)
          load_rows(x + j * 8 * X_PITCH + (d * 64 + h * 32) * int(sizeof(XType)), j * 8 + g < X_ROWS, b[j]);
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
                for (int v = 0; v < X_PARTS; ++v) multiply(part[i][j], left[u], b[j][v][2 * p], b[j][v][2 * p + 1]);
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
#if W_BITS != 16 && !GROUPED
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
