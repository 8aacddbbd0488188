// Attention by the matrix instructions of a warp (sm_80 on): masks, caps, windows, lengths, caches and any head of a
// multiple of 16. WARPS warps have 16 rows each and share tiles of KEYS keys, of which the next is copied meanwhile.
//
// Floor: what a warp's matrix instructions do, on an H200 some 60 % of those of warpgroups; per tile each warp reads
// all of K and V from shared memory for 16 rows: with depth 128, 32 KB for 0.5 M multiply-adds.
//
// Given: WARPS, KEYS; warp_rows.cu. Grid: row blocks (those that see most first), heads of K and V, batch.

constexpr int kThreads = WARPS * 32, kStage = KEYS * (kRowK + kRowV);

extern "C" __global__ void __launch_bounds__(kThreads)
    attention_mma(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ int reach[2][WARPS];
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, quad = lane >> 2, pair = (lane & 3) * 2;
  const int group = u32(a.heads) / u32(a.kv_heads), group_rows = group * a.queries;
  Task t;
  t.item = blockIdx.z, t.kv_head = blockIdx.y, t.head0 = t.kv_head * group;
  t.first = (gridDim.x - 1 - blockIdx.x) * (WARPS * 16) + warp * 16;
  t.count = max(0, min(16, group_rows - t.first));
  const Sight sight = sight_of(a, t, lane);
  if (lane == 0) reach[0][warp] = sight.from, reach[1][warp] = sight.to;
  __syncthreads();
  int from = a.keys, to = 0;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) from = min(from, reach[0][w]), to = max(to, reach[1][w]);

  const u32 base = shared_address(shared);
  u32 q[DEPTH / 16][4];
  Sums sums;
  if (from < to) load_tile<KEYS, kThreads>(a, t, base, from, to, tid);
  copies_commit();
  load_queries(a, t, quad, pair, q);
  int stage = 0;
#pragma unroll 1
  for (int tile = from; tile < to; tile += KEYS) {
    const int next = tile + KEYS;
    if (next < to) load_tile<KEYS, kThreads>(a, t, base + (stage ^ 1) * kStage, next, to, tid);
    copies_commit();
    copies_wait<1>();
    __syncthreads();
    const u32 tile_k = base + stage * kStage;
    if (tile < sight.to && next > sight.from)
      attend<KEYS / 8>(a, t, sight, q, tile_k, tile_k + KEYS * kRowK, tile, to, lane, sums);
    __syncthreads();
    stage ^= 1;
  }
  const float sum0 = sum_of_four(sums.sum0), sum1 = sum_of_four(sums.sum1);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = quad + half * 8;
    if (row >= t.count) continue;
    const float sum = half ? sum1 : sum0;
    const int head = t.head0 + u32(t.first + row) / u32(a.queries), query = u32(t.first + row) % u32(a.queries);
    OutputType* const to_y = reinterpret_cast<OutputType*>(a.y) + a.at_y.at(t.item, head, query) + pair * a.at_y.column;
    const float by = 1.0f / sum, none = a.empty_is_zero ? 0.0f : not_a_number();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      OutputType values[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float x = sum != 0 ? sums.y[c][half * 2 + i] * by : none;
        values[i] = store_value<OutputType>(epilogue(x, e, t.item, head, query, c * 8 + pair + i));
      }
      if (sizeof(OutputType) == 2 && a.y_in_words) {
        *reinterpret_cast<u32*>(to_y + c * 8) = *reinterpret_cast<const u32*>(values);
      } else {
        to_y[c * 8 * a.at_y.column] = values[0], to_y[(c * 8 + 1) * a.at_y.column] = values[1];
      }
    }
  }
}
