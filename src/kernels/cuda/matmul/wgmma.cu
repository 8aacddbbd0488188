// Products on the matrix units of sm_90: bulk tensor copies into rings of stages, and CONSUMERS warpgroups of MW x 64
// rows that multiply from shared memory. Blocks stay and take tile after tile. With SPLIT > 1 a cluster shares k: its
// blocks send each other columns of sums, and each finishes its own.
//
// Given: BM = 64 * CONSUMERS * MW, BN, STAGES, CONSUMERS, MW, SPLIT, A_ROWS (of a stage; fewer than BM where no tile
// has more), ROUND (row blocks of 64 that are staged at once), A_ALONG_K, B_ALONG_K (how rows of 128 bytes lie in
// shared memory), B_CONSTANT, BATCH (axes), EVEN_N, PRODUCER_REGISTERS, CONSUMER_REGISTERS (0: as compiled), STAGED
// (16-bit results go through shared memory); offsets: B_RING, EXCHANGE, STAGING, BARRIERS.
//
// Sources: PTX ISA 8.0, 9.7.15 (wgmma, its descriptors), 9.7.8.24 (bulk copies), 9.7.12.15 (mbarrier).

struct __align__(64) TensorMap {
  u64 words[16];
};
struct Maps {
  TensorMap a, b;
  TensorMap y[4];  // boxes of 64, 32, 16 and 8 columns and 64 rows
};
struct Geometry {
  u32 rows, columns, tiles;  // in tiles; of all batches
  u32 group;                 // rows of tiles that run together
  u32 bulk_store;            // y lies so that bulk copies can store it
  u32 a_batched, b_batched;  // a bit an axis: is it the operand's own?
  u32 pad;
};

constexpr int kStepBytes = 128;  // of k, in a row of a stage
constexpr int kStep = kStepBytes / sizeof(AType);
constexpr int kColumnBlocks = (BN + 63) / 64;
constexpr int kABytes = A_ROWS * kStepBytes;
constexpr int kBBytes = B_ALONG_K ? BN * kStepBytes : kColumnBlocks * 64 * kStepBytes;
constexpr int kConsumerThreads = 128 * CONSUMERS;
constexpr int kThreads = kConsumerThreads + (CONSUMERS == 1 ? 32 : 128);
constexpr int kPart = BN / SPLIT;                     // columns that a block finishes
constexpr int kStagedBytes = ROUND * 64 * kPart * 2;  // of one warpgroup
static_assert(BN % (8 * SPLIT) == 0, "whole blocks of 8 columns");

__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void barrier_init(u32 at, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 at, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
// A wait that never ends becomes an error that names the kernel.
__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
  asm volatile(
      "{\n.reg .pred done, more;\n.reg .u32 polls;\nmov.u32 polls, 0;\n"
      "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
      "add.u32 polls, polls, 1;\nsetp.lt.u32 more, polls, 4194304;\n@more bra AGAIN;\ntrap;\nDONE:\n}" ::"r"(at),
      "r"(parity)
      : "memory");
}

struct Place {
  int c[3];  // along the batch axes of a map, innermost first
};
__device__ __forceinline__ void load_box(u32 to, const TensorMap* map, u32 barrier, int x, int y, const Place& at) {
#if BATCH == 0
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
#elif BATCH == 1
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(at.c[0])
      : "memory");
#else
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(at.c[0]), "r"(at.c[1])
      : "memory");
#endif
}
__device__ __forceinline__ void store_box(u32 from, const TensorMap* map, int x, int y, const Place& at) {
#if BATCH == 0
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y)
               : "memory");
#elif BATCH == 1
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(at.c[0])
               : "memory");
#else
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(at.c[0]), "r"(at.c[1])
               : "memory");
#endif
}

// A tile: its first row and column, and its place in the batch.
struct Here {
  u32 batch, row, column;
  Place y;
};
__device__ __forceinline__ Here here_of(u32 tile, const Geometry& g, const Arguments& p) {
  Here h;
  const u32 per = g.rows * g.columns;
  h.batch = BATCH ? tile / per : 0;
  place_of_tile(tile - h.batch * per, g.rows, g.columns, g.group, h.row, h.column);
  h.row *= BM, h.column *= BN;
  h.y.c[0] = h.y.c[1] = h.y.c[2] = 0;
#if BATCH == 1
  h.y.c[0] = int(h.batch);
#elif BATCH == 2
  const u32 inner = u32(p.extent[1]);
  h.y.c[1] = int(h.batch / inner), h.y.c[0] = int(h.batch % inner);
#endif
  return h;
}
// An operand that is broadcast along an axis stays at 0 there.
__device__ __forceinline__ Place own_place(const Place& at, u32 mask) {
  Place q = at;
#pragma unroll
  for (int i = 0; i < 2; ++i) q.c[i] = (mask >> i) & 1 ? at.c[i] : 0;
  return q;
}

