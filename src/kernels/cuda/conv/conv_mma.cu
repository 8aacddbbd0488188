// Convolution in f16 and bf16 as a matrix product by mma.sync: sm_80, and whatever the kernels of sm_90 refuse. Tiles
// of 128 pixels by BN channels, K in steps of 32 through STAGES buffers of shared memory.
//
// Given: BN (32, 64, 128), STAGES, INPUT (f16, bf16), MMA_TYPE ("f16", "bf16"), VECTOR (1: a group's channels are a
// multiple of 8 and lie next to each other), MATRIX (1: results are rows of channels, epilogue of matrix_epilogue.h;
// 0: strided_epilogue.h); in the text before: gather.cu and the epilogue.
//
// Floor on an H200: FLOPs at some 500 TFLOP/s (mma.sync reaches 60-65 % of the peak of warpgroups), or bytes at 4.3
// TB/s. Gathering element by element is slow: 490 us for ResNet-50's first layer at batch 64 (cuda.conv_stem: 87 us).
// A table of positions along K in shared memory, in place of steps from tap to tap, brought it to 422 only.

constexpr int BM = 128, BK = 32, kThreads = 256;
constexpr u32 kStageA = BM * BK * 2, kStage = kStageA + BN * BK * 2;
constexpr int kWarpColumns = BN / 2, kTilesN = kWarpColumns / 8;  // warps are 4 x 2, each with 32 rows

__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
// 16 bytes number `piece` of row r: eight rows one below the other lie in different banks.
__device__ __forceinline__ u32 in_stage(int r, int piece) { return r * (BK * 2) + ((piece ^ ((r >> 1) & 3)) << 4); }

__device__ __forceinline__ void copy_async(u32 to, const void* from, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void load_matrices(u32 address, u32 (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." MMA_TYPE "." MMA_TYPE
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A thread's share of A. By vectors: two rows, 16 bytes of each a step; by elements: one row, 16 of its 32 elements, so
// that a warp's loads are of neighbouring pixels.
struct Share {
#if VECTOR
  Pixel pixel[2];
  Tap tap;
#else
  Pixel pixel[1];
  Tap tap;
  u32 held[8];
#endif
};

__device__ __forceinline__ void begin_share(const Arguments& a, Share& s, int row0, int group) {
  const int t = threadIdx.x;
#if VECTOR
  s.pixel[0] = pixel_of(a, row0 + t / 4, group);
  s.pixel[1] = pixel_of(a, row0 + t / 4 + 64, group);
  s.tap = tap_of(a, t % 4 * 8);
#else
  s.pixel[0] = pixel_of(a, row0 + t % 128, group);
  s.tap = tap_of(a, t / 128 * 16);
#endif
}
// The next step's elements on their way: to shared memory, or to registers.
__device__ __forceinline__ void fetch(const Arguments& a, Share& s, u32 stage) {
#if VECTOR
  const int t = threadIdx.x;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const i64 at = place(a, s.pixel[i], s.tap);
    const u32 to = stage + in_stage(t / 4 + 64 * i, t % 4);
    const u16* from = (const u16*)a.x + (at < 0 ? 0 : at);
    if (a.vectors) {
      copy_async(to, from, at >= 0);
    } else {
      u32 word[4] = {0, 0, 0, 0};
      if (at >= 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j) word[j] = from[2 * j] | u32(from[2 * j + 1]) << 16;
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]),
                   "r"(word[3])
                   : "memory");
    }
  }
  advance(a, s.tap, BK);
#else
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const i64 at = place(a, s.pixel[0], s.tap);
    const u32 value = at < 0 ? 0 : ((const u16*)a.x)[at];
    if (j % 2) s.held[j / 2] |= value << 16;
    else s.held[j / 2] = value;
    advance(a, s.tap, 1);
  }
  advance(a, s.tap, BK - 16);
#endif
}
__device__ __forceinline__ void settle(const Share& s, u32 stage) {
#if !VECTOR
  const int r = threadIdx.x % 128, piece = threadIdx.x / 128 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i)
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(stage + in_stage(r, piece + i)), "r"(s.held[4 * i]),
                 "r"(s.held[4 * i + 1]), "r"(s.held[4 * i + 2]), "r"(s.held[4 * i + 3])
                 : "memory");
