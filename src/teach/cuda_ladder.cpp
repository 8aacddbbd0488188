#include "teach/cuda_ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/graph.h"
#include "kernels/kernel.h"
#include "session/problem_words.h"
#include "tune/bench_rivals.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::teach {
namespace {

using namespace cuda;

constexpr int kLeastRounds = 3;
constexpr double kGraphNs = 2.5e6;
// A product with several blocks each way and three steps of k of the deepest tile.
constexpr int64_t kSmallM = 256, kSmallN = 512, kSmallK = 192;

// Matrices on the host in the product's type.
struct Content {
  Tensor a, b;
};
Content whole_numbers_of(const CudaProduct& p, uint64_t seed) {
  Content c{Tensor::zeros(p.dtype, Extents{p.m, p.k}), Tensor::zeros(p.dtype, Extents{p.k, p.n})};
  std::mt19937 random{uint32_t(seed)};
  for (Tensor* t : {&c.a, &c.b})
    for (int64_t i = 0; i < t->elements(); ++i) store_f64(p.dtype, t->data(), i, double(random() % 7) - 3);
  return c;
}

// Operands on the device, `sets` times, so that what a call leaves in the second cache does not serve the next.
class Operands {
 public:
  Operands(const Queue& queue, const CudaProduct& p, int sets)
      : queue_(queue),
        product_(p),
        sets_(sets),
        a_bytes_(2 * p.m * p.k),
        b_bytes_(2 * p.k * p.n),
        c_bytes_(2 * p.m * p.n),
        a_(a_bytes_ * sets),
        b_(b_bytes_ * sets),
        c_(c_bytes_ * sets) {}
  int sets() const { return sets_; }
  void* a(int set) const { return static_cast<char*>(a_.data()) + a_bytes_ * set; }
  void* b(int set) const { return static_cast<char*>(b_.data()) + b_bytes_ * set; }
  void* c(int set) const { return static_cast<char*>(c_.data()) + c_bytes_ * set; }

  void fill(const Content& content) const {
    for (int s = 0; s < sets_; ++s) {
      queue_.upload(a(s), content.a.data(), a_bytes_);
      queue_.upload(b(s), content.b.data(), b_bytes_);
    }
    queue_.wait("copying matrices to the device");
  }
  // NaN in bf16 and f16.
  void poison() const { queue_.fill(c(0), 0xff, c_bytes_); }
  Tensor result() const {
    Tensor t = Tensor::zeros(product_.dtype, Extents{product_.m, product_.n});
    queue_.download(t.data(), c(0), c_bytes_);
    queue_.wait("a step of the product");
    return t;
  }

