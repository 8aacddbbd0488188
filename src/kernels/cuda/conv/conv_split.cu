// Convolution of channels-last images for few output pixels, for Hopper: tiles of 64 pixels and BN channels, one a
// block of threads. SPLIT blocks of a cluster share a tile: each takes a part of K, and finishes its part of the rows
// with the others' sums from their shared memory.
//
// One warp loads: weights of the first STAGES blocks before the kernel in front has ended (dependent launch).
//
// Given: BN, STAGES, SPLIT (1, 2, 4, 8), KIND (0: pixels as they lie, 1: by taps), INPUT (f16, bf16); in the text
// before: bulk.cu, taps.cu, `wgmma`, the epilogue (matrix_epilogue.h).
//
// H200, floor: 0.7 us of launch, some 2 us of latencies (weights from DRAM or L2, sums through the cluster), and the
// weights' bytes at 4.3 TB/s.

constexpr int BM = 64;
constexpr u32 kStageA = BM * 128, kStage = kStageA + BN * 128;
constexpr int kPitch = BN + 8;  // floats of a row of sums: stores of a quarter warp meet each bank once

__device__ __forceinline__ void cluster_barrier() {
#if SPLIT > 1
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  __syncthreads();
#endif
}

__device__ __forceinline__ float4 sums_of(u32 address, int rank) {
  float4 v;
#if SPLIT > 1
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(there)
               : "memory");
#else
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
#endif
  return v;
}

// Blocks [begin, end) of K of one tile.
__device__ __forceinline__ void load_all(const Arguments& a, const TensorMap* map_x, const TensorMap* map_w, u32 base,
                                         u32 full, u32 empty, int begin, int end, int row0, int column0) {
  const bool first = threadIdx.x % 32 == 0;
  const int early = min(STAGES, end - begin);
  if (first) {
    for (int i = 0; i < early; ++i) {
      barrier_expect(full + 8 * i, a.bulk_x ? kStage : kStage - kStageA);
      load_matrix(base + i * kStage + kStageA, map_w, full + 8 * i, (begin + i) * 64, column0);
    }
  }
  wait_for_predecessor();
  int n = 0, h = 0, w = 0;
  if (KIND == 1) {
    n = row0 / (a.out_h * a.out_w);
    const int rest = row0 - n * (a.out_h * a.out_w);
    h = rest / a.out_w;
    w = (rest - h * a.out_w) * a.stride_w - a.pad_w;
    h = h * a.stride_h - a.pad_h;
  }
  int tap = begin / a.blocks_c, c = begin - tap * a.blocks_c, kh = tap / a.kernel_w, kw = tap - kh * a.kernel_w;
  int stage = 0;
  u32 parity = 1;
  for (int k = begin; k < end; ++k) {
    const u32 barrier = full + 8 * stage, to = base + stage * kStage;
    const bool has_weights = k - begin < STAGES;
    // The first round finds all stages empty. Without bulk copies of x the weights' arrival must not complete a
    // barrier before x is there: it counts one arrival more.
    if (!has_weights) barrier_wait(empty + 8 * stage, parity);
    if (!a.bulk_x) gather_rows<BM>(a, to, row0, c * 64, kh, kw);
    __syncwarp();
    if (first) {
      if (!has_weights) {
        barrier_expect(barrier, a.bulk_x ? kStage : kStage - kStageA);
        load_matrix(to + kStageA, map_w, barrier, k * 64, column0);
      }
      if (!a.bulk_x)
        barrier_arrive(barrier);
      else if (KIND == 1)
        load_image(to, map_x, barrier, c * 64, w, h, n, u16(kw * a.dilation_w), u16(kh * a.dilation_h));
      else
        load_matrix(to, map_x, barrier, c * 64, row0);
    }
    if (++c == a.blocks_c) {
      c = 0;
      if (++kw == a.kernel_w) kw = 0, ++kh;
    }
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
}

__device__ __forceinline__ void multiply_all(u32 base, u32 full, u32 empty, int blocks) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int stage = 0, previous = 0;
  u32 parity = 0;
  WgmmaSum sum[BN / 2];
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) sum[i] = 0;
  for (int k = 0; k < blocks; ++k) {
    barrier_wait(full + 8 * stage, parity);
    products_begin();
    const u32 from = base + stage * kStage;
    const u64 left = matrix_descriptor(from), right = matrix_descriptor(from + kStageA);
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma(sum, left + 2 * i, right + 2 * i, 1);
    products_commit();
    products_wait<1>();
    if (k > 0 && lane == 0) barrier_arrive(empty + 8 * previous);
    previous = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  products_wait<0>();
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(sum[i])::"memory");
  // All warps have multiplied: the stages' memory takes the sums.
  asm volatile("bar.sync 1, 128;" ::: "memory");
  const u32 to = base + ((warp * 16 + lane / 4) * kPitch + lane % 4 * 2) * 4;
