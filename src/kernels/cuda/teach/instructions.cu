// Instructions that C++ has no words for, a function each, for steps 6 to 8. PTX ISA: "asynchronous copy", "mbarrier",
// "warp level matrix instructions" and "asynchronous warpgroup level matrix instructions". ELEMENT is bf16 or f16, and
// so the instructions call it.
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

// An address as instructions on shared memory want it.
__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Four blocks of 8 x 8 numbers, spread over the warp as `multiply_add` wants them; thread i gives the address of row
// i % 8 of block i / 8.
__device__ __forceinline__ void load_blocks(u32 (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)));
}
// The same, rows and columns of each block exchanged.
__device__ __forceinline__ void load_blocks_turned(u32 (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(shared_address(row)));
}
// A warp: 16 x 8 sums += (16 x 16) (16 x 8). 4,096 operations by one instruction.
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TEXT(ELEMENT) "." TEXT(ELEMENT) ".f32 "
               "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes from memory to shared memory; the thread goes on. What it has asked for up to `close_group` is one group;
// `wait_for_groups<N>` waits until all but the N youngest are there.
__device__ __forceinline__ void copy_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void close_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// A barrier in shared memory: it turns when `arrivals` have come and all announced bytes are there.
__device__ __forceinline__ void make_barrier(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_with_bytes(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the barrier has left the turn of this parity: its first turn has 0, the next 1, then 0 again.
__device__ __forceinline__ void wait_for_turn(u32 barrier, int parity) {
  int there = 0;
  while (!there)
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(there) : "r"(barrier), "r"(parity) : "memory");
}
// A box of a matrix, whose shape the host has described, to shared memory; the barrier counts its bytes. One thread
// asks for all of it. Rows are of 128 bytes; piece p (16 bytes) of row r stands at p XOR r % 8: no banks collide.
struct alignas(64) TensorMap { u64 words[16]; };
__device__ __forceinline__ void copy_box(u32 to, const TensorMap& map, int x, int y, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
// How `wgmma` finds a matrix in shared memory, in that order of pieces: where it begins, how far it is to the next 64
// numbers along its rows, how far to the next 8 rows.
__device__ __forceinline__ u64 described(u32 address, u32 next_columns, u32 next_rows) {
  return u64((address & 0x3ffff) >> 4) | u64(next_columns >> 4) << 16 | u64(next_rows >> 4) << 32 | u64(1) << 62;
}
