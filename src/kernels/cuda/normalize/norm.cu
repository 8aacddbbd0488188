// Normalizations of lanes: softmax, layer norm and their relatives.
//
// Given: V (float or double), KIND (a number of enum Kind), MODE, TPR threads a lane, THREADS a block, and in the text
// before this file lanes.cu with the operands' numbers and types. MODE
//   0  a lane is a row, held in registers: CHUNKS packs of PER elements a thread, all loads before the first use. HOLD:
//      held as V, else as it is stored. EXACT: TPR * CHUNKS * PER elements, no more and no less. PREFETCH: the next row
//      is asked for before this one is worked on;
//   1  a lane is a row of whole packs, read anew for each pass;
//   2  a lane's members lie anywhere.
// Rows whose packs do not lie at multiples of their size are done as 2 by all of them.

enum Kind {
  kKindLayer,
  kKindRms,
  kKindSoftmax,
  kKindLogSoftmax,
  kKindHardmax,
  kKindL1,
  kKindL2,
  kKindMoments,
  kKindTrain
};
constexpr int kRows = THREADS / TPR;
constexpr i64 kFar = 0x7fffffffffffffffll;

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }

template <int K, typename T>
__device__ __forceinline__ V value_at(const Arguments& a, const i64* at) {
  return V(load_value(*place<K, T>(a, at)));
}

// A lane by single elements.
struct Anywhere {
  static constexpr bool kHeld = false;
  i64 at[OPERANDS];

  __device__ __forceinline__ void fetch(const Arguments& a, u64 lane) { to_lane(a, lane, at); }
  __device__ __forceinline__ void hold(const Arguments&) {}

  __device__ __forceinline__ static V value(const Arguments& a, const i64* at) {
    V v = value_at<kX, XType>(a, at);
    if constexpr (kResidual >= 0) v += value_at<kResidual, ResidualType>(a, at);
    if constexpr (kAdded >= 0) v += value_at<kAdded, AddedType>(a, at);
    return v;
  }
  // f(value, member) for the members of this thread.
  template <typename F>
  __device__ __forceinline__ void each(const Arguments& a, F f) {
#pragma unroll 1
    for (u64 member = threadIdx.x % TPR; member < a.members; member += TPR) {
      i64 own[OPERANDS];
#pragma unroll
      for (int k = 0; k < OPERANDS; ++k) own[k] = at[k];
      to_member(a, member, own);
      f(value(a, own), i64(member));
    }
  }
  // y = f(value, member) * scale + bias, through the epilogue.
  template <typename F>
  __device__ __forceinline__ void emit(const Arguments& a, bool live, F f) {
#pragma unroll 1
    for (u64 member = threadIdx.x % TPR; member < a.members; member += TPR) {
      i64 own[OPERANDS];
#pragma unroll
      for (int k = 0; k < OPERANDS; ++k) own[k] = at[k];
      to_member(a, member, own);
      const V v = value(a, own);
      V r = f(v, i64(member));
      if constexpr (kScale >= 0) r *= value_at<kScale, ScaleType>(a, own);
      if constexpr (kBias >= 0) r += value_at<kBias, BiasType>(a, own);
#if MODE < 2
      const OutputType y = store_value<OutputType>(epilogue_at(r, a, at, i64(member)));
#else
      const OutputType y = store_value<OutputType>(epilogue_at(r, a, own, 0));
#endif
      if (!live) continue;
      if constexpr (kSum >= 0) *place<kSum, XType>(a, own) = store_value<XType>(v);
      *place<kY, OutputType>(a, own) = y;
    }
  }
};

