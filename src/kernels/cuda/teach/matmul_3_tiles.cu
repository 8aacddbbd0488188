// 3. Tiles in shared memory: what a block has loaded, all its threads use.
//
// 1,024 threads make 32 x 32 elements of the result. For 32 steps of k they need 32 rows of A and 32 columns of B, no
// more: each thread fetches one number of either into the memory that the block shares, and everybody multiplies from
// there. Each number is fetched once for 32 uses, and turned into a float once. Both barriers are needed: nobody may
// read before all have written, nor overwrite what others still read.
//
// What binds now is shared memory itself: two loads for each multiply-add, where a multiprocessor does four times as
// many multiply-adds as loads.
constexpr int kTile = 32;

extern "C" __global__ void __launch_bounds__(kTile * kTile)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int p0 = 0; p0 < k; p0 += kTile) {
    tile_a[y][x] = load_value(a[row * k + p0 + x]);
    tile_b[y][x] = load_value(b[(p0 + y) * n + column]);
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kTile; ++p) sum += tile_a[y][p] * tile_b[p][x];
    __syncthreads();
  }
  c[row * n + column] = store_value<ELEMENT>(sum);
}
