// Few queries against many keys, bound by reading the cache. A block takes a share of the keys of one head of K and V,
// with the (at most 16) query rows of the heads that share it as the rows of one matrix instruction: the cache is read
// once. Each warp goes over tiles of 16 keys of its own through STAGES buffers, without waiting for the others; shares
// of warps are merged in shared memory, shares of blocks within a cluster: each block merges some columns, for which
// the others write into its shared memory. (CLUSTER 1: by `combine`, a second kernel; with it 1,024 keys took 11 us.)
//
// Floor: the bytes of K and V at 4.5 TB/s: 4096 keys of 8 heads of 128 are 16.8 MB, 3.7 us; start, first latency and
// the merge are about 3 us more. 35 KB in flight a multiprocessor hide the latency of DRAM, 64 KB and more are kept.
//
// Given: WARPS, STAGES, CLUSTER, INBOX (where the slots of a cluster lie in shared memory); warp_rows.cu.

#if __CUDA_ARCH__ < 900  // no clusters; nobody asks for one there
#undef CLUSTER
#define CLUSTER 1
#endif
constexpr int kKeys = 16, kStage = kKeys * (kRowK + kRowV);

// Grid: shares of the context, heads of K and V and their row blocks, batch.
__device__ __forceinline__ Task task_here(const Attention& a) {
  Task t;
  const u32 group = u32(a.heads) / u32(a.kv_heads), group_rows = group * a.queries;
  const u32 row_blocks = (group_rows + 15) / 16;
  t.item = blockIdx.z;
  t.kv_head = blockIdx.y / row_blocks;
  t.first = (blockIdx.y - t.kv_head * row_blocks) * 16;
  t.head0 = t.kv_head * group;
  t.count = min(16, int(group_rows) - t.first);
  return t;
}

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
__device__ __forceinline__ void store_remote(u32 at, u32 rank, float x) {
  asm volatile("{.reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; st.shared::cluster.f32 [r], %2;}" ::"r"(at),
               "r"(rank), "f"(x) : "memory");
}
#else
#define CLUSTERED
#endif

extern "C" __global__ void CLUSTERED __launch_bounds__(WARPS * 32)
    attention_decode(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e, float* parts) {
#if CLUSTER > 1
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");  // here I am
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  extern __shared__ __align__(1024) unsigned char shared[];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, quad = lane >> 2, pair = (lane & 3) * 2;
  const Task t = task_here(a);

  const Sight sight = sight_of(a, t, lane);
  const int from = sight.from, to = sight.to;
  const int share = u32(max(0, to - from) + gridDim.x * kKeys - 1) / u32(gridDim.x * kKeys) * kKeys;
  const int begin = from + int(blockIdx.x) * share, end = min(to, begin + share);

  const u32 mine = shared_address(shared) + warp * (STAGES * kStage);
  Sums sums;
  // The loop runs ahead of itself by STAGES - 1 tiles: one place in the code that loads (all of it is fetched anew at
  // each launch, a line at a time).
  u32 q[DEPTH / 16][4];
  int stage = 0, free = 0;
  const int step = WARPS * kKeys;
#pragma unroll 1
  for (int tile = begin + warp * kKeys - (STAGES - 1) * step; tile < end; tile += step) {
    const int next = tile + (STAGES - 1) * step;
    if (next < end) load_tile<kKeys, 32>(a, t, mine + free * kStage, next, end, lane);
    copies_commit();
    free = free + 1 == STAGES ? 0 : free + 1;
    if (tile < begin) {
      if (tile + step >= begin) load_queries(a, t, quad, pair, q);
      continue;
    }
    copies_wait<STAGES - 1>();
    __syncwarp();
    const u32 tile_k = mine + stage * kStage;
    attend<kKeys / 8>(a, t, sight, q, tile_k, tile_k + kKeys * kRowK, tile, end, lane, sums);
    __syncwarp();
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }
  copies_wait<0>();
  __syncthreads();

  // Shares of the warps: sums of 16 rows each, their largest scores (in powers of two) and sums of weights.
  constexpr int kRow = VALUE_DEPTH + 4;
  float* const all = reinterpret_cast<float*>(shared);
  float* const states = all + WARPS * 16 * kRow;
  const float sum0 = sum_of_four(sums.sum0), sum1 = sum_of_four(sums.sum1);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    float* const row = all + (warp * 16 + quad) * kRow + c * 8 + pair;
    *reinterpret_cast<float2*>(row) = make_float2(sums.y[c][0], sums.y[c][1]);
    *reinterpret_cast<float2*>(row + 8 * kRow) = make_float2(sums.y[c][2], sums.y[c][3]);
  }
  if ((lane & 3) == 0) {
    states[(warp * 16 + quad) * 2] = sums.largest0, states[(warp * 16 + quad) * 2 + 1] = sum0;
    states[(warp * 16 + quad + 8) * 2] = sums.largest1, states[(warp * 16 + quad + 8) * 2 + 1] = sum1;
  }
  __syncthreads();
