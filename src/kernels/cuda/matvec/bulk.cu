// Bulk copies of sm_90 into shared memory with barriers that count their bytes, and the copies of scales: what few.cu
// and many.cu share.

__device__ __forceinline__ u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void expect(u32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_copy(u32 to, const void* from, int bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
// Ends when the copies that were announced have arrived; an error of ours would end in a trap, not in a hang.
__device__ __forceinline__ void wait_for(u32 barrier, u32 parity) {
  u32 done = 0;
  for (int polls = 0; !done; ++polls) {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (polls > 1 << 20) asm volatile("trap;");
  }
}
__device__ __forceinline__ void start_barrier(u32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#if GROUPED
// The scales of a warp's part of K, copied with the first weights.
struct SliceScales {
  char* at;
  u32 barrier;
  int first_group, groups, lane, row, bytes;
  template <typename T>
  __device__ __forceinline__ const char* copy(u64 address, i64 tile, int all, int each, bool issue) {
    const int begin = first_group / each, count = (first_group + groups - 1) / each - begin + 1;
    const int size = count * 16 * int(sizeof(T));
    char* const to = at;
    at += (ROOM_GROUPS - 1 + each - 1) / each * 16 * int(sizeof(T)) + 16 * int(sizeof(T));
    bytes += size;
    if (issue)
      bulk_copy(shared_address(to), reinterpret_cast<const T*>(address) + (tile * all + begin) * 16, size, barrier);
    return to + (row * 2 - begin * 16) * int(sizeof(T));
  }
  __device__ __forceinline__ void place(const Arguments& a, i64 tile, ScaleBases& to, bool issue) {
    to.scale = copy<ScaleType>(a.scale, tile, GROUPS, 1, issue);
#if HAS_ZERO
    to.zero = copy<unsigned char>(a.zero, tile, GROUPS, 1, issue);
#endif
#if HAS_MIN
    to.low = copy<MinType>(a.low, tile, GROUPS, 1, issue);
#endif
#if HAS_SUPER
    to.super_scale = copy<SuperType>(a.super_scale, tile, SUPER_GROUPS, GROUPS / SUPER_GROUPS, issue);
#endif
#if HAS_SUPER_MIN
    to.super_low = copy<SuperMinType>(a.super_low, tile, SUPER_MIN_GROUPS, GROUPS / SUPER_MIN_GROUPS, issue);
#endif
  }
};
#endif
