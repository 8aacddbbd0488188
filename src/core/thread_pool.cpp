#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ridgeline {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostParts = 256;

// How long a helper looks for the next region, and a caller for the last helper, before the system puts it to sleep.
// Waking takes 20 to 60 us on a virtual machine, so that a region of 40 us gains nothing from a helper that sleeps.
// While a session runs, the next region follows its serial steps; where nobody computes, a process burns this once and
// then nothing.
constexpr auto kSpin = std::chrono::microseconds(100), kSpinInSession = std::chrono::microseconds(2000);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// True once `done()` is; false when `longer(since)` says so.
template <typename Done, typename Longer>
bool spin_until(Done done, Longer longer) {
  const Clock::time_point begin = Clock::now();
  do {
    for (int i = 0; i < 8; ++i) {
      if (done()) return true;
      relax();
    }
  } while (longer(Clock::now() - begin));
  return done();
}

// The system likes to wake a thread where its waker runs. If the other cores are busy with other processes, it leaves a
// helper there, behind the caller that spins (of 500 regions in a row 3 were helped, under a load of 10 processes); a
// helper that finds itself there asks for any other core.
void leave_cpu(int cpu) {
  cpu_set_t allowed;
  if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getcpu() != cpu || sched_getaffinity(0, sizeof allowed, &allowed) != 0)
    return;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) == 0) return;
  sched_setaffinity(0, sizeof others, &others);
  sched_setaffinity(0, sizeof allowed, &allowed);
}

thread_local int64_t wait_ns = 0;
thread_local int computing = 0;  // PoolSessions of this thread, one within another

struct Region {
  int64_t count, chunk;
  int parts;
  const RangeFunction* body;
  std::array<std::atomic<uint64_t>, kMostParts / 64> taken{};
  std::mutex mutex;
  std::exception_ptr thrown;  // the first; helpers have nobody to catch it

  bool take(int part) {
    std::atomic<uint64_t>& word = taken[size_t(part) / 64];
    const uint64_t bit = uint64_t(1) << (part % 64);
    return !(word.load(std::memory_order_relaxed) & bit) && !(word.fetch_or(bit, std::memory_order_relaxed) & bit);
  }

  /// The part of one's own first, so that a helper finds in its cache what it worked on in the step before; then what
  /// nobody has begun.
  void work(int own) {
    for (int i = 0; i < parts; ++i) {
      const int part = (own + i) % parts;
      if (!take(part)) continue;
      const int64_t begin = part * chunk;
      try {
        (*body)(begin, std::min(count, begin + chunk), part);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!thrown) thrown = std::current_exception();
      }
    }
  }
};

// A helper's word: how often it was claimed, and its state. The count makes each value unique for who waits on it.
enum State : uint32_t { kLooking, kAsleep, kClaimed, kAssigned, kRunning, kAwaited, kStates = 8 };
constexpr State state_of(uint32_t word) { return State(word % kStates); }
constexpr uint32_t with(uint32_t word, State state) { return word - word % kStates + state; }

struct alignas(128) Helper {  // a line, and the one that is fetched with it
  std::atomic<uint32_t> word{kLooking};
  Region* region = nullptr;         // while assigned
  std::atomic<int> caller_cpu{-1};  // where the last caller ran

  /// The word it has while assigned to the region; 0: it is taken.
  uint32_t claim(Region& wanted) {
    uint32_t seen = word.load(std::memory_order_relaxed);
    do {
      if (state_of(seen) != kLooking && state_of(seen) != kAsleep) return 0;
    } while (!word.compare_exchange_weak(seen, with(seen + kStates, kClaimed), std::memory_order_acquire));
    region = &wanted;
    caller_cpu.store(sched_getcpu(), std::memory_order_relaxed);
    const uint32_t mine = with(seen + kStates, kAssigned);
    word.store(mine, std::memory_order_release);
    if (state_of(seen) == kAsleep) word.notify_one();
    return mine;
  }

  /// Takes the region back if it was not begun, else waits for its end.
  void release(uint32_t mine, bool spin) {
    uint32_t seen = mine;
    if (word.compare_exchange_strong(seen, with(mine, kLooking), std::memory_order_acquire)) return;
    const uint32_t running = with(mine, kRunning), awaited = with(mine, kAwaited);
    const auto ended = [&] { return word.load(std::memory_order_acquire) != running; };
    if (spin ? spin_until(ended, [](Clock::duration since) { return since < kSpin; }) : ended()) return;
    seen = running;
    if (!word.compare_exchange_strong(seen, awaited, std::memory_order_acquire)) return;
    while (word.load(std::memory_order_acquire) == awaited) word.wait(awaited, std::memory_order_acquire);
  }

  template <typename Longer>
  void serve(int own, Longer longer) {
    for (;;) {
      const auto assigned = [&] { return state_of(word.load(std::memory_order_relaxed)) == kAssigned; };
      if (!spin_until(assigned, longer)) {
        uint32_t seen = word.load(std::memory_order_relaxed);
        if (state_of(seen) == kLooking &&
            word.compare_exchange_strong(seen, with(seen, kAsleep), std::memory_order_relaxed)) {
          word.wait(with(seen, kAsleep), std::memory_order_relaxed);
          leave_cpu(caller_cpu.load(std::memory_order_relaxed));
        }
        continue;
      }
      uint32_t mine = word.load(std::memory_order_relaxed);
      if (state_of(mine) != kAssigned ||
          !word.compare_exchange_strong(mine, with(mine, kRunning), std::memory_order_acquire))
        continue;  // taken back
      region->work(own % region->parts);
      // The region may be gone from here on.
      if (state_of(word.exchange(with(mine, kLooking), std::memory_order_release)) == kAwaited) word.notify_all();
    }
  }
};

