#include "session/advice.h"

#include <algorithm>
#include <map>

#include "session/cuda_advice.h"

namespace ridgeline {
namespace {

constexpr double kWorth = 0.05;  // of the total: less cannot repay hand work (Amdahl)
constexpr size_t kMostRows = 10;

double intensity(const Cost& cost) { return cost.bytes() ? double(cost.flops) / double(cost.bytes()) : 0; }

double ridge(const Ceilings& ceilings, int threads) {
  const double bandwidth = ceilings.read_gb_s[size_t(MemoryLevel::kDram)].at(threads, ceilings.cores);
  return bandwidth > 0 ? ceilings.f32.at(threads, ceilings.cores) / bandwidth : 0;
}

// "8-bit ones are a quarter, 4-bit an eighth", of weights of this type.
std::string narrower(DType dtype) {
  switch (info(dtype).bits) {
    case 64:
      return "f32 ones are half, 8-bit an eighth";
    case 32:
      return "8-bit ones are a quarter, 4-bit an eighth";
    case 16:
      return "8-bit ones are half, 4-bit a quarter";
    case 8:
      return "4-bit ones are half";
    default:
      return "they are as narrow as they come";
  }
}

}  // namespace

Levers levers_for(const Problem& problem, const Cost& cost, const Ceilings& ceilings, int threads) {
  const Floor floor = step_floor(problem, cost, ceilings, threads);
  Levers l;
  l.bound = std::string(name(floor.bound));
  const bool contraction = problem.op->kind == OpKind::kContraction;
  // Both sides of the comparison that made the bound: the ridge of DRAM alone would be beside the point where the
  // operands lie in a cache.
  const std::string sides = fmt::format("arithmetic takes {:.2f} us at least, the {:.0f} kB {:.2f} us where they lie",
                                        floor.compute_ns / 1e3, double(cost.bytes()) / 1e3, floor.memory_ns / 1e3);
  if (floor.bound == Bound::kCompute) {
    if (contraction) {
      l.right.push_back(fmt::format(
          "a faster kernel: tiles that fit registers and L2, weights packed ahead; at {:.1f} FLOP/byte {}, so "
          "arithmetic is the limit",
          intensity(cost), sides));
      if (problem.op->name == "Conv")
        l.right.push_back(
            "a cheaper algorithm: Winograd for 3x3 at stride 1 does up to 2.25 to 4 times fewer multiplications, "
            "within a derived error bound");
      l.right.push_back(fmt::format("lower precision: bf16 peak is {:.1f} times the f32 peak here, 8-bit {:.1f} times",
                                    ceilings.bf16.one / std::max(ceilings.f32.one, 1e-9),
                                    ceilings.u8s8.one / std::max(ceilings.f32.one, 1e-9)));
    } else {
      l.right.push_back(fmt::format(
          "cheaper instructions: {}; exp, erf and division bind before memory does: a polynomial of lower degree or a "
          "recognised function",
          sides));
    }
    l.wrong.push_back(
        fmt::format("fusing more into it: at most {:.1f} us of {:.1f} us are memory traffic ({:.0f} kB of results)",
                    floor.memory_ns / 1e3, floor.time_ns / 1e3, double(problem.write_bytes()) / 1e3));
  } else if (floor.bound == Bound::kLaunch) {
    l.right.push_back(
        fmt::format("fewer steps: {}, less than starting the threads ({:.1f} us); fused into a neighbour, or a larger "
                    "batch",
                    sides, ceilings.launch_ns.at(threads, ceilings.cores) / 1e3));
    l.wrong.push_back("tuning tiles or narrower types: " + sides + "; neither is the limit");
  } else {
    const bool weights = contraction && problem.inputs.size() > 1 && problem.input(1).is_constant;
    if (weights) {
      l.right.push_back(
          fmt::format("fewer bytes: weights are {:.0f} % of the traffic; {}; a batch of requests shares them",
                      100 * double(problem.input(1).bytes()) / std::max<double>(1, double(cost.bytes())),
                      narrower(problem.input(1).dtype)));
    } else if (contraction) {
      l.right.push_back(
          fmt::format("fewer bytes: both operands are activations, {:.0f} kB in all; fused into the step "
                      "that makes one of them, or a narrower type",
                      double(cost.bytes()) / 1e3));
    } else if (problem.op->kind == OpKind::kMovement) {
      l.right.push_back(
          "not moving at all: a layout that its reader accepts, a view, or writing the result where it is wanted");
    } else {
      l.right.push_back(
          fmt::format("fusing it into the step that produces its operand: saves reading and writing {:.0f} kB",
                      double(cost.bytes()) / 1e3));
    }
    l.wrong.push_back(
        fmt::format("tuning tiles: at {:.2f} FLOP/byte {}; faster arithmetic wins nothing", intensity(cost), sides));
  }
  return l;
}

std::vector<Advice> advise(const std::vector<StepProfile>& profile, const Ceilings& ceilings) {
  double total = 0;
  std::map<std::string_view, double> family;
  for (const StepProfile& p : profile) {
    total += p.time_us;
    family[p.step->call.problem.op->family] += p.time_us;
  }
  std::vector<Advice> rows;
  for (const StepProfile& p : profile) {
    const Step& step = *p.step;
    const Problem& problem = step.call.problem;
    Advice a;
    a.nodes = step.origin.empty() ? std::vector<std::string>{step.name} : step.origin;
    a.op = std::string(problem.op->name);
    a.problem = problem.text();
    a.time_ms = p.time_us / 1e3;
    a.share = total > 0 ? p.time_us / total : 0;
    a.family_share = family[problem.op->family] > 0 ? p.time_us / family[problem.op->family] : 0;
    a.roof_share = p.time_us > 0 ? std::min(1.0, step.floor_ns / 1e3 / p.time_us) : 0;
    const Levers levers = levers_for(problem, step.cost, ceilings, problem.threads);
    a.bound = levers.bound;
    a.lever = levers.right.empty() ? "" : levers.right.front();
    a.wrong_lever = levers.wrong.empty() ? "" : levers.wrong.front();
    a.predicted_gain_ms = a.time_ms * (1 - a.roof_share);
    a.worth = a.share >= kWorth;
    a.step = &step;
    rows.push_back(std::move(a));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Advice& a, const Advice& b) { return a.predicted_gain_ms > b.predicted_gain_ms; });
  if (rows.size() > kMostRows) rows.resize(kMostRows);
  // Only of those that are shown: a kernel is compiled for it.
  for (Advice& a : rows)
    if (a.bound == "compute") a.code = matrix_code_words(*a.step, ceilings);
  return rows;
}

std::string advice_text(const std::vector<Advice>& advice, const Ceilings& ceilings) {
  std::string out = fmt::format(
      "where to work next, by time x (1 - share of roof); the ridge of this machine is {:.1f} FLOP/byte on one "
      "thread\n",
      ridge(ceilings, 1));
  out += fmt::format("{:>3} {:>9} {:>6} {:>6} {:<8} {:>9}  {}\n", "", "time ms", "share", "roof", "bound", "to win ms",
                     "problem");
  int n = 1;
  for (const Advice& a : advice) {
    out += fmt::format("{:>3} {:>9.3f} {:>5.1f}% {:>5.0f}% {:<8} {:>9.3f}  {}{}\n", n++, a.time_ms, a.share * 100,
                       a.roof_share * 100, a.bound, a.predicted_gain_ms, a.problem.substr(0, 110),
                       a.worth ? "" : "  (under 5 %: not worth hand work)");
    out += fmt::format("      helps: {}\n      does not: {}\n", a.lever, a.wrong_lever);
    if (!a.code.empty()) out += fmt::format("      code: {}\n", a.code);
  }
  return out;
}

}  // namespace ridgeline
