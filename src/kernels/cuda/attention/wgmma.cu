// Attention on the matrix units of sm_90a. One thread of the first warpgroup copies tiles of Q, K and V by bulk tensor
// copies; GROUPS warpgroups own 64 rows of queries each. Scores are sums in registers, their weights the register
// operand of the product with V, which is read across (V lies with its columns inside). The product of one tile's
// weights with V runs while the scores of the next are made into weights, and the warpgroups take turns at the matrix
// units, so that one multiplies while another takes exponentials (Shah et al., 2024, describe both overlaps).
//
// Floor: 4 S T depth operations at 800 TFLOP/s; a multiprocessor takes 4096 a cycle, and 16 exponentials: with depth
// 128 they need half the time of the products, with depth 64 as long as these. A tile of 128 rows reads K and V of 128
// keys (64 KB) for 8.4 M operations: 5 TB/s of the second cache at the full rate.
//
// Given: DEPTH, VALUE_DEPTH (multiples of 64: narrower heads read as zero beyond their end), RAGGED (values are
// narrower than VALUE_DEPTH), KEYS (of a tile), GROUPS, STAGES, QUERY_STAGES, TURNS, LAZY, PRODUCER_REGISTERS,
// CONSUMER_REGISTERS; score_product and value_product (mma_source.h); warp.cu; attention_any for misaligned operands.

// More than the block has been given, and setmaxnreg waits for ever.
static_assert(PRODUCER_REGISTERS + GROUPS * CONSUMER_REGISTERS <= 512 / (GROUPS + 1) / 8 * 8 * (GROUPS + 1),
              "registers");

struct __align__(64) TensorMap { u64 words[16]; };

constexpr int kRows = 64 * GROUPS;
constexpr int kBytesQ = kRows * DEPTH * 2, kBytesK = KEYS * DEPTH * 2, kBytesV = KEYS * VALUE_DEPTH * 2;
constexpr int kPlaceK = QUERY_STAGES * kBytesQ, kPlaceV = kPlaceK + STAGES * kBytesK,
              kBarriers = kPlaceV + STAGES * kBytesV;

__device__ __forceinline__ void barrier_init(u32 at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
  u32 done;
  for (int polls = 0;; ++polls) {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
        : "=r"(done) : "r"(at), "r"(parity) : "memory");
    if (done) return;
    if (polls == 1 << 24) asm volatile("trap;");  // an error that names the kernel instead of a card that hangs
  }
}
__device__ __forceinline__ void load_box(u32 to, const TensorMap& map, u32 barrier, int column, int row, int head,
                                         int item) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
      "[%2];" ::"r"(to), "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(item) : "memory");
}
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING, int N>
__device__ __forceinline__ void products_wait(float (&sums)[N]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(sums[i])::"memory");  // not read before this
}
// Turns: a warpgroup waits for its own barrier and lets the next one pass.
__device__ __forceinline__ void turn_wait(int group) { asm volatile("bar.sync %0, 256;" ::"r"(2 + group) : "memory"); }
__device__ __forceinline__ void turn_pass(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(2 + (group + 1 == GROUPS ? 0 : group + 1)) : "memory");
}

// Descriptors of tiles in 128-byte swizzle. Rows of 64 columns follow each other: groups of eight rows are 1,024 bytes
// apart. Read along the row (K-major), the leading offset has no meaning; across it, that is where the next 64 columns
// are.
constexpr u64 kAlong = (u64(1) << 16) | (u64(64) << 32) | (u64(1) << 62);
constexpr u64 kAcross = (u64(KEYS * 8) << 16) | (u64(64) << 32) | (u64(1) << 62);
__device__ __forceinline__ u64 described(u64 form, u32 at) { return form | ((at & 0x3ffff) >> 4); }

struct Job {
  int item, head, kv_head, row, tiles;
};
// Blocks of rows of one head follow each other, so that its K and V stay in the second cache. Causal: one that sees
// much, then the one that sees as much less (a.paired): every pair is as long as every other. (All heads' longest
// blocks first, as one would to end evenly, read K and V from memory again for each: 371 for 448 TFLOP/s with 1,024
// keys.)
//
// False: no more; job.tiles 0: not in this round.
__device__ __forceinline__ bool job_in_round(const Attention& a, int round, Job& job) {
  const int row_blocks = (a.queries + kRows - 1) / kRows, heads = a.batch * a.heads;
  const int half = (row_blocks + 1) / 2, units = (a.paired ? half : row_blocks) * heads;  // below 2^31: the host looks
  const int unit = (a.paired ? round >> 1 : round) * int(gridDim.x) + int(blockIdx.x);
  if (unit >= units) return false;
  const int per = a.paired ? half : row_blocks, pair = unit / per;
  int block = unit - pair * per;
  job.tiles = 0;
  if (a.paired && (round & 1)) {
    if (row_blocks - 1 - block == block) return true;
  } else if (a.paired) {
    block = row_blocks - 1 - block;
  }
  job.item = pair / a.heads, job.head = pair - job.item * a.heads;
  job.kv_head = job.head / (a.heads / a.kv_heads);
  job.row = block * kRows;
  int keys = a.keys;
  if (a.causal) keys = int(min(i64(keys), max(i64(1), a.first_place + min(job.row + kRows, a.queries))));
  job.tiles = (keys + KEYS - 1) / KEYS;  // at least one: a row that sees nothing finds that out
  return true;
}
__device__ __forceinline__ bool next_job(const Attention& a, int& round, Job& job) {
  while (job_in_round(a, ++round, job))
    if (job.tiles) return true;
  return false;
}

