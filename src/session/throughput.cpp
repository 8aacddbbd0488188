#include "session/throughput.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "tune/timing.h"

namespace ridgeline {

Throughput measure_throughput(std::shared_ptr<const Plan> plan, const Feeds& feeds, int instances, double seconds) {
  Throughput result;
  result.instances = std::max(1, instances);
  result.threads_each = plan->threads;
  std::vector<std::unique_ptr<Runner>> runners;
  for (int i = 0; i < result.instances; ++i) {
    runners.push_back(std::make_unique<Runner>(plan, feeds));
    runners.back()->run();
  }
  std::atomic<int64_t> runs = 0;
  const int64_t begin = now_ns(), end = begin + int64_t(seconds * 1e9);
  std::vector<std::thread> threads;
  for (auto& runner : runners) {
    threads.emplace_back([&runs, end, &runner] {
      do {
        runner->run();
        ++runs;
      } while (now_ns() < end);
    });
  }
  for (std::thread& t : threads) t.join();
  result.runs = runs;
  result.seconds = double(now_ns() - begin) / 1e9;
  return result;
}

}  // namespace ridgeline
