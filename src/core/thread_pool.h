// The one pool of threads. Fork and join over ranges; static partitions.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "core/cores.h"

namespace ridgeline {

/// A callable that is only called while it lives: no copy, no allocation (std::function allocates for captures over two
/// words, and a run may not allocate).
class RangeFunction {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, RangeFunction>)
      RangeFunction(const F& f)  // implicit: lambdas are passed as they are
      : object_(&f), call_([](const void* object, int64_t begin, int64_t end, int thread) {
          (*static_cast<const F*>(object))(begin, end, thread);
        }) {}
  void operator()(int64_t begin, int64_t end, int thread) const { call_(object_, begin, end, thread); }

 private:
  const void* object_;
  void (*call_)(const void*, int64_t, int64_t, int);
};

/// A view of the shared pool with a limit on threads. `threads == 1` never touches the pool: work runs inline.
///
/// How a range is cut depends on `threads()` alone, never on how many threads are free: if other sessions or processes
/// keep the helpers, the caller does their parts too. With `lanes` given, a range is cut for that many whatever the
/// number of threads, so that results are the same to the bit for any number (Plan, deterministic).
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: available_cores()
  ThreadPool(int threads, int lanes);

  /// Into how many parts a range is cut at most: kernels count their workspaces by it.
  int threads() const { return lanes_; }
  /// The same pool cut into fewer parts.
  ThreadPool at_most(int threads) const;

  /// Calls body(begin, end, thread) for disjoint ranges that cover [0, count); at most `threads()` calls, range sizes
  /// are multiples of `grain` but for the last. Runs inline if the ranges would be one. If a body throws, the others
  /// end and the first that was thrown is thrown here.
  void run(int64_t count, int64_t grain, RangeFunction body) const;

  /// Nanoseconds the calling thread waited at barriers for the others since it was last asked (profile's wait time).
  static int64_t take_wait_ns();

 private:
  int threads_;  // that may work at a time
  int lanes_;
};

/// While it lives the calling thread counts as one that computes, also between its regions: the pool lends others no
/// more helpers than cores are left. k sessions on k cores then run on one thread each instead of interrupting each
/// other's helpers.
class PoolSession {
 public:
  PoolSession();
  ~PoolSession();
  PoolSession(const PoolSession&) = delete;
  PoolSession& operator=(const PoolSession&) = delete;
};

}  // namespace ridgeline
