#include "session/ladder_report.h"

#include <algorithm>
#include <map>

#include "session/advice.h"
#include "session/problem_words.h"
#include "tune/machine_report.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.1f} kB", bytes / 1e3);
}

std::map<std::string, double> families(const Ladder& ladder) {
  std::map<std::string, double> share;
  double total = 0;
  for (const StepProfile& p : ladder.profile) total += p.time_us;
  for (const StepProfile& p : ladder.profile)
    share[std::string(p.step->call.problem.op->family)] += total > 0 ? p.time_us / total : 0;
  return share;
}

struct ModelFacts {
  int64_t parameters = 0, flops = 0, moved = 0;
  int64_t read = 0, written = 0;  // compulsory: inputs and constants of the whole model once, outputs once
  std::map<std::string, int> operators;
  Floor floor;  // of the whole as one step
  int64_t bytes() const { return read + written; }
  double intensity() const { return bytes() ? double(flops) / double(bytes()) : 0; }
};

ModelFacts facts(const Model& model, const Ladder& ladder, const Ceilings& ceilings) {
  ModelFacts f;
  for (NodeId id : model.graph.order()) ++f.operators[std::string(model.graph.node(id).op->name)];
  for (int v = 0; v < model.graph.value_count(); ++v) {
    const Tensor* c = model.graph.constant(v);
    if (!c) continue;
    if (is_float(c->dtype())) f.parameters += c->elements();
    if (!model.graph.users(v).empty()) f.read += c->bytes();
  }
  const Plan& plan = *ladder.final.plan;
  for (const PlanTensor& t : plan.inputs) f.read += bytes_of(t.dtype, element_count(t.shape));
  for (const PlanTensor& t : plan.outputs) f.written += bytes_of(t.dtype, element_count(t.shape));
  f.flops = ladder.stages.front().flops;
  f.moved = ladder.stages.front().bytes_moved;
  Work work;
  work.flops = f.flops;
  work.read_bytes = f.read;
  work.write_bytes = f.written;
  f.floor = floor_of(work, ceilings, plan.threads);
  return f;
}

}  // namespace

Json ladder_json(const Model& model, const Ladder& ladder, const Ceilings& ceilings) {
  Json document;
  document["machine"] = machine_json(this_cpu(), ceilings);
  const ModelFacts f = facts(model, ladder, ceilings);
  Json operators = Json::object();
  for (const auto& [op, count] : f.operators) operators[op] = count;
  document["model"] = {{"file", model.path},
                       {"operators", operators},
                       {"parameters", f.parameters},
                       {"flops", f.flops},
                       {"bytes", f.bytes()},
                       {"bytes_moved_unfused", f.moved},
                       {"intensity", f.intensity()},
                       {"bound", std::string(name(f.floor.bound))},
                       {"reference_items", ladder.reference_items}};
  Json stages = Json::array();
  for (const StageResult& s : ladder.stages) {
    const double median_ms = s.samples.median() / 1e6;
    stages.push_back({{"name", std::string(name(s.stage))},
                      {"latency_ms",
                       {{"median", median_ms},
                        {"p10", s.samples.p10() / 1e6},
                        {"p90", s.samples.p90() / 1e6},
                        {"p99", s.samples.p99() / 1e6},
                        {"samples", s.samples.count()}}},
                      {"items_per_s", s.items_per_s},
                      {"peak_bytes", s.peak_bytes},
                      {"kernels", s.kernels},
                      {"reorders", s.reorders},
                      {"reorder_bytes", s.reorder_bytes},
                      {"bytes_moved", s.bytes_moved},
                      {"flops", s.flops},
                      {"executed_flops", s.executed_flops},
                      {"max_error", s.max_error},
                      {"tolerance", ladder.tolerance},
                      {"gain", s.gain},
                      {"floor_ms", ladder.floor_ms},
                      {"roof_share", median_ms > 0 ? ladder.floor_ms / median_ms : 0},
                      {"undone", s.undone},
                      {"note", s.note}});
  }
  document["stages"] = stages;
  document["families"] = families(ladder);
  Json advice = Json::array();
  for (const Advice& a : advise(ladder.profile, ceilings)) {
    advice.push_back({{"nodes", a.nodes},
                      {"op", a.op},
                      {"problem", a.problem},
                      {"time_ms", a.time_ms},
                      {"share", a.share},
                      {"family_share", a.family_share},
                      {"bound", a.bound},
                      {"roof_share", a.roof_share},
                      {"lever", a.lever},
                      {"predicted_gain_ms", a.predicted_gain_ms},
                      {"wrong_lever", a.wrong_lever},
                      {"code", a.code},
                      {"worth", a.worth}});
  }
  document["advice"] = advice;
  Json steps = Json::array();  // of the last stage: what `diff` compares
  for (const StepProfile& p : ladder.profile) {
    const Step& step = *p.step;
    steps.push_back({{"nodes", step.origin.empty() ? std::vector<std::string>{step.name} : step.origin},
                     {"op", std::string(step.call.problem.op->name)},
                     {"kernel", std::string(step.call.kernel->name)},
                     {"tile", tile_words(step.call.tile)},
                     {"time_us", p.time_us},
                     {"bytes", step.cost.bytes()}});
  }
  document["steps"] = steps;
  Json decisions = Json::array();
  for (const Decision& d : ladder.decisions) {
    // A pass is measured as a whole and its gain shared by prediction; the unfused stage's passes are not measured.
    const bool measured = d.reason_code != "unsound" && d.stage > 0 && d.action != Action::kRefused;
    decisions.push_back({{"pass", d.pass},
                         {"nodes", d.nodes},
                         {"action", std::string(name(d.action))},
                         {"reason_code", d.reason_code},
                         {"reason", d.reason},
                         {"bytes_saved", d.bytes_saved},
                         {"launches_saved", d.launches_saved},
                         {"intensity_before", d.intensity_before},
                         {"intensity_after", d.intensity_after},
                         {"predicted_gain_us", d.predicted_gain_us},
                         {"measured_gain_us", d.measured_gain_us},
                         {"measured_of", measured ? "pass" : "nothing"}});
  }
  document["decisions"] = decisions;
  return document;
}

