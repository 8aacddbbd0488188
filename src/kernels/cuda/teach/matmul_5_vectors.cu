// 5. Vector loads: 16 bytes at a time, from memory and from shared memory.
//
// The bytes are the same, the instructions are not. A thread fetches 8 numbers of A and 8 of B by one load each, where
// it took 16 loads; from shared memory it reads its 8 and 8 by four loads of 4 floats. For that its rows and columns
// are two groups of 4 side by side. A multiprocessor starts four instructions a cycle and each load that is saved is a
// multiply-add more: 64 of them now stand beside 4 loads.
constexpr int kTile = 128, kDepth = 16, kEach = 8;

extern "C" __global__ void __launch_bounds__(256, 2)
multiply(const ELEMENT* a, const ELEMENT* b, ELEMENT* c, int n, int k) {
  __shared__ alignas(16) float tile_a[kDepth][kTile + 4], tile_b[kDepth][kTile];
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[kEach][kEach] = {};
  for (int p0 = 0; p0 < k; p0 += kDepth) {
    Pack<ELEMENT, 8> eight_a, eight_b;
    load_pack(a + (row + t / 2) * k + p0 + t % 2 * 8, true, eight_a);
    load_pack(b + (p0 + y) * n + column + x * 8, true, eight_b);
#pragma unroll
    for (int i = 0; i < 8; ++i) tile_a[t % 2 * 8 + i][t / 2] = load_value(eight_a.at[i]);
    float4* const to = reinterpret_cast<float4*>(&tile_b[y][x * 8]);
    const auto& v = eight_b.at;
    to[0] = make_float4(load_value(v[0]), load_value(v[1]), load_value(v[2]), load_value(v[3]));
    to[1] = make_float4(load_value(v[4]), load_value(v[5]), load_value(v[6]), load_value(v[7]));
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kDepth; ++p) {
      Pack<float, 4> from_a[2], from_b[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        load_pack(&tile_a[p][64 * h + 4 * y], true, from_a[h]);
        load_pack(&tile_b[p][64 * h + 4 * x], true, from_b[h]);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += from_a[i / 4].at[i % 4] * from_b[j / 4].at[j % 4];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Pack<ELEMENT, 4> four;
#pragma unroll
      for (int j = 0; j < 4; ++j) four.at[j] = store_value<ELEMENT>(sums[i][4 * h + j]);
      store_pack(c + (row + i / 4 * 64 + 4 * y + i % 4) * n + column + 64 * h + 4 * x, true, four);
    }
}
