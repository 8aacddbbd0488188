// Few queries against many keys, bound by reading the cache. A block takes a share of the keys of one head of K and V,
// with the (at most 16) query rows of the heads that share it as the rows of one matrix instruction: the cache is read
// once. Each warp goes over tiles of 16 keys of its own through STAGES buffers, without waiting for the others; shares of
// warps are merged in shared memory, shares of blocks by `combine`, a second kernel that starts while this one ends.
//
// Floor: the bytes of K and V at 4.5 TB/s: 4096 keys of 8 heads of 128 are 16.8 MB, 3.7 us; start, first latency and the
// merge are about 3 us more. 35 KB in flight a multiprocessor hide the latency of DRAM, 64 KB and more are kept.
//
// Given: DEPTH, VALUE_DEPTH (multiples of 16), WARPS, STAGES, PAST (there is a cache before K and V); warp.cu.

constexpr int kKeys = 16;
constexpr int kRowK = (DEPTH * 2 + 127) / 128 * 128, kRowV = (VALUE_DEPTH * 2 + 127) / 128 * 128;  // bytes
constexpr int kTileK = kKeys * kRowK, kStage = kTileK + kKeys * kRowV;
constexpr int kColumns = VALUE_DEPTH / 8;
constexpr float kLog2E = 1.4426950408889634f;

// Chunks of 16 bytes are exchanged within groups of eight, so that eight rows of one column lie in different banks.
__device__ __forceinline__ int chunk_at(int row, int row_bytes, int chunk) {
  return row * row_bytes + ((chunk ^ (row & 7)) << 4);
}

struct Task {
  int item, kv_head, head0, first, count, split;
};
__device__ __forceinline__ Task task_of(const Attention& a, i64 block) {
  Task t;
  const int group = a.heads / a.kv_heads;
  const int group_rows = group * a.queries, row_blocks = (group_rows + 15) / 16;
  t.split = int(block % a.splits);
  block /= a.splits;
  t.first = int(block % row_blocks) * 16;
  block /= row_blocks;
  t.kv_head = int(block % a.kv_heads), t.item = int(block / a.kv_heads);
  t.head0 = t.kv_head * group;
  t.count = min(16, group_rows - t.first);
  return t;
}

__device__ __forceinline__ void load_tile(const Attention& a, const Task& t, u32 to, int tile, int end, int lane) {
#pragma unroll
  for (int i = 0; i < kKeys * DEPTH / 8; i += 32) {
    const int at = i + lane, row = at / (DEPTH / 8), chunk = at % (DEPTH / 8), key = tile + row;
    if (kKeys * DEPTH / 8 % 32 && at >= kKeys * DEPTH / 8) break;
    const bool inside = key < end;
    const QType* from = PAST ? key_row(a, t.item, t.kv_head, inside ? key : tile)
                             : reinterpret_cast<const QType*>(a.k) + a.at_k.at(t.item, t.kv_head, inside ? key : tile);
    copy_async(to + chunk_at(row, kRowK, chunk), from + chunk * 8, inside);
  }
#pragma unroll
  for (int i = 0; i < kKeys * VALUE_DEPTH / 8; i += 32) {
    const int at = i + lane, row = at / (VALUE_DEPTH / 8), chunk = at % (VALUE_DEPTH / 8), key = tile + row;
    if (kKeys * VALUE_DEPTH / 8 % 32 && at >= kKeys * VALUE_DEPTH / 8) break;
    const bool inside = key < end;
    const VType* from = PAST ? value_row(a, t.item, t.kv_head, inside ? key : tile)
                             : reinterpret_cast<const VType*>(a.v) + a.at_v.at(t.item, t.kv_head, inside ? key : tile);
    copy_async(to + kTileK + chunk_at(row, kRowV, chunk), from + chunk * 8, inside);
  }
}

