// bench on a GPU: calls over rotated buffers in one graph, timed by the device, beside the ceiling that bounds them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "rivals/cublaslt.h"
#include "rivals/libraries.h"
#include "tune/bench.h"
#include "tune/bench_rivals.h"
#include "tune/cuda_ceilings.h"
#include "tune/cuda_prepared.h"
#include "tune/known.h"
#include "tune/prepared.h"

namespace ridgeline {
namespace {

using namespace cuda;

constexpr int kReplays = 11, kWarmups = 3;
constexpr double kGraphNs = 2e6;  // at least so long is one replay

// The graph of one kernel and its samples.
class TimedKernel {
 public:
  TimedKernel(const Queue& queue, const Candidate& candidate, CudaBuffers& buffers)
      : queue_(queue), prepared_(candidate, buffers) {
    const int sets = buffers.sets();
    // Once around for the time of one call, then as many as fill the graph, whole rounds each.
    watch_.time_ns(queue, [&] { calls(queue.stream(), sets); });
    const double once = std::max(500.0, watch_.time_ns(queue, [&] { calls(queue.stream(), sets); }) / sets);
    const double wanted = std::clamp(kGraphNs / once, 1.0, 4096.0);
    count_ = int((int64_t(wanted) + sets) / sets * sets);
    graph_ = std::make_unique<CapturedGraph>(queue, [&](Stream stream) { calls(stream, count_); });
    for (int i = 0; i < kWarmups; ++i) graph_->replay();
    queue.wait("the benchmark's kernel");
  }
  /// ns of one call
  double sample() {
    return watch_.time_ns(queue_, [&] { graph_->replay(); }) / count_;
  }

 private:
  void calls(Stream stream, int count) {
    for (int i = 0; i < count; ++i) prepared_.launch(stream, i);
  }
  const Queue& queue_;
  CudaPrepared prepared_;
  Stopwatch watch_;
  std::unique_ptr<CapturedGraph> graph_;
  int count_ = 1;
};

// The ceiling that bounds the problem, measured beside it. Bytes: reads and writes in the problem's own proportion,
// from a window that reads and one that copies as much: two reads a write run faster than a copy (add 4350 GB/s, copy
// 4075).
class Beside {
 public:
  Beside(const Queue& queue, const Problem& p, const Floor& floor) {
    using What = CudaProbe::What;
    const int64_t read = p.read_bytes(), write = p.write_bytes();
    // Without wgmma the peak of matrix instructions is not measured: memory alone is shown beside.
    compute_ = floor.bound == Bound::kCompute && (target().sm >= 90 || arithmetic_of(p) == DType::kF32);
    written_ = read + write > 0 ? double(write) / double(read + write) : 0;
    if (compute_) {
      probes_.push_back(std::make_unique<CudaProbe>(queue, What::kCompute, 0, arithmetic_of(p)));
      way_ = probes_[0]->way();
      return;
    }
    probes_.push_back(std::make_unique<CudaProbe>(queue, What::kRead, read + write, DType::kU8));
    probes_.push_back(std::make_unique<CudaProbe>(queue, What::kCopy, read + write, DType::kU8));
    way_ = fmt::format("{} and {}", probes_[0]->way(), probes_[1]->way());
  }
  void window() {
    for (const auto& probe : probes_) {
      const double rate = (*probe)();
      if (compute_) windows_.add(rate);
    }
  }
  double ceiling() const {
    if (compute_) return windows_.median();
    const double copied = std::min(1.0, 2 * written_);  // the rest of the bytes is read alone
    return 1 / ((1 - copied) / probes_[0]->best() + copied / probes_[1]->best());
  }
  const std::string& way() const { return way_; }

