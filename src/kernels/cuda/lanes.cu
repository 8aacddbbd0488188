// Lanes and their members over strided operands (src/kernels/cuda/lanes.h). Given: OPERANDS, LANE_AXES, MEMBER_AXES.

struct Arguments {
  u64 address[OPERANDS];
  i64 lane_stride[OPERANDS][LANE_AXES];  // in elements; innermost axis last
  i64 member_stride[OPERANDS][MEMBER_AXES];
  u64 lane_extent[LANE_AXES], member_extent[MEMBER_AXES];
  u64 lanes, members;
  u64 aligned;  // a bit an operand: its packs may be moved as whole words
  double number[4];
};

__device__ __forceinline__ u64 quotient(u64 a, u64 b) { return ((a | b) >> 32) ? a / b : u64(u32(a) / u32(b)); }

template <int AXES>
__device__ __forceinline__ void walk(u64 index, const u64 (&extent)[AXES], const i64 (&stride)[OPERANDS][AXES],
                                     i64* at) {
#pragma unroll
  for (int axis = AXES - 1; axis >= 0; --axis) {
    u64 here = index;
    if (axis > 0) {
      if (extent[axis] == 1) continue;
      const u64 rest = quotient(index, extent[axis]);
      here = index - rest * extent[axis];
      index = rest;
    }
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] += i64(here) * stride[k][axis];
  }
}

__device__ __forceinline__ void to_lane(const Arguments& a, u64 lane, i64* at) {
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k) at[k] = 0;
  walk(lane, a.lane_extent, a.lane_stride, at);
}
// From a lane's beginning to one of its members.
__device__ __forceinline__ void to_member(const Arguments& a, u64 member, i64* at) {
  walk(member, a.member_extent, a.member_stride, at);
}

__device__ __forceinline__ bool is_aligned(const Arguments& a, int k) { return (a.aligned >> k) & 1; }

__device__ __forceinline__ float exponential(float d) {  // of d <= 0: |d| 2^-24 of the result, at most half a unit of 1
  float y;
  asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(d * 1.4426950408889634f));
  return y;
}
__device__ __forceinline__ double exponential(double d) { return exp(d); }

// Where an operand's element lies; K < 0 is one that is not there, and nobody reads.
template <int K, typename T>
__device__ __forceinline__ T* place(const Arguments& a, const i64* at) {
  return reinterpret_cast<T*>(a.address[K < 0 ? 0 : K]) + at[K < 0 ? 0 : K];
}

// One value of GROUP threads together, in each of them. GROUP is a power of two; above 32 all groups of the block come
// here at once. Each call of a kernel has a SITE of its own, and `slot` alternates from one row to the next: a warp that
// is ahead then writes where nobody reads any more.
template <int GROUP, int SITE, typename T, typename OP>
__device__ __forceinline__ T together(T v, OP op, int slot) {
#pragma unroll
  for (int d = (GROUP < 32 ? GROUP : 32) / 2; d > 0; d /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, d));
  if constexpr (GROUP > 32) {
    constexpr int kWarps = GROUP / 32;
    __shared__ T partials[2][THREADS / GROUP][kWarps];
    T* const partial = partials[slot][threadIdx.x / GROUP];
    if (threadIdx.x % 32 == 0) partial[threadIdx.x % GROUP / 32] = v;
    __syncthreads();
    if constexpr (kWarps <= 8) {
      v = partial[0];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) v = op(v, partial[w]);
    } else {
      v = partial[threadIdx.x % kWarps];
#pragma unroll
      for (int d = kWarps / 2; d > 0; d /= 2) v = op(v, __shfl_xor_sync(0xffffffffu, v, d));
    }
  }
  return v;
}
