// What the kernels for few rows share: parameters, weights as operands of the matrix instruction, scales. Stands before
// them in the text.
//
// Given: XType; W_BITS (4, 8, 16, 32), W_PARTS, X_PARTS, X_DIRECT, MMA_F16; with scales ScaleType, GROUPS, HALVES,
// W_OFFSET, HAS_ZERO, HAS_MIN, HAS_SUPER, HAS_SUPER_MIN and the types and numbers of groups of these.

struct Arguments {
  u64 x, w, scale, zero, low, super_scale, super_low, y, c;
  i64 x_row, x_k, y_row, y_column, c_row, c_column;  // in elements
  i64 m, n, k, tiles;                                // tiles of 16 of n
  float alpha, beta;
  int steps, buffers;  // steps of 64 of k; chunks of x that a warp keeps
  int aligned, none;   // rows of x may be copied 16 bytes at a time
};

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
#if W_BITS == 32
#define W_LOADS 8
__device__ __forceinline__ void operand(const uint4 (&w)[W_LOADS], int h, int j, u32 (&a)[W_PARTS][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 v = w[(h * 2 + j) * 2 + i / 2];
    float low = __uint_as_float(i % 2 ? v.z : v.x), high = __uint_as_float(i % 2 ? v.w : v.y);
#pragma unroll
    for (int part = 0; part < W_PARTS; ++part) {
      a[part][i] = upper_halves(low, high);
      low = rest(low, truncated(low)), high = rest(high, truncated(high));
    }
  }
}
#elif W_BITS == 16
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
#if W_BITS < 16
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
#define GROUPED (W_BITS < 16 && (HALVES > 0 || HAS_LOW))
#if W_BITS < 16
#define HALVES_SOME (HALVES > 0)
#define HALVES_OR_1 (HALVES > 0 ? HALVES : 1)

__device__ __forceinline__ bool ends_group(int step) { return HALVES_SOME && (step * 2 + 2) % HALVES_OR_1 == 0; }
__device__ __forceinline__ int group_of(int step) { return HALVES_SOME ? step * 2 / HALVES_OR_1 : 0; }
#endif

// Eight neighbours of a row as four registers of the instruction's type, in X_PARTS parts.
using Eight = Pack<XType, 8>;
__device__ __forceinline__ void split_rows(const Eight& v, u32 (&x)[X_PARTS][4]) {
#if X_DIRECT
  const uint4 whole = *reinterpret_cast<const uint4*>(&v);
  x[0][0] = whole.x, x[0][1] = whole.y, x[0][2] = whole.z, x[0][3] = whole.w;
#else
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
