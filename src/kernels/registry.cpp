// Which kernels there are, and which one runs a problem.
#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <mutex>

#include "ir/graph.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/recurrent/recurrent_kernels.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/families.h"
#include "kernels/kernel.h"
#include "kernels/reference/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {

namespace {

using List = std::vector<const Kernel*>;

// Kernels from outside, newest first; and the lists handed out, which stay valid when a kernel is registered later.
struct Registry {
  std::mutex mutex;
  List registered;
  std::deque<List> lists;
  std::map<std::pair<const OpSchema*, DeviceKind>, const List*> by_op;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

List built_in(DeviceKind device) {
  List list;
  if (device == DeviceKind::kCuda) {
    for (const auto family :
         {cuda::attention_kernels, cuda::conv_kernels, cuda::elementwise_kernels, cuda::matmul_kernels,
          cuda::matvec_kernels, cuda::movement_kernels, cuda::normalize_kernels, cuda::pool_kernels,
          cuda::quantize_kernels, cuda::reduce_kernels, cuda::rotary_kernels}) {
      const auto kernels = family();
      list.insert(list.end(), kernels.begin(), kernels.end());
    }
  }
  if (device != DeviceKind::kCpu) return list;
  for (const auto family :
       {cpu::elementwise_kernels, cpu::reduce_kernels, cpu::normalize_kernels, cpu::matmul_kernels, cpu::conv_kernels,
        cpu::pool_kernels, cpu::attention_kernels, cpu::movement_kernels, cpu::quantize_kernels, cpu::random_kernels,
        cpu::recurrent_kernels, cpu::selection_kernels, cpu::signal_kernels}) {
    const auto kernels = family();
    list.insert(list.end(), kernels.begin(), kernels.end());
  }
  return list;
}

// Built-in kernels serve the schemas of the catalogue: an operator from outside may have the name of one of these in
// its own domain, and another meaning; so have some of com.microsoft (Attention), which are spelled in others anyway.
List collect(const Registry& registry, const OpSchema& op, DeviceKind device) {
  const auto known = catalogue();
  const bool own = std::find(known.begin(), known.end(), &op) != known.end() && find_op_in_any_domain(op.name) == &op;
  List list;
  auto take = [&](const List& from, bool namesakes) {
    for (const Kernel* kernel : from) {
      const bool serves = (namesakes && kernel->op == op.name) || (kernel->op == "Elementwise" && op.is_elementwise());
      if (serves && kernel->device == device) list.push_back(kernel);
    }
  };
  take(registry.registered, true);
  take(built_in(device), own);
  if (device == DeviceKind::kCpu) list.push_back(&reference_kernel(op));
  return list;
}

const List& kernels_for(const OpSchema& op, DeviceKind device) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const List*& list = r.by_op[{&op, device}];
  if (!list) {
    r.lists.push_back(collect(r, op, device));
    list = &r.lists.back();
  }
  return *list;
}

// A step on the host in a plan of a GPU: its operands over PCIe 5 (55 GB/s measured on pinned memory), and two waits.
constexpr double kBusGbS = 50, kHostStepNs = 30'000;

Problem host_problem(Problem problem) {
  problem.device = DeviceKind::kCpu;
  return problem;
}

const Ceilings& host_ceilings() {
  static const Ceilings neutral = unmeasured_ceilings();
  return neutral;
}

// The tile with the lowest estimate; the first of equals.
void choose_tile(Candidate& candidate, const Problem& problem, const Ceilings& ceilings) {
  const Kernel& kernel = *candidate.kernel;
  const std::vector<Tile> tiles = kernel.tiles ? kernel.tiles(problem) : std::vector<Tile>{Tile{}};
  assert(!tiles.empty() && kernel.estimate);
  candidate.tile = tiles[0];
  candidate.estimate_ns = kernel.estimate(problem, tiles[0], ceilings);
  for (size_t t = 1; t < tiles.size(); ++t) {
    const double estimate = kernel.estimate(problem, tiles[t], ceilings);
    if (estimate >= candidate.estimate_ns) continue;
    candidate.tile = tiles[t];
    candidate.estimate_ns = estimate;
  }
}

// The candidate that a measurement names, with its tile; -1 if it is not there (any more).
int measured_candidate(const MeasuredChoice& known, const Problem& problem, std::vector<Candidate>& candidates) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    Candidate& candidate = candidates[i];
    if (candidate.kernel->name != known.kernel || candidate.kernel->version != known.version) continue;
    if (!candidate.support.ok || !check_tile(*candidate.kernel, problem, known.tile).fits()) continue;
    candidate.tile = known.tile;
    return int(i);
  }
  return -1;
}

}  // namespace

TileCheck check_tile(const Kernel& kernel, const Problem& problem, const Tile& tile) {
  const std::vector<Tile> tiles = kernel.tiles ? kernel.tiles(problem) : std::vector<Tile>{Tile{}};
  const bool listed = std::find(tiles.begin(), tiles.end(), tile) != tiles.end();
  if (listed && (!kernel.check_tile || tile == Tile{})) return {};
  if (kernel.check_tile) return kernel.check_tile(problem, tile);
  TileCheck check;
  check.reason = kernel.tiles ? fmt::format("{} has {} tiles, and this is none of them", kernel.name, tiles.size())
                              : fmt::format("{} has no tiles", kernel.name);
  return check;
}