__device__ __forceinline__ void load_a(u32 to, const Maps& maps, u32 barrier, int k, int row, const Place& at) {
#if A_ALONG_K
  load_box(to, &maps.a, barrier, k, row, at);
#else
#pragma unroll
  for (int i = 0; i < A_ROWS / 64; ++i) load_box(to + i * 64 * kStepBytes, &maps.a, barrier, row + i * 64, k, at);
#endif
}
__device__ __forceinline__ void load_b(u32 to, const Maps& maps, u32 barrier, int k, int column, const Place& at) {
#if B_ALONG_K
  load_box(to, &maps.b, barrier, k, column, at);
#else
#pragma unroll
  for (int i = 0; i < kColumnBlocks; ++i) load_box(to + i * 64 * kStepBytes, &maps.b, barrier, column + i * 64, k, at);
#endif
}

// Rows of 128 bytes, swizzled. Along k: 8 rows are 1,024 bytes, and 32 bytes further is the next k. Else: 8 k are 1,024
// bytes, the next 64 rows 8,192, and 16 k are 2,048.
constexpr u64 kAlongK = (1ull << 16) | (64ull << 32) | (1ull << 62);
constexpr u64 kAcrossK = (512ull << 16) | (64ull << 32) | (1ull << 62);
constexpr u64 kAForm = A_ALONG_K ? kAlongK : kAcrossK, kBForm = B_ALONG_K ? kAlongK : kAcrossK;
constexpr int kAStep = A_ALONG_K ? 2 : 128, kBStep = B_ALONG_K ? 2 : 128;

// The epilogue on two neighbouring columns. Outside of the matrix nothing is read.
__device__ __forceinline__ void finish_pair(float& v0, float& v1, const Epilogue& e, const Arguments& p, i64 row,
                                            i64 column) {
#if defined(EPILOGUE_PAIRS) && EVEN_N
  if (row < p.m && column < p.n) epilogue_pair(v0, v1, e, row, column);
#else
  if (row < p.m && column < p.n) v0 = epilogue(v0, e, row, column);
  if (row < p.m && column + 1 < p.n) v1 = epilogue(v1, e, row, column + 1);
#endif
}

#if STAGED
__device__ __forceinline__ u32 pack_pair(float a, float b) {
  Pack<OutputType, 2> v;
  v.at[0] = store_value<OutputType>(a), v.at[1] = store_value<OutputType>(b);
  return *reinterpret_cast<const u32*>(&v);
}

