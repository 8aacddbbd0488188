// 16 rows of queries that share keys and values, as a warp has them: rows of one matrix instruction, a thread having
// parts of rows `quad` and `quad` + 8. The queries of all heads that share a head of K and V are rows, those of one
// head after those of another.
//
// Given: DEPTH, VALUE_DEPTH (multiples of 16), PAST (there is a cache before K and V), CAP; warp.cu.

constexpr int kRowK = (DEPTH * 2 + 127) / 128 * 128, kRowV = (VALUE_DEPTH * 2 + 127) / 128 * 128;  // bytes
constexpr int kColumns = VALUE_DEPTH / 8;
constexpr float kLog2E = 1.4426950408889634f;

// Chunks of 16 bytes are exchanged within groups of eight, so that eight rows of one column lie in different banks.
__device__ __forceinline__ int chunk_at(int row, int row_bytes, int chunk) {
  return row * row_bytes + ((chunk ^ (row & 7)) << 4);
}

struct Task {
  int item, kv_head, head0, first, count;  // rows [first, first + count) of the group; head0: of the group
};

struct Sight {
  int from, to;                      // keys that any of the rows sees
  int all_from, all_to;              // that all of them see
  int begin0, end0, begin1, end1;    // that the thread's own rows see
};
__device__ __forceinline__ Sight sight_of(const Attention& a, const Task& t, int lane) {
  Sight s;
  Range seen = {0, 0};
  const bool counted = lane < t.count;
  const i64 length = a.plain ? 0 : length_of(a, t.item);
  if (counted) seen = seen_by(a, u32(t.first + lane) % u32(a.queries), length);
  const bool any = seen.begin < seen.end;
  s.from = __reduce_min_sync(~0u, any ? seen.begin : a.keys), s.to = __reduce_max_sync(~0u, any ? seen.end : 0);
  s.all_from = __reduce_max_sync(~0u, counted ? seen.begin : 0);
  s.all_to = __reduce_min_sync(~0u, counted ? seen.end : a.keys);
  const int quad = lane >> 2;
  s.begin0 = __shfl_sync(~0u, seen.begin, quad), s.end0 = __shfl_sync(~0u, seen.end, quad);
  s.begin1 = __shfl_sync(~0u, seen.begin, quad + 8), s.end1 = __shfl_sync(~0u, seen.end, quad + 8);
  return s;
}

// COUNT rows of K, then of V, by THREADS threads; zeros from `end` on.
template <int COUNT, int THREADS>
__device__ __forceinline__ void load_tile(const Attention& a, const Task& t, u32 to, int tile, int end, int thread) {
#pragma unroll
  for (int i = 0; i < COUNT * DEPTH / 8; i += THREADS) {
    const int at = i + thread, row = at / (DEPTH / 8), chunk = at % (DEPTH / 8), key = tile + row;
    if (COUNT * DEPTH / 8 % THREADS && at >= COUNT * DEPTH / 8) break;
    const bool inside = key < end;
    const QType* from = PAST ? key_row(a, t.item, t.kv_head, inside ? key : tile)
                             : reinterpret_cast<const QType*>(a.k) + a.at_k.at(t.item, t.kv_head, inside ? key : tile);
    copy_async(to + chunk_at(row, kRowK, chunk), from + chunk * 8, inside);
  }
#pragma unroll
  for (int i = 0; i < COUNT * VALUE_DEPTH / 8; i += THREADS) {
    const int at = i + thread, row = at / (VALUE_DEPTH / 8), chunk = at % (VALUE_DEPTH / 8), key = tile + row;
    if (COUNT * VALUE_DEPTH / 8 % THREADS && at >= COUNT * VALUE_DEPTH / 8) break;
    const bool inside = key < end;
    const VType* from = PAST ? value_row(a, t.item, t.kv_head, inside ? key : tile)
                             : reinterpret_cast<const VType*>(a.v) + a.at_v.at(t.item, t.kv_head, inside ? key : tile);
    copy_async(to + COUNT * kRowK + chunk_at(row, kRowV, chunk), from + chunk * 8, inside);
  }
}

// Rows quad and quad + 8 of Q, in the order of the matrix instruction's first operand.
__device__ __forceinline__ void load_queries(const Attention& a, const Task& t, int quad, int pair,
                                             u32 (&q)[DEPTH / 16][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = t.first + quad + half * 8;
    const bool inside = quad + half * 8 < t.count;
    const int head = t.head0 + u32(row) / u32(a.queries), query = u32(row) % u32(a.queries);
    const QType* from_q = reinterpret_cast<const QType*>(a.q) + (inside ? a.at_q.at(t.item, head, query) : 0);
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) {
      q[k][half] = inside ? *reinterpret_cast<const u32*>(from_q + k * 16 + pair) : 0;
      q[k][half + 2] = inside ? *reinterpret_cast<const u32*>(from_q + k * 16 + pair + 8) : 0;
    }
  }
}

__device__ __forceinline__ void store_row(const Attention& a, const Epilogue& e, const Task& t, int row, int column,
                                          float sum, float y) {
  const int head = t.head0 + u32(t.first + row) / u32(a.queries), query = u32(t.first + row) % u32(a.queries);
  const float x = sum != 0 ? y / sum : a.empty_is_zero ? 0.0f : not_a_number();
  reinterpret_cast<OutputType*>(a.y)[a.at_y.at(t.item, head, query) + column * a.at_y.column] =
      store_value<OutputType>(epilogue(x, e, t.item, head, query, column));
}