 private:
  const Queue& queue_;
  CudaProduct product_;
  int sets_;
  int64_t a_bytes_, b_bytes_, c_bytes_;
  Memory a_, b_, c_;
};

using Call = std::function<void(Stream, int set)>;

Call call_of(const CudaStep& step, const CudaProduct& p, const Operands& operands) {
  const auto kernel = load(step.source);
  const Grid grid = step.grid(p);
  const int n = int(p.n), k = int(p.k);
  if (!step.boxes)
    return [=, &operands, threads = step.threads](Stream stream, int set) {
      launch(*kernel, grid, threads, stream, {}, operands.a(set), operands.b(set), operands.c(set), n, k);
    };
  // Rows of 64 numbers are 128 bytes, the widest that a box's order of pieces knows.
  std::vector<TensorMap> maps_a, maps_b;
  const MapType type = p.dtype == DType::kBF16 ? MapType::kBF16 : MapType::kF16;
  for (int s = 0; s < operands.sets(); ++s) {
    const int64_t extents_a[] = {p.k, p.m}, strides_a[] = {2 * p.k}, extents_b[] = {p.n, p.k}, strides_b[] = {2 * p.n};
    const int box_a[] = {64, 128}, box_b[] = {64, 64};
    maps_a.push_back(tensor_map(type, 2, operands.a(s), extents_a, strides_a, box_a, 128));
    maps_b.push_back(tensor_map(type, 2, operands.b(s), extents_b, strides_b, box_b, 128));
  }
  return [=, &operands, threads = step.threads](Stream stream, int set) {
    launch(*kernel, grid, threads, stream, {}, maps_a[size_t(set)], maps_b[size_t(set)], operands.c(set), n, k);
  };
}

// The library's kernel, with B as weights: constant, packed ahead as the kernel wants it.
struct Own {
  KernelCall kernel;
  std::vector<Memory> packed;
  Memory workspace;
  Call call;
};
std::shared_ptr<Own> own_kernel(const CudaTask& task, const Ceilings& ceilings, const Queue& queue,
                                const Operands& operands, const Tensor& b) {
  std::vector<std::string> words;
  const CudaProduct& p = task.product;
  for (const auto& [key, value] : {std::pair{"m", p.m}, {"n", p.n}, {"k", p.k}})
    words.push_back(fmt::format("{}={}", key, value));
  words.push_back(fmt::format("dtype={}", name(p.dtype)));
  Problem problem = parse_bench_problem("matmul", words, 1, DeviceKind::kCuda).problem;
  problem.inputs[1].is_constant = true;
  problem.inputs[1].constant = b;
  const Candidate chosen = choose_kernel(problem, ceilings).winner();
  if (on_host(problem, *chosen.kernel)) return nullptr;
  auto own = std::make_shared<Own>();
  own->kernel = bind_kernel(problem, chosen);
  const Tensor packed = packed_constant(own->kernel, 1, b);
  for (int s = 0; s < operands.sets(); ++s) {
    own->packed.emplace_back(packed.bytes());
    queue.upload(own->packed.back().data(), packed.data(), packed.bytes());
  }
  own->workspace = Memory(own->kernel.workspace_bytes);
  queue.wait("copying packed weights to the device");
  Own* const raw = own.get();
  own->call = [raw, &operands](Stream stream, int set) {
    void* inputs[4] = {operands.a(set), raw->packed[size_t(set)].data(), nullptr, nullptr};
    void* outputs[1] = {operands.c(set)};
    raw->kernel.kernel->launch(raw->kernel, {inputs, outputs, raw->workspace.data()}, stream);
  };
  return own;
}

Tensor run_once(const Queue& queue, const Operands& operands, const Call& call) {
  operands.poison();
  call(queue.stream(), 0);
  return operands.result();
}

// All sums are whole numbers below 2^24: exact in f32 in any order, rounded once.
void compare(const Tensor& got, const Tensor& want, const std::string& problem, const std::string& step) {
  if (std::memcmp(got.data(), want.data(), size_t(want.bytes())) == 0) return;
  for (int64_t i = 0; i < want.elements(); ++i)
    if (got.f64(i) != want.f64(i))
      throw std::logic_error(
          fmt::format("{}: '{}' is wrong: element {} is {}, not {}", problem, step, i, got.f64(i), want.f64(i)));
}

void check_small(const CudaTask& task, const Queue& queue, uint64_t seed) {
  CudaProduct p = task.product;
  p.m = kSmallM, p.n = kSmallN, p.k = kSmallK;
  const Content content = whole_numbers_of(p, seed);
  const Operands operands(queue, p, 1);
  operands.fill(content);
  Tensor want = Tensor::zeros(p.dtype, Extents{p.m, p.n});
  std::vector<double> a, b, row(size_t(p.n));
  for (int64_t i = 0; i < p.m * p.k; ++i) a.push_back(content.a.f64(i));
  for (int64_t i = 0; i < p.k * p.n; ++i) b.push_back(content.b.f64(i));
  for (int64_t i = 0; i < p.m; ++i) {
    std::fill(row.begin(), row.end(), 0);
    for (int64_t q = 0; q < p.k; ++q)
      for (int64_t j = 0; j < p.n; ++j) row[size_t(j)] += a[size_t(i * p.k + q)] * b[size_t(q * p.n + j)];
    for (int64_t j = 0; j < p.n; ++j) store_f64(p.dtype, want.data(), i * p.n + j, row[size_t(j)]);
  }
  for (const CudaStep& step : task.steps)
    compare(run_once(queue, operands, call_of(step, p, operands)), want,
            fmt::format("matmul m={} n={} k={} dtype={}", p.m, p.n, p.k, name(p.dtype)), step.name);
}

// One way, ready to be timed.
struct Way {
  Call call;
  std::unique_ptr<CapturedGraph> graph;
  int calls = 1;
  Samples rounds;
};

void capture(Way& way, const Queue& queue, const Stopwatch& watch, int sets) {
  const auto calls = [&](Stream stream, int count) {
    for (int i = 0; i < count; ++i) way.call(stream, i % sets);
  };
  const double once = std::max(500.0, watch.time_ns(queue, [&] { calls(queue.stream(), 1); }));
  const int64_t wanted = std::clamp<int64_t>(int64_t(kGraphNs / once) + 1, 1, 4096);
  way.calls = int(wanted < sets ? wanted : (wanted + sets - 1) / sets * sets);
  way.graph = std::make_unique<CapturedGraph>(queue, [&](Stream stream) { calls(stream, way.calls); });
  way.graph->replay();
  queue.wait("a graph of calls");
}

int blocks_per_sm(const LoadedKernel& kernel, int threads) {
  int blocks = 0;
  check(driver().occupancy(&blocks, kernel.function, threads, size_t(kernel.shared_bytes)), "counting resident blocks");
  return blocks;
}

CudaRow row_of(const CudaStep& step) {
  CudaRow row;
  row.name = step.name, row.idea = step.idea, row.file = step.file, row.bytes = step.bytes;
  row.instructions = matrix_instructions(step.source);
  if (step.tensor_cores != (row.instructions.all() > 0))
    throw std::logic_error(fmt::format("{}: matrix instructions in its code: {}", step.name, words(row.instructions)));
  const auto kernel = load(step.source);
  row.registers = kernel->resources.registers;
  row.shared_bytes = kernel->resources.shared_bytes + kernel->shared_bytes;
  row.blocks_per_sm = blocks_per_sm(*kernel, step.threads);
  return row;
}

void finish(std::vector<CudaRow>& rows, const std::vector<Way>& ways, int64_t flops) {
  for (size_t i = 0; i < rows.size(); ++i) {
    CudaRow& row = rows[i];
    row.tflop_s = double(flops) / row.samples.median() / 1e3;
    if (i == 0) continue;
    row.gain = median_ratio(ways[i - 1].rounds, ways[i].rounds);
    const int all = ways[i].rounds.count();
    int faster = 0;
    for (int r = 0; r < all; ++r)
      faster += ways[i].rounds.times_ns()[size_t(r)] < ways[i - 1].rounds.times_ns()[size_t(r)];
    row.clear = std::max(faster, all - faster) * 4 >= all * 3;
  }
}

}  // namespace