std::span<const Kernel* const> kernels_of(std::string_view op, DeviceKind device) {
  const OpSchema* schema = find_op_in_any_domain(op);
  if (!schema) return {};
  return kernels_for(*schema, device);
}

std::vector<const Kernel*> all_kernels(DeviceKind device) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  List list = r.registered;
  std::erase_if(list, [&](const Kernel* kernel) { return kernel->device != device; });
  const List own = built_in(device);
  list.insert(list.end(), own.begin(), own.end());
  if (device == DeviceKind::kCpu) {
    for (const OpSchema* op : catalogue()) list.push_back(&reference_kernel(*op));
  }
  return list;
}

void register_kernel(const Kernel& kernel) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.registered.insert(r.registered.begin(), &kernel);
  r.by_op.clear();
}

Choice choose_kernel(const Problem& problem, const Ceilings& ceilings, std::string_view forced,
                     std::span<const MeasuredChoices* const> measured) {
  Choice choice;
  int reference = -1, usable = 0;
  List kernels = kernels_for(*problem.op, problem.device);
  const auto runs = [&](const Kernel* kernel) { return kernel->supports(problem).ok; };
  if (problem.device != DeviceKind::kCpu &&
      (forced == kReferenceKernel || std::none_of(kernels.begin(), kernels.end(), runs))) {
    const List& host = kernels_for(*problem.op, DeviceKind::kCpu);
    kernels.insert(kernels.end(), host.begin(), host.end());
  }
  for (const Kernel* kernel : kernels) {
    const bool host = on_host(problem, *kernel);
    const Problem asked = host ? host_problem(problem) : problem;
    Candidate candidate{kernel, {}, 0, kernel->supports(asked)};
    if (candidate.support.ok) choose_tile(candidate, asked, host ? host_ceilings() : ceilings);
    // Over the bus and back, and two waits.
    if (host) candidate.estimate_ns += double(problem.read_bytes() + problem.write_bytes()) / kBusGbS + kHostStepNs;
    const int at = int(choice.candidates.size());
    choice.candidates.push_back(std::move(candidate));
    const Candidate& added = choice.candidates.back();
    if (!forced.empty()) {
      if (kernel->name != forced) continue;
      if (!added.support.ok)
        fail(ErrorCode::kUnsupported, "unsupported: kernel '{}' cannot run '{}': {}", forced, problem.text(),
             added.support.reason);
      choice.chosen = at;
      continue;
    }
    if (!added.support.ok) continue;
    if (is_reference(*kernel)) {
      reference = at;
      continue;
    }
    usable += kernel->sweep || kernel->tiles ? 2 : 1;  // a kernel with tiles leaves a choice by itself
    if (choice.chosen < 0 || added.estimate_ns < choice.candidates[size_t(choice.chosen)].estimate_ns)
      choice.chosen = at;
  }
  if (!forced.empty() && choice.chosen < 0) {
    std::string names;
    for (const Candidate& candidate : choice.candidates)
      names += (names.empty() ? "" : ", ") + std::string(candidate.kernel->name);
    fail(ErrorCode::kUsage, "{} has no kernel '{}'; it has: {}", problem.op->name, forced, names);
  }
  if (choice.chosen < 0) choice.chosen = reference;
  if (choice.chosen < 0) fail(ErrorCode::kUnsupported, "unsupported: no kernel runs '{}'", problem.text());
  choice.chosen_by = usable > 1 && forced.empty() ? "model" : "only";
  if (choice.chosen_by != "model") return choice;
  for (const MeasuredChoices* known : measured) {
    const std::optional<MeasuredChoice> best = known->find(problem);
    const int at = best ? measured_candidate(*best, problem, choice.candidates) : -1;
    if (at < 0) continue;
    choice.chosen = at;
    choice.chosen_by = known->name();
    break;
  }
  return choice;
}

KernelCall bind_kernel(const Problem& problem, const Candidate& candidate) {
  const Kernel& kernel = *candidate.kernel;
  KernelCall call{&kernel, problem, candidate.tile, nullptr, 0};
  if (kernel.prepare) call.state = kernel.prepare(problem, candidate.tile);
  if (kernel.source) call.state = cuda::load(kernel.source(problem, candidate.tile));
  if (kernel.workspace) call.workspace_bytes = kernel.workspace(problem, candidate.tile);
  return call;
}

Tensor packed_constant(const KernelCall& call, int input, const Tensor& source) {
  const Kernel& kernel = *call.kernel;
  const Packing packing = kernel.packing ? kernel.packing(call.problem, call.tile, input) : Packing{};
  if (packing.key.empty()) return source;
  Tensor packed(DType::kU8, {packing.bytes});
  kernel.pack(call.problem, call.tile, input, source, packed.data());
  return packed;
}

Cost cost_with(const Problem& problem, const Choice& choice) {
  Cost cost = cost_of(problem);
  for (const Candidate& c : choice.candidates) {
    if (!c.support.ok || !c.kernel->executed_flops) continue;
    const int64_t flops = c.kernel->executed_flops(problem, c.tile);
    if (cost.executed_flops < 0 || flops < cost.executed_flops) cost.executed_flops = flops;
  }
  return cost;
}

}  // namespace ridgeline
