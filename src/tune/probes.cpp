#include "tune/probes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/cpu/simd.h"
#include "tune/probes_ways.h"
#include "tune/timing.h"

namespace ridgeline {
namespace {

using probe::Memory;
using probe::Traffic;
using probe::Way;
using probe::Window;

constexpr int kRounds = 24;               // windows of each ceiling; 20 are asked for
constexpr int kUndisturbed = 8;           // of them; more rounds are run until each ceiling has so many
constexpr double kLeastSpanNs = 4e9;      // from the first window to the last; 3 s are asked for
constexpr double kMostSpanNs = 30e9;      // a machine that is never left alone gets no better
constexpr double kComputeWindowNs = 8e6;  // long enough for the clock to settle under wide vectors
constexpr double kCacheWindowNs = 3e6;
constexpr double kDramWindowNs =
    2.5e6;  // less than a time slice: with 5 ms no window of two threads was undisturbed on a busy machine
constexpr double kChoiceWindowNs = 5e6;  // in which the ways of a probe compete

// What may be allocated: the system's free memory, cut by the container's limit (cgroup v2, v1).
int64_t free_memory_bytes() {
  int64_t bytes = int64_t(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (int64_t kib = 0; file >> key >> kib; file.ignore(256, '\n')) {
    if (key == "MemAvailable:") bytes = kib << 10;
  }
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t limit = 0;
    if (std::ifstream(path) >> limit && limit > 0) bytes = std::min(bytes, limit / 2);
  }
  return bytes;
}

// One ceiling while it is measured.
struct Probe {
  std::string name;
  int threads;
  double window_ns;
  std::vector<Way> ways;
  double* result;
  int undisturbed = 0;

  void run() {
    for (Way& way : ways) {
      const Window window = probe::run_window(way, threads, window_ns);
      way.best = std::max(way.best, window.rate);
      *result = std::max(*result, window.rate);
      undisturbed += window.undisturbed;
      way.undisturbed += window.undisturbed;
    }
  }
  // Ways that are far from the best need no more windows; but only what was seen undisturbed is known to be far.
  void drop_below(double share) {
    std::erase_if(ways, [least = *result * share](const Way& way) { return way.best < least && way.undisturbed >= 3; });
  }
};

bool is_quiet(const Probe& probe) { return probe.undisturbed >= kUndisturbed; }

// The working set that stands for a level: well inside it and well outside the one before.
int64_t working_set_bytes(MemoryLevel level, int threads, const CacheSizes& caches, int64_t dram_bytes) {
  switch (level) {
    case MemoryLevel::kL1:
      return caches.l1d * 7 / 10 * threads;
    case MemoryLevel::kL2:
      // Half of it or more depends on which physical pages one gets: 149 to 187 GB/s from run to run.
      return std::max(caches.l2 * 35 / 100, 2 * caches.l1d) * threads;
    case MemoryLevel::kL3:
      return std::min(4 * caches.l2 * threads, std::max(caches.l3 / 2, 2 * caches.l2));
    case MemoryLevel::kDram:
      return dram_bytes;
  }
  return 0;
}

// Which part of the last cache answers faster than DRAM: a container may be shown all of a cache that it shares with
// strangers (480 MiB shown, 128 seen). All threads read 16, 32, 64 ... MiB.
struct CacheCurve {
  std::vector<int64_t> sizes;
  std::vector<double> rates;

