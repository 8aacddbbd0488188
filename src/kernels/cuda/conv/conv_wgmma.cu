// Convolution of channels-last images as one matrix product, for Hopper: rows are output pixels, columns output
// channels, K runs over taps and, in blocks of 64, over the channels of each tap.
//
// A block of threads stays on its multiprocessor and takes one tile after the other: WARPGROUPS warpgroups multiply (64
// rows each), a warp loads (bulk tensor copies, KIND 1 in im2col mode, which zeroes what lies in the padding), a warp
// stores finished tiles and loads the epilogue's image operand (STAGED) into the tile's buffer while the products run.
//
// Given: WARPGROUPS, BN (columns of a tile), STAGES, BUFFERS (of finished tiles), KIND (0: pixels as they lie, 1: by
// taps), STAGED (0, 1), INPUT (f16, bf16); in the text before: bulk.cu, taps.cu, `wgmma`, the epilogue (matrix_epilogue.h).
//
// H200, floor of a layer: bytes / 4.3 TB/s or FLOPs / 680 TFLOP/s. Loads bind, some 70 bytes a ns and multiprocessor, as
// long as the stages in flight cover 1.3 to 1.9 us. ResNet-50 at batch 64, f16, us (rotated buffers, so cold):
//   3x3 64 at 56 x 56: 39 (3 x 64 tiles, 6 stages; two blocks a multiprocessor 55)
//   1x1 64 to 256 with residual: 64, 90 % of the bytes' floor; 256 to 64: 33
//   3x3 128 at 28 x 28: 28; 3x3 256 at 14 x 14: 25 (3 x 128 with 4 stages; 3 stages 33; 2 x 256 37; two blocks 49)
//   3x3 512 at 7 x 7: 33 (2 x 112 with 6 stages; 1 x 128 with two blocks 43)
//   1x1 256 to 1024 with residual: 28; 512 to 2048: 21
// Tried: two blocks of a cluster that load half of the pixels for both (multicast): 24.0 in place of 24.6, 27.1 of 27.9,
// 40.1 of 34.1 at 7 x 7; weights prefetched into L2 before the kernel in front has ended: within noise.

constexpr int BM = 64 * WARPGROUPS;
constexpr int kChunk = BN % 64 == 0 ? 64 : BN % 32 == 0 ? 32 : 16;  // columns of one store
constexpr int kChunks = BN / kChunk;
constexpr u32 kStageA = BM * 128, kStage = kStageA + BN * 128;
constexpr u32 kTile = BM * BN * 2;
constexpr int kConsumers = WARPGROUPS * 128;

// Where row r, 16 bytes number `piece` of a row, of a finished tile's chunk lies: the pattern of bulk copies.
__device__ __forceinline__ u32 in_chunk(int r, int piece) {
  const int turn = kChunk == 64 ? r & 7 : kChunk == 32 ? (r >> 1) & 3 : (r >> 2) & 1;
  return u32(r) * (kChunk * 2) + u32((piece ^ turn) << 4);
}
__device__ __forceinline__ u32 in_tile(int r, int column) {
  return u32(column / kChunk) * (BM * kChunk * 2) + in_chunk(r, column % kChunk / 8) + column % 8 * 2;
}

// Tiles of images that bulk copies refuse.
__device__ __noinline__ void copy_tile(const Arguments& a, u32 tile, u64 image, int row0, int column0, bool to_image) {
  const int columns = min(BN, a.out_channels - column0), rows = min(BM, a.pixels - row0);
  for (int i = threadIdx.x % 32; i < rows * (columns / 2); i += 32) {
    const int r = i / (columns / 2), c = i % (columns / 2) * 2;
    u16* p = (u16*)image + i64(row0 + r) * a.out_channels + column0 + c;
    if (to_image) {
      const u32 pair = read_shared(tile + in_tile(r, c));
      p[0] = u16(pair), p[1] = u16(pair >> 16);
    } else {
      write_shared(tile + in_tile(r, c), p[0] | u32(p[1]) << 16);
    }
  }
}

