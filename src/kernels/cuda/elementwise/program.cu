// A Program over strided operands. PER neighbouring elements of the innermost axis a thread and step, STEPS steps, all
// loads before the first use.
//
// Given: RANK axes (innermost last), PER, STEPS, THREADS, INDEX (the type of positions); and in the text before this file
// OPERANDS (inputs, then outputs), `load_all`, `compute` and `store_all` over `Values`.

struct Arguments {
  u64 address[OPERANDS];
  i64 stride[OPERANDS][RANK];  // in elements
  u64 extent[RANK];            // of the innermost axis in units of PER
  u64 count;                   // units in all
  u64 aligned;                 // a bit an operand: its units may be moved as whole words
};

struct Positions {
  i64 offset[OPERANDS];
};

__device__ __forceinline__ void locate(const Arguments& a, INDEX unit, Positions& at) {
#pragma unroll
  for (int k = 0; k < OPERANDS; ++k) at.offset[k] = 0;
#pragma unroll
  for (int axis = RANK - 1; axis >= 0; --axis) {
    INDEX here = unit;
    if (axis > 0) {
      const INDEX rest = unit / INDEX(a.extent[axis]);
      here = unit - rest * INDEX(a.extent[axis]);
      unit = rest;
    }
    const i64 step = axis == RANK - 1 ? i64(here) * PER : i64(here);
#pragma unroll
    for (int k = 0; k < OPERANDS; ++k) at.offset[k] += step * a.stride[k][axis];
  }
}

// How a unit of an operand lies: its elements follow each other, are one and the same, or stand apart.
enum Inner { kNext, kSame, kApart };

template <Inner INNER, typename T>
__device__ __forceinline__ void load_unit(const Arguments& a, int k, const Positions& at, Pack<T, PER>& to) {
  const T* p = reinterpret_cast<const T*>(a.address[k]) + at.offset[k];
  if (INNER == kNext) {
    load_pack(p, (a.aligned >> k) & 1, to);
  } else {
#pragma unroll
    for (int i = 0; i < PER; ++i) to.at[i] = INNER == kSame ? p[0] : p[i * a.stride[k][RANK - 1]];
  }
}

template <Inner INNER, typename T>
__device__ __forceinline__ void store_unit(const Arguments& a, int k, const Positions& at, const Pack<T, PER>& from) {
  T* p = reinterpret_cast<T*>(a.address[k]) + at.offset[k];
  if (INNER == kNext) {
    store_pack(p, (a.aligned >> k) & 1, from);
  } else {
#pragma unroll
    for (int i = 0; i < PER; ++i) p[i * a.stride[k][RANK - 1]] = from.at[i];
  }
}

// struct Values, load_all, compute, store_all: written for the program.
OPERATIONS

extern "C" __global__ void __launch_bounds__(THREADS) program(const __grid_constant__ Arguments a) {
  const INDEX first = INDEX(blockIdx.x) * (THREADS * STEPS) + threadIdx.x;
  Values values[STEPS];
  Positions at[STEPS];
  release_dependents();
  wait_for_predecessor();
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (first + s * THREADS >= INDEX(a.count)) break;
    locate(a, first + s * THREADS, at[s]);
    load_all(a, at[s], values[s]);
  }
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (first + s * THREADS >= INDEX(a.count)) break;
    compute(values[s]);
    store_all(a, at[s], values[s]);
  }
}