__device__ __forceinline__ void store_row(const Attention& a, const Epilogue& e, const Task& t, int row, int column,
                                          float sum, float y) {
  const int head = t.head0 + (t.first + row) / a.queries, query = (t.first + row) % a.queries;
  const float x = sum != 0 ? y / sum : a.empty_is_zero ? 0.0f : not_a_number();
  reinterpret_cast<OutputType*>(a.y)[a.at_y.at(t.item, head, query) + column * a.at_y.column] =
      store_value<OutputType>(epilogue(x, e, t.item, head, query, column));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
    attention_decode(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e, float* parts) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  if (copies(a, blockIdx.x)) return;
  extern __shared__ __align__(1024) unsigned char shared[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, quad = lane >> 2, pair = (lane & 3) * 2;
  const Task t = task_of(a, blockIdx.x);

  // Each lane below 16 knows the keys of its row; all need what the rows see together.
  Range seen = {0, 0};
  const i64 length = length_of(a, t.item);
  if (lane < t.count) seen = seen_by(a, (t.first + lane) % a.queries, length);
  const bool any = seen.begin < seen.end;
  const int from = __reduce_min_sync(~0u, any ? seen.begin : a.keys), to = __reduce_max_sync(~0u, any ? seen.end : 0);
  const bool counted = lane < t.count;
  const int all_from = __reduce_max_sync(~0u, counted ? seen.begin : 0),
            all_to = __reduce_min_sync(~0u, counted ? seen.end : a.keys);
  const int begin0 = __shfl_sync(~0u, seen.begin, quad), end0 = __shfl_sync(~0u, seen.end, quad);
  const int begin1 = __shfl_sync(~0u, seen.begin, quad + 8), end1 = __shfl_sync(~0u, seen.end, quad + 8);
  const int share = max(0, (to - from + a.splits * kKeys - 1) / (a.splits * kKeys)) * kKeys;
  const int begin = from + t.split * share, end = min(to, begin + share);

  const u32 mine = shared_address(shared) + warp * (STAGES * kStage);
  int next = begin + warp * kKeys;
#pragma unroll
  for (int s = 0; s < STAGES - 1; ++s) {
    if (next < end) load_tile(a, t, mine + s * kStage, next, end, lane);
    next += WARPS * kKeys;
    copies_commit();
  }

  // Rows quad and quad + 8 of Q, in the order of the matrix instruction's first operand.
  u32 q[DEPTH / 16][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = t.first + quad + half * 8;
    const bool inside = quad + half * 8 < t.count;
    const QType* from_q = reinterpret_cast<const QType*>(a.q) +
                          (inside ? a.at_q.at(t.item, t.head0 + row / a.queries, row % a.queries) : 0);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) {
      q[k][half] = inside ? *reinterpret_cast<const u32*>(from_q + k * 16 + pair) : 0;
      q[k][half + 2] = inside ? *reinterpret_cast<const u32*>(from_q + k * 16 + pair + 8) : 0;
    }
  }

  float y[kColumns][4];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) y[c][0] = y[c][1] = y[c][2] = y[c][3] = 0;
  float largest0 = -infinity(), largest1 = -infinity(), sum0 = 0, sum1 = 0;
  const float scale = float(a.scale), scale_log2 = scale * kLog2E, cap = float(a.softcap);
#if MASK
  const int head0 = t.head0 + (t.first + quad) / a.queries, query0 = (t.first + quad) % a.queries;
  const int head1 = t.head0 + (t.first + quad + 8) / a.queries, query1 = (t.first + quad + 8) % a.queries;
