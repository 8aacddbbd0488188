// The ways to do what a ceiling bounds, bound to buffers and threads, and the window in which one is timed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "machine/ceilings.h"

namespace ridgeline::probe {

/// `step` does some microseconds of work as thread `thread` and returns how much (operations, bytes, elements).
struct Way {
  std::string name;
  std::function<double(int thread)> step;
  /// What is bounded lies outside the cores (L3, DRAM): threads count only while all run. Else each counts for itself,
  /// by its own processor time, so that another process on its core does not make it look slow.
  bool shared = false;
  double best = 0;      // per nanosecond, all threads together
  int undisturbed = 0;  // windows so far
};

std::vector<Way> compute_ways(DType dtype);
std::vector<Way> special_ways(SpecialFunction function, int threads);
std::vector<Way> launch_ways(int threads);

enum class Traffic { kRead, kCopy, kWrite };
using Memory = std::shared_ptr<void>;

/// `bytes`: of all threads together, source and target; rounded down to powers of two for each thread.
/// `memory` holds at least memory_needed.
std::vector<Way> memory_ways(Traffic traffic, int64_t bytes, int threads, const Memory& memory);
int64_t memory_needed(Traffic traffic, int64_t bytes, int threads);
/// Touched by all threads, so that its pages exist.
Memory touched_memory(int64_t bytes, int threads);

struct Window {
  double rate = 0;          // work per nanosecond, all threads together
  bool undisturbed = true;  // shared: no thread lost its core to another process
};
/// All threads run the way's steps for `window_ns`, after an untimed tenth of that.
Window run_window(const Way& way, int threads, double window_ns);

}  // namespace ridgeline::probe
