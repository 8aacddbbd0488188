// Normalizations of lanes: softmax, layer norm and their relatives.
//
// Given: V (float or double), KIND (a number of enum Kind), MODE, TPR threads a lane, THREADS a block, and in the text
// before this file lanes.cu with the operands' numbers and types. MODE
//   0  a lane is a row, held in registers: CHUNKS packs of PER elements a thread, all loads before the first use. HOLD:
//      held as V, else as it is stored. EXACT: TPR * CHUNKS * PER elements, no more and no less. PREFETCH: the next row
//      is asked for before this one is worked on;
//   1  a lane is a row, read anew for each pass;
//   2  a lane's members lie anywhere.

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

struct Row {
  i64 at[OPERANDS];
  bool aligned;  // a constant once all is inlined: the code stands twice, so that no branches part the loads
#if MODE == 0
  Pack<XType, PER> x[CHUNKS];
#if RESIDUAL
  Pack<XType, PER> residual[CHUNKS];
#endif
#if HOLD
  V held[CHUNKS][PER];
#endif
#endif
};

#if MODE == 0
__device__ __forceinline__ i64 column_of(int chunk) { return i64(chunk * TPR + int(threadIdx.x) % TPR) * PER; }
#endif

#if MODE < 2
template <typename T>
__device__ __forceinline__ void load_row_pack(const Arguments& a, int k, const Row& row, i64 column, Pack<T, PER>& to) {
  const T* p = reinterpret_cast<const T*>(a.address[k]) + row.at[k] + column;
  if (EXACT || column + PER <= i64(a.members)) {
    load_pack(p, row.aligned, to);
  } else {
#pragma unroll
    for (int i = 0; i < PER; ++i)
      if (column + i < i64(a.members)) to.at[i] = p[i];
  }
}

// A parameter of the columns; past the end, anything.
template <int K, typename T>
__device__ __forceinline__ void load_parameter(const Arguments& a, const Row& row, i64 column, V (&to)[PER]) {
  if constexpr (K >= 0) {
    if constexpr (kColumn[K] == 1) {
      Pack<T, PER> pack;
      load_row_pack(a, K, row, column, pack);
#pragma unroll
      for (int i = 0; i < PER; ++i) to[i] = V(load_value(pack.at[i]));
    } else {
      const T* p = place<K, const T>(a, row.at);
#pragma unroll
      for (int i = 0; i < PER; ++i)
        if (EXACT || column + i < i64(a.members))
          to[i] = V(load_value(p[kColumn[K] == 0 ? 0 : (column + i) * a.member_stride[K][0]]));
    }
  }
}
#endif

// The row's packs, where they are held; else its place alone.
__device__ __forceinline__ void fetch(const Arguments& a, u64 lane, Row& row) {
  to_lane(a, lane < a.lanes ? lane : a.lanes - 1, row.at);
#if MODE == 0
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) load_row_pack(a, kX, row, column_of(c), row.x[c]);
#if RESIDUAL
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) load_row_pack(a, kResidual, row, column_of(c), row.residual[c]);
#endif
#endif
}

#if MODE < 2
__device__ __forceinline__ void sum_up(const Arguments& a, const Row& row, i64 column, const Pack<XType, PER>& x,
                                       const Pack<XType, PER>* residual, V (&v)[PER]) {
#pragma unroll
  for (int i = 0; i < PER; ++i) v[i] = V(load_value(x.at[i]));
#if RESIDUAL
#pragma unroll
  for (int i = 0; i < PER; ++i) v[i] += V(load_value(residual->at[i]));
#endif
  if constexpr (kAdded >= 0) {
    V added[PER];
    load_parameter<kAdded, AddedType>(a, row, column, added);
#pragma unroll
    for (int i = 0; i < PER; ++i) v[i] += added[i];
  }
}
#endif

__device__ __forceinline__ V member_value(const Arguments& a, const i64* at) {
  V v = V(load_value(*place<kX, XType>(a, at)));
  if constexpr (kResidual >= 0) v += V(load_value(*place<kResidual, ResidualType>(a, at)));
  if constexpr (kAdded >= 0) v += V(load_value(*place<kAdded, AddedType>(a, at)));
  return v;
}

// f(value, member) for the members of this thread.
template <typename F>
__device__ __forceinline__ void each(const Arguments& a, const Row& row, F f) {
#if MODE == 0
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      const i64 column = column_of(c) + i;
      if (!EXACT && column >= i64(a.members)) continue;
#if HOLD
      f(row.held[c][i], column);
#else
      f(V(load_value(row.x[c].at[i])), column);
#endif
    }
  }
#elif MODE == 1
#pragma unroll 4
  for (i64 column = i64(threadIdx.x % TPR) * PER; column < i64(a.members); column += TPR * PER) {
    Pack<XType, PER> x, residual;
    load_row_pack(a, kX, row, column, x);
#if RESIDUAL
    load_row_pack(a, kResidual, row, column, residual);
#endif
    V v[PER];
    sum_up(a, row, column, x, &residual, v);
#pragma unroll
    for (int i = 0; i < PER; ++i)
      if (column + i < i64(a.members)) f(v[i], column + i);
  }
