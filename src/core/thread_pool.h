// The one pool of threads. Fork and join over ranges; static partitions; never nested.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace ridgeline {

/// Cores that this process may use: the affinity mask, cut by the container's CPU quota (cgroup v1 and v2); at least 1.
int available_cores();

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
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: available_cores()
  int threads() const { return threads_; }

  /// Calls body(begin, end, thread) for disjoint ranges that cover [0, count); at most `threads()` calls, range sizes
  /// are multiples of `grain` but for the last. Runs inline if the ranges would be one. body must not throw.
  void run(int64_t count, int64_t grain, RangeFunction body) const;

  /// Nanoseconds the calling thread waited at barriers for the others since it was last asked (profile's wait time).
  static int64_t take_wait_ns();

 private:
  int threads_;
};

}  // namespace ridgeline