struct Sums {
  float y[kColumns][4];
  float largest0 = -infinity(), largest1 = -infinity(), sum0 = 0, sum1 = 0;
  __device__ __forceinline__ Sums() {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) y[c][0] = y[c][1] = y[c][2] = y[c][3] = 0;
  }
};

// TILES * 8 keys from `key` on, whose rows of K and V lie at tile_k and tile_v; those from `end` on are none.
template <int TILES>
__device__ __forceinline__ void attend(const Attention& a, const Task& t, const Sight& sight,
                                       const u32 (&q)[DEPTH / 16][4], u32 tile_k, u32 tile_v, int key, int end,
                                       int lane, Sums& sums) {
  const int pair = (lane & 3) * 2;
  float s[TILES][4] = {};
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k)
#pragma unroll
    for (int n = 0; n < TILES; n += 2) {
      u32 b[4];
      load_tiles(tile_k + chunk_at(n * 8 + ((lane >> 4) << 3) + (lane & 7), kRowK, 2 * k + ((lane >> 3) & 1)), b);
      multiply(s[n], q[k], b[0], b[1]);
      multiply(s[n + 1], q[k], b[2], b[3]);
    }
#if MASK || CAP
  const int row0 = t.first + (lane >> 2), row1 = row0 + 8;
  const int head0 = t.head0 + u32(row0) / u32(a.queries), query0 = u32(row0) % u32(a.queries);
  const int head1 = t.head0 + u32(row1) / u32(a.queries), query1 = u32(row1) % u32(a.queries);
#endif
#pragma unroll
  for (int n = 0; n < TILES; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float x = s[n][i];
#if MASK || CAP
      x *= float(a.scale);
#if CAP
      x = float(a.softcap) * tanhf(x / float(a.softcap));
#endif
#if MASK
      const int at = key + n * 8 + pair + (i & 1);
      if ((lane >> 2) + (i & 2) * 4 < t.count && at < a.mask_keys)
        x += float(mask_at(a, t.item, i & 2 ? head1 : head0, i & 2 ? query1 : query0, at));
#endif
      x *= kLog2E;
#else
      x *= float(a.scale) * kLog2E;
#endif
      s[n][i] = x;
    }
  if (key < sight.all_from || key + TILES * 8 > min(sight.all_to, end)) {
#pragma unroll
    for (int n = 0; n < TILES; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = key + n * 8 + pair + (i & 1);
        if (at < (i & 2 ? sight.begin1 : sight.begin0) || at >= min(end, i & 2 ? sight.end1 : sight.end0))
          s[n][i] = -infinity();
      }
  }
  float top0 = -infinity(), top1 = -infinity();
#pragma unroll
  for (int n = 0; n < TILES; ++n)
    top0 = fmaxf(top0, fmaxf(s[n][0], s[n][1])), top1 = fmaxf(top1, fmaxf(s[n][2], s[n][3]));
  top0 = largest_of_four(top0), top1 = largest_of_four(top1);
  if (__any_sync(~0u, top0 > sums.largest0 || top1 > sums.largest1)) {
    const float now0 = fmaxf(sums.largest0, top0), now1 = fmaxf(sums.largest1, top1);
    const float factor0 = now0 == -infinity() ? 1.0f : power_of_two(sums.largest0 - now0);
    const float factor1 = now1 == -infinity() ? 1.0f : power_of_two(sums.largest1 - now1);
    sums.largest0 = now0, sums.largest1 = now1;
    sums.sum0 *= factor0, sums.sum1 *= factor1;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums.y[c][0] *= factor0, sums.y[c][1] *= factor0;
      sums.y[c][2] *= factor1, sums.y[c][3] *= factor1;
    }
  }
  const float base0 = sums.largest0 == -infinity() ? 0.0f : sums.largest0,
              base1 = sums.largest1 == -infinity() ? 0.0f : sums.largest1;
#pragma unroll
  for (int n = 0; n < TILES; ++n) {
    s[n][0] = power_of_two(s[n][0] - base0), s[n][1] = power_of_two(s[n][1] - base0);
    s[n][2] = power_of_two(s[n][2] - base1), s[n][3] = power_of_two(s[n][3] - base1);
    sums.sum0 += s[n][0] + s[n][1], sums.sum1 += s[n][2] + s[n][3];
  }
#pragma unroll
  for (int n = 0; n < TILES; n += 2) {
    const u32 p[4] = {pack_two(s[n][0], s[n][1]), pack_two(s[n][2], s[n][3]), pack_two(s[n + 1][0], s[n + 1][1]),
                      pack_two(s[n + 1][2], s[n + 1][3])};
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      u32 b[4];
      const int row = n * 8 + (lane & 7) + (((lane >> 3) & 1) << 3);
      load_tiles_transposed(tile_v + chunk_at(row, kRowV, c + (lane >> 4)), b);
      multiply(sums.y[c], p, b[0], b[1]);
      multiply(sums.y[c + 1], p, b[2], b[3]);
    }
  }
}