#endif
}

// Rows of this group's packed weights, [group_out][depth].
__device__ __forceinline__ void fetch_weights(const Arguments& a, u32 stage, const u16* w, int column0, int k) {
  for (int i = threadIdx.x; i < BN * 4; i += kThreads) {
    const int r = i / 4, piece = i % 4;
    const bool there = column0 + r < a.group_out;
    copy_async(stage + kStageA + in_stage(r, piece), w + i64(there ? column0 + r : 0) * a.depth + k + piece * 8, there);
  }
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    conv_mma(const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(128) unsigned char memory[];
  const u32 base = shared_address(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warp_m = warp % 4, warp_n = warp / 4;
  int tile = blockIdx.x;
  const int tile_n = tile % a.tiles_n;
  tile /= a.tiles_n;
  const int row0 = tile % a.tiles_m * BM, group = tile / a.tiles_m, column0 = tile_n * BN;
  const u16* w = (const u16*)a.w + i64(group) * a.group_out * a.depth;
  const int steps = a.depth / BK;
  wait_for_predecessor();
  release_dependents();

  Share share;
  begin_share(a, share, row0, group);
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) {
      fetch(a, share, base + s * kStage);
      settle(share, base + s * kStage);
      fetch_weights(a, base + s * kStage, w, column0, s * BK);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  float sum[2][kTilesN][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < kTilesN; ++j)
#pragma unroll
      for (int v = 0; v < 4; ++v) sum[i][j][v] = 0;
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    const int next = step + STAGES - 1;
    const u32 to = base + next % STAGES * kStage, from = base + step % STAGES * kStage;
    if (next < steps) {
      fetch(a, share, to);
      fetch_weights(a, to, w, column0, next * BK);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      u32 left[2][4], right[(kTilesN + 1) / 2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        load_matrices(from + in_stage(warp_m * 32 + i * 16 + lane % 16, k * 2 + lane / 16), left[i]);
#pragma unroll
      for (int j = 0; j < kTilesN / 2; ++j)
        load_matrices(from + kStageA + in_stage(warp_n * kWarpColumns + j * 16 + (lane & 7) + (lane >> 4) * 8,
                                                k * 2 + (lane >> 3 & 1)),
                      right[j]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < kTilesN; ++j)
          multiply(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
    if (next < steps) settle(share, to);
  }

#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int pixel = row0 + warp_m * 32 + i * 16 + half * 8 + lane / 4;
      if (pixel >= a.pixels) continue;
      int n, out[3];
      coordinates(a, pixel, n, out);
      const i64 to = n * a.y_stride[0] + out[0] * a.y_stride[2] + out[1] * a.y_stride[3] + out[2] * a.y_stride[4];
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) {
        const int column = column0 + warp_n * kWarpColumns + j * 8 + lane % 4 * 2;
        if (column >= a.group_out) continue;
        const int channel = group * a.group_out + column;
        float v[2] = {sum[i][j][half * 2], sum[i][j][half * 2 + 1]};
        const bool both = column + 1 < a.group_out;
        if (a.bias) {
          v[0] += load_value(((const INPUT*)a.bias)[channel * a.bias_stride]);
          if (both) v[1] += load_value(((const INPUT*)a.bias)[(channel + 1) * a.bias_stride]);
        }
        OutputType* p = (OutputType*)a.y + to + channel * a.y_stride[1];
#if MATRIX
        if (a.pairs && both) {
          epilogue_columns(v, e, i64(pixel), i64(channel), nullptr);
          Pack<OutputType, 2> pair = {{store_value<OutputType>(v[0]), store_value<OutputType>(v[1])}};
          store_pack(p, true, pair);
          continue;
        }
#endif
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (c == 1 && !both) break;
#if MATRIX
          float one[1] = {v[c]};
          epilogue_columns(one, e, i64(pixel), i64(channel + c), nullptr);
          p[c * a.y_stride[1]] = store_value<OutputType>(one[0]);
#else
          const i64 at[5] = {n, channel + c, out[0], out[1], out[2]};
          p[c * a.y_stride[1]] = store_value<OutputType>(finish(v[c], a, at));
#endif
        }
      }
    }
  }
}