class Pool {
 public:
  std::atomic<int> sessions{0}, lent{0};  // threads that compute: callers, and helpers claimed by them

  int cores() const { return cores_; }
  int helpers() const { return made_.load(std::memory_order_acquire); }
  Helper& helper(int i) { return helpers_[size_t(i)]; }

  /// Makes helpers until there are `wanted`; fewer if the system gives no more.
  int grow(int wanted) {
    const std::lock_guard lock(growth_);
    int made = helpers();
    // Signals are for the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; made < std::min(wanted, kMostParts - 1); ++made) {
      try {
        std::thread([this, made] {
          ridgeline::computing = 1;  // counted by who claims it
          helper(made).serve(made + 1, [this](Clock::duration since) { return worth_looking(since); });
        }).detach();
      } catch (const std::system_error&) {
        break;
      }
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    made_.store(made, std::memory_order_release);
    return made;
  }

 private:
  // Sessions on all cores claim no helper, and need the core.
  bool worth_looking(Clock::duration since) const {
    if (since < kSpin) return sessions.load(std::memory_order_relaxed) < cores_;
    return since < kSpinInSession && sessions.load(std::memory_order_relaxed) > 0;
  }

  const int cores_ = available_cores();
  std::atomic<int> made_{0};
  std::mutex growth_;
  std::array<Helper, kMostParts - 1> helpers_;
};

// Never freed: detached helpers look at it until the process ends.
std::atomic<Pool*> the_pool{nullptr};

// A forked child has the forking thread alone: it starts with a pool of its own.
void renew_in_child() {
  Pool* const fresh = new Pool;
  fresh->sessions = computing > 0 ? 1 : 0;
  the_pool.store(fresh, std::memory_order_release);
}

Pool& pool() {
  if (Pool* const found = the_pool.load(std::memory_order_acquire)) return *found;
  static const bool made = [] {
    the_pool.store(new Pool, std::memory_order_release);
    pthread_atfork(nullptr, nullptr, renew_in_child);
    return true;
  }();
  (void)made;
  return *the_pool.load(std::memory_order_acquire);
}

struct Claim {
  int helper;
  uint32_t word;
};
struct Claims {
  int count = 0;
  std::array<Claim, kMostParts> who;  // the first `count`: 2 KiB that no region needs to clear
};

void claim(Pool& pool, Region& region, int wanted, int most, Claims& claims) {
  for (int i = 0; claims.count < wanted; ++i) {
    // Others hold those that exist: one more, if cores are left for it.
    if (i >= pool.helpers() && (i >= most || pool.grow(i + 1) <= i)) return;
    if (const uint32_t word = pool.helper(i).claim(region)) claims.who[size_t(claims.count++)] = {i, word};
  }
}

}  // namespace

PoolSession::PoolSession() {
  if (computing++ == 0) pool().sessions.fetch_add(1, std::memory_order_relaxed);
}

PoolSession::~PoolSession() {
  if (--computing == 0) pool().sessions.fetch_sub(1, std::memory_order_relaxed);
}

ThreadPool::ThreadPool(int threads) : ThreadPool(threads, 0) {}

ThreadPool::ThreadPool(int threads, int lanes)
    : threads_(std::min(threads > 0 ? threads : available_cores(), kMostParts)),
      lanes_(lanes > 0 ? std::min(lanes, kMostParts) : threads_) {}

ThreadPool ThreadPool::at_most(int threads) const {
  ThreadPool fewer = *this;
  fewer.lanes_ = std::clamp(threads, 1, lanes_);
  return fewer;
}

void ThreadPool::run(int64_t count, int64_t grain, RangeFunction body) const {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t most = std::min<int64_t>(lanes_, grains);
  if (most <= 1) return body(0, count, 0);
  const int64_t chunk = (grains + most - 1) / most * grain;
  const int parts = int((count + chunk - 1) / chunk);
  const int threads = std::min(threads_, parts);
  if (threads <= 1) {
    for (int part = 0; part < parts; ++part) body(part * chunk, std::min(count, (part + 1) * chunk), part);
    return;
  }
  const PoolSession session;
  Pool& shared = pool();
  const int cores = std::max(shared.cores(), threads_);  // more threads than cores, if somebody insists
  const int left =
      cores - shared.sessions.load(std::memory_order_relaxed) - shared.lent.load(std::memory_order_relaxed);
  Region region{count, chunk, parts, &body};
  Claims claims;
  claim(shared, region, std::min(threads - 1, left), cores - 1, claims);
  shared.lent.fetch_add(claims.count, std::memory_order_relaxed);
  region.work(0);
  const Clock::time_point own_done = Clock::now();
  const bool spin = shared.sessions.load(std::memory_order_relaxed) < cores;
  for (int i = 0; i < claims.count; ++i) {
    const Claim& claimed = claims.who[size_t(i)];
    shared.helper(claimed.helper).release(claimed.word, spin);
  }
  shared.lent.fetch_sub(claims.count, std::memory_order_relaxed);
  wait_ns += std::max<int64_t>(0, (Clock::now() - own_done) / std::chrono::nanoseconds(1));
  if (region.thrown) std::rethrow_exception(region.thrown);
}

int64_t ThreadPool::take_wait_ns() {
  const int64_t waited = wait_ns;
  wait_ns = 0;
  return waited;
}

}  // namespace ridgeline