  CacheCurve(const CacheSizes& caches, int64_t dram_bytes) {
    for (int64_t bytes = int64_t(16) << 20; bytes <= std::min(caches.l3, dram_bytes); bytes *= 2)
      sizes.push_back(bytes);
    rates.resize(sizes.size());
  }
  int64_t effective_bytes(const CacheSizes& caches, double l3_gb_s, double dram_gb_s) const {
    if (sizes.empty() || l3_gb_s < 1.1 * dram_gb_s) return caches.l3;  // nothing to tell them apart by
    int64_t bytes = std::min(caches.l3, sizes.front() / 2);
    for (size_t i = 0; i < sizes.size() && rates[i] > (l3_gb_s + dram_gb_s) / 2; ++i) bytes = sizes[i];
    return 2 * bytes > caches.l3 ? caches.l3 : bytes;
  }
};

std::vector<Probe> all_probes(Ceilings& c, CacheCurve& curve, const Memory& memory, int64_t dram_bytes) {
  std::vector<Probe> probes;
  for (const int threads : {1, c.cores}) {
    const bool all = threads > 1;
    if (!all && !probes.empty()) break;  // one core: the second turn is the first
    const std::string who = all ? fmt::format(", {} threads", threads) : ", 1 thread";
    const auto part = [all](Rate& rate) { return all ? &rate.all : &rate.one; };
    const auto add = [&](std::string what, double window_ns, std::vector<Way> ways, Rate& rate) {
      probes.push_back({what + who, threads, window_ns, std::move(ways), part(rate)});
    };
    // Three times a round: the clock drifts by a tenth within seconds, and the best of few windows would not repeat.
    const auto add_f32 = [&] { add("f32 arithmetic", kComputeWindowNs, probe::compute_ways(DType::kF32), c.f32); };
    add_f32();
    add("bf16 arithmetic", kComputeWindowNs, probe::compute_ways(DType::kBF16), c.bf16);
    add("u8s8 arithmetic", kComputeWindowNs, probe::compute_ways(DType::kU8), c.u8s8);
    const auto add_level = [&](MemoryLevel level) {
      const size_t l = size_t(level);
      const int64_t bytes = std::min(working_set_bytes(level, threads, this_cpu().caches, dram_bytes), dram_bytes);
      const double window_ns = level == MemoryLevel::kDram ? kDramWindowNs : kCacheWindowNs;
      const std::string where(name(level));
      add("read " + where, window_ns, probe::memory_ways(Traffic::kRead, bytes, threads, memory), c.read_gb_s[l]);
      add("copy " + where, window_ns, probe::memory_ways(Traffic::kCopy, bytes, threads, memory), c.copy_gb_s[l]);
      add("write " + where, window_ns, probe::memory_ways(Traffic::kWrite, bytes, threads, memory), c.write_gb_s[l]);
    };
    for (int level = 0; level < kMemoryLevels; ++level) add_level(MemoryLevel(level));
    add_f32();
    for (int f = 0; f < kSpecialFunctions; ++f) {
      const SpecialFunction function = SpecialFunction(f);
      add(std::string(name(function)), kCacheWindowNs, probe::special_ways(function, threads),
          c.special_per_ns[size_t(f)]);
    }
    add_f32();
    add_level(MemoryLevel::kDram);  // again: strangers on the host take their share of it by turns
    probes.push_back({"launch" + who, 1, kCacheWindowNs, probe::launch_ways(threads), part(c.launch_ns)});
  }
  for (size_t i = 0; i < curve.sizes.size(); ++i) {
    auto ways = probe::memory_ways(Traffic::kRead, curve.sizes[i], c.cores, memory);
    probes.push_back(
        {fmt::format("read {} MiB", curve.sizes[i] >> 20), c.cores, kCacheWindowNs, std::move(ways), &curve.rates[i]});
  }
  return probes;
}

// What must hold of ceilings even where the windows say otherwise: what is far away cannot arrive faster than what is
// near, and all cores do at least what one does.
void make_consistent(Ceilings& c) {
  const auto complete = [&](Rate& rate) {
    if (c.cores == 1) rate.all = rate.one;
    rate.all = std::max(rate.all, rate.one);
  };
  for (Rate* rate : {&c.f32, &c.bf16, &c.u8s8}) complete(*rate);
  for (Rate& rate : c.special_per_ns) complete(rate);
  for (auto* rates : {&c.read_gb_s, &c.copy_gb_s, &c.write_gb_s}) {
    for (size_t level = kMemoryLevels; level-- > 0;) {
      Rate& rate = (*rates)[level];
      complete(rate);
      if (level + 1 == kMemoryLevels) continue;
      rate.one = std::max(rate.one, (*rates)[level + 1].one);
      rate.all = std::max(rate.all, (*rates)[level + 1].all);
    }
  }
  if (c.cores == 1) c.launch_ns.all = c.launch_ns.one;
  c.launch_ns = {1 / c.launch_ns.one, 1 / c.launch_ns.all};  // measured as launches per ns
}

}  // namespace

struct PeakProbe::State {
  int threads = 1;
  Way way;
};

namespace {

PeakProbe fastest_of(std::vector<Way> ways, int threads) {
  for (int turn = 0; turn < 3; ++turn) {
    for (Way& way : ways) way.best = std::max(way.best, probe::run_window(way, threads, kChoiceWindowNs).rate);
  }
  auto fastest = std::max_element(ways.begin(), ways.end(), [](const Way& a, const Way& b) { return a.best < b.best; });
  auto state = std::make_shared<PeakProbe::State>();
  state->threads = threads;
  state->way = std::move(*fastest);
  return PeakProbe(state);
}

PeakProbe memory_probe(Traffic traffic, int64_t bytes, int threads) {
  const Memory memory = probe::touched_memory(probe::memory_needed(traffic, bytes, threads), threads);
  return fastest_of(probe::memory_ways(traffic, bytes, threads, memory), threads);
}

}  // namespace

double PeakProbe::operator()(double window_ns) {
  const double rate = probe::run_window(state_->way, state_->threads, window_ns).rate;
  state_->way.best = std::max(state_->way.best, rate);
  return rate;
}
double PeakProbe::best() const { return state_->way.best; }
const std::string& PeakProbe::way() const { return state_->way.name; }

PeakProbe compute_probe(DType dtype, int threads) { return fastest_of(probe::compute_ways(dtype), threads); }
PeakProbe read_probe(int64_t bytes, int threads) { return memory_probe(Traffic::kRead, bytes, threads); }
PeakProbe copy_probe(int64_t bytes, int threads) { return memory_probe(Traffic::kCopy, bytes, threads); }
PeakProbe write_probe(int64_t bytes, int threads) { return memory_probe(Traffic::kWrite, bytes, threads); }
PeakProbe special_probe(SpecialFunction function, int threads) {
  return fastest_of(probe::special_ways(function, threads), threads);
}

int64_t dram_probe_bytes() {
  const int64_t wanted = std::clamp<int64_t>(4 * this_cpu().caches.l3, int64_t(1) << 30, int64_t(2) << 30);
  return int64_t(std::bit_floor(uint64_t(std::max<int64_t>(std::min(wanted, free_memory_bytes() / 4), 64 << 20))));
}

Ceilings measure_ceilings(const ProbeProgress& progress) {
  const Cpu& here = this_cpu();
  Ceilings c;
  c.fingerprint = here.fingerprint();
  c.cores = here.cores;
  c.caches = here.caches;
  cpu::limit_isa_from_environment();  // the loops must be those of the instruction sets that the fingerprint names
  if (progress) progress(0, "memory");
  // One block serves all: rings of different probes overlap, they never run together.
  const int64_t dram_bytes = dram_probe_bytes();
  int64_t needed = 0;
  for (const Traffic traffic : {Traffic::kRead, Traffic::kCopy, Traffic::kWrite}) {
    for (const int threads : {1, here.cores})
      needed = std::max(needed, probe::memory_needed(traffic, dram_bytes, threads));
  }
  const Memory memory = probe::touched_memory(needed, here.cores);
  CacheCurve curve(here.caches, dram_bytes);
  std::vector<Probe> probes = all_probes(c, curve, memory, dram_bytes);
  const int64_t start = now_ns();
  for (int round = 0;; ++round) {
    const double spent_ns = double(now_ns() - start);
    const bool enough =
        round >= kRounds && spent_ns >= kLeastSpanNs && std::all_of(probes.begin(), probes.end(), is_quiet);
    if (enough || (round >= 5 && spent_ns >= kMostSpanNs)) break;
    for (Probe& probe : probes) {
      // After the first rounds those that saw their fill of quiet windows make room for the others.
      if (round >= kRounds && is_quiet(probe) && spent_ns >= kLeastSpanNs) continue;
      if (progress) progress(std::min(0.99, double(round) / kRounds), probe.name);
      probe.run();
      if (round == 2) probe.drop_below(0.80);
      if (round == 7) probe.drop_below(0.95);
    }
  }
  c.quiet = std::all_of(probes.begin(), probes.end(), is_quiet);
  make_consistent(c);
  c.caches.l3 = curve.effective_bytes(here.caches, c.read_gb_s[2].all, c.read_gb_s[3].all);
  if (progress) progress(1, "");
  return c;
}

Ceilings machine_ceilings(bool measure, const ProbeProgress& progress) {
  static std::mutex mutex;               // one measures, the other threads wait for its result
  static std::optional<Ceilings> known;  // for a cache that cannot be written
  const std::lock_guard guard(mutex);
  const std::string fingerprint = this_cpu().fingerprint();
  if (!measure) {
    if (known && known->fingerprint == fingerprint) return *known;
    if ((known = load_ceilings(fingerprint))) return *known;
  }
  // Two processes that measure at once would each see half a machine: the second waits, then reads what the first
  // wrote.
  int lock = -1;
  if (const auto path = ceilings_file(fingerprint)) {
    std::error_code ignored;
    std::filesystem::create_directories(path->parent_path(), ignored);
    lock = open((path->string() + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (lock >= 0) flock(lock, LOCK_EX);
  }
  if (!measure) known = load_ceilings(fingerprint);
  if (measure || !known) {
    known = measure_ceilings(progress);
    save_ceilings(*known);
  }
  if (lock >= 0) close(lock);
  return *known;
}

}  // namespace ridgeline
