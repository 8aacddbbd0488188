#include "session/sessions.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

namespace ridgeline {
namespace {

constexpr int kLeastRounds = 4;
constexpr double kSliceSeconds = 0.25;  // hundreds of time slices of the system (1 to 4 ms)

// What is in flight when the time is up counts by its part: a long model would else finish 1 or 2 runs a slice.
struct Tally {
  double runs = 0;
  std::vector<double> times_ns;
};

double runs_per_s(std::vector<std::unique_ptr<Runner>>& runners, int count, double seconds, Samples& latency) {
  std::vector<Tally> tallies(static_cast<size_t>(count));
  std::exception_ptr thrown;
  std::mutex mutex;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::atomic<int64_t> until{0};
  const auto session = [&](int s) {
    Tally& tally = tallies[size_t(s)];
    ready.fetch_add(1);
    go.wait(false);
    try {
      for (int64_t begin = now_ns(); begin < until.load();) {
        runners[size_t(s)]->run();
        const int64_t end = now_ns();
        tally.runs += std::min(1.0, double(until.load() - begin) / double(end - begin));
        tally.times_ns.push_back(double(end - begin));
        begin = end;
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      thrown = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int s = 0; s < count; ++s) threads.emplace_back(session, s);
  while (ready.load() < count) std::this_thread::yield();
  until = now_ns() + int64_t(seconds * 1e9);
  go = true;
  go.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (thrown) std::rethrow_exception(thrown);
  double runs = 0;
  for (const Tally& tally : tallies) {
    runs += tally.runs;
    for (const double time : tally.times_ns) latency.add(time);
  }
  return runs / seconds;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

std::vector<SessionsRow> measure_sessions(const std::shared_ptr<const Plan>& plan, const Feeds& feeds, int most,
                                          double seconds) {
  std::vector<std::unique_ptr<Runner>> runners;
  for (int s = 0; s < most; ++s) {
    runners.push_back(std::make_unique<Runner>(plan, feeds));
    runners.back()->run();
  }
  std::vector<SessionsRow> rows(static_cast<size_t>(most));
  const int rounds = std::max(kLeastRounds, int(seconds / (kSliceSeconds * most)));
  const double slice = std::max(0.02, seconds / (rounds * most));
  std::vector<std::vector<double>> rates(static_cast<size_t>(most)), ratios(static_cast<size_t>(most));
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < most; ++i) {
      const int count = (round % 2 ? most - 1 - i : i) + 1;
      double rate = 0;  // a busy machine may let a whole slice of 20 ms pass before the first session runs
      while (rate == 0) rate = runs_per_s(runners, count, slice, rows[size_t(count) - 1].latency);
      rates[size_t(count) - 1].push_back(rate);
    }
    for (int k = 0; k < most; ++k) ratios[size_t(k)].push_back(rates[size_t(k)].back() / rates[0].back());
  }
  for (int k = 0; k < most; ++k) {
    rows[size_t(k)].sessions = k + 1;
    rows[size_t(k)].runs_per_s = median(rates[size_t(k)]);
    rows[size_t(k)].ratio = median(ratios[size_t(k)]);
  }
  return rows;
}

}  // namespace ridgeline
