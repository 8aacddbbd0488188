// 4. Registers: each thread makes 8 x 8 elements, so that what it reads from shared memory serves eight times.
//
// 256 threads make 128 x 128 elements. For one step of k a thread reads 8 numbers of A and 8 of B and does 64
// multiply-adds with them: 16 loads where the step before had 128. The tile is larger too: each number comes from
// memory once for 128 uses. Rows and columns of a thread are 16 apart, so that neighbours read neighbouring words:
// shared memory serves 32 words at once if they lie in different banks (address modulo 32). For the same reason the
// rows of A's tile, written in columns, are 4 words longer than they need be.
constexpr int kTile = 128, kDepth = 16, kEach = 8;

extern "C" __global__ void __launch_bounds__(256, 2)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  __shared__ float tile_a[kDepth][kTile + 4], tile_b[kDepth][kTile];
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[kEach][kEach] = {};
  for (int p0 = 0; p0 < k; p0 += kDepth) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      tile_a[x][y + 16 * i] = load_value(a[(row + y + 16 * i) * k + p0 + x]);
      tile_b[t / 128 + 2 * i][t % 128] = load_value(b[(p0 + t / 128 + 2 * i) * n + column + t % 128]);
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kDepth; ++p) {
      float from_a[kEach], from_b[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) from_a[i] = tile_a[p][y + 16 * i], from_b[i] = tile_b[p][x + 16 * i];
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += from_a[i] * from_b[j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      c[(row + y + 16 * i) * n + column + x + 16 * j] = store_value<ELEMENT>(sums[i][j]);
}