std::vector<CudaRow> climb_cuda(const CudaTask& task, const Ceilings& ceilings, double seconds, uint64_t seed,
                                const std::function<void(const std::string&)>& progress) {
  enter_device();
  const CudaProduct& p = task.product;
  const Queue queue;
  const Stopwatch watch;
  std::vector<CudaRow> rows;
  for (const CudaStep& step : task.steps) rows.push_back(row_of(step));
  if (progress) progress("all are compiled; their results are compared");
  check_small(task, queue, seed);

  const int64_t set_bytes = p.least_bytes(), rotated = std::max<int64_t>(256'000'000, 4 * target().l2_bytes);
  const int sets = int(std::clamp<int64_t>((rotated + set_bytes - 1) / set_bytes, 1, 512));
  const Operands operands(queue, p, sets);
  const Content whole = whole_numbers_of(p, seed + 1);
  operands.fill(whole);
  std::vector<Way> ways(task.steps.size());
  Tensor first;
  for (size_t i = 0; i < ways.size(); ++i) {
    ways[i].call = call_of(task.steps[i], p, operands);
    const Tensor result = run_once(queue, operands, ways[i].call);
    if (i == 0) first = result;
    compare(result, first, task.problem, task.steps[i].name);
  }
  if (const auto own = own_kernel(task, ceilings, queue, operands, whole.b); own && !ways.empty())
    compare(run_once(queue, operands, own->call), first, task.problem, std::string(own->kernel.kernel->name));

  // Normal numbers decide the power that a product takes, and that the clock.
  Content normal{Tensor::zeros(p.dtype, Extents{p.m, p.k}), Tensor::zeros(p.dtype, Extents{p.k, p.n})};
  std::mt19937_64 random(seed);
  for (Tensor* t : {&normal.a, &normal.b}) {
    Operand operand;
    operand.dtype = p.dtype;
    operand.layout = Layout(t->shape());
    fill_operand(operand, t->data(), random);
  }
  operands.fill(normal);
  const auto own = own_kernel(task, ceilings, queue, operands, normal.b);
  if (own) {
    ways.emplace_back();
    ways.back().call = own->call;
    CudaRow row;
    row.name = std::string(own->kernel.kernel->name);
    row.idea = "the library's own kernel for this problem";
    row.bytes = p.least_bytes();
    row.instructions = matrix_instructions(own->kernel.kernel->source(own->kernel.problem, own->kernel.tile));
    rows.push_back(row);
  }
  for (Way& way : ways) capture(way, queue, watch, sets);

  CudaProbe cores(queue, CudaProbe::What::kCompute, 0, DType::kF32);
  std::unique_ptr<CudaProbe> tensor_cores;
  if (capabilities().wgmma) tensor_cores = std::make_unique<CudaProbe>(queue, CudaProbe::What::kCompute, 0, p.dtype);
  std::vector<Samples> core_windows(rows.size()), tensor_windows(rows.size());
  const int64_t start = now_ns();
  for (int round = 0; round < kLeastRounds || double(now_ns() - start) < seconds * 1e9; ++round) {
    if (progress && round == 0) progress("every step is right; rounds of them are timed");
    for (size_t i = 0; i < ways.size(); ++i) {
      const size_t at = round % 2 ? ways.size() - 1 - i : i;
      const double ns = watch.time_ns(queue, [&] { ways[at].graph->replay(); }) / ways[at].calls;
      rows[at].samples.add(ns);
      ways[at].rounds.add(ns);
      core_windows[at].add(cores());
      if (tensor_cores) tensor_windows[at].add((*tensor_cores)());
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].card_tflop_s = tensor_windows[i].count() ? tensor_windows[i].median() / 1e3 : 0;
    rows[i].roof_tflop_s = rows[i].instructions.all() ? rows[i].card_tflop_s : core_windows[i].median() / 1e3;
  }
  finish(rows, ways, p.flops());
  return rows;
}

}  // namespace ridgeline::teach
