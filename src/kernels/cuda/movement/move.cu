// Strided copies, several in one launch.
//
// Given: ELEMENT (bytes), PACK (elements that are moved as one word where the addresses allow it), RANK, PIECES,
// THREADS, STEPS, TRANSPOSES (some pieces are transposes).
//
// A piece is either a walk in the order of the target, a pack a thread and step, all loads before the first store; or a
// transpose: its last axis follows itself in the target, the one before in the source. A thread then takes a block of
// SIDE x SIDE elements by rows of the source, turns it in registers, and writes rows of the target; eight threads side
// by side read 128 bytes of a row, four write 64.

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

struct Piece {
  u64 from, to;  // addresses
  u64 first;     // block
  u64 count;     // packs, or blocks of a transpose
  u64 extent[RANK];
  i64 from_stride[RANK], to_stride[RANK];  // in elements, of packs in the innermost axis
  u32 flags;                               // kTurned, kWholeFrom, kWholeTo
  u32 tiles_from, tiles_to;  // of a transpose: along the axis that follows itself in the source, the target
};
enum { kTurned = 1, kWholeFrom = 2, kWholeTo = 4 };
struct Arguments {
  Piece piece[PIECES];
};

__device__ __forceinline__ u64 quotient(u64 a, u64 b) { return ((a | b) >> 32) ? a / b : u64(u32(a) / u32(b)); }

__device__ __forceinline__ void places(const Piece& p, u64 index, int last, i64& from, i64& to) {
#pragma unroll
  for (int axis = RANK - 1; axis >= 0; --axis) {
    if (axis > last || (axis > 0 && p.extent[axis] == 1)) continue;
    u64 here = index;
    if (axis > 0) {
      const u64 rest = quotient(index, p.extent[axis]);
      here = index - rest * p.extent[axis];
      index = rest;
    }
    from += i64(here) * p.from_stride[axis];
    to += i64(here) * p.to_stride[axis];
  }
}

__device__ __forceinline__ void walk(const Piece& p, bool whole) {
  const u64 first = (blockIdx.x - p.first) * (THREADS * STEPS) + threadIdx.x;
  Pack<Element, PACK> pack[STEPS];
  Element* to[STEPS];
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (first + s * THREADS >= p.count) break;
    i64 at_from = 0, at_to = 0;
    places(p, first + s * THREADS, RANK - 1, at_from, at_to);
    load_pack(reinterpret_cast<const Element*>(p.from) + at_from, whole, pack[s]);
    to[s] = reinterpret_cast<Element*>(p.to) + at_to;
  }
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (first + s * THREADS >= p.count) break;
    store_pack(to[s], whole, pack[s]);
  }
}

#if TRANSPOSES
constexpr int kSide = ELEMENT == 1 ? 8 : 16 / ELEMENT;
constexpr int kWords = kSide * ELEMENT / 4;  // of a row

__device__ __forceinline__ u32 permuted(u32 a, u32 b, u32 selector) { return __byte_perm(a, b, selector); }

// Row i of the turned block.
__device__ __forceinline__ void turned_row(const u32 (&in)[kSide][kWords], int i, u32 (&out)[kWords]) {
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
#if ELEMENT == 1
    const int word = i / 4, at = i % 4;
    const u32 pair = u32(at | (at + 4) << 4);
    const u32 low = permuted(in[4 * w][word], in[4 * w + 1][word], pair);
    const u32 high = permuted(in[4 * w + 2][word], in[4 * w + 3][word], pair);
    out[w] = permuted(low, high, 0x5410);
#elif ELEMENT == 2
    out[w] = permuted(in[2 * w][i / 2], in[2 * w + 1][i / 2], i % 2 ? 0x7632 : 0x5410);
#elif ELEMENT == 4
    out[w] = in[w][i];
#else
    out[w] = in[w / 2][2 * i + w % 2];
#endif
  }
}

union Block {
  u32 word[kSide][kWords];
  Element element[kSide][kSide];
};

__device__ __forceinline__ void turn(const Piece& p) {
  using Words = typename Word<kSide * ELEMENT>::Type;
  u64 block = blockIdx.x - p.first;
  const u64 rest = quotient(block, p.tiles_from), tile_from = block - rest * p.tiles_from;
  const u64 batch = quotient(rest, p.tiles_to), tile_to = rest - batch * p.tiles_to;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // 16 x 16 threads; a warp is 8 along the source's rows and 4 along the target's.
  const i64 i = (i64(tile_from) * 16 + lane % 8 + 8 * (warp % 2)) * kSide;  // along the source's
  const i64 j = (i64(tile_to) * 16 + lane / 8 + 4 * (warp / 2)) * kSide;
  const i64 rows = i64(p.extent[RANK - 2]), columns = i64(p.extent[RANK - 1]);
  if (i >= rows || j >= columns) return;
  i64 at_from = 0, at_to = 0;
  places(p, batch, RANK - 3, at_from, at_to);
  const i64 from_step = p.from_stride[RANK - 1], to_step = p.to_stride[RANK - 2];
  const Element* from = reinterpret_cast<const Element*>(p.from) + at_from + i + j * from_step;
  Element* to = reinterpret_cast<Element*>(p.to) + at_to + j + i * to_step;
  Block in;
  if ((p.flags & kWholeFrom) && i + kSide <= rows && j + kSide <= columns) {
#pragma unroll
    for (int r = 0; r < kSide; ++r)
      *reinterpret_cast<Words*>(&in.word[r]) = *reinterpret_cast<const Words*>(from + r * from_step);
  } else {
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int c = 0; c < kSide; ++c)
        if (j + r < columns && i + c < rows) in.element[r][c] = from[r * from_step + c];
  }
  if ((p.flags & kWholeTo) && i + kSide <= rows && j + kSide <= columns) {
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      Words out;
      turned_row(in.word, r, reinterpret_cast<u32(&)[kWords]>(out));
      *reinterpret_cast<Words*>(to + r * to_step) = out;
    }
  } else {
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int c = 0; c < kSide; ++c)
        if (j + c < columns && i + r < rows) to[r * to_step + c] = in.element[c][r];
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) move_pieces(const __grid_constant__ Arguments a) {
  release_dependents();
  wait_for_predecessor();
  int k = 0;
#pragma unroll 1
  while (k + 1 < PIECES && blockIdx.x >= a.piece[k + 1].first) ++k;
  const Piece& p = a.piece[k];
#if TRANSPOSES
  if (p.flags & kTurned) return turn(p);
#endif
  if ((p.flags & kWholeFrom) && (p.flags & kWholeTo))
    walk(p, true);
  else
    walk(p, false);
}
