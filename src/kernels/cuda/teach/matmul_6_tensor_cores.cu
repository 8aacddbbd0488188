// 6. Tensor cores: a warp multiplies 16 x 16 by 16 x 8 with one instruction.
//
// A multiply-add of a thread is 2 operations, mma.sync's 4,096 for the warp, 128 a thread; a multiprocessor does about
// ten times as many of them in the same time. The numbers stay bf16 or f16, products are exact and summed in f32. Tiles
// are those of the step before, twice as deep; 8 warps make 64 x 32 each. `ldmatrix` brings blocks of 8 x 8 into
// registers in the order that the instruction wants. The rows of the tiles are 16 bytes longer than they need be: 8
// rows of a block then lie in different banks.
//
// What binds now is waiting: for k of 32 the tensor cores work a quarter of a microsecond, and memory answers after
// more.
constexpr int kTile = 128, kDepth = 32;

extern "C" __global__ void __launch_bounds__(256, 2)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  __shared__ alignas(16) ELEMENT tile_a[kTile][kDepth + 8], tile_b[kDepth][kTile + 8];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  float sums[4][4][4] = {};  // 4 blocks of 16 rows, 4 of 8 columns
  for (int p0 = 0; p0 < k; p0 += kDepth) {
#pragma unroll
    for (int i = t; i < 512; i += 256) {
      *reinterpret_cast<uint4*>(&tile_a[i / 4][i % 4 * 8]) =
          *reinterpret_cast<const uint4*>(a + (row + i / 4) * k + p0 + i % 4 * 8);
      *reinterpret_cast<uint4*>(&tile_b[i / 16][i % 16 * 8]) =
          *reinterpret_cast<const uint4*>(b + (p0 + i / 16) * n + column + i % 16 * 8);
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kDepth; p += 16) {
      u32 from_a[4][4], from_b[2][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) load_blocks(from_a[i], &tile_a[warp_row + 16 * i + lane % 16][p + lane / 16 * 8]);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        load_blocks_turned(from_b[j], &tile_b[p + lane % 16][warp_column + 16 * j + lane / 16 * 8]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          multiply_add(sums[i][j], from_a[i], from_b[j / 2][j % 2 * 2], from_b[j / 2][j % 2 * 2 + 1]);
    }
    __syncthreads();
  }
  // A thread holds two neighbours in a row, and two more 8 rows below.
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