// W columns of 64 rows into shared memory, swizzled as the box of that width is.
template <int W, int FIRST>
__device__ __forceinline__ void stage_columns(const float (&sum)[kPart / 2], u32 to, int warp, int lane) {
  const int matrix = lane >> 3, row = warp * 16 + (matrix & 1) * 8 + (lane & 7);
  const u32 at = to + row * (W * 2);
  if constexpr (W == 8) {
    constexpr int q = FIRST / 8;
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%0], {%1, %2};" ::"r"(at),
                 "r"(pack_pair(sum[4 * q], sum[4 * q + 1])), "r"(pack_pair(sum[4 * q + 2], sum[4 * q + 3]))
                 : "memory");
  } else {
    const u32 pattern = W == 64 ? row & 7 : W == 32 ? (row >> 1) & 3 : (row >> 2) & 1;
#pragma unroll
    for (int j = 0; j < W / 16; ++j) {
      const int q = FIRST / 8 + 2 * j;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       at + ((u32(2 * j + (matrix >> 1)) ^ pattern) << 4)),
                   "r"(pack_pair(sum[4 * q], sum[4 * q + 1])), "r"(pack_pair(sum[4 * q + 2], sum[4 * q + 3])),
                   "r"(pack_pair(sum[4 * q + 4], sum[4 * q + 5])), "r"(pack_pair(sum[4 * q + 6], sum[4 * q + 7]))
                   : "memory");
    }
  }
}
constexpr int kWide = kPart / 64 * 64, kAt32 = kWide, kAt16 = kAt32 + (kPart & 32), kAt8 = kAt16 + (kPart & 16);
template <int FIRST = 0>
__device__ __forceinline__ void stage_block(const float (&sum)[kPart / 2], u32 to, int warp, int lane) {
  if constexpr (FIRST < kWide) {
    stage_columns<64, FIRST>(sum, to + FIRST * 128, warp, lane);
    stage_block<FIRST + 64>(sum, to, warp, lane);
  } else {
    if constexpr ((kPart & 32) != 0) stage_columns<32, kAt32>(sum, to + kAt32 * 128, warp, lane);
    if constexpr ((kPart & 16) != 0) stage_columns<16, kAt16>(sum, to + kAt16 * 128, warp, lane);
    if constexpr ((kPart & 8) != 0) stage_columns<8, kAt8>(sum, to + kAt8 * 128, warp, lane);
  }
}
__device__ __forceinline__ void store_block(const Maps& maps, u32 from, int column, int row, const Place& at) {
#pragma unroll
  for (int c = 0; c < kWide; c += 64) store_box(from + c * 128, &maps.y[0], column + c, row, at);
  if (kPart & 32) store_box(from + kAt32 * 128, &maps.y[1], column + kAt32, row, at);
  if (kPart & 16) store_box(from + kAt16 * 128, &maps.y[2], column + kAt16, row, at);
  if (kPart & 8) store_box(from + kAt8 * 128, &maps.y[3], column + kAt8, row, at);
}

// Staged columns of 64 rows to where no bulk copy can: neighbours to neighbours, one element each.
__device__ __forceinline__ void copy_block(const unsigned char* from, OutputType* out, const Arguments& p, i64 row,
                                           i64 column, int thread) {
#pragma unroll 1
  for (int i = thread; i < 64 * kPart; i += 128) {
    const int r = i / kPart, c = i % kPart;
    const int first = c < kWide ? c / 64 * 64 : c < kAt16 ? kAt32 : c < kAt8 ? kAt16 : kAt8;
    const int width = c < kWide ? 64 : c < kAt16 ? 32 : c < kAt8 ? 16 : 8;
    const int pattern = width == 64 ? r & 7 : width == 32 ? (r >> 1) & 3 : width == 16 ? (r >> 2) & 1 : 0;
    const int at = first * 128 + r * width * 2 + ((((c - first) >> 3) ^ pattern) << 4) + (c & 7) * 2;
    if (row + r < p.m && column + c < p.n)
      out[(row + r) * p.y.row + (column + c) * p.y.column] = *reinterpret_cast<const OutputType*>(from + at);
  }
}

#endif  // STAGED

#if SPLIT > 1
#define CLUSTER __cluster_dims__(SPLIT, 1, 1)
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ __forceinline__ void store_remote(u32 at, float a, float b, float c, float d) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(a), "f"(b), "f"(c), "f"(d)
               : "memory");
}
constexpr int kLineBytes = 128 * 16;                                   // four sums of each thread of a warpgroup
constexpr int kSlotBytes = CONSUMERS * MW * (kPart / 8) * kLineBytes;  // what one block sends another

// Columns of sums to those who finish them; `own` becomes the block's own, added up in the order of the blocks.
__device__ __forceinline__ void exchange(const float (&sum)[MW][BN / 2], float (&own)[MW][kPart / 2], u32 base,
                                         const unsigned char* memory, u32 rank, int thread) {
  const u32 mine = (thread >> 7) * MW * (kPart / 8) * kLineBytes + (thread & 127) * 16;
  cluster_wait();  // everybody has started
#pragma unroll
  for (u32 to = 0; to < SPLIT; ++to) {
    if (to == rank) {
#pragma unroll
      for (int m = 0; m < MW; ++m)
#pragma unroll
        for (int i = 0; i < kPart / 2; ++i) own[m][i] = sum[m][to * (kPart / 2) + i];
    } else {
      u32 at;
      asm("mapa.shared::cluster.u32 %0, %1, %2;"
          : "=r"(at)
          : "r"(base + EXCHANGE + (rank < to ? rank : rank - 1) * kSlotBytes + mine), "r"(to));
#pragma unroll
      for (int m = 0; m < MW; ++m)
#pragma unroll
        for (int q = 0; q < kPart / 8; ++q) {
          const float* const v = &sum[m][to * (kPart / 2) + 4 * q];
          store_remote(at + (m * (kPart / 8) + q) * kLineBytes, v[0], v[1], v[2], v[3]);
        }
    }
  }
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  cluster_wait();
#pragma unroll
  for (int from = 0; from < SPLIT - 1; ++from)
#pragma unroll
    for (int m = 0; m < MW; ++m)
#pragma unroll
      for (int q = 0; q < kPart / 8; ++q) {
        const float4 v = *reinterpret_cast<const float4*>(memory + EXCHANGE + from * kSlotBytes + mine +
                                                          (m * (kPart / 8) + q) * kLineBytes);
        own[m][4 * q] += v.x, own[m][4 * q + 1] += v.y, own[m][4 * q + 2] += v.z, own[m][4 * q + 3] += v.w;
      }
}
#else
#define CLUSTER
#endif