__device__ __forceinline__ void load_all(const Arguments& a, const TensorMap* map_x, const TensorMap* map_w, u32 base,
                                         u32 full, u32 empty) {
  const bool first = threadIdx.x % 32 == 0;
  int stage = 0;
  u32 parity = 1;  // of empty stages: the first round finds all of them so
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    const int row0 = tile / a.tiles_n * BM, column0 = tile % a.tiles_n * BN;
    int n = 0, h = 0, w = 0;
    if (KIND == 1) {
      n = row0 / (a.out_h * a.out_w);
      const int rest = row0 - n * (a.out_h * a.out_w);
      h = rest / a.out_w;
      w = (rest - h * a.out_w) * a.stride_w - a.pad_w;
      h = h * a.stride_h - a.pad_h;
    }
    int k = 0;
    for (int kh = 0; kh < a.kernel_h; ++kh) {
      for (int kw = 0; kw < a.kernel_w; ++kw) {
        for (int c = 0; c < a.blocks_c; ++c, k += 64) {
          barrier_wait(empty + 8 * stage, parity);
          const u32 barrier = full + 8 * stage, to = base + stage * kStage;
          if (!a.bulk_x) gather_rows<BM>(a, to, row0, c * 64, kh, kw);
          __syncwarp();
          if (first) {
            barrier_expect(barrier, a.bulk_x ? kStage : kStage - kStageA);
            if (a.bulk_x) {
              if (KIND == 1)
                load_image(to, map_x, barrier, c * 64, w, h, n, u16(kw * a.dilation_w), u16(kh * a.dilation_h));
              else
                load_matrix(to, map_x, barrier, c * 64, row0);
            }
            load_matrix(to + kStageA, map_w, barrier, k, column0);
          }
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
  }
}

__device__ __forceinline__ void load_staged(const Arguments& a, const TensorMap* map, u32 buffer, u32 barrier,
                                            int tile) {
  if (!STAGED || tile >= a.tiles) return;
  const int row0 = tile / a.tiles_n * BM, column0 = tile % a.tiles_n * BN;
  if (a.bulk_staged) {
    if (threadIdx.x % 32 == 0) {
      barrier_expect(barrier, kTile);
      for (int i = 0; i < kChunks; ++i)
        load_matrix(buffer + i * (BM * kChunk * 2), map, barrier, column0 + i * kChunk, row0);
    }
  } else {
    copy_tile(a, buffer, a.staged, row0, column0, false);
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }
}

__device__ __forceinline__ void store_all(const Arguments& a, const TensorMap* map_y, const TensorMap* map_staged,
                                          u32 buffers, u32 ready, u32 free) {
  for (int b = 0; b < BUFFERS; ++b)
    load_staged(a, map_staged, buffers + b * kTile, free + 8 * b, int(blockIdx.x + b * gridDim.x));
  int turn = 0;
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x, ++turn) {
    const int b = turn % BUFFERS, row0 = tile / a.tiles_n * BM, column0 = tile % a.tiles_n * BN;
    const u32 buffer = buffers + b * kTile;
    barrier_wait(ready + 8 * b, (turn / BUFFERS) & 1);
    if (a.bulk_y) {
      if (threadIdx.x % 32 == 0) {
        for (int i = 0; i < kChunks; ++i)
          if (column0 + i * kChunk < a.out_channels)
            store_matrix(buffer + i * (BM * kChunk * 2), map_y, column0 + i * kChunk, row0);
        stores_commit();
        stores_were_read();
      }
    } else {
      copy_tile(a, buffer, a.y, row0, column0, true);
    }
    __syncwarp();
    if (STAGED)
      load_staged(a, map_staged, buffer, free + 8 * b, int(tile + BUFFERS * gridDim.x));
    else if (threadIdx.x % 32 == 0)
      barrier_arrive(free + 8 * b);
  }
  // The end of the kernel frees its memory: the stores have to be out.
  if (threadIdx.x % 32 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

__device__ __forceinline__ u32 two_outputs(float a, float b) {
  return store_value<OutputType>(a).bits | u32(store_value<OutputType>(b).bits) << 16;
}

__device__ __forceinline__ void multiply_all(const Arguments& a, const Epilogue& e, u32 base, u32 full, u32 empty,
                                             u32 buffers, u32 ready, u32 free) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int blocks = a.kernel_h * a.kernel_w * a.blocks_c;
  int stage = 0, turn = 0;
  u32 parity = 0;
  WgmmaSum sum[BN / 2];
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x, ++turn) {
    const int row0 = tile / a.tiles_n * BM, column0 = tile % a.tiles_n * BN;
    int previous = 0;
    for (int k = 0; k < blocks; ++k) {
      barrier_wait(full + 8 * stage, parity);
      products_begin();
      const u32 from = base + stage * kStage;
      const u64 left = matrix_descriptor(from + group * 64 * 128), right = matrix_descriptor(from + kStageA);
#pragma unroll
      for (int i = 0; i < 4; ++i) wgmma(sum, left + 2 * i, right + 2 * i, (k | i) != 0);
      products_commit();
      products_wait<1>();
      // The block before is done with.
      if (k > 0 && lane == 0) barrier_arrive(empty + 8 * previous);
      previous = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    products_wait<0>();
    if (lane == 0) barrier_arrive(empty + 8 * previous);
#pragma unroll
    for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(sum[i])::"memory");

    const int b = turn % BUFFERS;
    barrier_wait(free + 8 * b, STAGED ? (turn / BUFFERS) & 1 : ((turn / BUFFERS) & 1) ^ 1);
    const u32 buffer = buffers + b * kTile;
    // Rows of this lane's sums, and the row and piece that it addresses in moves of four 8 x 8 matrices.
    const int r = group * 64 + warp * 16 + lane / 4, last = a.pixels - 1;
    const i64 row = min(row0 + r, last), row8 = min(row0 + r + 8, last);
    const int r_move = group * 64 + warp * 16 + (lane >> 3 & 1) * 8 + (lane & 7);
#pragma unroll
    for (int j = 0; j < BN / 16; ++j) {
      const u32 address =
          buffer + j * 16 / kChunk * (BM * kChunk * 2) + in_chunk(r_move, j * 16 % kChunk / 8 + (lane >> 4));
      u32 part[4] = {0, 0, 0, 0};
      if (STAGED) load_fragments(address, part);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = 8 * j + 4 * half;
        const int column = min(column0 + 16 * j + 8 * half + 2 * (lane % 4), a.out_channels - 2);
        float v[2] = {sum[at], sum[at + 1]}, v8[2] = {sum[at + 2], sum[at + 3]};
        if (a.bias) {
          float b0, b1;
          load_pair((const INPUT*)a.bias + column, b0, b1);
          v[0] += b0, v[1] += b1, v8[0] += b0, v8[1] += b1;
        }
        epilogue_columns(v, e, row, column, &part[2 * half]);
        epilogue_columns(v8, e, row8, column, &part[2 * half + 1]);
        part[2 * half] = two_outputs(v[0], v[1]);
        part[2 * half + 1] = two_outputs(v8[0], v8[1]);
      }
      store_fragments(address, part);
    }
    publish_shared();
    __syncwarp();
    if (lane == 0) barrier_arrive(ready + 8 * b);
  }
}

