// Work captured once and replayed with one call; times by the device's own clock.
#pragma once

#include <functional>

#include "kernels/cuda/device.h"

namespace ridgeline::cuda {

class CapturedGraph {
 public:
  /// What `work` queues on the stream becomes a graph; nothing runs. Throws Error{kResource}.
  CapturedGraph(const Queue& queue, const std::function<void(Stream)>& work);
  ~CapturedGraph();
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  void replay() const;
  int64_t nodes() const { return nodes_; }

 private:
  const Queue& queue_;
  GraphExec exec_ = nullptr;
  int64_t nodes_ = 0;
};

/// Two events around work in a stream.
class Stopwatch {
 public:
  Stopwatch();
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  /// Device time from before the work to after it, in ns; waits for it.
  double time_ns(const Queue& queue, const std::function<void()>& work) const;

 private:
  Event from_ = nullptr, to_ = nullptr;
};

}  // namespace ridgeline::cuda
