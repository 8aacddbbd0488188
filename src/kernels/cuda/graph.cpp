#include "kernels/cuda/graph.h"

#include "ridgeline/error.h"

namespace ridgeline::cuda {

CapturedGraph::CapturedGraph(const Queue& queue, const std::function<void(Stream)>& work) : queue_(queue) {
  const Driver& d = driver();
  constexpr int kThreadLocal = 1;  // other threads may go on allocating
  check(d.capture_begin(queue.stream(), kThreadLocal), "capturing a graph");
  Graph graph = nullptr;
  try {
    work(queue.stream());
  } catch (...) {
    d.capture_end(queue.stream(), &graph);
    if (graph) d.graph_destroy(graph);
    throw;
  }
  check(d.capture_end(queue.stream(), &graph), "ending the capture of a graph");
  size_t nodes = 0;
  d.graph_nodes(graph, nullptr, &nodes);
  nodes_ = int64_t(nodes);
  const Result result = d.graph_instantiate(&exec_, graph, 0);
  d.graph_destroy(graph);
  check(result, fmt::format("making a graph of {} nodes", nodes));
}

CapturedGraph::~CapturedGraph() {
  if (exec_) driver().graph_exec_destroy(exec_);
}

void CapturedGraph::replay() const { check(driver().graph_launch(exec_, queue_.stream()), "launching a graph"); }

Stopwatch::Stopwatch() {
  check(driver().event_create(&from_, 0), "making an event");
  check(driver().event_create(&to_, 0), "making an event");
}

Stopwatch::~Stopwatch() {
  if (from_) driver().event_destroy(from_);
  if (to_) driver().event_destroy(to_);
}

double Stopwatch::time_ns(const Queue& queue, const std::function<void()>& work) const {
  const Driver& d = driver();
  check(d.event_record(from_, queue.stream()), "timing");
  work();
  check(d.event_record(to_, queue.stream()), "timing");
  check(d.event_synchronize(to_), "waiting for timed work");
  float ms = 0;
  check(d.event_elapsed_ms(&ms, from_, to_), "reading a time");
  return double(ms) * 1e6;
}

}  // namespace ridgeline::cuda