#if MODE < 2
template <int K, typename T>
__device__ __forceinline__ void load_row_pack(const Arguments& a, const i64* at, i64 column, Pack<T, PER>& to) {
  load_pack(place<K, const T>(a, at) + column, true, to);
}
template <int K, typename T>
__device__ __forceinline__ void load_parameter(const Arguments& a, const i64* at, i64 column, V (&to)[PER]) {
  if constexpr (K >= 0) {
    if constexpr (kColumn[K] == 1) {
      Pack<T, PER> pack;
      load_row_pack<K, T>(a, at, column, pack);
#pragma unroll
      for (int i = 0; i < PER; ++i) to[i] = V(load_value(pack.at[i]));
    } else {
#pragma unroll
      for (int i = 0; i < PER; ++i)
        to[i] = V(load_value(place<K, const T>(a, at)[kColumn[K] == 0 ? 0 : (column + i) * a.member_stride[K][0]]));
    }
  }
}
__device__ __forceinline__ void sum_up(const Arguments& a, const i64* at, i64 column, const Pack<XType, PER>& x,
                                       const Pack<XType, PER>& residual, V (&v)[PER]) {
#pragma unroll
  for (int i = 0; i < PER; ++i) v[i] = V(load_value(x.at[i]));
  if constexpr (kResidual >= 0) {
#pragma unroll
    for (int i = 0; i < PER; ++i) v[i] += V(load_value(residual.at[i]));
  }
  if constexpr (kAdded >= 0) {
    V added[PER];
    load_parameter<kAdded, AddedType>(a, at, column, added);
#pragma unroll
    for (int i = 0; i < PER; ++i) v[i] += added[i];
  }
}
template <typename F>
__device__ __forceinline__ void emit_pack(const Arguments& a, const i64* at, i64 column, const V (&v)[PER], bool live,
                                          F f) {
  V scale[PER], bias[PER];
  load_parameter<kScale, ScaleType>(a, at, column, scale);
  load_parameter<kBias, BiasType>(a, at, column, bias);
  Pack<OutputType, PER> y;
  Pack<XType, PER> sum;
#pragma unroll
  for (int i = 0; i < PER; ++i) {
    V r = f(v[i], column + i);
    if constexpr (kScale >= 0) r *= scale[i];
    if constexpr (kBias >= 0) r += bias[i];
    y.at[i] = store_value<OutputType>(epilogue_at(r, a, at, column + i));
    if constexpr (kSum >= 0) sum.at[i] = store_value<XType>(v[i]);
  }
  if (!live) return;
  store_pack(place<kY, OutputType>(a, at) + column, true, y);
  if constexpr (kSum >= 0) store_pack(place<kSum, XType>(a, at) + column, true, sum);
}

#if MODE == 0
struct Held {
  static constexpr bool kHeld = HOLD;
  i64 at[OPERANDS];
  Pack<XType, PER> x[CHUNKS], residual[RESIDUAL ? CHUNKS : 1];
  V held[HOLD ? CHUNKS : 1][PER];

  __device__ __forceinline__ static i64 column(int chunk) { return i64(chunk * TPR + int(threadIdx.x) % TPR) * PER; }
  __device__ __forceinline__ static bool is_there(const Arguments& a, int chunk) {
    return EXACT || column(chunk) < i64(a.members);
  }
  __device__ __forceinline__ V value(int chunk, int i) const {
    if constexpr (kHeld) return held[HOLD ? chunk : 0][i];
    return V(load_value(x[chunk].at[i]));
  }

  __device__ __forceinline__ void fetch(const Arguments& a, u64 lane) {
    to_lane(a, lane, at);
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (is_there(a, c)) load_row_pack<kX, XType>(a, at, column(c), x[c]);
    }
    if constexpr (kResidual >= 0) {
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        if (is_there(a, c)) load_row_pack<kResidual, XType>(a, at, column(c), residual[RESIDUAL ? c : 0]);
      }
    }
  }
  __device__ __forceinline__ void hold(const Arguments& a) {
    if constexpr (kHeld) {
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
        if (is_there(a, c)) sum_up(a, at, column(c), x[c], residual[RESIDUAL ? c : 0], held[HOLD ? c : 0]);
      }
    }
  }
  template <typename F>
  __device__ __forceinline__ void each(const Arguments& a, F f) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!is_there(a, c)) continue;
