// Reductions of lanes: sums, extremes and their relatives, and the place of the extreme.
//
// Given: V (what is accumulated: float, double, long long, unsigned long long), FOLD (a number of enum Fold; -1: the
// launch says which of the plain ones), NONE (what a fold of nothing begins with), LOWEST and HIGHEST of integer
// results, MODE, TPR, THREADS, PER, UNROLL; before this file lanes.cu and kX, kY. MODE
//   0  members follow each other: TPR threads a lane, UNROLL packs of PER members on their way in each;
//   1  lanes follow each other: a pack of PER lanes a thread, TPR threads side by side and THREADS / TPR along the
//   members, UNROLL members on
//      their way;
//   2  members lie anywhere: TPR threads a lane.
// With `splits` > 1 each lane's members are split over so many blocks: stage 0 leaves partial results in the workspace,
// stage 1 (the same kernel, launched again) joins them.

enum Fold { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare, kArgMax, kArgMin };

struct Split {
  u64 partial;  // address: a State for each lane and split
  u32 splits, stage;
  u32 fold, last;  // last: of equal extremes the last
};

#define IS_ARG (FOLD == 10 || FOLD == 11)
#define IS_EXP (FOLD == 8)

struct State {
  V v;
#if IS_ARG
  i64 index;  // -1: none yet
#elif IS_EXP
  V sum;  // of exp(x - v)
#endif
};

__device__ __forceinline__ float nan_max(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
__device__ __forceinline__ float nan_min(float a, float b) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}
template <typename T>
__device__ __forceinline__ T nan_max(T a, T b) {
  return op_max(a, b);
}
template <typename T>
__device__ __forceinline__ T nan_min(T a, T b) {
  return op_min(a, b);
}

__device__ __forceinline__ int fold_of(const Split& s) { return FOLD >= 0 ? FOLD : int(s.fold); }

__device__ __forceinline__ State nothing(const Split& s) {
  State state;
#if FOLD < 0
  const int fold = fold_of(s);
  state.v = fold == kMax ? V(LEAST) : fold == kMin ? V(MOST) : fold == kProd ? V(1) : V(0);
#else
  state.v = V(NONE);
#endif
#if IS_ARG
  state.index = -1;
#elif IS_EXP
  state.sum = 0;
#endif
  return state;
}

#if IS_EXP
__device__ __forceinline__ V rescaled(V sum, V from, V to) { return from == to ? sum : sum * exponential(from - to); }
#endif

__device__ __forceinline__ State join(const Split& s, State a, State b) {
#if IS_ARG
  if (b.index < 0) return a;
  if (a.index < 0) return b;
  const bool a_nan = a.v != a.v, b_nan = b.v != b.v, earlier = b.index < a.index;
  bool take;
  if (a_nan || b_nan)
    take = b_nan && (!a_nan || earlier);
  else if (a.v == b.v)
    take = s.last ? !earlier : earlier;
  else
    take = (b.v > a.v) == (FOLD == 10);
  return take ? b : a;
#elif IS_EXP
  State state;
  state.v = nan_max(a.v, b.v);
  state.sum = rescaled(a.sum, a.v, state.v) + rescaled(b.sum, b.v, state.v);
  return state;
#else
  const int fold = fold_of(s);
  State state;
  state.v = fold == kMax ? nan_max(a.v, b.v) : fold == kMin ? nan_min(a.v, b.v) : fold == kProd ? a.v * b.v : a.v + b.v;
  return state;
#endif
}

template <typename T>
__device__ __forceinline__ T absolute(T v) {
  return v < T(0) ? T(0) - v : v;
}
__device__ __forceinline__ float absolute(float v) { return fabsf(v); }
__device__ __forceinline__ double absolute(double v) { return fabs(v); }

// A member of this lane; `index` is its number.
__device__ __forceinline__ void take(const Split& s, State& state, V v, i64 index) {
#if IS_ARG
  State one;
  one.v = v, one.index = index;
  state = join(s, state, one);
#elif IS_EXP
  State one;
  one.v = v, one.sum = 1;
  state = join(s, state, one);
#else
  const int fold = fold_of(s);
  if (fold == kL1) v = absolute(v);
  if (fold == kL2 || fold == kSumSquare) v = v * v;
  State one;
  one.v = v;
  state = join(s, state, one);
#endif
}

// Several members: one rescaling of a sum of exponentials for all of them.
template <int N>
__device__ __forceinline__ void take_all(const Split& s, State& state, const V (&v)[N], i64 index) {
#if IS_EXP
  V most = state.v;
#pragma unroll
  for (int i = 0; i < N; ++i) most = nan_max(most, v[i]);
  V sum = rescaled(state.sum, state.v, most);
#pragma unroll
  for (int i = 0; i < N; ++i) sum += rescaled(V(1), v[i], most);
  state.v = most, state.sum = sum;
#else
#pragma unroll
  for (int i = 0; i < N; ++i) take(s, state, v[i], index + i);
#endif
}

