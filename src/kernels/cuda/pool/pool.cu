// Windows over the spatial axes, reduced to one element each.
//
// Given: V (float, double or int), KIND (0 largest, 1 mean, 2 p-norm), PACK (channels a thread, which follow each other
// in x and y), CHANNELS_LAST (lanes are [N, spatial, C / PACK], else [N, C, spatial]), THREADS; before this file
// lanes.cu, whose members are a thread's channels.

struct Window {
  int kernel[3], stride[3], dilation[3], begin[3], in[3], end[3];
  i64 step[3];  // of x along the spatial axes, in elements
  i64 plane;    // elements of a whole channel
  int with_padding, by_columns, p, channels;
  u64 indices;  // address of the places, or 0
};

template <typename T>
__device__ __forceinline__ bool beats(T v, T top) {
  return v > top || (v != v && top == top);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    pool(const __grid_constant__ Arguments a, const __grid_constant__ Window w) {
  release_dependents();
  wait_for_predecessor();
  const u64 lane = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (lane >= a.lanes) return;
  // Coordinates: the last five axes of the lanes.
  u64 rest = lane;
  int c[5];
  i64 at[OPERANDS];
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k) at[k] = 0;
#pragma unroll
  for (int i = 4; i >= 0; --i) {
    const u64 extent = a.lane_extent[LANE_AXES - 5 + i];
    u64 here = 0;
    if (extent > 1) {
      const u64 next = i > 0 ? quotient(rest, extent) : 0;
      here = rest - next * extent;
      rest = next;
    }
    c[i] = int(here);
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] += i64(here) * a.lane_stride[k][LANE_AXES - 5 + i];
  }
  constexpr int kFirst = CHANNELS_LAST ? 1 : 2;
  int first[3];
  i64 counted = 1;  // of the padded plane
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    first[s] = c[kFirst + s] * w.stride[s] - w.begin[s];
    int inside = 0;
    for (int k = 0; k < w.kernel[s]; ++k) inside += first[s] + k * w.dilation[s] < w.in[s] + w.end[s];
    counted *= inside;
  }
  const XType* x = place<kX, const XType>(a, at);
  const bool aligned = is_aligned(a, kX);
  V sum[PACK];
  int best[PACK];
#pragma unroll
  for (int i = 0; i < PACK; ++i) sum[i] = V(0), best[i] = -1;
  int seen = 0;
  for (int k0 = 0; k0 < w.kernel[0]; ++k0) {
    const int p0 = first[0] + k0 * w.dilation[0];
    if (p0 < 0 || p0 >= w.in[0]) continue;
    for (int k1 = 0; k1 < w.kernel[1]; ++k1) {
      const int p1 = first[1] + k1 * w.dilation[1];
      if (p1 < 0 || p1 >= w.in[1]) continue;
      for (int k2 = 0; k2 < w.kernel[2]; ++k2) {
        const int p2 = first[2] + k2 * w.dilation[2];
        if (p2 < 0 || p2 >= w.in[2]) continue;
        ++seen;
        Pack<XType, PACK> pack;
        load_pack(x + p0 * w.step[0] + p1 * w.step[1] + p2 * w.step[2], aligned, pack);
        const int flat = (p0 * w.in[1] + p1) * w.in[2] + p2;
#pragma unroll
        for (int i = 0; i < PACK; ++i) {
          const V v = V(load_value(pack.at[i]));
#if KIND == 0
          if (best[i] < 0 || beats(v, sum[i])) sum[i] = v, best[i] = flat;
#elif KIND == 1
          sum[i] += v;
#else
          const V size = v < V(0) ? -v : v;
          sum[i] += w.p == 1 ? size : w.p == 2 ? size * size : op_pow(size, V(w.p));
#endif
        }
      }
    }
  }
  Pack<OutputType, PACK> y;
#pragma unroll
  for (int i = 0; i < PACK; ++i) {
    V v = sum[i];
#if KIND == 0
    if (best[i] < 0) v = V(NONE);
#elif KIND == 1
    const i64 count = w.with_padding ? counted : i64(seen);
    v = count ? v / V(count) : V(0);
#else
    if (w.p == 2) v = op_sqrt(v);
    if (w.p > 2) v = op_pow(v, V(1) / V(w.p));
#endif
    y.at[i] = store_value<OutputType>(epilogue_at(v, a, at, i));
  }
  store_pack(place<kY, OutputType>(a, at), is_aligned(a, kY), y);
#if KIND == 0
  if constexpr (kIndices >= 0) {
    const i64 channel = CHANNELS_LAST ? i64(c[4]) * PACK : c[1];
#pragma unroll
    for (int i = 0; i < PACK; ++i) {
      i64 flat = best[i];
      if (w.by_columns && flat >= 0) {
        const i64 p2 = flat % w.in[2], p1 = flat / w.in[2] % w.in[1], p0 = flat / w.in[2] / w.in[1];
        flat = p0 + w.in[0] * (p1 + w.in[1] * p2);
      }
      place<kIndices, i64>(a, at)[i * a.member_stride[kIndices < 0 ? 0 : kIndices][MEMBER_AXES - 1]] =
          (i64(c[0]) * w.channels + channel + i) * w.plane + flat;
    }
  }
#endif
}
