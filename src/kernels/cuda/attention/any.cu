// Attention of whatever is asked: any type, strides, depth, window, mask, cap, and the scores as an output. ROWS query
// rows that share keys and values a block; a thread a key for the scores, a thread a column for the sums; online
// softmax (Milakov and Gimelshein, 2018), so that no score leaves the block unless it is wanted.
//
// Given: Sum (float or double), ROWS, TILE (keys and threads), SCORES.

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float hyperbolic(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic(double x) { return tanh(x); }

// Sums of f64 are stored in halves where V alone is f64.
template <typename T>
__device__ __forceinline__ T stored(float x) { return store_value<T>(x); }
template <typename T>
__device__ __forceinline__ T stored(double x) {
  if constexpr (sizeof(T) == 2) return store_value<T>(float(x));
  else return store_value<T>(x);
}

struct Row {
  int head, query;
  Range seen;
};

__device__ __forceinline__ void keep(const Attention& a, int mode, int item, const Row& row, int key, Sum s) {
#if SCORES
  if (a.scores_mode == mode)
    reinterpret_cast<QType*>(a.scores)[a.at_scores.at(item, row.head, row.query) + key * a.at_scores.column] =
        stored<QType>(s);
#endif
}

// The scores of one key, hidden ones minus infinity.
__device__ __forceinline__ void score(const Attention& a, int item, int kv_head, int key, int count, const Row* rows,
                                      const Sum* q, bool keeps, Sum (&s)[ROWS]) {
  const QType* k = key_row(a, item, kv_head, key);
  const i64 column = key < a.past ? a.at_past_k.column : a.at_k.column;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) s[r] = 0;
  for (int d = 0; d < a.depth; ++d) {
    const Sum x = load_value(k[d * column]);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) s[r] += q[r * a.depth + d] * x;
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    if (r >= count) {
      s[r] = -infinity();
      continue;
    }
    const Row row = rows[r];
    Sum x = s[r] * Sum(a.scale);
    if (keeps) keep(a, 0, item, row, key, x);
    if (a.softcap != 0) x = Sum(a.softcap) * hyperbolic(x / Sum(a.softcap));
    if (keeps) keep(a, 1, item, row, key, x);
#if MASK
    if (key < a.mask_keys) x += mask_at(a, item, row.head, row.query, key);
#endif
    if (key < row.seen.begin || key >= row.seen.end) x = -infinity();
    if (keeps) keep(a, 2, item, row, key, x);
    s[r] = x;
  }
}