#endif

  int stage = 0;
  for (int tile = begin + warp * kKeys; tile < end; tile += WARPS * kKeys) {
    copies_wait<STAGES - 2>();
    __syncwarp();
    const u32 tile_k = mine + stage * kStage, tile_v = tile_k + kTileK;
    float s[2][4] = {};
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) {
      u32 b[4];
      load_tiles(tile_k + chunk_at(((lane >> 4) << 3) + (lane & 7), kRowK, 2 * k + ((lane >> 3) & 1)), b);
      multiply(s[0], q[k], b[0], b[1]);
      multiply(s[1], q[k], b[2], b[3]);
    }
    // The next tile, into the buffer that was read in the round before.
    {
      const int free = stage == 0 ? STAGES - 1 : stage - 1;
      if (next < end) load_tile(a, t, mine + free * kStage, next, end, lane);
      next += WARPS * kKeys;
      copies_commit();
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = s[n][i];
        if (MASK || cap != 0) {
          x *= scale;
          if (cap != 0) x = cap * tanhf(x / cap);
#if MASK
          const int key = tile + n * 8 + pair + (i & 1);
          if (quad + (i & 2) * 4 < t.count && key < a.mask_keys)
            x += float(mask_at(a, t.item, i & 2 ? head1 : head0, i & 2 ? query1 : query0, key));
#endif
          x *= kLog2E;
        } else {
          x *= scale_log2;
        }
        s[n][i] = x;
      }
    if (tile < all_from || tile + kKeys > min(all_to, end)) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int key = tile + n * 8 + pair + (i & 1);
          if (key < (i & 2 ? begin1 : begin0) || key >= min(end, i & 2 ? end1 : end0)) s[n][i] = -infinity();
        }
    }
    const float top0 = largest_of_four(fmaxf(fmaxf(s[0][0], s[0][1]), fmaxf(s[1][0], s[1][1])));
    const float top1 = largest_of_four(fmaxf(fmaxf(s[0][2], s[0][3]), fmaxf(s[1][2], s[1][3])));
    if (__any_sync(~0u, top0 > largest0 || top1 > largest1)) {
      const float now0 = fmaxf(largest0, top0), now1 = fmaxf(largest1, top1);
      const float factor0 = now0 == -infinity() ? 1.0f : power_of_two(largest0 - now0);
      const float factor1 = now1 == -infinity() ? 1.0f : power_of_two(largest1 - now1);
      largest0 = now0, largest1 = now1;
      sum0 *= factor0, sum1 *= factor1;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) y[c][0] *= factor0, y[c][1] *= factor0, y[c][2] *= factor1, y[c][3] *= factor1;
    }
    const float base0 = largest0 == -infinity() ? 0.0f : largest0, base1 = largest1 == -infinity() ? 0.0f : largest1;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      s[n][0] = power_of_two(s[n][0] - base0), s[n][1] = power_of_two(s[n][1] - base0);
      s[n][2] = power_of_two(s[n][2] - base1), s[n][3] = power_of_two(s[n][3] - base1);
      sum0 += s[n][0] + s[n][1], sum1 += s[n][2] + s[n][3];
    }
    const u32 p[4] = {pack_two(s[0][0], s[0][1]), pack_two(s[0][2], s[0][3]), pack_two(s[1][0], s[1][1]),
                      pack_two(s[1][2], s[1][3])};
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      u32 b[4];
      load_tiles_transposed(tile_v + chunk_at((lane & 7) + (((lane >> 3) & 1) << 3), kRowV, c + (lane >> 4)), b);
      multiply(y[c], p, b[0], b[1]);
      multiply(y[c + 1], p, b[2], b[3]);
    }
    __syncwarp();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copies_wait<0>();
  __syncthreads();

  // Shares of the warps: sums of 16 rows each, their largest scores (in powers of two) and sums of weights.
  constexpr int kRow = VALUE_DEPTH + 4;
  float* const all = reinterpret_cast<float*>(shared);
  float* const states = all + WARPS * 16 * kRow;
  sum0 = sum_of_four(sum0), sum1 = sum_of_four(sum1);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    float* const row = all + (warp * 16 + quad) * kRow + c * 8 + pair;
    *reinterpret_cast<float2*>(row) = make_float2(y[c][0], y[c][1]);
    *reinterpret_cast<float2*>(row + 8 * kRow) = make_float2(y[c][2], y[c][3]);
  }
  if ((lane & 3) == 0) {
    states[(warp * 16 + quad) * 2] = largest0, states[(warp * 16 + quad) * 2 + 1] = sum0;
    states[(warp * 16 + quad + 8) * 2] = largest1, states[(warp * 16 + quad + 8) * 2 + 1] = sum1;
  }
  __syncthreads();
  float* const part = parts + blockIdx.x * i64(16 * (VALUE_DEPTH + 2));
  for (int at = tid; at < t.count * VALUE_DEPTH; at += WARPS * 32) {
    const int row = at / VALUE_DEPTH, column = at % VALUE_DEPTH;
    float top = -infinity(), sum = 0, x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) top = fmaxf(top, states[(w * 16 + row) * 2]);
    const float base = top == -infinity() ? 0.0f : top;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float factor = power_of_two(states[(w * 16 + row) * 2] - base);
      sum += factor * states[(w * 16 + row) * 2 + 1];
      x += factor * all[(w * 16 + row) * kRow + column];
    }
    if (a.splits == 1) {
      store_row(a, e, t, row, column, sum, x);
    } else {
      part[row * VALUE_DEPTH + column] = x;
      if (column == 0) part[16 * VALUE_DEPTH + row * 2] = top, part[16 * VALUE_DEPTH + row * 2 + 1] = sum;
    }
  }
}

// A warp a row: the shares of all blocks.
extern "C" __global__ void __launch_bounds__(128)
    combine(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e, const float* parts) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int lane = threadIdx.x & 31;
  const i64 index = i64(blockIdx.x) * 4 + (threadIdx.x >> 5);
  const i64 tasks = a.attention_blocks / a.splits;
  if (index >= tasks * 16) return;
  const Task t = task_of(a, index / 16 * a.splits);
  const int row = int(index % 16);
  if (row >= t.count) return;
  constexpr i64 kPart = 16 * (VALUE_DEPTH + 2);
  const float* const part = parts + index / 16 * a.splits * kPart;
  float top = -infinity(), total = 0;
  for (int s = lane; s < a.splits; s += 32) top = fmaxf(top, part[s * kPart + 16 * VALUE_DEPTH + row * 2]);
#pragma unroll
  for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  const float base = top == -infinity() ? 0.0f : top;
  constexpr int kMine = (VALUE_DEPTH + 31) / 32;
  float x[kMine] = {};
  for (int s0 = 0; s0 < a.splits; s0 += 8) {
    float values[8][kMine], largest[8], sums[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float* const from = part + (s0 + i < a.splits ? s0 + i : s0) * kPart;
#pragma unroll
      for (int c = 0; c < kMine; ++c)
        values[i][c] = lane + c * 32 < VALUE_DEPTH ? from[row * VALUE_DEPTH + lane + c * 32] : 0.0f;
      largest[i] = from[16 * VALUE_DEPTH + row * 2], sums[i] = from[16 * VALUE_DEPTH + row * 2 + 1];
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (s0 + i >= a.splits) break;
      const float factor = power_of_two(largest[i] - base);
      total += factor * sums[i];
#pragma unroll
      for (int c = 0; c < kMine; ++c) x[c] += factor * values[i][c];
    }
  }
#pragma unroll
  for (int c = 0; c < kMine; ++c)
    if (lane + c * 32 < VALUE_DEPTH) store_row(a, e, t, row, lane + c * 32, total, x[c]);
}
