// Convolution in f32 as a matrix product on the plain cores: tiles of 128 pixels by BN channels, K in steps of 16, 256
// threads with 8 x (BN / 16) sums each; the next step's operands wait in registers.
//
// Given: BN (64, 128), VECTOR (1: a group's channels are a multiple of 8 and lie next to each other), MATRIX; in the
// text before: gather.cu and the epilogue, as for conv_mma.cu. Weights are packed as [groups][depth][columns, rounded
// up].
//
// Floor on an H200: FLOPs at 50 TFLOP/s.

constexpr int BM = 128, BK = 16, kThreads = 256, kColumns = BN / 16;
constexpr int kPitch = BM + 4;

struct Share {
  Pixel pixel;
  Tap tap;
  float x[8];
  float4 w[BN / 64];
};

__device__ __forceinline__ void fetch(const Arguments& a, Share& s, const float* w, int pitch, int k) {
#if VECTOR
  const i64 at = place(a, s.pixel, s.tap);
  const float* from = (const float*)a.x + at;
  if (at < 0) {
#pragma unroll
    for (int j = 0; j < 8; ++j) s.x[j] = 0;
  } else if (a.vectors) {
    const float4 low = *(const float4*)from, high = *(const float4*)(from + 4);
    s.x[0] = low.x, s.x[1] = low.y, s.x[2] = low.z, s.x[3] = low.w;
    s.x[4] = high.x, s.x[5] = high.y, s.x[6] = high.z, s.x[7] = high.w;
  } else {
#pragma unroll
    for (int j = 0; j < 8; ++j) s.x[j] = from[j];
  }
  advance(a, s.tap, BK);
#else
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const i64 at = place(a, s.pixel, s.tap);
    s.x[j] = at < 0 ? 0.0f : ((const float*)a.x)[at];
    advance(a, s.tap, 1);
  }
  advance(a, s.tap, BK - 8);
#endif
#pragma unroll
  for (int i = 0; i < BN / 64; ++i) {
    const int at = threadIdx.x + i * kThreads;
    s.w[i] = *(const float4*)(w + i64(k + at / (BN / 4)) * pitch + at % (BN / 4) * 4);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, BN == 128 ? 1 : 2)
    conv_fma(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  __shared__ __align__(16) float left[2][BK][kPitch];
  __shared__ __align__(16) float right[2][BK][BN];
  int tile = blockIdx.x;
  const int tile_n = tile % a.tiles_n;
  tile /= a.tiles_n;
  const int row0 = tile % a.tiles_m * BM, group = tile / a.tiles_m, column0 = tile_n * BN;
  const int pitch = a.tiles_n * BN, steps = a.depth / BK;
  const float* w = (const float*)a.w + i64(group) * a.depth * pitch + column0;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;  // of the sums
  const int row = threadIdx.x % 128, part = threadIdx.x / 128 * 8;
  wait_for_predecessor();
  release_dependents();

  Share s;
  s.pixel = pixel_of(a, row0 + row, group);
  s.tap = tap_of(a, part);
  float sum[8][kColumns];
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sum[i][j] = 0;
  if (steps > 0) fetch(a, s, w, pitch, 0);
  for (int step = 0; step < steps; ++step) {
    const int b = step & 1;
#pragma unroll
    for (int j = 0; j < 8; ++j) left[b][part + j][row] = s.x[j];
#pragma unroll
    for (int i = 0; i < BN / 64; ++i) {
      const int at = threadIdx.x + i * kThreads;
      *(float4*)&right[b][at / (BN / 4)][at % (BN / 4) * 4] = s.w[i];
    }
    __syncthreads();
    if (step + 1 < steps) fetch(a, s, w, pitch, (step + 1) * BK);
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float l[8], r[kColumns];
      // Rows y * 4 and 64 + y * 4, columns x * 4 and BN / 2 + x * 4: a warp's reads are without conflicts.
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 v = *(const float4*)&left[b][k][y * 4 + i * 64];
        l[4 * i] = v.x, l[4 * i + 1] = v.y, l[4 * i + 2] = v.z, l[4 * i + 3] = v.w;
      }
#pragma unroll
      for (int j = 0; j < kColumns / 4; ++j) {
        const float4 v = *(const float4*)&right[b][k][x * 4 + j * 64];
        r[4 * j] = v.x, r[4 * j + 1] = v.y, r[4 * j + 2] = v.z, r[4 * j + 3] = v.w;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) sum[i][j] = fmaf(l[i], r[j], sum[i][j]);
    }
  }

#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int pixel = row0 + y * 4 + i / 4 * 64 + i % 4;
    if (pixel >= a.pixels) continue;
    int n, out[3];
    coordinates(a, pixel, n, out);
    const i64 to = n * a.y_stride[0] + out[0] * a.y_stride[2] + out[1] * a.y_stride[3] + out[2] * a.y_stride[4];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const int column = column0 + x * 4 + j / 4 * 64 + j % 4, channel = group * a.group_out + column;
      if (column >= a.group_out) continue;
      float v[1] = {sum[i][j]};
      if (a.bias) v[0] += ((const float*)a.bias)[channel * a.bias_stride];
#if MATRIX
      epilogue_columns(v, e, i64(pixel), i64(channel), nullptr);
      ((OutputType*)a.y)[to + channel * a.y_stride[1]] = store_value<OutputType>(v[0]);
#else
      const i64 at[5] = {n, channel, out[0], out[1], out[2]};
      ((OutputType*)a.y)[to + channel * a.y_stride[1]] = store_value<OutputType>(finish(v[0], a, at));
#endif
    }
  }
}