extern "C" __global__ void __launch_bounds__(TILE)
    attention_any(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e) {
  if (copies(a, blockIdx.x)) return;
  extern __shared__ double room[];
  __shared__ Row rows[ROWS];
  __shared__ Sum largest[ROWS], sums[ROWS], factors[ROWS];
  Sum* const q = reinterpret_cast<Sum*>(room);
  Sum* const y = q + ROWS * a.depth;
  Sum* const weights = y + ROWS * a.value_depth;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const int group = a.heads / a.kv_heads;
  const i64 group_rows = i64(group) * a.queries, row_blocks = (group_rows + ROWS - 1) / ROWS;
  const i64 first = blockIdx.x % row_blocks * ROWS, pair = blockIdx.x / row_blocks;
  const int kv_head = int(pair % a.kv_heads), item = int(pair / a.kv_heads);
  const int count = int(min(i64(ROWS), group_rows - first));
  const i64 length = length_of(a, item);
  if (tid < count) {
    Row row;
    row.head = kv_head * group + int((first + tid) / a.queries);
    row.query = int((first + tid) % a.queries);
    row.seen = seen_by(a, row.query, length);
    rows[tid] = row;
    largest[tid] = -infinity(), sums[tid] = 0;
  }
  __syncthreads();
  for (int r = 0; r < count; ++r) {
    const QType* from = reinterpret_cast<const QType*>(a.q) + a.at_q.at(item, rows[r].head, rows[r].query);
    for (int d = tid; d < a.depth; d += TILE) q[r * a.depth + d] = load_value(from[d * a.at_q.column]);
    for (int d = tid; d < a.value_depth; d += TILE) y[r * a.value_depth + d] = 0;
  }
  int from = a.keys, to = 0;
  for (int r = 0; r < count; ++r)
    if (rows[r].seen.begin < rows[r].seen.end) from = min(from, rows[r].seen.begin), to = max(to, rows[r].seen.end);
#if SCORES
  from = 0, to = a.keys;
#endif
  for (int tile = from; tile < to; tile += TILE) {
    __syncthreads();
    Sum s[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) s[r] = -infinity();
    if (tile + tid < to) score(a, item, kv_head, tile + tid, count, rows, q, true, s);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) weights[r * TILE + tid] = s[r];
    __syncthreads();
    for (int r = warp; r < count; r += TILE / 32) {
      Sum top = largest[r];
      const Sum before = top;
#pragma unroll
      for (int i = 0; i < TILE / 32; ++i) top = larger(top, weights[r * TILE + i * 32 + lane]);
#pragma unroll
      for (int step = 16; step; step /= 2) top = larger(top, __shfl_xor_sync(~0u, top, step));
      const Sum base = top == -infinity() ? Sum(0) : top;  // exp(-inf + inf) would be NaN
      Sum sum = 0;
#pragma unroll
      for (int i = 0; i < TILE / 32; ++i) {
        const Sum w = exponential(weights[r * TILE + i * 32 + lane] - base);
        weights[r * TILE + i * 32 + lane] = w;
        sum += w;
      }
#pragma unroll
      for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      const Sum factor = exponential(before - base);
      if (lane == 0) largest[r] = top, factors[r] = factor, sums[r] = sums[r] * factor + sum;
    }
    __syncthreads();
    const int keys = min(TILE, to - tile);
    for (int d = tid; d < a.value_depth; d += TILE) {
      Sum sum[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; ++r) sum[r] = r < count ? y[r * a.value_depth + d] * factors[r] : Sum(0);
      for (int i = 0; i < keys; ++i) {
        const int key = tile + i;
        const i64 column = key < a.past ? a.at_past_v.column : a.at_v.column;
        const Sum v = load_value(value_row(a, item, kv_head, key)[d * column]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
          const Sum w = r < count ? weights[r * TILE + i] : Sum(0);
          if (w != 0) sum[r] += w * v;  // what is hidden may be no number
        }
      }
#pragma unroll
      for (int r = 0; r < ROWS; ++r)
        if (r < count) y[r * a.value_depth + d] = sum[r];
    }
  }
  __syncthreads();
#if SCORES
  // Weights are known now that the sums are: the scores once more.
  for (int key = tid; a.scores_mode == 3 && key < a.keys; key += TILE) {
    Sum s[ROWS];
    score(a, item, kv_head, key, count, rows, q, false, s);
    for (int r = 0; r < count; ++r) {
      const Sum base = largest[r] == -infinity() ? Sum(0) : largest[r];
      keep(a, 3, item, rows[r], key, sums[r] == 0 ? Sum(0) : exponential(s[r] - base) / sums[r]);
    }
  }
#endif
  for (int r = 0; r < count; ++r) {
    const Row row = rows[r];
    const Sum sum = sums[r];
    OutputType* const to_y = reinterpret_cast<OutputType*>(a.y) + a.at_y.at(item, row.head, row.query);
    for (int d = tid; d < a.value_depth; d += TILE) {
      const Sum x = sum != 0 ? y[r * a.value_depth + d] / sum : a.empty_is_zero ? Sum(0) : Sum(not_a_number());
      to_y[d * a.at_y.column] = stored<OutputType>(epilogue(x, e, item, row.head, row.query, d));
    }
  }
}

// Only what is written of the cache, before a kernel that reads it as one.
extern "C" __global__ void __launch_bounds__(TILE) attention_copies(const __grid_constant__ Attention a) {
  copies(a, blockIdx.x);
}