#if CLUSTER > 1
  // Columns [r * kWidth, (r + 1) * kWidth) are merged by block r; slots [rank][row][column], then states. They lie
  // behind the buffers, which this block may still read from when the first of the others is done.
  constexpr int kWidth = VALUE_DEPTH / CLUSTER, kSlot = 16 * (kWidth + 2);
  const u32 inbox = shared_address(shared) + INBOX, rank = blockIdx.x;
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // all are here: their memory can be written
#else
  float* const part =
      parts + ((i64(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * i64(16 * (VALUE_DEPTH + 2));
#endif
#pragma unroll 1
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
#if CLUSTER > 1
    const u32 slot = inbox + rank * (kSlot * 4);
    store_remote(slot + (row * kWidth + column % kWidth) * 4, column / kWidth, x);
    if (column % kWidth == 0) {
      store_remote(slot + (16 * kWidth + row * 2) * 4, column / kWidth, top);
      store_remote(slot + (16 * kWidth + row * 2 + 1) * 4, column / kWidth, sum);
    }
#else
    if (gridDim.x == 1) {
      store_row(a, e, t, row, column, sum, x);
    } else {
      part[row * VALUE_DEPTH + column] = x;
      if (column == 0) part[16 * VALUE_DEPTH + row * 2] = top, part[16 * VALUE_DEPTH + row * 2 + 1] = sum;
    }
#endif
  }
#if CLUSTER > 1
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  const float* const slots = reinterpret_cast<const float*>(shared + INBOX);
#pragma unroll 1
  for (int at = tid; at < t.count * kWidth; at += WARPS * 32) {
    const int row = at / kWidth, column = at % kWidth;
    float top = -infinity(), sum = 0, x = 0;
#pragma unroll
    for (int r = 0; r < CLUSTER; ++r) top = fmaxf(top, slots[r * kSlot + 16 * kWidth + row * 2]);
    const float base = top == -infinity() ? 0.0f : top;
#pragma unroll
    for (int r = 0; r < CLUSTER; ++r) {
      const float factor = power_of_two(slots[r * kSlot + 16 * kWidth + row * 2] - base);
      sum += factor * slots[r * kSlot + 16 * kWidth + row * 2 + 1];
      x += factor * slots[r * kSlot + row * kWidth + column];
    }
    store_row(a, e, t, row, int(rank) * kWidth + column, sum, x);
  }
#endif
}

// A warp a row: the shares of all blocks.
extern "C" __global__ void __launch_bounds__(128)
    combine(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e, const float* parts) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const int lane = threadIdx.x & 31;
  const Task t = task_here(a);
  const int row = blockIdx.x * 4 + (threadIdx.x >> 5);
  if (row >= t.count) return;
  constexpr i64 kPart = 16 * (VALUE_DEPTH + 2);
  const float* const part = parts + (i64(blockIdx.z) * gridDim.y + blockIdx.y) * a.splits * kPart;
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