#pragma unroll
      for (int i = 0; i < PER; ++i) f(value(c, i), column(c) + i);
    }
  }
  template <typename F>
  __device__ __forceinline__ void replace(const Arguments& a, F f) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!is_there(a, c)) continue;
#pragma unroll
      for (int i = 0; i < PER; ++i) held[HOLD ? c : 0][i] = f(held[HOLD ? c : 0][i]);
    }
  }
  template <typename F>
  __device__ __forceinline__ void emit(const Arguments& a, bool live, F f) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
      if (!is_there(a, c)) continue;
      V v[PER];
#pragma unroll
      for (int i = 0; i < PER; ++i) v[i] = value(c, i);
      emit_pack(a, at, column(c), v, live, f);
    }
  }
};
using Fast = Held;
#else
struct Again {
  static constexpr bool kHeld = false;
  i64 at[OPERANDS];

  __device__ __forceinline__ void fetch(const Arguments& a, u64 lane) { to_lane(a, lane, at); }
  __device__ __forceinline__ void hold(const Arguments&) {}
  __device__ __forceinline__ void load(const Arguments& a, i64 column, V (&v)[PER]) {
    Pack<XType, PER> x, residual;
    load_row_pack<kX, XType>(a, at, column, x);
    if constexpr (kResidual >= 0) load_row_pack<kResidual, XType>(a, at, column, residual);
    sum_up(a, at, column, x, residual, v);
  }
  template <typename F>
  __device__ __forceinline__ void each(const Arguments& a, F f) {
#pragma unroll 2
    for (i64 column = i64(threadIdx.x % TPR) * PER; column < i64(a.members); column += TPR * PER) {
      V v[PER];
      load(a, column, v);
#pragma unroll
      for (int i = 0; i < PER; ++i) f(v[i], column + i);
    }
  }
  template <typename F>
  __device__ __forceinline__ void emit(const Arguments& a, bool live, F f) {
#pragma unroll 1
    for (i64 column = i64(threadIdx.x % TPR) * PER; column < i64(a.members); column += TPR * PER) {
      V v[PER];
      load(a, column, v);
      emit_pack(a, at, column, v, live, f);
    }
  }
};
using Fast = Again;
#endif
#endif

template <int K, typename T>
__device__ __forceinline__ void store_statistic(const Arguments& a, const i64* at, bool live, V value) {
  if constexpr (K >= 0) {
    if (live && threadIdx.x % TPR == 0) *place<K, T>(a, at) = store_value<T>(value);
  }
}

