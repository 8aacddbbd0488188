#include "tune/probes_ways.h"

#include <time.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "core/thread_pool.h"
#include "ridgeline/tensor.h"
#include "tune/probes_kernels.h"
#include "tune/timing.h"

namespace ridgeline::probe {
namespace {

constexpr int64_t kStepBytes = 4 << 20;   // between two looks at the clock: 10 us from L1
constexpr int64_t kGap = 4096;            // between the rings of two threads: prefetchers do not cross
constexpr int64_t kSkew = 2048 + 64;      // a copy's target is off its source by this modulo 4 KiB: no false aliasing
constexpr int64_t kSpecialFloats = 2048;  // in and out: 16 KiB, in every L1

int64_t thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t(t.tv_sec) * 1000000000 + t.tv_nsec;
}

int64_t ring_bytes(Traffic traffic, int64_t bytes, int threads) {
  const int64_t each = bytes / threads / (traffic == Traffic::kCopy ? 2 : 1);
  return int64_t(std::bit_floor(uint64_t(std::max<int64_t>(each, 4096))));
}

std::vector<Way> usable(std::span<const ComputeWay> kernels) {
  std::vector<Way> ways;
  for (const ComputeWay& kernel : kernels) {
    if (*kernel.feature && !this_cpu().has(kernel.feature)) continue;
    ways.push_back({kernel.name, [run = kernel.run](int) { return double(run()); }});
  }
  return ways;
}

std::span<const ComputeWay> kernels_of(DType dtype) {
  if (dtype == DType::kBF16) return bf16_ways();
  return dtype == DType::kU8 || dtype == DType::kI8 ? u8s8_ways() : f32_ways();
}

}  // namespace

std::vector<Way> compute_ways(DType dtype) {
  std::vector<Way> ways = usable(kernels_of(dtype));
  return ways.empty() ? usable(f32_ways()) : ways;  // without an instruction of its own a narrow type is widened
}

std::vector<Way> special_ways(SpecialFunction function, int threads) {
  const int64_t stride = 2 * kSpecialFloats + 1024;
  const Memory memory = allocate(stride * threads * int64_t(sizeof(float)));
  float* floats = static_cast<float*>(memory.get());
  for (int64_t i = 0; i < stride * threads; ++i) floats[i] = 0.1f + 0.01f * float(i % 337);
  const bool divides = function != SpecialFunction::kExp && function != SpecialFunction::kSqrt;
  std::vector<Way> ways;
  for (const SpecialWay& way : special_function_ways()) {
    if ((*way.feature && !this_cpu().has(way.feature)) || (way.only_divisions && !divides)) continue;
    const auto step = [=, run = way.run](int thread) {
      float* in = static_cast<float*>(memory.get()) + thread * stride;
      constexpr int kPasses = 16;
      for (int pass = 0; pass < kPasses; ++pass) run(function, in, in + kSpecialFloats + 512, kSpecialFloats);
      return double(kPasses * kSpecialFloats);
    };
    ways.push_back({way.name, step});
  }
  return ways;
}

// The step runs on the calling thread and starts a region of `threads` threads again and again.
std::vector<Way> launch_ways(int threads) {
  const auto step = [pool = ThreadPool(threads), threads](int) {
    constexpr int kLaunches = 100;
    for (int i = 0; i < kLaunches; ++i) pool.run(threads, 1, [](int64_t, int64_t, int) {});
    return double(kLaunches);
  };
  return {{"empty region", step, threads > 1}};
}

int64_t memory_needed(Traffic traffic, int64_t bytes, int threads) {
  const int64_t rings = (traffic == Traffic::kCopy ? 2 : 1) * threads;
  return rings * (ring_bytes(traffic, bytes, threads) + kGap) + kSkew;
}

Memory touched_memory(int64_t bytes, int threads) {
  Memory memory = allocate(bytes);
  ThreadPool(threads).run(bytes, 2 << 20, [&](int64_t begin, int64_t end, int) {
    std::memset(static_cast<uint8_t*>(memory.get()) + begin, 1, size_t(end - begin));
  });
  return memory;
}

std::vector<Way> memory_ways(Traffic traffic, int64_t bytes, int threads, const Memory& memory) {
  const int64_t size = ring_bytes(traffic, bytes, threads);
  const bool shared = threads > 1 && bytes > threads * this_cpu().caches.l2;
  const int64_t step_bytes = shared ? kStepBytes / 4 : kStepBytes;  // so that all threads end at nearly the same time
  const std::span<const MemoryWay> kernels = traffic == Traffic::kRead   ? read_ways()
                                             : traffic == Traffic::kCopy ? copy_ways()
                                                                         : write_ways();
  std::vector<Way> ways;
  for (const MemoryWay& kernel : kernels) {
    // Where each thread is in its ring, 128 bytes apart: a large ring is walked on from window to window.
    auto cursors = std::make_shared<std::vector<int64_t>>(size_t(threads) * 16);
    const auto step = [=, run = kernel.run](int thread) {
      uint8_t* base = static_cast<uint8_t*>(memory.get());
      int64_t& cursor = (*cursors)[size_t(thread) * 16];
      Ring ring{base + thread * (size + kGap), base + thread * (size + kGap), size, cursor, step_bytes};
      if (traffic == Traffic::kCopy) ring.target = base + (threads + thread) * (size + kGap) + kSkew;
      run(ring);
      cursor = (cursor + step_bytes) & (size - 1);
      return double(step_bytes) * (traffic == Traffic::kCopy ? 2 : 1);
    };
    ways.push_back({kernel.name, step, shared});
  }
  return ways;
}

Window run_window(const Way& way, int threads, double window_ns) {
  struct alignas(128) Part {
    double done = 0;
    int64_t start = 0, end = 0, cpu = 0;
  };
  std::vector<Part> parts(static_cast<size_t>(threads));
  ThreadPool(threads).run(threads, 1, [&](int64_t, int64_t, int thread) {
    Part part;
    const int64_t warm_until = now_ns() + int64_t(0.1 * window_ns);
    do way.step(thread);
    while (now_ns() < warm_until);
    const int64_t cpu = thread_cpu_ns();
    part.start = part.end = now_ns();
    while (double(part.end - part.start) < window_ns) {
      part.done += way.step(thread);
      part.end = now_ns();
    }
    part.cpu = thread_cpu_ns() - cpu;
    parts[size_t(thread)] = part;
  });
  Window window;
  double done = 0, sum_of_rates = 0;
  int64_t start = INT64_MAX, end = 0;
  for (const Part& part : parts) {
    if (part.end == 0 || part.cpu <= 0) return {0, false};
    done += part.done;
    sum_of_rates += part.done / double(part.cpu);
    start = std::min(start, part.start);
    end = std::max(end, part.end);
    if (way.shared && double(part.cpu) < 0.98 * double(part.end - part.start)) window.undisturbed = false;
  }
  // Shared: from the first start to the last end, so that a thread that came late does not count as if it had the
  // memory to itself.
  window.rate = way.shared ? done / double(end - start) : sum_of_rates;
  return window;
}

}  // namespace ridgeline::probe