__device__ __forceinline__ void scores_of(float (&s)[KEYS / 2], u32 q, u32 k) {
#pragma unroll
  for (int i = 0; i < DEPTH / 16; ++i)
    score_product(s, described(kAlong, q + (i / 4) * (kRows * 128) + (i % 4) * 32),
                  described(kAlong, k + (i / 4) * (KEYS * 128) + (i % 4) * 32), i > 0);
  products_commit();
}
__device__ __forceinline__ void values_of(float (&y)[VALUE_DEPTH / 2], const u32 (&p)[KEYS / 16][4], u32 v, int add) {
#pragma unroll
  for (int i = 0; i < KEYS / 16; ++i) value_product(y, p[i], described(kAcross, v + i * 2048), i > 0 ? 1 : add);
  products_commit();
}

__device__ __forceinline__ float larger_or_nan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
// Exponentials and what surrounds them take as many issue slots as the products leave. (A quarter of them by
// polynomials on the multiply-adders, to relieve the special functions: with heads of 64, 385 TFLOP/s instead of 490.)
struct State {
  float largest[2], sum[2], factor[2];
};
// Scores to weights; rows of a thread: 0 and 8 below its first. Powers of two: scale holds log2 e.
__device__ __forceinline__ void weigh(const Attention& a, float (&s)[KEYS / 2], State& state, float scale, int tile_key,
                                      int row, int column) {
  const bool causal = a.causal && tile_key + KEYS > a.first_place + row + 1;
  if (causal || tile_key + KEYS > a.keys) {
    int end0 = a.keys, end1 = a.keys;
    if (a.causal) {
      end0 = int(min(i64(end0), a.first_place + row + (threadIdx.x & 31) / 4 + 1));
      end1 = int(min(i64(end1), a.first_place + row + (threadIdx.x & 31) / 4 + 9));
    }
#pragma unroll
    for (int i = 0; i < KEYS / 2; ++i) {
      const int key = tile_key + i / 4 * 8 + column + (i & 1);
      if (key >= (i & 2 ? end1 : end0)) s[i] = -infinity();
    }
  }
  float top0 = s[0], top1 = s[2];
#pragma unroll
  for (int i = 0; i < KEYS / 2; i += 4) {
    top0 = larger_or_nan(top0, larger_or_nan(s[i], s[i + 1]));
    top1 = larger_or_nan(top1, larger_or_nan(s[i + 2], s[i + 3]));
  }
  top0 = larger_or_nan(state.largest[0], top0), top1 = larger_or_nan(state.largest[1], top1);
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    top0 = larger_or_nan(top0, __shfl_xor_sync(~0u, top0, step));
    top1 = larger_or_nan(top1, __shfl_xor_sync(~0u, top1, step));
  }
  const float base0 = top0 == -infinity() ? 0.0f : top0 * scale, base1 = top1 == -infinity() ? 0.0f : top1 * scale;
  state.factor[0] = power_of_two(state.largest[0] * scale - base0);
  state.factor[1] = power_of_two(state.largest[1] * scale - base1);
  state.largest[0] = top0, state.largest[1] = top1;
  float sum0 = 0, sum1 = 0;
#pragma unroll
  for (int i = 0; i < KEYS / 2; i += 4) {
    s[i] = power_of_two(fmaf(s[i], scale, -base0)), s[i + 1] = power_of_two(fmaf(s[i + 1], scale, -base0));
    s[i + 2] = power_of_two(fmaf(s[i + 2], scale, -base1));
    s[i + 3] = power_of_two(fmaf(s[i + 3], scale, -base1));
    sum0 += s[i] + s[i + 1], sum1 += s[i + 2] + s[i + 3];
  }
  state.sum[0] = state.sum[0] * state.factor[0] + sum0;
  state.sum[1] = state.sum[1] * state.factor[1] + sum1;
}
__device__ __forceinline__ void pack_weights(const float (&s)[KEYS / 2], u32 (&p)[KEYS / 16][4]) {
#pragma unroll
  for (int i = 0; i < KEYS / 16; ++i)
#pragma unroll
    for (int k = 0; k < 4; ++k) p[i][k] = pack_two(s[i * 8 + k * 2], s[i * 8 + k * 2 + 1]);
}