 private:
  std::vector<std::unique_ptr<CudaProbe>> probes_;
  bool compute_ = false;
  double written_ = 0;
  Samples windows_;
  std::string way_;
};

// The rivals of a product, each as a graph over as many rotated buffers as ours, by turns with the chosen kernel, whose
// samples are then those of the race.
void race(const Queue& queue, const Problem& problem, const Candidate& ours, CudaBuffers& buffers,
          std::vector<BenchRow>& rows) {
  const std::vector<CudaRival> rivals = cublaslt_rivals(problem);
  const size_t first = rows.size();
  for (const CudaRival& rival : rivals) {
    BenchRow row;
    row.name = rival.name;
    row.rival = true;
    row.reason = rival.reason;
    row.supported = row.reason.empty();
    rows.push_back(std::move(row));
  }
  if (!rows[first].supported) return;
  // B as [n,k], whatever the problem has; verified against our own result.
  const Product product = product_of(problem);
  const Operand& b = problem.input(1);
  const int64_t width = bytes_of(b.dtype, 1), bytes = b.bytes();
  Tensor turned(b.dtype, {product.n, product.k});
  for (int64_t k = 0; k < product.k; ++k)
    for (int64_t n = 0; n < product.n; ++n)
      std::memcpy(turned.as<char>() + (n * product.k + k) * width,
                  b.constant.as<const char>() + (product.trans_b ? n * product.k + k : k * product.n + n) * width,
                  size_t(width));
  const int sets = buffers.sets();
  Memory weights(bytes * sets), workspace(kCudaRivalWorkspace);
  char* const base = static_cast<char*>(weights.data());
  for (int s = 0; s < sets; ++s) queue.upload(base + s * bytes, turned.data(), bytes);
  queue.wait("copying a rival's weights");
  CudaPrepared prepared(ours, buffers);
  const KernelCall plain{ours.kernel, problem, ours.tile, nullptr, 0};
  const auto result = [&] {
    Tensor y(problem.output().dtype, problem.output().shape());
    queue.download(y.data(), buffers.output(0, 0), y.bytes());
    queue.wait("reading a result");
    return y;
  };
  prepared.launch(queue.stream(), 0);
  const Tensor own = result();
  struct Lane {
    std::unique_ptr<CapturedGraph> graph;
    int count = 1;
    BenchRow* row;
  };
  Stopwatch watch;
  std::vector<Lane> lanes;
  const auto add_lane = [&](BenchRow& row, const std::function<void(Stream, int)>& call) {
    const auto calls = [&](Stream stream, int count) {
      for (int i = 0; i < count; ++i) call(stream, i);
    };
    calls(queue.stream(), sets);
    const double once = std::max(500.0, watch.time_ns(queue, [&] { calls(queue.stream(), sets); }) / sets);
    Lane lane;
    lane.count = int((int64_t(std::clamp(kGraphNs / once, 1.0, 4096.0)) + sets) / sets * sets);
    lane.graph = std::make_unique<CapturedGraph>(queue, [&](Stream stream) { calls(stream, lane.count); });
    for (int i = 0; i < kWarmups; ++i) lane.graph->replay();
    lane.row = &row;
    lanes.push_back(std::move(lane));
  };
  for (BenchRow& row : rows)
    if (row.chosen) add_lane(row, [&](Stream stream, int i) { prepared.launch(stream, i); });
  for (size_t r = 0; r < rivals.size(); ++r) {
    BenchRow& row = rows[first + r];
    const auto call = [&, r](Stream stream, int i) {
      rivals[r].run(stream, buffers.input(plain, 0, i % sets), base + (i % sets) * bytes, buffers.output(0, i % sets),
                    workspace.data());
    };
    // Poisoned before: one that writes nothing must not find our result.
    queue.fill(buffers.output(0, 0), 0xff, problem.output().bytes());
    call(queue.stream(), 0);
    const Tensor y = result();
    double worst = 0, largest = 0;
    for (int64_t i = 0, n = y.elements(); i < n; i += std::max<int64_t>(1, n / 4096)) {
      const double mine = load_f64(own.dtype(), own.data(), i);
      const double difference = std::fabs(mine - load_f64(y.dtype(), y.data(), i));
      worst = std::isfinite(difference) ? std::max(worst, difference) : std::numeric_limits<double>::infinity();
      if (!std::isfinite(worst)) break;
      largest = std::max(largest, std::fabs(mine));
    }
    if (!(worst <= 0.02 * largest)) {
      row.supported = false;
      row.reason = fmt::format("its result differs from ours by {:.2g} of the largest", worst / largest);
      continue;
    }
    add_lane(row, call);
  }
  for (Lane& lane : lanes) lane.row->samples = {};
  for (int i = 0; i < kReplays; ++i)
    for (Lane& lane : lanes) lane.row->samples.add(watch.time_ns(queue, [&] { lane.graph->replay(); }) / lane.count);
}

Work work_of(const Problem& problem, const Cost& cost, bool warm) {
  Work work;
  work.flops = std::max<int64_t>(0, (cost.executed_flops >= 0 ? cost.executed_flops : cost.flops) - cost.special);
  work.read_bytes = cost.read_bytes;
  work.write_bytes = cost.write_bytes;
  work.special[size_t(SpecialFunction::kExp)] = cost.special;
  if (!warm) work.level = MemoryLevel::kDram;
  work.dtype = arithmetic_of(problem);
  return work;
}

}  // namespace

BenchResult bench_cuda(const Problem& given, const Ceilings& ceilings, const BenchOptions& options) {
  enter_device();
  // Of the layouts that are free, the first in which a kernel that is asked for runs.
  std::string layout;
  Problem laid_out = given;
  for (const auto& [name, variant] : layouts_of(given)) {
    const Choice there = choose(variant, ceilings);
    layout = name;
    laid_out = variant;
    const auto runs = [&](const Candidate& c) {
      return c.support.ok && (options.forced.empty() || c.kernel->name == options.forced);
    };
    if (std::any_of(there.candidates.begin(), there.candidates.end(), runs)) break;
  }
  const Problem problem = with_weights(laid_out, options.seed);
  const Choice choice = choose(problem, ceilings, options.forced);
  if (on_host(problem, *choice.winner().kernel)) {
    std::string reasons;
    for (const Candidate& c : choice.candidates)
      if (c.kernel->device == DeviceKind::kCuda) reasons += fmt::format("; {}: {}", c.kernel->name, c.support.reason);
    fail(ErrorCode::kUnsupported, "unsupported: no kernel for GPUs runs '{}'{}", problem.text(), reasons);
  }
  if (options.tile) check_tile_everywhere(problem, ceilings, *options.tile);  // fails before anything is timed
  const Queue queue;
  BenchResult result;
  result.cost = cost_with(problem, choice);
  const int64_t set_bytes = problem.read_bytes() + problem.write_bytes();
  const int64_t rotated = std::max<int64_t>(256'000'000, 4 * target().l2_bytes);
  const int sets =
      options.warm ? 1 : int(std::clamp<int64_t>((rotated + set_bytes - 1) / std::max<int64_t>(1, set_bytes), 1, 512));
  const Work work = work_of(problem, result.cost, options.warm);
  result.floor = floor_of(work, ceilings, 1);
  Beside probe(queue, problem, result.floor);
  result.ceiling_way = probe.way();
  const bool compute = result.floor.bound == Bound::kCompute;
  CudaBuffers buffers(problem, sets, options.seed, queue);
  for (size_t at = 0; at < choice.candidates.size(); ++at) {
    Candidate candidate = choice.candidates[at];
    if (candidate.kernel->device != DeviceKind::kCuda) continue;
    BenchRow row;
    row.name = std::string(candidate.kernel->name);
    row.supported = candidate.support.ok;
    row.reason = candidate.support.reason;
    row.chosen = int(at) == choice.chosen;
    row.layout = layout;
    if (row.supported && !options.forced.empty() && options.forced != row.name)
      row.reason = "not timed: another kernel was asked for";
    if (row.supported && options.tile) {
      candidate.tile = *options.tile;
      row.tile_check = check_tile(*candidate.kernel, problem, candidate.tile);
      if (!row.tile_check->fits()) row.reason = tile_refusal(*row.tile_check);
    }
    if (row.supported && row.reason.empty()) {
      options.progress(row.name);
      row.tile = candidate.tile;
      TimedKernel timed(queue, candidate, buffers);
      for (int i = 0; i < kReplays; ++i) {
        row.samples.add(timed.sample());
        probe.window();
      }
      row.ceiling = probe.ceiling();
    }
    result.rows.push_back(std::move(row));
  }
  if (options.rivals) {
    Candidate ours = choice.winner();
    if (options.tile) ours.tile = *options.tile;
    race(queue, problem, ours, buffers, result.rows);
    for (BenchRow& row : result.rows)
      if (row.rival) row.ceiling = probe.ceiling();
  }
  result.chosen_by = choice.chosen_by;
  if (options.rivals)
    std::stable_sort(result.rows.begin(), result.rows.end(), [](const BenchRow& a, const BenchRow& b) {
      return a.timed() && (!b.timed() || a.samples.median() < b.samples.median());
    });
  for (BenchRow& row : result.rows) {
    if (!row.timed()) continue;
    const double ns = row.samples.median();
    row.gop_s = double(result.cost.flops) / ns;
    row.gb_s = double(result.cost.bytes()) / ns;
    Ceilings beside = ceilings;
    const Rate ceiling{row.ceiling, row.ceiling};
    if (compute) {
      for (Rate* rate : {&beside.f32, &beside.bf16, &beside.u8s8, &beside.f16, &beside.f8}) *rate = ceiling;
    } else if (!options.warm) {
      for (auto* rates : {&beside.read_gb_s, &beside.copy_gb_s, &beside.write_gb_s}) rates->fill(ceiling);
    }
    Floor floor = floor_of(work, beside, 1);
    floor.time_ns += ceilings.launch_ns.one;
    row.roof_share = floor.time_ns / ns;
    if (compute) row.burst_share = result.floor.time_ns / ns;
    if (!row.chosen) continue;
    result.ceiling = row.ceiling;
    result.floor = floor;
  }
  return result;
}

}  // namespace ridgeline