#else
  for (u64 member = threadIdx.x % TPR; member < a.members; member += TPR) {
    i64 at[OPERANDS];
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] = row.at[k];
    to_member(a, member, at);
    f(member_value(a, at), i64(member));
  }
#endif
}

#if MODE < 2
template <typename F>
__device__ __forceinline__ void emit_pack(const Arguments& a, const Row& row, i64 column, const V (&v)[PER], bool live,
                                          F f) {
  V scale[PER], bias[PER];
  load_parameter<kScale, ScaleType>(a, row, column, scale);
  load_parameter<kBias, BiasType>(a, row, column, bias);
  Pack<OutputType, PER> y;
  Pack<XType, PER> sum;
#pragma unroll
  for (int i = 0; i < PER; ++i) {
    if (!EXACT && column + i >= i64(a.members)) continue;
    V r = f(v[i], column + i);
    if constexpr (kScale >= 0) r *= scale[i];
    if constexpr (kBias >= 0) r += bias[i];
    y.at[i] = store_value<OutputType>(epilogue_at(r, a, row.at, column + i));
    if constexpr (kSum >= 0) sum.at[i] = store_value<XType>(v[i]);
  }
  if (!live) return;
  OutputType* to = place<kY, OutputType>(a, row.at) + column;
  XType* to_sum = place<kSum, XType>(a, row.at) + column;
  if (EXACT || column + PER <= i64(a.members)) {
    store_pack(to, row.aligned, y);
    if constexpr (kSum >= 0) store_pack(to_sum, row.aligned, sum);
  } else {
#pragma unroll
    for (int i = 0; i < PER; ++i) {
      if (column + i >= i64(a.members)) continue;
      to[i] = y.at[i];
      if constexpr (kSum >= 0) to_sum[i] = sum.at[i];
    }
  }
}
#endif

template <int K, typename T>
__device__ __forceinline__ V parameter_at(const Arguments& a, const i64* at) {
  return V(load_value(*place<K, T>(a, at)));
}

// y = f(value, member) * scale + bias, through the epilogue.
template <typename F>
__device__ __forceinline__ void emit(const Arguments& a, const Row& row, bool live, F f) {
#if MODE == 0
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
    if (!EXACT && column_of(c) >= i64(a.members)) continue;
    V v[PER];
#pragma unroll
    for (int i = 0; i < PER; ++i) {
#if HOLD
      v[i] = row.held[c][i];
#else
      v[i] = V(load_value(row.x[c].at[i]));
#endif
    }
    emit_pack(a, row, column_of(c), v, live, f);
  }
#elif MODE == 1
#pragma unroll 2
  for (i64 column = i64(threadIdx.x % TPR) * PER; column < i64(a.members); column += TPR * PER) {
    Pack<XType, PER> x, residual;
    load_row_pack(a, kX, row, column, x);
#if RESIDUAL
    load_row_pack(a, kResidual, row, column, residual);
#endif
    V v[PER];
    sum_up(a, row, column, x, &residual, v);
    emit_pack(a, row, column, v, live, f);
  }
#else
  for (u64 member = threadIdx.x % TPR; member < a.members; member += TPR) {
    i64 at[OPERANDS];
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at[k] = row.at[k];
    to_member(a, member, at);
    const V v = member_value(a, at);
    V r = f(v, i64(member));
    if constexpr (kScale >= 0) r *= parameter_at<kScale, ScaleType>(a, at);
    if constexpr (kBias >= 0) r += parameter_at<kBias, BiasType>(a, at);
    const OutputType y = store_value<OutputType>(epilogue_at(r, a, at, 0));
    if (!live) continue;
    if constexpr (kSum >= 0) *place<kSum, XType>(a, at) = store_value<XType>(v);
    *place<kY, OutputType>(a, at) = y;
  }
#endif
}