// One row of a thread's sums: quads of lanes hold pairs of neighbours; exchanged, each has 16 bytes of the row.
__device__ __forceinline__ void store_half(const Attention& a, const Epilogue& e, const Job& job, int query, int half,
                                           float (&y)[VALUE_DEPTH / 2], float sum, int lane) {
  const int turn = lane & 3;
  const float by = 1.0f / sum;
  const bool none = a.causal && a.first_place + query < 0;  // sees nothing
  const bool inside = query < a.queries;
  OutputType* const row = reinterpret_cast<OutputType*>(a.y) + a.at_y.at(job.item, job.head, inside ? query : 0);
#pragma unroll
  for (int c = 0; c < VALUE_DEPTH / 8; c += 4) {
    OutputType values[4][2];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float x = y[(c + i) * 4 + half * 2 + k] * by;
        if (none) x = a.empty_is_zero ? 0.0f : not_a_number();
        const int column = (c + i) * 8 + turn * 2 + k;
        if (inside && (!RAGGED || column < a.value_depth)) x = epilogue(x, e, job.item, job.head, query, column);
        values[i][k] = store_value<OutputType>(x);
      }
    if constexpr (sizeof(OutputType) == 2) {
      if (a.y_in_words) {  // y lies in whole words of 16 bytes
        u32 words[4], out[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = *reinterpret_cast<const u32*>(&values[i][0]);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = words[i];
#pragma unroll
        for (int r = 1; r < 4; ++r) {
          const int other = turn ^ r;
          const u32 send = other & 2 ? (other & 1 ? words[3] : words[2]) : (other & 1 ? words[1] : words[0]);
          const u32 got = __shfl_xor_sync(~0u, send, r);
#pragma unroll
          for (int i = 0; i < 4; ++i) out[i] = other == i ? got : out[i];
        }
        // What stays at home: word `turn` of the own column.
        const u32 own = turn & 2 ? (turn & 1 ? words[3] : words[2]) : (turn & 1 ? words[1] : words[0]);
#pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = turn == i ? own : out[i];
        if (inside && (!RAGGED || (c + turn) * 8 < a.value_depth))
          *reinterpret_cast<uint4*>(row + (c + turn) * 8) = make_uint4(out[0], out[1], out[2], out[3]);
        continue;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int k = 0; k < 2; ++k)
        if (const int column = (c + i) * 8 + turn * 2 + k; inside && (!RAGGED || column < a.value_depth))
          row[column * a.at_y.column] = values[i][k];
  }
}

__device__ __forceinline__ void store_rows(const Attention& a, const Epilogue& e, const Job& job, int row_in_block,
                                           float (&y)[VALUE_DEPTH / 2], float sum0, float sum1, int lane) {
  const int query = job.row + row_in_block + lane / 4;
  store_half(a, e, job, query, 0, y, sum_of_four(sum0), lane);
  store_half(a, e, job, query + 8, 1, y, sum_of_four(sum1), lane);
}

extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1)
    attention_wgmma(const __grid_constant__ Attention a, const __grid_constant__ Epilogue e,
                    const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                    const __grid_constant__ TensorMap map_v) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  const u32 q_full = base + kBarriers, q_empty = q_full + 8 * QUERY_STAGES, k_full = q_empty + 8 * QUERY_STAGES,
            k_empty = k_full + 8 * STAGES, v_full = k_empty + 8 * STAGES, v_empty = v_full + 8 * STAGES;
  const int tid = threadIdx.x;
  if (tid == 0) {
    for (int s = 0; s < QUERY_STAGES; ++s) barrier_init(q_full + 8 * s, 1), barrier_init(q_empty + 8 * s, 4 * GROUPS);
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(k_full + 8 * s, 1), barrier_init(k_empty + 8 * s, 4 * GROUPS);
      barrier_init(v_full + 8 * s, 1), barrier_init(v_empty + 8 * s, 4 * GROUPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  Job job;
  if (tid < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
    if (tid != 0) return;
    u32 stage = 0, phase = 1, q_stage = 0, q_phase = 1;
    for (int round = -1; next_job(a, round, job);) {
      barrier_wait(q_empty + 8 * q_stage, q_phase);
      barrier_expect(q_full + 8 * q_stage, kBytesQ);
#pragma unroll
      for (int c = 0; c < DEPTH / 64; ++c)
        load_box(base + q_stage * kBytesQ + c * (kRows * 128), map_q, q_full + 8 * q_stage, c * 64, job.row, job.head,
                 job.item);
      if (++q_stage == QUERY_STAGES) q_stage = 0, q_phase ^= 1;
      for (int tile = job.tiles - 1; tile >= 0; --tile) {
        barrier_wait(k_empty + 8 * stage, phase);
        barrier_expect(k_full + 8 * stage, kBytesK);
#pragma unroll
        for (int c = 0; c < DEPTH / 64; ++c)
          load_box(base + kPlaceK + stage * kBytesK + c * (KEYS * 128), map_k, k_full + 8 * stage, c * 64, tile * KEYS,
                   job.kv_head, job.item);
        barrier_wait(v_empty + 8 * stage, phase);
        barrier_expect(v_full + 8 * stage, kBytesV);
#pragma unroll
        for (int c = 0; c < VALUE_DEPTH / 64; ++c)
          load_box(base + kPlaceV + stage * kBytesV + c * (KEYS * 128), map_v, v_full + 8 * stage, c * 64, tile * KEYS,
                   job.kv_head, job.item);
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
  const int group = (tid >> 7) - 1, lane = tid & 31, warp = (tid >> 5) & 3;
  const int row_in_block = group * 64 + warp * 16, column = (lane & 3) * 2;
  const float scale = float(a.scale) * 1.4426950408889634f;
  const u32 q = base + group * (64 * 128);
  u32 k_stage = 0, k_phase = 0, v_stage = 0, v_phase = 0, q_stage = 0, q_phase = 0;
  if (TURNS && group == GROUPS - 1) turn_pass(group);  // the first warpgroup begins
  float s[KEYS / 2], y[VALUE_DEPTH / 2];
  u32 p[KEYS / 16][4];
  // Tiles of all jobs in one stream: the scores of the next, whosever it is, are made beside the values of this one.
  int round = -1;
  if (!next_job(a, round, job)) return;
  Job ahead = job;
  int tile = job.tiles - 1, add = 0;
  State state = {{-infinity(), -infinity()}, {0, 0}, {0, 0}};
  barrier_wait(q_full, 0);
  barrier_wait(k_full, 0);
  products_begin();
  scores_of(s, q, base + kPlaceK);
  products_wait<0>(s);
  if (lane == 0) barrier_arrive(k_empty);
  if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
  if (tile == 0) {
    if (lane == 0) barrier_arrive(q_empty);
    if (++q_stage == QUERY_STAGES) q_stage = 0, q_phase ^= 1;
  }
  weigh(a, s, state, scale, tile * KEYS, job.row + row_in_block, column);
  pack_weights(s, p);
  while (true) {
    const bool fresh = tile == 0;
    if (fresh && !next_job(a, round, ahead)) break;
    tile = fresh ? ahead.tiles - 1 : tile - 1;
    if (fresh) barrier_wait(q_full + 8 * q_stage, q_phase);
    barrier_wait(k_full + 8 * k_stage, k_phase);
    if (TURNS) turn_wait(group);
    products_begin();
    scores_of(s, q + q_stage * kBytesQ, base + kPlaceK + k_stage * kBytesK);
    barrier_wait(v_full + 8 * v_stage, v_phase);
    values_of(y, p, base + kPlaceV + v_stage * kBytesV, add);
    if (TURNS) turn_pass(group);
    products_wait<1>(s);
    if (lane == 0) barrier_arrive(k_empty + 8 * k_stage);
    if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
    if (tile == 0) {
      if (lane == 0) barrier_arrive(q_empty + 8 * q_stage);
      if (++q_stage == QUERY_STAGES) q_stage = 0, q_phase ^= 1;
    }
    const float sum0 = state.sum[0], sum1 = state.sum[1];
    if (fresh) state = {{-infinity(), -infinity()}, {0, 0}, {0, 0}};
    weigh(a, s, state, scale, tile * KEYS, ahead.row + row_in_block, column);
    products_wait<0>(y);
    if (lane == 0) barrier_arrive(v_empty + 8 * v_stage);
    if (++v_stage == STAGES) v_stage = 0, v_phase ^= 1;
    pack_weights(s, p);
    if (fresh) {
      store_rows(a, e, job, row_in_block, y, sum0, sum1, lane);
      job = ahead;
    } else if (!LAZY || __any_sync(~0u, state.factor[0] != 1.0f || state.factor[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < VALUE_DEPTH / 2; ++i) y[i] *= state.factor[i >> 1 & 1];
    }
    add = !fresh;
  }
  barrier_wait(v_full + 8 * v_stage, v_phase);
  products_begin();
  values_of(y, p, base + kPlaceV + v_stage * kBytesV, add);
  products_wait<0>(y);
  store_rows(a, e, job, row_in_block, y, state.sum[0], state.sum[1], lane);
}
