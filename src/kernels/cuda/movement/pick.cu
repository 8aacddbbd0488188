// Each element of the output fetches its own: where an index says, or from inside of a padding.
//
// Given: ELEMENT (bytes), PACK (elements that are moved together along the innermost axis), RANK, THREADS, KIND
//   0  Gather, GatherElements: x at its own strides plus the index times a stride;
//   1  Pad: x where the coordinate is inside, else a constant or the mode's element;
//   2  Trilu: x on one side of a diagonal, else 0.

template <int BYTES>
struct ElementOf;
template <>
struct ElementOf<1> {
  using Type = unsigned char;
};
template <>
struct ElementOf<2> {
  using Type = u16;
};
template <>
struct ElementOf<4> {
  using Type = u32;
};
template <>
struct ElementOf<8> {
  using Type = u64;
};
using Element = ElementOf<ELEMENT>::Type;

struct Arguments {
  u64 x, index, value, y;                    // addresses
  u64 extent[RANK];                          // of the output, outermost first; the innermost in packs
  i64 to[RANK], from[RANK], of_index[RANK];  // strides in elements; innermost of packs
  i64 before[RANK], inside[RANK];            // of a padding: how many stand before, the input's extent
  i64 axis_extent, axis_stride;              // of a gather
  i64 diagonal;
  u64 count;                             // packs
  int wide_index, aligned, mode, upper;  // mode: 0 constant, 1 edge, 2 reflect, 3 wrap
};

__device__ __forceinline__ u64 quotient(u64 a, u64 b) { return ((a | b) >> 32) ? a / b : u64(u32(a) / u32(b)); }

__device__ __forceinline__ i64 source_of(int mode, i64 at, i64 n) {
  if (mode == 1) return at < 0 ? 0 : at >= n ? n - 1 : at;
  if (mode == 3) return ((at % n) + n) % n;
  if (n == 1) return 0;
  const i64 period = 2 * (n - 1), q = ((at % period) + period) % period;
  return q < n ? q : period - q;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) pick(const __grid_constant__ Arguments a) {
  release_dependents();
  wait_for_predecessor();
  const u64 unit = u64(blockIdx.x) * THREADS + threadIdx.x;
  if (unit >= a.count) return;
  u64 rest = unit;
  i64 to = 0, from = 0, of_index = 0, last = 0, before_last = 0;
  bool inside = true;
#pragma unroll
  for (int axis = RANK - 1; axis >= 0; --axis) {
    u64 here = rest;
    if (axis > 0) {
      const u64 next = a.extent[axis] == 1 ? rest : quotient(rest, a.extent[axis]);
      here = rest - next * a.extent[axis];
      rest = next;
    }
    i64 at = i64(here);
    to += at * a.to[axis];
#if KIND == 1
    at -= a.before[axis];
    if (at < 0 || at >= a.inside[axis]) {
      if (a.mode == 0)
        inside = false;
      else
        at = source_of(a.mode, at, a.inside[axis]);
    }
#elif KIND == 0
    of_index += at * a.of_index[axis];
#endif
    from += at * a.from[axis];
    if (axis == RANK - 1) last = i64(here);
    if (axis == RANK - 2) before_last = i64(here);
  }
#if KIND == 0
  i64 index = a.wide_index ? reinterpret_cast<const i64*>(a.index)[of_index]
                           : i64(reinterpret_cast<const int*>(a.index)[of_index]);
  if (index < 0) index += a.axis_extent;
  // What is out of range is an error of the model's data; no memory but x's is read.
  index = index < 0 ? 0 : index >= a.axis_extent ? a.axis_extent - 1 : index;
  from += index * a.axis_stride;
#elif KIND == 2
  const i64 side = last - before_last;
  inside = a.upper ? side >= a.diagonal : side <= a.diagonal;
#endif
  Element* const y = reinterpret_cast<Element*>(a.y) + to;
#if KIND == 0
  Pack<Element, PACK> pack;
  load_pack(reinterpret_cast<const Element*>(a.x) + from, a.aligned, pack);
  store_pack(y, a.aligned, pack);
#else
  *y = inside ? reinterpret_cast<const Element*>(a.x)[from]
       : a.value ? *reinterpret_cast<const Element*>(a.value)
                 : Element(0);
#endif
}