template <int K, typename T>
__device__ __forceinline__ void store_statistic(const Arguments& a, const Row& row, bool live, V value) {
  if constexpr (K >= 0) {
    if (live && threadIdx.x % TPR == 0) *place<K, T>(a, row.at) = store_value<T>(value);
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

template <int SITE, typename F>
__device__ __forceinline__ V sum_of(const Arguments& a, const Row& row, int slot, F term) {
  V sum = 0;
  each(a, row, [&](V v, i64) { sum += term(v); });
  return together<TPR, SITE>(sum, Plus(), slot);
}

__device__ __forceinline__ void normalize(const Arguments& a, Row& row, bool live, int slot) {
#if MODE == 0 && HOLD
#pragma unroll
  for (int c = 0; c < CHUNKS; ++c) {
#if RESIDUAL
    sum_up(a, row, column_of(c), row.x[c], &row.residual[c], row.held[c]);
#else
    sum_up(a, row, column_of(c), row.x[c], nullptr, row.held[c]);
#endif
  }
#endif
  const V count = V(a.members);
  if constexpr (KIND == kKindLayer || KIND == kKindMoments || KIND == kKindTrain) {
    const V mean = sum_of<0>(a, row, slot, [](V v) { return v; }) / count;
    const V variance = sum_of<1>(a, row, slot, [=](V v) { return (v - mean) * (v - mean); }) / count;
    const V inverse = KIND == kKindMoments ? V(1) / (root(variance) + V(1e-9)) : V(1) / root(variance + V(a.number[0]));
    emit(a, row, live, [=](V v, i64) { return (v - mean) * inverse; });
    store_statistic<kMean, MeanType>(a, row, live, mean);
    store_statistic<kInverse, InverseType>(a, row, live, inverse);
    if constexpr (KIND == kKindTrain) {
      const V momentum = V(a.number[1]), rest = V(1.0 - a.number[1]);
      if constexpr (kRunningMean >= 0)
        store_statistic<kRunningMean, RunningMeanType>(
            a, row, live, parameter_at<kGivenMean, GivenMeanType>(a, row.at) * momentum + mean * rest);
      if constexpr (kRunningVariance >= 0)
        store_statistic<kRunningVariance, RunningVarianceType>(
            a, row, live, parameter_at<kGivenVariance, GivenVarianceType>(a, row.at) * momentum + variance * rest);
    }
  } else if constexpr (KIND == kKindRms) {
    const V square = sum_of<0>(a, row, slot, [](V v) { return v * v; }) / count;
    const V inverse = V(1) / root(square + V(a.number[0]));
    emit(a, row, live, [=](V v, i64) { return v * inverse; });
    store_statistic<kInverse, InverseType>(a, row, live, inverse);
  } else if constexpr (KIND == kKindL1 || KIND == kKindL2) {
    const V sum = sum_of<0>(a, row, slot, [](V v) { return KIND == kKindL1 ? (v < 0 ? -v : v) : v * v; });
    const V norm = KIND == kKindL1 ? sum : root(sum);
    emit(a, row, live, [=](V v, i64) { return norm == 0 ? V(0) : v / norm; });
  } else {
    V most = -V(infinity());
    each(a, row, [&](V v, i64 member) {
      // Nothing is greater than a NaN that comes first; later ones are greater than nothing.
      if (KIND == kKindHardmax && v != v && member == 0) v = V(infinity());
      most = Most()(most, v);
    });
    most = together<TPR, 0>(most, Most(), slot);
    if constexpr (KIND == kKindHardmax) {
      i64 first = kFar;
      each(a, row, [&](V v, i64 member) {
        if ((v == most || (v != v && member == 0)) && member < first) first = member;
      });
      first = together<TPR, 1>(
          first, [](i64 p, i64 q) { return p < q ? p : q; }, slot);
      if (first == kFar) first = 0;
      emit(a, row, live, [=](V, i64 member) { return member == first ? V(1) : V(0); });
    } else if constexpr (KIND == kKindLogSoftmax) {
      const V log_sum = logarithm(sum_of<1>(a, row, slot, [=](V v) { return exponential(v - most); }));
      emit(a, row, live, [=](V v, i64) { return v - most - log_sum; });
    } else {
#if MODE == 0 && HOLD
#pragma unroll
      for (int c = 0; c < CHUNKS; ++c) {
#pragma unroll
        for (int i = 0; i < PER; ++i) row.held[c][i] = exponential(row.held[c][i] - most);
      }
      const V inverse = V(1) / sum_of<1>(a, row, slot, [](V v) { return v; });
      emit(a, row, live, [=](V v, i64) { return v * inverse; });
#else
      const V inverse = V(1) / sum_of<1>(a, row, slot, [=](V v) { return exponential(v - most); });
      emit(a, row, live, [=](V v, i64) { return exponential(v - most) * inverse; });
#endif
    }
  }
}

__device__ __forceinline__ void all_rows(const Arguments& a, bool aligned) {
  const u64 group = threadIdx.x / TPR, step = u64(gridDim.x) * kRows;
  u64 lane = u64(blockIdx.x) * kRows;
  if (lane >= a.lanes) return;
  int slot = 0;
  Row row;
  row.aligned = aligned;
  fetch(a, lane + group, row);
  while (true) {
#if PREFETCH
    Row next;
    next.aligned = aligned;
    if (lane + step < a.lanes) fetch(a, lane + step + group, next);
#endif
    normalize(a, row, lane + group < a.lanes, slot);
    lane += step;
    if (lane >= a.lanes) break;
    slot ^= 1;
#if PREFETCH
    row = next;
#else
    fetch(a, lane + group, row);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) norm_lanes(const __grid_constant__ Arguments a) {
  if (MODE < 2 && a.aligned == (u64(1) << OPERANDS) - 1)
    all_rows(a, true);
  else
    all_rows(a, false);
}