#pragma unroll
  for (int j = 0; j < BN / 8; ++j) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32), "f"(sum[4 * j]), "f"(sum[4 * j + 1])
                 : "memory");
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + j * 32 + 8 * kPitch * 4), "f"(sum[4 * j + 2]),
                 "f"(sum[4 * j + 3])
                 : "memory");
  }
}

extern "C" __global__ void
#if SPLIT > 1
__cluster_dims__(SPLIT, 1, 1)
#endif
__launch_bounds__(160) conv_split(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_w,
                                  const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = (shared_address(memory) + 1023) & ~1023u;
  const u32 full = base + STAGES * kStage, empty = full + 8 * STAGES;
  const int rank = blockIdx.x % SPLIT, tile = blockIdx.x / SPLIT;
  const int row0 = tile / a.tiles_n * BM, column0 = tile % a.tiles_n * BN;
  const int blocks = a.kernel_h * a.kernel_w * a.blocks_c;
  const int begin = blocks * rank / SPLIT, end = blocks * (rank + 1) / SPLIT;
  if (threadIdx.x == 0) {
    prefetch_map(&map_x), prefetch_map(&map_w);
    for (int i = 0; i < STAGES; ++i) barrier_init(full + 8 * i, a.bulk_x ? 1 : 2), barrier_init(empty + 8 * i, 4);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  release_dependents();
  if (threadIdx.x >= 128) {
    load_all(a, &map_x, &map_w, base, full, empty, begin, end, row0, column0);
  } else {
    multiply_all(base, full, empty, end - begin);
    wait_for_predecessor();  // operands of the epilogue, and the output that it may still read
  }
  __syncwarp();
  cluster_barrier();

  // Rows of this block, eight columns a thread and turn.
  constexpr int kRows = BM / SPLIT, kUnits = kRows * (BN / 8);
#pragma unroll
  for (int turn = 0; turn < (kUnits + 159) / 160; ++turn) {
    const int unit = min(int(threadIdx.x) + turn * 160, kUnits - 1);
    const int r = rank * kRows + unit / (BN / 8), c = unit % (BN / 8) * 8;
    // What lies outside reads the last row or columns, and is not written.
    const int row = min(row0 + r, a.pixels - 1), column = min(column0 + c, a.out_channels - 8);
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = 0;
#pragma unroll
    for (int other = 0; other < SPLIT; ++other) {
      const u32 from = base + (r * kPitch + c) * 4;
      const float4 low = sums_of(from, other), high = sums_of(from + 16, other);
      v[0] += low.x, v[1] += low.y, v[2] += low.z, v[3] += low.w;
      v[4] += high.x, v[5] += high.y, v[6] += high.z, v[7] += high.w;
    }
    if (a.bias) {
      Pack<INPUT, 8> bias;
      load_pack((const INPUT*)a.bias + column, true, bias);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += load_value(bias.at[i]);
    }
    epilogue_columns(v, e, i64(row), i64(column), nullptr);
    Pack<OutputType, 8> out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.at[i] = store_value<OutputType>(v[i]);
    if (int(threadIdx.x) + turn * 160 < kUnits && row0 + r < a.pixels && column0 + c < a.out_channels)
      store_pack((OutputType*)a.y + i64(row) * a.out_channels + column, a.bulk_y, out);
  }
  cluster_barrier();  // the others read these sums
}