__device__ __forceinline__ State shuffled(State state, int distance) {
  state.v = __shfl_xor_sync(0xffffffffu, state.v, distance);
#if IS_ARG
  state.index = __shfl_xor_sync(0xffffffffu, state.index, distance);
#elif IS_EXP
  state.sum = __shfl_xor_sync(0xffffffffu, state.sum, distance);
#endif
  return state;
}

template <int GROUP>
__device__ __forceinline__ State join_group(const Split& s, State state) {
#pragma unroll
  for (int d = (GROUP < 32 ? GROUP : 32) / 2; d > 0; d /= 2) state = join(s, state, shuffled(state, d));
  if constexpr (GROUP > 32) {
    constexpr int kWarps = GROUP / 32;
    __shared__ State partials[THREADS / GROUP][kWarps];
    State* const partial = partials[threadIdx.x / GROUP];
    if (threadIdx.x % 32 == 0) partial[threadIdx.x % GROUP / 32] = state;
    __syncthreads();
    if (threadIdx.x % GROUP < 32) {
      state = partial[threadIdx.x % kWarps];
#pragma unroll
      for (int d = kWarps / 2; d > 0; d /= 2) state = join(s, state, shuffled(state, d));
    }
  }
  return state;
}

__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
template <typename T>
__device__ __forceinline__ T logarithm(T x) {
  return x;
}
template <typename T>
__device__ __forceinline__ T root(T x) {
  return x;
}

// The lane's result, through the epilogue, to its place.
__device__ __forceinline__ void finish(const Arguments& a, const Split& s, State state, const i64* at) {
  OutputType& y = *place<kY, OutputType>(a, at);
#if IS_ARG
  y = OutputType(state.index < 0 ? 0 : state.index);
#else
  V v = state.v;
#if IS_EXP
  if (!(v == V(infinity()) || v == -V(infinity()))) v += logarithm(state.sum);
#else
  const int fold = fold_of(s);
  if (fold == kMean) {
    if constexpr (V(0.5) == V(0))
      v = a.members == 0 ? V(0) : v / V(a.members);
    else
      v = v / V(a.members);
  }
  if (fold == kL2) v = root(v);
  if (fold == kLogSum) v = logarithm(v);
#endif
#ifdef WHOLE_RESULT
  // Of integers in double: towards zero, what is not finite to the ends.
  const bool finite = v - v == 0;
  const i64 whole = finite ? i64(v) : v > 0 ? i64(HIGHEST) : i64(LOWEST);
  y = store_value<OutputType>(epilogue_at(whole, a, at, 0));
#else
  y = store_value<OutputType>(epilogue_at(v, a, at, 0));
#endif
#endif
}

// To the workspace or to its end; by one thread.
__device__ __forceinline__ void leave(const Arguments& a, const Split& s, State state, u64 lane, const i64* at) {
  if (s.splits > 1)
    reinterpret_cast<State*>(s.partial)[lane * s.splits + blockIdx.y] = state;
  else
    finish(a, s, state, at);
}

// The part of `units` that this block does.
__device__ __forceinline__ void part(const Split& s, u64 units, u64& from, u64& to) {
  const u64 each = (units + s.splits - 1) / s.splits;
  from = each * blockIdx.y;
  to = from + each < units ? from + each : units;
}

__device__ __forceinline__ void join_stage(const Arguments& a, const Split& s) {
  const u64 lane = u64(blockIdx.x) * (THREADS / 32) + threadIdx.x / 32;
  if (lane >= a.lanes) return;
  State state = nothing(s);
  for (u32 k = threadIdx.x % 32; k < s.splits; k += 32)
    state = join(s, state, reinterpret_cast<const State*>(s.partial)[lane * s.splits + k]);
  state = join_group<32>(s, state);
  if (threadIdx.x % 32) return;
  i64 at[OPERANDS];
  to_lane(a, lane, at);
  finish(a, s, state, at);
}

#if MODE == 0
__device__ __forceinline__ void fold_stage(const Arguments& a, const Split& s, bool aligned) {
  u64 lane = u64(blockIdx.x) * (THREADS / TPR) + threadIdx.x / TPR;
  const bool live = lane < a.lanes;
  if (!live) lane = a.lanes - 1;
  i64 at[OPERANDS];
  to_lane(a, lane, at);
  const XType* x = place<kX, XType>(a, at);
  u64 from, to;
  part(s, (a.members + PER - 1) / PER, from, to);
  State state = nothing(s);
  u64 member = from * PER + threadIdx.x % TPR;  // of those that are taken one by one
  const u64 end = to * PER < a.members ? to * PER : a.members;
  if (aligned) {
    const u64 whole = end / PER;
    u64 unit = from + threadIdx.x % TPR;
    for (; unit + (UNROLL - 1) * TPR < whole; unit += UNROLL * TPR) {
      Pack<XType, PER> pack[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) load_pack(x + (unit + u * TPR) * PER, true, pack[u]);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        V v[PER];
#pragma unroll
        for (int i = 0; i < PER; ++i) v[i] = V(load_value(pack[u].at[i]));
        take_all(s, state, v, i64((unit + u * TPR) * PER));
      }
    }
#pragma unroll 1
    for (; unit < whole; unit += TPR) {
      Pack<XType, PER> pack;
      load_pack(x + unit * PER, true, pack);
      V v[PER];
#pragma unroll
      for (int i = 0; i < PER; ++i) v[i] = V(load_value(pack.at[i]));
      take_all(s, state, v, i64(unit * PER));
    }
    member = (whole > from ? whole : from) * PER + threadIdx.x % TPR;
  }
