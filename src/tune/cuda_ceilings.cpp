#include "tune/cuda_ceilings.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/mma_source.h"

namespace ridgeline {
namespace {

using namespace cuda;

constexpr int kThreads = 512;
constexpr int64_t kRotated = 256'000'000;

Source probe_source(const std::string& entry, int threads) {
  Source source;
  source.file = "probes.cu";
  source.entry = entry;
  source.defines = {fmt::format("THREADS={}", threads)};
  return source;
}

constexpr int kSharedBytes = 16384 + 32768;  // two tiles of 64 rows and one of 256, 128 bytes of k

Source products_source(DType dtype) {
  Source source = probe_source("products", kThreads);
  source.program = wgmma_function(dtype, 256);
  source.defines.emplace_back("WGMMA_N=256");
  source.defines.push_back(fmt::format("SHARED_BYTES={}", kSharedBytes));
  source.shared_bytes = kSharedBytes + 1024;
  return source;
}

// Small normal numbers in every type that products have: their bits decide the power, and that the clock.
std::vector<uint8_t> product_operands(DType dtype) {
  std::vector<uint8_t> bytes(kSharedBytes);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const int64_t count = kSharedBytes / bytes_of(dtype, 1);
  for (int64_t i = 0; i < count; ++i) {
    if (dtype == DType::kI8)
      store_i64(dtype, bytes.data(), i, int64_t(random() % 255) - 127);
    else
      store_f64(dtype, bytes.data(), i, double(normal(random)));
  }
  return bytes;
}

int blocks_for_products() { return target().multiprocessors; }

// Without matrix instructions of sm_90 the peak is not measured: zero, and reports show no share.
bool has_wgmma() { return capabilities().wgmma; }

}  // namespace

std::string cuda_fingerprint() {
  int version = 0;
  driver().driver_version(&version);
  return fmt::format("cuda {} sm_{} {} multiprocessors driver {}", target().name, target().sm, target().multiprocessors,
                     version);
}

CudaProbe::CudaProbe(const Queue& queue, What what, int64_t bytes, DType dtype) : queue_(queue), what_(what) {
  const int sms = target().multiprocessors;
  if (what == What::kCompute) {
    const bool cores = dtype == DType::kF32;
    const int rounds = cores ? 20000 : 4000;
    to_ = Memory(256);
    void* const never = to_.data();
    if (cores) {
      const auto kernel = load(probe_source("multiply_add", kThreads));
      const Grid grid{int64_t(sms) * 4};
      units_ = 2.0 * 16 * rounds * double(grid.x) * kThreads;
      graph_ = std::make_unique<CapturedGraph>(
          queue, [&](Stream stream) { launch(*kernel, grid, kThreads, stream, {}, never, 0.999f, 0.001f, rounds); });
      way_ = "f32 multiply-add";
      return;
    }
    const std::vector<uint8_t> operands = product_operands(dtype);
    from_ = Memory(kSharedBytes);
    queue.upload(from_.data(), operands.data(), kSharedBytes);
    queue.wait("copying operands");
    const auto kernel = load(products_source(dtype));
    const double k = 32.0 / double(bytes_of(dtype, 1));
    units_ = 2.0 * 64 * 256 * k * 4 * rounds * 2 * blocks_for_products();
    graph_ = std::make_unique<CapturedGraph>(queue, [&](Stream stream) {
      launch(*kernel, {blocks_for_products()}, 256, stream, {}, from_.data(), never, rounds);
    });
    way_ = fmt::format("wgmma m64n256 {}", name(dtype));
    return;
  }
  const bool copies = what == What::kCopy;
  const int64_t piece = std::max<int64_t>(copies ? bytes / 2 : bytes, 1 << 20) / 16 * 16;
  const int64_t pieces = std::max<int64_t>(1, (kRotated + piece - 1) / piece);
  from_ = Memory(piece * pieces);
  queue.fill(from_.data(), 0x3c, piece * pieces);
  to_ = Memory(copies ? piece * pieces : 256);
  // A window of at least 2 ms at 4 TB/s.
  const int64_t per_replay = std::max<int64_t>(pieces, (8'000'000'000 / (copies ? 2 : 1) + piece - 1) / piece);
  const auto kernel = load(probe_source(copies ? "copy_all" : "read_all", kThreads));
  graph_ = std::make_unique<CapturedGraph>(queue, [&](Stream stream) {
    for (int64_t i = 0; i < per_replay; ++i) {
      const uint64_t at = from_.address() + uint64_t(i % pieces * piece);
      const uint64_t to = copies ? to_.address() + uint64_t(i % pieces * piece) : to_.address();
      const uint64_t count = uint64_t(piece / 16);
      if (copies)
        launch(*kernel, {int64_t(count + kThreads * 4 - 1) / (kThreads * 4)}, kThreads, stream, {}, at, to, count);
      else
        launch(*kernel, {std::min<int64_t>(int64_t(sms) * 4, int64_t(count + kThreads - 1) / kThreads)}, kThreads,
               stream, {}, at, count, to);
    }
  });
  units_ = double(per_replay) * double(piece) * (copies ? 2 : 1);
  way_ = fmt::format("{} of {} MB", copies ? "copy" : "read", piece * (copies ? 2 : 1) / 1'000'000);
}

double CudaProbe::operator()() {
  if (best_ == 0) graph_->replay();  // the first replay uploads the graph
  const double rate = units_ / watch_.time_ns(queue_, [&] { graph_->replay(); });
  best_ = std::max(best_, rate);
  return rate;
}

Ceilings unmeasured_cuda_ceilings() {
  const auto both = [](double rate) { return Rate{rate, rate}; };
  Ceilings c;
  c.cores = 1;
  c.caches = {target().l2_bytes, target().l2_bytes, target().l2_bytes};
  // What an H200 was measured at, rounded.
  c.f32 = both(50e3), c.bf16 = c.f16 = both(800e3), c.u8s8 = c.f8 = both(1400e3);
  c.read_gb_s = {both(7000), both(7000), both(7000), both(4500)};
  c.copy_gb_s = {both(5000), both(5000), both(5000), both(4100)};
  c.write_gb_s = c.copy_gb_s;
  c.special_per_ns = {both(1500), both(500), both(500), both(1000), both(1000)};
  c.launch_ns = both(700);
  return c;
}

namespace {

double special_rate(const Queue& queue, const Stopwatch& watch, const std::string& which) {
  const auto kernel = load(probe_source("special_" + which, kThreads));
  const Memory never(256);
  const Grid grid{int64_t(target().multiprocessors) * 4};
  constexpr int kRounds = 2000;
  void* const address = never.data();
  double best = 0;
  for (int window = 0; window < 20; ++window) {
    const double ns =
        watch.time_ns(queue, [&] { launch(*kernel, grid, kThreads, queue.stream(), {}, address, kRounds); });
    best = std::max(best, 8.0 * kRounds * double(grid.x) * kThreads / ns);
  }
  return best;
}

double node_ns(const Queue& queue, const Stopwatch& watch) {
  constexpr int kNodes = 1000;
  const auto kernel = load(probe_source("nothing", kThreads));
  const Memory never(256);
  void* const address = never.data();
  const CapturedGraph graph(queue, [&](Stream stream) {
    for (int i = 0; i < kNodes; ++i) launch(*kernel, {target().multiprocessors}, kThreads, stream, {}, address);
  });
  graph.replay();
  double best = 1e9;
  for (int window = 0; window < 20; ++window)
    best = std::min(best, watch.time_ns(queue, [&] { graph.replay(); }) / kNodes);
  return best;
}

double best_of(const Queue& queue, CudaProbe::What what, int64_t bytes, DType dtype) {
  CudaProbe probe(queue, what, bytes, dtype);
  for (int window = 0; window < 20; ++window) probe();
  return probe.best();
}

}  // namespace

Ceilings cuda_ceilings(bool measure, const ProbeProgress& progress) {
  enter_device();
  const std::string fingerprint = cuda_fingerprint();
  if (!measure)
    if (std::optional<Ceilings> known = load_ceilings(fingerprint)) return *known;
  const Queue queue;
  const Stopwatch watch;
  const auto both = [](double rate) { return Rate{rate, rate}; };
  const auto tell = [&](double done, const char* what) {
    if (progress) progress(done, what);
  };
  using What = CudaProbe::What;
  Ceilings c = unmeasured_cuda_ceilings();
  c.fingerprint = fingerprint;
  c.quiet = true;
  tell(0, "memory");
  c.read_gb_s[3] = both(best_of(queue, What::kRead, int64_t(1) << 32, DType::kU8));
  c.copy_gb_s[3] = both(best_of(queue, What::kCopy, int64_t(1) << 32, DType::kU8));
  c.write_gb_s[3] = c.copy_gb_s[3];
  tell(0.3, "second cache");
  {
    // A third of the cache, read again and again: graphs of one piece.
    const Memory piece(target().l2_bytes / 3);
    const Memory other(target().l2_bytes / 3);
    const auto reads = load(probe_source("read_all", kThreads)), copies = load(probe_source("copy_all", kThreads));
    const uint64_t count = uint64_t(piece.bytes() / 16);
    constexpr int kCalls = 100;
    const auto rate = [&](bool copy) {
      const CapturedGraph graph(queue, [&](Stream stream) {
        for (int i = 0; i < kCalls; ++i) {
          if (copy)
            launch(*copies, {int64_t(count + kThreads * 4 - 1) / (kThreads * 4)}, kThreads, stream, {}, piece.address(),
                   other.address(), count);
          else
            launch(*reads, {int64_t(target().multiprocessors) * 4}, kThreads, stream, {}, piece.address(), count,
                   other.address());
        }
      });
      graph.replay();
      double best = 0;
      for (int window = 0; window < 20; ++window)
        best = std::max(
            best, double(piece.bytes()) * (copy ? 2 : 1) * kCalls / watch.time_ns(queue, [&] { graph.replay(); }));
      return best;
    };
    for (int level = 0; level < 3; ++level) c.read_gb_s[size_t(level)] = both(rate(false));
    for (int level = 0; level < 3; ++level) c.copy_gb_s[size_t(level)] = c.write_gb_s[size_t(level)] = both(rate(true));
  }
  tell(0.5, "arithmetic");
  c.f32 = both(best_of(queue, What::kCompute, 0, DType::kF32));
  if (has_wgmma()) {
    c.bf16 = both(best_of(queue, What::kCompute, 0, DType::kBF16));
    c.f16 = both(best_of(queue, What::kCompute, 0, DType::kF16));
    c.f8 = both(best_of(queue, What::kCompute, 0, DType::kF8E4M3));
    c.u8s8 = both(best_of(queue, What::kCompute, 0, DType::kI8));
  }
  tell(0.9, "functions and launches");
  for (int f = 0; f < kSpecialFunctions; ++f)
    c.special_per_ns[size_t(f)] = both(special_rate(queue, watch, std::string(name(SpecialFunction(f)))));
  c.launch_ns = both(node_ns(queue, watch));
  tell(1, "");
  save_ceilings(c);
  return c;
}

}  // namespace ridgeline
