// The first layer of networks for images, for Hopper: few input channels, innermost, so that a row of the window is
// one run of memory. A block of threads copies the rows of the image that ROWS rows of output see into shared memory,
// padding written out; warpgroups read their operand from there straight into the registers of the matrix
// instructions, 64 pixels at a time. The weights stay in shared memory for all tiles.
//
// K = window rows x RUN elements, each row rounded up to a multiple of 8: what lies behind the run is masked, since it
// may be no number.
//
// Given: CHANNELS, KERNEL (rows of the window), RUN (elements of a row of it), BN (16, 32, 64: output channels), ROWS,
// INPUT (f16, bf16); in the text before: bulk.cu, `wgmma_rows`, the epilogue (matrix_epilogue.h).
//
// ResNet-50, 64 images on an H200: 30 us of bytes, 19 us of products; 87 us measured.

constexpr int kParts = (RUN + 7) / 8, kHalves = KERNEL * kParts, kSteps = (kHalves + 1) / 2;
constexpr int kBlocks = (kSteps + 3) / 4;  // of 64 elements of K in the weights
constexpr int kGroups = 2, kThreads = kGroups * 128;

struct Arguments {
  u64 x, y, bias;
  int images, in_h, in_w, out_h, out_w;
  int stride_h, stride_w, pad_h, pad_w;
  int pitch;  // elements of a row in shared memory, even
  int blocks_h, tiles;
  int vectors_y;
};

__device__ __forceinline__ u32 in_tile(int r, int piece) {
  const int turn = BN == 64 ? r & 7 : BN == 32 ? (r >> 1) & 3 : (r >> 2) & 1;
  return u32(r) * (BN * 2) + u32((piece ^ turn) << 4);
}
__device__ __forceinline__ u32 two_outputs(float a, float b) {
  return store_value<OutputType>(a).bits | u32(store_value<OutputType>(b).bits) << 16;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2)
    conv_stem(const __grid_constant__ TensorMap map_w, const __grid_constant__ Arguments a,
              const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = (shared_address(memory) + 1023) & ~1023u;
  const u32 weights = base, staging = weights + kBlocks * BN * 128, barrier = staging + kGroups * 64 * BN * 2;
  const u32 patch = barrier + 16;
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  if (threadIdx.x == 0) {
    barrier_init(barrier, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    barrier_expect(barrier, kBlocks * BN * 128);
    for (int i = 0; i < kBlocks; ++i) load_matrix(weights + i * BN * 128, &map_w, barrier, i * 64, 0);
  }
  wait_for_predecessor();
  release_dependents();
  __syncthreads();
  barrier_wait(barrier, 0);

  const int patch_rows = (ROWS - 1) * a.stride_h + KERNEL, step = a.stride_w * CHANNELS;
  const int last_part = (kParts - 1) * 8 + lane % 4 * 2;
  const u32 mask = (last_part < RUN ? 0xffffu : 0u) | (last_part + 1 < RUN ? 0xffff0000u : 0u);
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int n = tile / a.blocks_h, oh0 = (tile - n * a.blocks_h) * ROWS, h0 = oh0 * a.stride_h - a.pad_h;
    const u16* image = (const u16*)a.x + i64(n) * a.in_h * a.in_w * CHANNELS;
    // Two elements a store; the image's run begins pad_w pixels behind the row's begin.
    const int words = a.pitch / 2, row_elements = a.in_w * CHANNELS;
    for (int r = threadIdx.x / 32; r < patch_rows; r += kThreads / 32) {
      const int h = h0 + r;
      const bool there = h >= 0 && h < a.in_h;
      const u16* row = image + i64(there ? h : 0) * row_elements;
#pragma unroll 4
      for (int i = lane; i < words; i += 32) {
        const int at = 2 * i - a.pad_w * CHANNELS;
        const u32 low = there && at >= 0 && at < row_elements ? row[at] : 0;
        const u32 high = there && at + 1 >= 0 && at + 1 < row_elements ? row[at + 1] : 0;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(patch + (r * words + i) * 4), "r"(low | high << 16) : "memory");
      }
    }
    __syncthreads();
    const int pixels = min(ROWS, a.out_h - oh0) * a.out_w;
    const i64 first = (i64(n) * a.out_h + oh0) * a.out_w;
    for (int m0 = group * 64; m0 < pixels; m0 += kGroups * 64) {
      // Rows of the operand: lane / 4 and eight below.
      const int m = m0 + warp * 16 + lane / 4;
      u32 from[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int pixel = min(m + 8 * i, pixels - 1), r = pixel / a.out_w, w = pixel - r * a.out_w;
        from[i] = patch + (r * a.stride_h * a.pitch + w * step) * 2 + lane % 4 * 4;
      }
      u32 left[kSteps][4];
#pragma unroll
      for (int half = 0; half < 2 * kSteps; ++half) {
        const int row = half / kParts, part = half % kParts;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          u32 v = 0;
          if (half < kHalves) {
            asm volatile("ld.shared.b32 %0, [%1];"
                         : "=r"(v)
                         : "r"(from[i] + u32(row * a.pitch * 2 + part * 16))
                         : "memory");
            if (part == kParts - 1) v &= mask;
          }
          left[half / 2][half % 2 * 2 + i] = v;
        }
      }
      float sum[BN / 2];
      products_begin();
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
        wgmma_rows(sum, left[k], matrix_descriptor(weights + k / 4 * BN * 128) + k % 4 * 2, k != 0);
      products_commit();
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(sum[i])::"memory");

      const u32 to = staging + group * 64 * BN * 2;
      const int r_move = warp * 16 + (lane >> 3 & 1) * 8 + (lane & 7);
      const i64 row = first + min(m, pixels - 1), row8 = first + min(m + 8, pixels - 1);
#pragma unroll
      for (int j = 0; j < BN / 16; ++j) {
        u32 part[4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int at = 8 * j + 4 * half, column = 16 * j + 8 * half + 2 * (lane % 4);
          float v[2] = {sum[at], sum[at + 1]}, v8[2] = {sum[at + 2], sum[at + 3]};
          if (a.bias) {
            float b0, b1;
            load_pair((const INPUT*)a.bias + column, b0, b1);
            v[0] += b0, v[1] += b1, v8[0] += b0, v8[1] += b1;
          }
          epilogue_columns(v, e, row, i64(column), nullptr);
          epilogue_columns(v8, e, row8, i64(column), nullptr);
          part[2 * half] = two_outputs(v[0], v[1]);
          part[2 * half + 1] = two_outputs(v8[0], v8[1]);
        }
        store_fragments(to + in_tile(r_move, 2 * j + (lane >> 4)), part);
      }
      // The warp's own 16 rows, 16 bytes a lane.
      __syncwarp();
#pragma unroll
      for (int i = lane; i < 16 * (BN / 8); i += 32) {
        const int r = warp * 16 + i / (BN / 8), piece = i % (BN / 8);
        Pack<OutputType, 8> out;
        u32* const word = reinterpret_cast<u32*>(&out);
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                     : "r"(to + in_tile(r, piece))
                     : "memory");
        if (m0 + r < pixels) store_pack((OutputType*)a.y + (first + m0 + r) * BN + piece * 8, a.vectors_y, out);
      }
      __syncwarp();
    }
    __syncthreads();
  }
}
