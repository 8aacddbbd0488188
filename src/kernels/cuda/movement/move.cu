// Strided copies, several in one launch.
//
// Given: ELEMENT (bytes), PACK (elements that are moved as one word where the addresses allow it), RANK, PIECES,
// THREADS, STEPS, TRANSPOSES (some pieces are transposes).
//
// A piece is either a walk in the order of the target, a pack a thread and step, all loads before the first store; or a
// transpose: its last axis follows itself in the target, the one before in the source. Tiles of 16 x 16 words go
// through shared memory: rows of 256 bytes are read and written, each thread turns a block of one word by as many rows
// in registers. Without shared memory (eight threads side by side read 128 bytes of a row, each wrote a word to a row
// of its own) 32768 x 4096 bf16 took 270 us, half the speed of a copy: writes of 16 bytes to eight rows at a time.

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
constexpr int kSide = ELEMENT == 1 ? 8 : 16 / ELEMENT;  // elements a word
constexpr int kTile = 16 * kSide;                       // along both sides
constexpr int kBytes = kSide * ELEMENT;                 // of a word
constexpr int kWords = kBytes / 4;
constexpr int kSpread = 128 / kBytes;  // words that all banks hold
using Wide = Word<kBytes>::Type;

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

// A word of the tile: row j of the source, word c of it. Words of a column of blocks lie in different banks.
__device__ __forceinline__ int tile_word(int j, int c) { return j * 16 + (c ^ (j / kSide % kSpread)); }

__device__ __forceinline__ void copy_word(u32 shared, const Element* from) {
#if ELEMENT == 1
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(from));
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from));
#endif
}

__device__ __forceinline__ void turn(const Piece& p) {
  __shared__ __align__(16) Element tile[kTile * (kTile + 1)];
  u64 block = blockIdx.x - p.first;
  const u64 rest = quotient(block, p.tiles_from), tile_from = block - rest * p.tiles_from;
  const u64 batch = quotient(rest, p.tiles_to), tile_to = rest - batch * p.tiles_to;
  const i64 i0 = i64(tile_from) * kTile, j0 = i64(tile_to) * kTile;  // along the source's rows, the target's
  const i64 rows = i64(p.extent[RANK - 2]) - i0, columns = i64(p.extent[RANK - 1]) - j0;
  i64 at_from = 0, at_to = 0;
  places(p, batch, RANK - 3, at_from, at_to);
  const i64 from_step = p.from_stride[RANK - 1], to_step = p.to_stride[RANK - 2];
  const Element* from = reinterpret_cast<const Element*>(p.from) + at_from + i0 + j0 * from_step;
  Element* to = reinterpret_cast<Element*>(p.to) + at_to + j0 + i0 * to_step;
  const int low = threadIdx.x % 16, high = threadIdx.x / 16;
  if ((p.flags & kWholeFrom) && (p.flags & kWholeTo)) {  // extents are multiples of a word, too
    const u32 base = u32(__cvta_generic_to_shared(tile));
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const int j = r * 16 + high;
      if (j < columns && low * kSide < rows)
        copy_word(base + u32(tile_word(j, low)) * kBytes, from + j * from_step + low * kSide);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    if (low * kSide >= columns || high * kSide >= rows) return;
    // This thread's block: words of rows low * kSide and on, at word `high`.
    union {
      u32 word[kSide][kWords];
      Wide wide[kSide];
    } in;
#pragma unroll
    for (int r = 0; r < kSide; ++r) in.wide[r] = reinterpret_cast<const Wide*>(tile)[tile_word(low * kSide + r, high)];
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      Wide out;
      turned_row(in.word, r, reinterpret_cast<u32(&)[kWords]>(out));
      *reinterpret_cast<Wide*>(to + i64(high * kSide + r) * to_step + low * kSide) = out;
    }
    return;
  }
  // Edges and odd addresses, element by element.
#pragma unroll 1
  for (int k = threadIdx.x; k < kTile * kTile; k += THREADS) {
    const int j = k / kTile, i = k % kTile;
    if (i < rows && j < columns) tile[j * (kTile + 1) + i] = from[i + j * from_step];
  }
  __syncthreads();
#pragma unroll 1
  for (int k = threadIdx.x; k < kTile * kTile; k += THREADS) {
    const int i = k / kTile, j = k % kTile;
    if (i < rows && j < columns) to[j + i * to_step] = tile[j * (kTile + 1) + i];
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
