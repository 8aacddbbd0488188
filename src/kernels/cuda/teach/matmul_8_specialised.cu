// 8. Warp-specialised: one thread fetches, 256 multiply, and neither does the other's work.
//
// Three warpgroups of 128 threads. One thread of the first asks for whole boxes of A and B (a bulk copy: the hardware
// computes the addresses and puts the pieces where no banks collide). The two others run `wgmma`, which multiplies 64 x
// 16 by 16 x 256 straight from shared memory: no ldmatrix, no registers but the sums, and the tensor cores' full rate,
// which mma.sync cannot reach on this hardware. They meet at two barriers a stage: `full` turns when the bytes are
// there, `empty` when all eight warps have done with them. Registers go where the sums are: 40 for those who fetch, 232
// for those who multiply.
//
// Tiles of 128 x 256 ask for a quarter less than 128 x 128. What is left to the library's kernel: blocks that stay and
// take tile after tile, an order of tiles that suits the second-level cache, results stored by bulk copies. The text of
// `wgmma` is made by kernels/cuda/mma_source.h: it names 128 sums.
constexpr int kRows = 128, kColumns = 256, kDepth = 64, kStages = 4;
constexpr u32 kBytesA = kRows * kDepth * 2, kBytesB = kColumns * kDepth * 2, kStage = kBytesA + kBytesB;
constexpr u32 kBox = 64 * kDepth * 2;  // B comes in boxes of 64 columns

extern "C" __global__ void __launch_bounds__(384, 1)
multiply(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, ELEMENT* c, int n, int k) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 stages = shared_address(memory), full = stages + kStages * kStage, empty = full + 8 * kStages;
  const int row = blockIdx.y * kRows, column = blockIdx.x * kColumns, steps = k / kDepth;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) make_barrier(full + 8 * s, 1), make_barrier(empty + 8 * s, 8);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0)
      for (int step = 0; step < steps; ++step) {
        const int s = step % kStages, lap = step / kStages;
        if (lap > 0) wait_for_turn(empty + 8 * s, (lap - 1) % 2);
        arrive_with_bytes(full + 8 * s, kStage);
        copy_box(stages + s * kStage, map_a, step * kDepth, row, full + 8 * s);
        for (int j = 0; j < kColumns / 64; ++j)
          copy_box(stages + s * kStage + kBytesA + j * kBox, map_b, column + 64 * j, step * kDepth, full + 8 * s);
      }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int t = threadIdx.x - 128, group = t / 128, warp = t / 32, lane = t % 32;
  float sums[128] = {};
  for (int step = 0; step < steps; ++step) {
    const int s = step % kStages, lap = step / kStages;
    wait_for_turn(full + 8 * s, lap % 2);
    const u32 a = stages + s * kStage + group * 64 * 128, b = stages + s * kStage + kBytesA;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int p = 0; p < kDepth; p += 16)  // along a row of A, 16 rows of B further
      wgmma(sums, described(a + p * 2, 16, 8 * 128), described(b + p * 128, kBox, 8 * 128), 1);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (lane == 0) arrive(empty + 8 * s);
  }
#pragma unroll
  for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sums[i]));  // no sum is read before the wait
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* const from = sums + 4 * j + 2 * h;
      const Pack<ELEMENT, 2> two = {store_value<ELEMENT>(from[0]), store_value<ELEMENT>(from[1])};
      store_pack(c + (row + warp * 16 + 8 * h + lane / 4) * n + column + 8 * j + lane % 4 * 2, true, two);
    }
}
