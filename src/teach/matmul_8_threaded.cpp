// 8. Threaded: each thread computes columns of its own.
//
// Columns rather than rows, so that each thread packs only its own part of B. Nothing is shared but A, which is read
// only: no thread waits for another before the end, and no line of C is written by two of them (the parts are multiples
// of 64 floats; where a line belongs to two cores it travels between them at each write, which costs more than
// the work). What bounds the gain: the slowest thread, the memory that they share, and a clock that falls as more cores
// work.
#include "core/thread_pool.h"
#include "teach/matmul_steps.h"

namespace ridgeline::teach {

void matmul_8_threaded(const Matmul& t) {
  const auto columns = [&t](int64_t begin, int64_t end, int thread) {
    Matmul part = t;
    part.b += begin;
    part.c += begin;
    part.n = end - begin;
    part.scratch += thread * kScratchFloats;
    matmul_7_prefetching(part);
  };
  ThreadPool(t.threads).run(t.n, 64, columns);
}

}  // namespace ridgeline::teach
