// 7. Pipelined: the next tiles are on their way while these are multiplied. STAGES of them are kept, 1 to 4.
//
// `cp.async` moves 16 bytes from memory to shared memory without a register, and the thread does not wait. With one
// stage there is nowhere to put what comes next: it is asked for and waited for, as in the step before. With two,
// memory has the time of one tile's products to answer; with three and four, of two and three of them. One barrier a
// step is enough from two stages on: who has passed it has multiplied the tile before, whose place the next copies
// take.
//
// Tried: four warps of 64 x 64, which read a third less from shared memory. With four stages no difference (451.5 us at
// 4096 cubed on an H200, 452.1 so), with one stage 6 % slower: fewer warps hide less.
constexpr int kTile = 128, kDepth = 32;
struct Stage {
  ELEMENT a[kTile][kDepth + 8], b[kDepth][kTile + 8];
};

extern "C" __global__ void __launch_bounds__(256, 2)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  extern __shared__ __align__(16) unsigned char memory[];
  Stage* const stages = reinterpret_cast<Stage*>(memory);
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32, steps = k / kDepth;
  const auto fetch = [&](int step) {
    if (step < steps) {
      Stage& to = stages[step % STAGES];
      const int p0 = step * kDepth;
#pragma unroll
      for (int i = t; i < 512; i += 256) {
        copy_16(&to.a[i / 4][i % 4 * 8], a + (row + i / 4) * k + p0 + i % 4 * 8);
        copy_16(&to.b[i / 16][i % 16 * 8], b + (p0 + i / 16) * n + column + i % 16 * 8);
      }
    }
    close_group();  // an empty one at the end: the count of groups stays that of steps
  };
  float sums[4][4][4] = {};
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    if (STAGES == 1) fetch(step);
    wait_for_groups<STAGES <= 2 ? 0 : STAGES - 2>();
    __syncthreads();
    if (STAGES > 1) fetch(step + STAGES - 1);
    const Stage& tile = stages[step % STAGES];
#pragma unroll
    for (int p = 0; p < kDepth; p += 16) {
      u32 from_a[4][4], from_b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_blocks(from_a[i], &tile.a[warp_row + 16 * i + lane % 16][p + lane / 16 * 8]);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_blocks_turned(from_b[j], &tile.b[p + lane % 16][warp_column + 16 * j + lane / 16 * 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          multiply_add(sums[i][j], from_a[i], from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]);
    }
    if (STAGES == 1) __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float* const from = sums[i][j] + 2 * h;
        const Pack<ELEMENT, 2> two = {store_value<ELEMENT>(from[0]), store_value<ELEMENT>(from[1])};
        store_pack(c + (row + warp_row + 16 * i + 8 * h + lane / 4) * n + column + warp_column + 8 * j + lane % 4 * 2,
                   true, two);
      }
}