// A ring of stages: where it stands, and the parity to wait for.
struct Ring {
  u32 stage, parity;
  __device__ __forceinline__ void next() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// The sums of a tile, finished and stored: rows from `row`, columns from `column`.
__device__ __forceinline__ void finish(float (&sum)[MW][kPart / 2], const Maps& maps, const Arguments& p,
                                       const Geometry& g, const Here& h, u32 base, unsigned char* memory, int thread) {
  const BatchPlace place = place_of_batch(p, h.batch);
  const Epilogue e = epilogue_at(p, place);
  OutputType* const out = (OutputType*)p.y.address + place.y;
  const int group = thread >> 7, lane = thread & 31, warp = (thread >> 5) & 3;
  const i64 row0 = h.row + group * MW * 64 + warp * 16 + (lane >> 2), column0 = h.column + 2 * (lane & 3);
#pragma unroll
  for (int m = 0; m < MW; ++m)
#pragma unroll
    for (int q = 0; q < kPart / 8; ++q) {
      finish_pair(sum[m][4 * q], sum[m][4 * q + 1], e, p, row0 + m * 64, column0 + 8 * q);
      finish_pair(sum[m][4 * q + 2], sum[m][4 * q + 3], e, p, row0 + m * 64 + 8, column0 + 8 * q);
    }
#if STAGED
  const u32 staged = base + STAGING + group * kStagedBytes;
  const bool starts = (thread & 127) == 0;
#pragma unroll
  for (int m0 = 0; m0 < MW; m0 += ROUND) {
    // What was stored from this memory before has been read.
    if (starts) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
#pragma unroll
    for (int m = m0; m < m0 + ROUND; ++m) stage_block(sum[m], staged + (m - m0) * 64 * kPart * 2, warp, lane);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    if (!g.bulk_store) {
      for (int m = m0; m < m0 + ROUND; ++m)
        copy_block(memory + STAGING + group * kStagedBytes + (m - m0) * 64 * kPart * 2, out, p,
                   h.row + (group * MW + m) * 64, h.column, thread & 127);
    } else if (starts) {
#pragma unroll
      for (int m = m0; m < m0 + ROUND; ++m)
        store_block(maps, staged + (m - m0) * 64 * kPart * 2, int(h.column), int(h.row) + (group * MW + m) * 64, h.y);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
#else
  constexpr int kWord = sizeof(OutputType) * 2;
  const bool words = p.y.column == 1 && u64(out) % kWord == 0 && p.y.row % 2 == 0;
#pragma unroll
  for (int m = 0; m < MW; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const i64 row = row0 + m * 64 + half * 8;
      if (row >= p.m) continue;
      OutputType* const line = out + row * p.y.row + column0 * p.y.column;
#pragma unroll
      for (int q = 0; q < kPart / 8; ++q) {
        const i64 column = column0 + 8 * q;
        Pack<OutputType, 2> v;
        v.at[0] = store_value<OutputType>(sum[m][4 * q + 2 * half]);
        v.at[1] = store_value<OutputType>(sum[m][4 * q + 2 * half + 1]);
        if (words && column + 2 <= p.n) {
          store_pack(line + 8 * q, true, v);
        } else {
          if (column < p.n) line[8 * q * p.y.column] = v.at[0];
          if (column + 1 < p.n) line[(8 * q + 1) * p.y.column] = v.at[1];
        }
      }
    }
#endif
}

extern "C" __global__ void CLUSTER __launch_bounds__(kThreads, 1)
    matmul_wgmma(const __grid_constant__ Maps maps, const __grid_constant__ Arguments p,
                 const __grid_constant__ Geometry g) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 base = shared_address(memory), full = base + BARRIERS, empty = full + 8 * STAGES;
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 4 * CONSUMERS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const u32 all_steps = u32((p.k + kStep - 1) / kStep);
#if SPLIT > 1
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  const u32 rank = blockIdx.x % SPLIT, first = blockIdx.x / SPLIT, stride = gridDim.x / SPLIT;
  const u32 step0 = all_steps * rank / SPLIT, steps = all_steps * (rank + 1) / SPLIT - step0;
#else
  const u32 first = blockIdx.x, stride = gridDim.x, step0 = 0, steps = all_steps;
#endif

  if (thread >= kConsumerThreads) {
#if PRODUCER_REGISTERS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
#endif
    if (thread == kConsumerThreads) {
      asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.a) : "memory");
      asm volatile("prefetch.tensormap [%0];" ::"l"(&maps.b) : "memory");
      u32 early = 0;
#if B_CONSTANT
      // Weights do not wait for the kernel before this one.
      if (first < g.tiles) {
        const Here h = here_of(first, g, p);
        early = steps < STAGES ? steps : STAGES;
        for (u32 i = 0; i < early; ++i) {
          barrier_expect(full + 8 * i, kABytes + kBBytes);
          load_b(base + B_RING + i * kBBytes, maps, full + 8 * i, int((step0 + i) * kStep), int(h.column),
                 own_place(h.y, g.b_batched));
        }
      }
#endif
      asm volatile("griddepcontrol.wait;" ::: "memory");
      Ring at{0, 1};
      for (u32 tile = first; tile < g.tiles; tile += stride) {
        const Here h = here_of(tile, g, p);
        const Place at_a = own_place(h.y, g.a_batched), at_b = own_place(h.y, g.b_batched);
        for (u32 step = step0; step < step0 + steps; ++step) {
          const u32 signal = full + 8 * at.stage;
          if (early > 0) {
            --early;
          } else {
            barrier_wait(empty + 8 * at.stage, at.parity);
            barrier_expect(signal, kABytes + kBBytes);
            load_b(base + B_RING + at.stage * kBBytes, maps, signal, int(step * kStep), int(h.column), at_b);
          }
          load_a(base + at.stage * kABytes, maps, signal, int(step * kStep), int(h.row), at_a);
          at.next();
        }
      }
    }
#if SPLIT > 1
    __syncwarp();
    cluster_wait();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    cluster_wait();
#endif
  } else {
#if CONSUMER_REGISTERS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
#endif
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int group = thread >> 7, lane = thread & 31;
    Ring at{0, 0};
    float sum[MW][BN / 2];
    for (u32 tile = first; tile < g.tiles; tile += stride) {
      Here h = here_of(tile, g, p);
      u32 before = 0;
      for (u32 step = 0; step < steps; ++step) {
        barrier_wait(full + 8 * at.stage, at.parity);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        const u32 a = base + at.stage * kABytes + group * MW * 64 * kStepBytes;
        const u32 b = base + B_RING + at.stage * kBBytes;
        const u64 form_a = kAForm | u64((a & 0x3ffff) >> 4), form_b = kBForm | u64((b & 0x3ffff) >> 4);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int m = 0; m < MW; ++m)
            wgmma(sum[m], form_a + m * 512 + k * kAStep, form_b + k * kBStep, (step | k) != 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        // One group stays in flight: what the group before it read is free.
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (step > 0 && lane == 0) barrier_arrive(empty + 8 * before);
        before = at.stage;
        at.next();
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (lane == 0) barrier_arrive(empty + 8 * before);
#pragma unroll
      for (int m = 0; m < MW; ++m)
#pragma unroll
        for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(sum[m][i])::"memory");
#if SPLIT > 1
      float own[MW][kPart / 2];
      exchange(sum, own, base, memory, rank, thread);
      h.column += rank * kPart;
      finish(own, maps, p, g, h, base, memory, thread);
#else
      finish(sum, maps, p, g, h, base, memory, thread);
#endif
    }
#if STAGED
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
  }
}
