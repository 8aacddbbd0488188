// What the card can do at most: bytes moved, products in registers and shared memory, functions. No result is of use.
// Given: THREADS; for products WGMMA_N and the text of `wgmma` before this file (kernels/cuda/mma_source.h).

extern "C" __global__ void __launch_bounds__(THREADS) read_all(const uint4* from, u64 count, u32* never) {
  constexpr int kAhead = 8;
  const u64 step = u64(gridDim.x) * THREADS;
  u32 sum = 0;
  u64 i = u64(blockIdx.x) * THREADS + threadIdx.x;
  for (; i + (kAhead - 1) * step < count; i += kAhead * step) {
    uint4 v[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) v[k] = __ldcs(from + i + k * step);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  for (; i < count; i += step) sum ^= from[i].x;
  if (sum == 0x9e3779b9u) *never = sum;  // whatever is found, the loads stay
}

extern "C" __global__ void __launch_bounds__(THREADS) copy_all(const uint4* from, uint4* to, u64 count) {
  constexpr int kAhead = 4;
  const u64 first = u64(blockIdx.x) * THREADS * kAhead + threadIdx.x;
  uint4 v[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k)
    if (first + k * THREADS < count) v[k] = from[first + k * THREADS];
#pragma unroll
  for (int k = 0; k < kAhead; ++k)
    if (first + k * THREADS < count) to[first + k * THREADS] = v[k];
}

extern "C" __global__ void __launch_bounds__(THREADS) nothing(u32*) {}

extern "C" __global__ void __launch_bounds__(THREADS) multiply_add(float* never, float a, float b, int rounds) {
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = float(threadIdx.x + i);
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) x[i] = fmaf(x[i], a, b);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += x[i];
  if (sum == 12345.678f) *never = sum;
}

template <int WHICH>
__device__ __forceinline__ float special(float x) {
  if (WHICH == 0) return op_exp(x);
  if (WHICH == 1) return op_erf(x);
  if (WHICH == 2) return op_tanh(x);
  if (WHICH == 3) return 1.0f / x;
  return op_sqrt(x);
}
template <int WHICH>
__device__ __forceinline__ void specials(float* never, int rounds) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = 0.25f + float(threadIdx.x + i) * 0.001f;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = special<WHICH>(x[i]) * 0.5f;
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == 12345.678f) *never = sum;
}
extern "C" __global__ void __launch_bounds__(THREADS) special_exp(float* never, int rounds) { specials<0>(never, rounds); }
extern "C" __global__ void __launch_bounds__(THREADS) special_erf(float* never, int rounds) { specials<1>(never, rounds); }
extern "C" __global__ void __launch_bounds__(THREADS) special_tanh(float* never, int rounds) { specials<2>(never, rounds); }
extern "C" __global__ void __launch_bounds__(THREADS) special_divide(float* never, int rounds) {
  specials<3>(never, rounds);
}
extern "C" __global__ void __launch_bounds__(THREADS) special_sqrt(float* never, int rounds) { specials<4>(never, rounds); }

#ifdef WGMMA_N
// Two warpgroups of a block multiply what lies in shared memory (random bits of the caller, cut to small numbers), again
// and again: the clock that the power limit leaves is then that of real products.
extern "C" __global__ void __launch_bounds__(256) products(const uint4* seed, WgmmaSum* never, int rounds) {
  extern __shared__ __align__(1024) unsigned char shared[];
  for (int i = threadIdx.x; i < SHARED_BYTES / 16; i += 256) reinterpret_cast<uint4*>(shared)[i] = seed[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const u32 base = u32(__cvta_generic_to_shared(shared));
  constexpr u64 kDescriptor = (1ull << 16) | (64ull << 32) | (1ull << 62);
  const u64 a = kDescriptor | u64(((base + (threadIdx.x >> 7) * 8192) & 0x3ffff) >> 4);
  const u64 b = kDescriptor | u64(((base + 16384) & 0x3ffff) >> 4);
  WgmmaSum sum[WGMMA_N / 2];
#pragma unroll
  for (int i = 0; i < WGMMA_N / 2; ++i) sum[i] = 0;
  for (int r = 0; r < rounds; ++r) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma(sum, a + 2 * k, b + 2 * k, 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  WgmmaSum all = 0;
#pragma unroll
  for (int i = 0; i < WGMMA_N / 2; ++i) all += sum[i];
  if (all == WgmmaSum(123456789)) *never = all;
}
#endif