struct Plus {
  template <typename T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Most {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
  __device__ __forceinline__ double operator()(double a, double b) const { return fmax(a, b); }
};
struct Least {
  __device__ __forceinline__ i64 operator()(i64 a, i64 b) const { return a < b ? a : b; }
};

template <int SITE, typename Row, typename F>
__device__ __forceinline__ V sum_of(const Arguments& a, Row& row, int slot, F term) {
  V sum = 0;
  row.each(a, [&](V v, i64) { sum += term(v); });
  return together<TPR, SITE>(sum, Plus(), slot);
}

template <typename Row>
__device__ __forceinline__ void normalize(const Arguments& a, Row& row, bool live, int slot) {
  row.hold(a);
  const V count = V(a.members);
  if constexpr (KIND == kKindLayer || KIND == kKindMoments || KIND == kKindTrain) {
    const V mean = sum_of<0>(a, row, slot, [](V v) { return v; }) / count;
    const V variance = sum_of<1>(a, row, slot, [=](V v) { return (v - mean) * (v - mean); }) / count;
    const V inverse = KIND == kKindMoments ? V(1) / (root(variance) + V(1e-9)) : V(1) / root(variance + V(a.number[0]));
    row.emit(a, live, [=](V v, i64) { return (v - mean) * inverse; });
    store_statistic<kMean, MeanType>(a, row.at, live, mean);
    store_statistic<kInverse, InverseType>(a, row.at, live, inverse);
    if constexpr (KIND == kKindTrain) {
      const V momentum = V(a.number[1]), rest = V(1.0 - a.number[1]);
      if constexpr (kRunningMean >= 0)
        store_statistic<kRunningMean, RunningMeanType>(
            a, row.at, live, value_at<kGivenMean, GivenMeanType>(a, row.at) * momentum + mean * rest);
      if constexpr (kRunningVariance >= 0)
        store_statistic<kRunningVariance, RunningVarianceType>(
            a, row.at, live, value_at<kGivenVariance, GivenVarianceType>(a, row.at) * momentum + variance * rest);
    }
  } else if constexpr (KIND == kKindRms) {
    const V square = sum_of<0>(a, row, slot, [](V v) { return v * v; }) / count;
    const V inverse = V(1) / root(square + V(a.number[0]));
    row.emit(a, live, [=](V v, i64) { return v * inverse; });
    store_statistic<kInverse, InverseType>(a, row.at, live, inverse);
  } else if constexpr (KIND == kKindL1 || KIND == kKindL2) {
    const V sum = sum_of<0>(a, row, slot, [](V v) { return KIND == kKindL1 ? (v < 0 ? -v : v) : v * v; });
    const V norm = KIND == kKindL1 ? sum : root(sum);
    row.emit(a, live, [=](V v, i64) { return norm == 0 ? V(0) : v / norm; });
  } else {
    V most = -V(infinity());
    row.each(a, [&](V v, i64 member) {
      // Nothing is greater than a NaN that comes first; later ones are greater than nothing.
      if (KIND == kKindHardmax && v != v && member == 0) v = V(infinity());
      most = Most()(most, v);
    });
    most = together<TPR, 0>(most, Most(), slot);
    if constexpr (KIND == kKindHardmax) {
      i64 first = kFar;
      row.each(a, [&](V v, i64 member) {
        if ((v == most || (v != v && member == 0)) && member < first) first = member;
      });
      first = together<TPR, 1>(first, Least(), slot);
      if (first == kFar) first = 0;
      row.emit(a, live, [=](V, i64 member) { return member == first ? V(1) : V(0); });
    } else if constexpr (KIND == kKindLogSoftmax) {
      const V log_sum = logarithm(sum_of<1>(a, row, slot, [=](V v) { return exponential(v - most); }));
      row.emit(a, live, [=](V v, i64) { return v - most - log_sum; });
    } else if constexpr (Row::kHeld) {
      row.replace(a, [=](V v) { return exponential(v - most); });
      const V inverse = V(1) / sum_of<1>(a, row, slot, [](V v) { return v; });
      row.emit(a, live, [=](V v, i64) { return v * inverse; });
    } else {
      const V inverse = V(1) / sum_of<1>(a, row, slot, [=](V v) { return exponential(v - most); });
      row.emit(a, live, [=](V v, i64) { return exponential(v - most) * inverse; });
    }
  }
}

// Lanes past the last are worked on as the last, and not written.
template <typename Row>
__device__ __forceinline__ void all_lanes(const Arguments& a) {
  const u64 group = threadIdx.x / TPR, step = u64(gridDim.x) * kRows;
  u64 lane = u64(blockIdx.x) * kRows;
  if (lane >= a.lanes) return;
  const auto inside = [&](u64 l) { return l < a.lanes ? l : a.lanes - 1; };
  int slot = 0;
  Row row;
  row.fetch(a, inside(lane + group));
  while (true) {
#if PREFETCH
    Row next;
    if (lane + step < a.lanes) next.fetch(a, inside(lane + step + group));
#endif
    normalize(a, row, lane + group < a.lanes, slot);
    lane += step;
    if (lane >= a.lanes) break;
    slot ^= 1;
#if PREFETCH
    row = next;
#else
    row.fetch(a, inside(lane + group));
#endif
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) norm_lanes(const __grid_constant__ Arguments a) {
  release_dependents();
  wait_for_predecessor();
#if MODE < 2
  if (a.aligned == (u64(1) << OPERANDS) - 1) return all_lanes<Fast>(a);
#endif
  all_lanes<Anywhere>(a);
}
