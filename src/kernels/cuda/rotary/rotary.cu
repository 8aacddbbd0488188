// Rows turned by given angles and rows written into caches: RotaryEmbedding, RotaryAppend, TensorScatter.
//
// A unit is PER pairs of a turned row (elements p and p + pairs, or 2 p and 2 p + 1), or 2 PER elements of one that is
// only moved. A step of one token moves 24 KB and is a launch's latency; 1024 tokens of 12288 elements 50 MB, 12 us at
// 4.2 TB/s.
//
// Given: T, Table (storage types), PER, THREADS, INTERLEAVED.

struct Arguments {
  u64 x, cos, sin, indices, y, keys, values, keys_before, values_before;
  i64 batch, heads, own, length, depth, capacity, rows;  // own: heads of keys; rows: of the tables
  i64 x_head, x_token, x_batch;                          // strides of the input's rows, in elements
  i64 y_head, y_token, y_batch;
  i64 pairs, units;   // turned pairs of a row; units a row
  i64 copied;         // elements of each cache that are to be copied first; 0: in place
  i64 row_blocks;     // the blocks behind them copy
  u32 aligned, has_indices, row_by_index, circular;
};

__device__ __forceinline__ void turn_unit(const T* from, T* to, const Table* cos, const Table* sin, i64 p, i64 pairs,
                                          bool aligned) {
  if (INTERLEAVED) {
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      const i64 a = 2 * (p + i);
      const float x = load_value(from[a]), y = load_value(from[a + 1]);
      const float c = load_value(cos[p + i]), s = load_value(sin[p + i]);
      to[a] = store_value<T>(c * x - s * y);
      to[a + 1] = store_value<T>(s * x + c * y);
    }
    return;
  }
  Pack<T, PER> x, y;
  Pack<Table, PER> c, s;
  load_pack(from + p, aligned, x);
  load_pack(from + p + pairs, aligned, y);
  load_pack(cos + p, aligned, c);
  load_pack(sin + p, aligned, s);
#pragma unroll
  for (int i = 0; i < PER; ++i) {
    const float u = load_value(x.at[i]), v = load_value(y.at[i]), a = load_value(c.at[i]), b = load_value(s.at[i]);
    x.at[i] = store_value<T>(a * u - b * v);
    y.at[i] = store_value<T>(b * u + a * v);
  }
  store_pack(to + p, aligned, x);
  store_pack(to + p + pairs, aligned, y);
}

__device__ __forceinline__ void move_unit(const T* from, T* to, i64 at, bool aligned) {
  Pack<T, PER> x;
  load_pack(from + at, aligned, x);
  store_pack(to + at, aligned, x);
}

// A cache as it was, but for the rows that others write.
__device__ __forceinline__ void copy_cache(const Arguments& a, const T* from, T* to, i64 first, i64 step) {
  const i64* indices = reinterpret_cast<const i64*>(a.indices);
  for (i64 e = first; e < a.copied; e += step) {
    const i64 row = e / a.depth % a.capacity, b = e / (a.depth * a.capacity * a.own);
    i64 into = row - (a.has_indices ? indices[b] : 0);
    if (a.circular && into < 0) into += a.capacity;
    if (into < 0 || into >= a.length) to[e] = from[e];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) rotary(const Arguments a) {
  wait_for_predecessor();
  release_dependents();
  const i64 thread = i64(blockIdx.x) * THREADS + threadIdx.x;
  if (i64(blockIdx.x) >= a.row_blocks) {
    const i64 first = thread - a.row_blocks * THREADS, step = (i64(gridDim.x) - a.row_blocks) * THREADS;
    if (a.keys) copy_cache(a, reinterpret_cast<const T*>(a.keys_before), reinterpret_cast<T*>(a.keys), first, step);
    if (a.values)
      copy_cache(a, reinterpret_cast<const T*>(a.values_before), reinterpret_cast<T*>(a.values), first, step);
    return;
  }
  const i64 all = a.heads + (a.keys ? a.own : 0) + (a.values ? a.own : 0);
  if (thread >= a.batch * a.length * all * a.units) return;
  i64 rest = thread / a.units;
  const i64 unit = thread - rest * a.units, h = rest % all;
  rest /= all;
  const i64 s = rest % a.length, b = rest / a.length;
  const i64* indices = reinterpret_cast<const i64*>(a.indices);
  // Of the tables and of the caches: a given position each, a first one, or the place in the input.
  i64 row = a.row_by_index ? indices[b * a.length + s] : (a.has_indices ? indices[b] : 0) + s;
  if (a.circular && row >= 0) row %= a.capacity;
  const i64 place = a.cos && !a.has_indices && !a.row_by_index ? b * a.length + s : row;
  const T* from = reinterpret_cast<const T*>(a.x) + b * a.x_batch + s * a.x_token + h * a.x_head;
  const bool to_cache = h >= a.heads, to_values = to_cache && (!a.keys || h >= a.heads + a.own);
  // Rows past the end are nobody's: the kernel on the host refuses them.
  if ((a.keys || a.values) && (row < 0 || row >= a.capacity)) return;
  if (a.cos && !to_values && (place < 0 || place >= a.rows)) return;
  T* to = reinterpret_cast<T*>(a.y) + b * a.y_batch + s * a.y_token + h * a.y_head;
  if (to_cache) {
    const i64 own = to_values && a.keys ? h - a.heads - a.own : h - a.heads;
    to = reinterpret_cast<T*>(to_values ? a.values : a.keys) + ((b * a.own + own) * a.capacity + row) * a.depth;
  }
  const bool aligned = a.aligned;
  if (to_values || !a.cos) {
    // Twice as many elements as a turned unit has pairs.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 at = (unit * 2 + half) * PER;
      if (at + PER <= a.depth) {
        move_unit(from, to, at, aligned);
      } else {
        for (i64 e = at; e < a.depth; ++e) to[e] = from[e];
      }
    }
    return;
  }
  const i64 p = unit * PER;
  if (p + PER <= a.pairs) {
    const Table* cos = reinterpret_cast<const Table*>(a.cos) + place * a.pairs;
    const Table* sin = reinterpret_cast<const Table*>(a.sin) + place * a.pairs;
    turn_unit(from, to, cos, sin, p, a.pairs, aligned);
  } else {
    // What is not turned.
    for (i64 e = 2 * p; e < a.depth && e < 2 * (p + PER); ++e) to[e] = from[e];
  }
}
