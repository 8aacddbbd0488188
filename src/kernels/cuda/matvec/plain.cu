// LowBitMatMul as its declaration says, a warp a result: for groups, strides and quantized activations that the kernels
// on tensor cores do not take. Weights as they are stored; sums in f32.
//
// Given: XType, QType, BITS, OFFSET (taken off levels that have no zero), ACT_I8, ROUND_X; with scales ScaleType,
// HAS_ZERO, HAS_MIN, HAS_SUPER, HAS_SUPER_MIN and their types.

#define WARPS 8
#define LEAST_LARGEST 4e-37f  // src/ops/low_bit.h

struct Arguments {
  u64 x, q, scale, zero, low, super_scale, super_low, y;
  i64 x_row, x_k, y_row, y_column;
  i64 m, n, k, groups, super_groups, super_low_groups, act_block;
};

template <typename T>
__device__ __forceinline__ float of_group(u64 address, i64 row, i64 t, i64 k, i64 groups) {
  return float(load_value(reinterpret_cast<const T*>(address)[row * groups + t / (k / groups)]));
}

__device__ __forceinline__ float weight(const Arguments& a, i64 n, i64 t) {
#if BITS == 16
  return load_value(reinterpret_cast<const QType*>(a.q)[n * a.k + t]);
#else
  float level;
#if BITS == 8
  level = float(reinterpret_cast<const signed char*>(a.q)[n * a.k + t]);
#else
  level = float(reinterpret_cast<const unsigned char*>(a.q)[(n * a.k + t) / 2] >> (t % 2 * 4) & 15);
#endif
  float scale = of_group<ScaleType>(a.scale, n, t, a.k, a.groups), low = 0, zero = OFFSET;
#if HAS_SUPER
  scale *= of_group<SuperType>(a.super_scale, n, t, a.k, a.super_groups);
#endif
#if HAS_ZERO
  zero = of_group<unsigned char>(a.zero, n, t, a.k, a.groups);
#endif
#if HAS_MIN
  low = of_group<MinType>(a.low, n, t, a.k, a.groups);
#endif
#if HAS_SUPER_MIN
  low *= of_group<SuperMinType>(a.super_low, n, t, a.k, a.super_low_groups);
#endif
  return scale * (level - zero) - low;
#endif
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    plain(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  const i64 at = i64(blockIdx.x) * WARPS + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (at >= a.m * a.n) return;
  const i64 row = at / a.n, n = at % a.n;
  const XType* const x = reinterpret_cast<const XType*>(a.x) + row * a.x_row;
  float sum = 0;
#if ACT_I8
  for (i64 begin = 0; begin < a.k; begin += a.act_block) {
    const i64 end = begin + a.act_block < a.k ? begin + a.act_block : a.k;
    float largest = 0;
    bool finite = true;
    for (i64 t = begin + lane; t < end; t += 32) {
      const float v = fabsf(load_value(x[t * a.x_k]));
      finite = finite && v < infinity();
      largest = fmaxf(largest, v);
    }
    for (int step = 16; step; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (!__all_sync(0xffffffffu, finite)) largest = not_a_number();
    const float to = 127.0f / largest, back = largest / 127.0f;
    for (i64 t = begin + lane; t < end; t += 32) {
      float v = rintf(load_value(x[t * a.x_k]) * to) * back;
      if (largest != largest) v = largest;
      if (largest < LEAST_LARGEST) v = 0;
      sum = fmaf(v, weight(a, n, t), sum);
    }
  }
#else
  for (i64 t = lane; t < a.k; t += 32) {
    float v = load_value(x[t * a.x_k]);
#if ROUND_X
    v = round_to_bf16(v);
#endif
    sum = fmaf(v, weight(a, n, t), sum);
  }
#endif
  for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (lane == 0)
    reinterpret_cast<OutputType*>(a.y)[row * a.y_row + n * a.y_column] =
        store_value<OutputType>(epilogue(sum, e, row, n));
}