#pragma unroll 1
  for (; member < end; member += TPR) take(s, state, V(load_value(x[member])), i64(member));
  state = join_group<TPR>(s, state);
  if (live && threadIdx.x % TPR == 0) leave(a, s, state, lane, at);
}
#elif MODE == 1
// Packs lie along the innermost axis of the lanes.
__device__ __forceinline__ void fold_stage(const Arguments& a, const Split& s, bool aligned) {
  constexpr int kDeep = THREADS / TPR;
  const u64 inner = a.lane_extent[LANE_AXES - 1], packs = (inner + PER - 1) / PER;
  u64 unit = u64(blockIdx.x) * TPR + threadIdx.x % TPR;
  const u64 units = a.lanes / inner * packs;
  const bool live = unit < units;
  if (!live) unit = units - 1;
  const u64 outer = unit / packs, first = (unit - outer * packs) * PER, lane = outer * inner + first;
  const int count = inner - first < PER ? int(inner - first) : PER;
  i64 at[OPERANDS];
  to_lane(a, lane, at);
  const XType* x = place<kX, XType>(a, at);
  const i64 stride = a.member_stride[kX][0];
  State state[PER];
#pragma unroll
  for (int i = 0; i < PER; ++i) state[i] = nothing(s);
  u64 from, to;
  part(s, a.members, from, to);
  u64 member = from + threadIdx.x / TPR;
  if (aligned && count == PER) {
    for (; member + (UNROLL - 1) * kDeep < to; member += UNROLL * kDeep) {
      Pack<XType, PER> pack[UNROLL];
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) load_pack(x + i64(member + u * kDeep) * stride, true, pack[u]);
#pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
        for (int i = 0; i < PER; ++i) take(s, state[i], V(load_value(pack[u].at[i])), i64(member + u * kDeep));
      }
    }
  }
#pragma unroll 1
  for (; member < to; member += kDeep) {
#pragma unroll
    for (int i = 0; i < PER; ++i)
      if (i < count) take(s, state[i], V(load_value(x[i64(member) * stride + i])), i64(member));
  }
  __shared__ State partial[kDeep][TPR];
#pragma unroll
  for (int i = 0; i < PER; ++i) {
    if (i) __syncthreads();
    partial[threadIdx.x / TPR][threadIdx.x % TPR] = state[i];
    __syncthreads();
    if (threadIdx.x < TPR && live && i < count) {
      State all = partial[0][threadIdx.x];
#pragma unroll
      for (int k = 1; k < kDeep; ++k) all = join(s, all, partial[k][threadIdx.x]);
      i64 own[OPERANDS];
#pragma unroll
      for (int k = 0; k < OPERANDS; ++k) own[k] = at[k] + i * a.lane_stride[k][LANE_AXES - 1];
      leave(a, s, all, lane + i, own);
    }
  }
}
#else
__device__ __forceinline__ void fold_stage(const Arguments& a, const Split& s, bool) {
  u64 lane = u64(blockIdx.x) * (THREADS / TPR) + threadIdx.x / TPR;
  const bool live = lane < a.lanes;
  if (!live) lane = a.lanes - 1;
  i64 at[OPERANDS];
  to_lane(a, lane, at);
  u64 from, to;
  part(s, a.members, from, to);
  State state = nothing(s);
  for (u64 member = from + threadIdx.x % TPR; member < to; member += TPR) {
    i64 own[OPERANDS];
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) own[k] = at[k];
    to_member(a, member, own);
    take(s, state, V(load_value(*place<kX, XType>(a, own))), i64(member));
  }
  state = join_group<TPR>(s, state);
  if (live && threadIdx.x % TPR == 0) leave(a, s, state, lane, at);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    reduce_lanes(const __grid_constant__ Arguments a, const __grid_constant__ Split s) {
  release_dependents();
  wait_for_predecessor();
  // What is not aligned has a loop of its own: branches would part the loads.
  if (s.stage)
    join_stage(a, s);
  else if (MODE < 2 && is_aligned(a, kX))
    fold_stage(a, s, true);
  else
    fold_stage(a, s, false);
}
