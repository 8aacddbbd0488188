#include "core/thread_pool.h"

#include <pthreadpool.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

// pthreadpool is not built with the thread sanitizer, which therefore does not see that a region starts after what came
// before it and ends before what comes after it.
#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_acquire(void*);
extern "C" void __tsan_release(void*);
#else
inline void __tsan_acquire(void*) {}
inline void __tsan_release(void*) {}
#endif

namespace ridgeline {
namespace {

// cgroup v2: "max 100000" or "200000 100000"; v1: two files. A quota of 1.5 cores gives 1: a second thread would be
// throttled.
int quota_cores() {
  long quota = -1, period = 100000;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2) {
    std::string word;
    if (v2 >> word >> period && word != "max") quota = std::strtol(word.c_str(), nullptr, 10);
  } else {
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!(quota_file >> quota) || !(period_file >> period)) quota = -1;
  }
  if (quota <= 0 || period <= 0) return 1 << 20;
  return int(std::max<long>(1, quota / period));
}

pthreadpool_t shared_pool() {
  static const pthreadpool_t pool = pthreadpool_create(size_t(available_cores()));
  return pool;
}

thread_local int64_t wait_ns = 0;

struct Region {
  int64_t count, chunk;
  const RangeFunction* body;
  std::chrono::steady_clock::time_point first_done;  // when part 0, which the caller runs, was done
  std::mutex mutex;
  std::exception_ptr thrown;  // the first; the pool's own threads have nobody to catch it
};

void run_part(void* context, size_t part) {
  Region& region = *static_cast<Region*>(context);
  __tsan_acquire(context);
  const int64_t begin = int64_t(part) * region.chunk;
  try {
    (*region.body)(begin, std::min(region.count, begin + region.chunk), int(part));
  } catch (...) {
    const std::lock_guard lock(region.mutex);
    if (!region.thrown) region.thrown = std::current_exception();
  }
  if (part == 0) region.first_done = std::chrono::steady_clock::now();
  __tsan_release(context);
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, std::min(allowed, quota_cores()));
}

ThreadPool::ThreadPool(int threads) : threads_(threads > 0 ? threads : available_cores()) {}

void ThreadPool::run(int64_t count, int64_t grain, RangeFunction body) const {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t parts = std::min<int64_t>(threads_, grains);
  if (parts <= 1) return body(0, count, 0);
  const int64_t chunk = (grains + parts - 1) / parts * grain;
  Region region{count, chunk, &body, {}, {}, {}};
  __tsan_release(&region);
  pthreadpool_parallelize_1d(shared_pool(), run_part, &region, size_t((count + chunk - 1) / chunk), 0);
  __tsan_acquire(&region);
  wait_ns += std::max<int64_t>(0, (std::chrono::steady_clock::now() - region.first_done).count());
  if (region.thrown) std::rethrow_exception(region.thrown);
}

int64_t ThreadPool::take_wait_ns() {
  const int64_t waited = wait_ns;
  wait_ns = 0;
  return waited;
}

}  // namespace ridgeline