std::string ladder_text(const Model& model, const Ladder& ladder, const Ceilings& ceilings) {
  const ModelFacts f = facts(model, ladder, ceilings);
  std::string out = machine_text(this_cpu(), ceilings) + "\n";
  out += fmt::format("model {}: {} nodes, {:.2f} M parameters, {:.2f} GFLOP, {} compulsory ({} moved unfused)\n",
                     model.path, model.graph.live_nodes(), double(f.parameters) / 1e6, double(f.flops) / 1e9,
                     bytes_text(double(f.bytes())), bytes_text(double(f.moved)));
  out += fmt::format("{:.1f} FLOP/byte: {}-bound as a whole (arithmetic {:.3f} ms at the peak, bytes {:.3f} ms)\n",
                     f.intensity(), name(f.floor.bound), f.floor.compute_ns / 1e6, f.floor.memory_ns / 1e6);
  std::vector<std::string> operators;
  for (const auto& [op, count] : f.operators) operators.push_back(fmt::format("{} {}", count, op));
  out += fmt::format("operators: {}\n\n", fmt::join(operators, ", "));
  out += fmt::format("{:<12} {:>10} {:>9} {:>9} {:>10} {:>10} {:>8} {:>10} {:>10} {:>7} {:>10} {:>7}\n", "stage",
                     "median ms", "p10", "p90", "items/s", "peak", "kernels", "moved", "error", "gain", "floor ms",
                     "roof");
  for (const StageResult& s : ladder.stages) {
    const double median_ms = s.samples.median() / 1e6;
    out += fmt::format(
        "{:<12} {:>10.3f} {:>9.3f} {:>9.3f} {:>10.1f} {:>10} {:>8} {:>10} {:>10.1e} {:>6.1f}% {:>10.3f} {:>6.1f}%\n",
        name(s.stage), median_ms, s.samples.p10() / 1e6, s.samples.p90() / 1e6, s.items_per_s,
        bytes_text(double(s.peak_bytes)), s.kernels, bytes_text(double(s.bytes_moved)), s.max_error, s.gain * 100,
        ladder.floor_ms, median_ms > 0 ? 100 * ladder.floor_ms / median_ms : 0);
    if (!s.note.empty()) out += "             " + s.note + "\n";
  }
  out += fmt::format(
      "error: largest |y - reference| over largest |reference|{}; the tolerance derived from the graph is {:.1e}. "
      "gain: less time than the stage before, paired samples ({} rounds).\n\n",
      ladder.reference_items ? fmt::format(", first {} items", ladder.reference_items) : "", ladder.tolerance,
      ladder.stages.front().samples.count());
  const StageResult& last = ladder.stages.back();
  out += fmt::format("reorders in the last stage: {} of {} kernels, {} of {} moved\n\n", last.reorders, last.kernels,
                     bytes_text(double(last.reorder_bytes)), bytes_text(double(last.bytes_moved)));
  out += "share of the time by family: ";
  for (const auto& [family, share] : families(ladder)) out += fmt::format(" {} {:.1f} %", family, share * 100);
  out += "\n\n" + advice_text(advise(ladder.profile, ceilings), ceilings);
  std::map<std::string, std::array<int, 3>> counts;
  std::map<std::string, std::map<std::string, int>> codes;
  for (const Decision& d : ladder.decisions) {
    ++counts[d.pass][size_t(d.action)];
    if (d.action != Action::kApplied) ++codes[d.pass][d.reason_code];
  }
  out += fmt::format("\n{:<26} {:>8} {:>8} {:>7}  {}\n", "decisions", "applied", "refused", "undone",
                     "why not (see `ridgeline explain`)");
  for (const auto& [pass, n] : counts) {
    std::string why;
    for (const auto& [code, count] : codes[pass]) why += fmt::format("{}{} x{}", why.empty() ? "" : ", ", code, count);
    out += fmt::format("{:<26} {:>8} {:>8} {:>7}  {}\n", pass, n[0], n[1], n[2], why);
  }
  return out;
}

}  // namespace ridgeline