extern "C" __global__ void __launch_bounds__(kConsumers + 64, MINIMUM)
    conv_wgmma(const __grid_constant__ TensorMap map_x, const __grid_constant__ TensorMap map_w,
               const __grid_constant__ TensorMap map_y, const __grid_constant__ TensorMap map_staged,
               const __grid_constant__ Arguments a, const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(1024) unsigned char memory[];
  // The alignment of dynamic memory is not promised: the host asks for 1024 bytes more.
  const u32 base = (shared_address(memory) + 1023) & ~1023u;
  const u32 buffers = base + STAGES * kStage, barriers = buffers + BUFFERS * kTile;
  const u32 full = barriers, empty = full + 8 * STAGES, ready = empty + 8 * STAGES, free = ready + 8 * BUFFERS;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(full + 8 * i, 1), barrier_init(empty + 8 * i, kConsumers / 32);
    for (int i = 0; i < BUFFERS; ++i) barrier_init(ready + 8 * i, kConsumers / 32), barrier_init(free + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    prefetch_map(&map_x), prefetch_map(&map_w), prefetch_map(&map_y);
    if (STAGED) prefetch_map(&map_staged);
  }
  __syncthreads();
  wait_for_predecessor();
  release_dependents();
  if (threadIdx.x < kConsumers)
    multiply_all(a, e, base, full, empty, buffers, ready, free);
  else if (threadIdx.x < kConsumers + 32)
    load_all(a, &map_x, &map_w, base, full, empty);
  else
    store_all(a, &map_y, &map_staged, buffers, ready, free);
}
