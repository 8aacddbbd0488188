#include "plan/control.h"
#include "plan/memory.h"
#include "plan/state.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

namespace ridgeline {

Tensor ConstantStore::find(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? Tensor() : it->second;
}

void ConstantStore::put(const Key& key, Tensor tensor) {
  const std::lock_guard lock(mutex_);
  tensors_[key] = std::move(tensor);
}

void ConstantStore::each(const std::function<void(const Key&, const Tensor&)>& visit) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, tensor] : tensors_) visit(key, tensor);
}

int64_t ConstantStore::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, tensor] : tensors_) total += tensor.bytes();
  return total;
}

namespace {

// Bodies of branches and loops share weights with the plan around them and with each other.
void add_constants(const Plan& plan, std::set<const void*>& counted, int64_t& total) {
  for (const Tensor& t : plan.constants)
    if (counted.insert(t.data()).second) total += t.bytes();
  for (const Step& step : plan.steps)
    for (const PlannedBody& body : planned_bodies(step))
      if (body.plan) add_constants(*body.plan, counted, total);
}

}  // namespace

int64_t Plan::constant_bytes() const {
  std::set<const void*> counted;
  int64_t total = 0;
  add_constants(*this, counted, total);
  return total;
}

int64_t Plan::bytes_moved() const {
  int64_t total = 0;
  for (const Step& step : steps)
    total += step.cost.bytes() + 2 * step.call.workspace_bytes;  // a workspace is written and read
  return total;
}

int Plan::host_steps() const {
  return int(std::count_if(steps.begin(), steps.end(),
                           [&](const Step& s) { return on_host(s.call.problem, *s.call.kernel); }));
}

int64_t Plan::peak_bytes() const {
  int64_t total = constant_bytes() + arena_bytes;
  for (const PlanTensor& t : inputs) total += bytes_of(t.dtype, element_count(t.shape));
  for (const PlanTensor& t : outputs) total += bytes_of(t.dtype, element_count(t.shape));
  return total;
}

int64_t Plan::device_bytes() const {
  const auto rounded = [](int64_t bytes) {
    return (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  };
  int64_t total = rounded(arena_bytes);
  for (const Tensor& t : constants) total += rounded(t.bytes());
  for (const auto* tensors : {&inputs, &outputs})
    for (const PlanTensor& t : *tensors) total += rounded(bytes_of(t.dtype, element_count(t.shape)));
  for (const StatePair& pair : state_pairs(*this)) {
    const PlanTensor& t = outputs[size_t(pair.output)];
    total -= rounded(bytes_of(t.dtype, element_count(t.shape)));
  }
  return total;
}

int64_t Plan::peak_bytes_with_packing() const {
  int64_t packing = packing_peak_bytes;
  for (const PlanTensor& t : inputs) packing += bytes_of(t.dtype, element_count(t.shape));
  return std::max(packing, peak_bytes());
}

namespace {

std::string text_of(const Place& place) {
  constexpr std::string_view kKinds[] = {"-", "slot", "input", "output", "constant"};
  if (place.kind == Place::Kind::kNone) return "-";
  std::string out = fmt::format("{} {}", kKinds[size_t(place.kind)], place.index);
  if (place.offset_bytes) out += fmt::format("+{}", place.offset_bytes);
  return out;
}

}  // namespace

std::string Plan::text() const {
  const auto kind_of = [](const Step& step) -> std::string_view {
    switch (step.kind) {
      case Step::Kind::kCopy:
        return "copy";
      case Step::Kind::kBranch:
        return "branch";
      case Step::Kind::kLoop:
        return "loop";
      default:
        return "kernel";
    }
  };
  std::string out = fmt::format("plan: {} steps, {} slots, arena {} bytes, constants {} bytes, {} threads\n",
                                steps.size(), slots.size(), arena_bytes, constant_bytes(), threads);
  for (size_t s = 0; s < slots.size(); ++s) {
    out += fmt::format("  slot {}: [{}, {}) live {}..{}\n", s, slots[s].offset_bytes,
                       slots[s].offset_bytes + slots[s].bytes, slots[s].first_step, slots[s].last_step);
  }
  for (size_t s = 0; s < steps.size(); ++s) {
    const Step& step = steps[s];
    out += fmt::format("  step {}: {} {} '{}' (", s, kind_of(step), step.call.kernel->name, step.name);
    for (size_t i = 0; i < step.inputs.size(); ++i) out += (i ? ", " : "") + text_of(step.inputs[i]);
    out += ") -> (";
    for (size_t o = 0; o < step.outputs.size(); ++o) out += (o ? ", " : "") + text_of(step.outputs[o]);
    out += ")";
    if (step.workspace_slot >= 0) out += fmt::format(" workspace slot {}", step.workspace_slot);
    out += "  " + step.call.problem.text() + "\n";
    for (const PlannedBody& body : planned_bodies(step)) {
      const std::string inner = body.plan ? body.plan->text() : "none: " + body.why_not + "\n";
      for (size_t at = 0; at < inner.size();) {
        const size_t end = std::min(inner.find('\n', at), inner.size());
        out += fmt::format("    {}{}\n", at == 0 ? body.label + ": " : "", inner.substr(at, end - at));
        at = end + 1;
      }
    }
  }
  return out;
}

std::vector<std::string> check_plan(const Plan& plan) {
  std::vector<std::string> faults;
  std::vector<size_t> by_offset(plan.slots.size());
  std::iota(by_offset.begin(), by_offset.end(), 0);
  std::sort(by_offset.begin(), by_offset.end(),
            [&](size_t a, size_t b) { return plan.slots[a].offset_bytes < plan.slots[b].offset_bytes; });
  for (size_t k = 0; k < by_offset.size(); ++k) {
    const size_t a = by_offset[k];
    const Slot& x = plan.slots[a];
    const int64_t end = x.offset_bytes + x.bytes;
    if (x.offset_bytes < 0 || end > plan.arena_bytes)
      faults.push_back(fmt::format("slot {} lies outside the arena", a));
    for (size_t next = k + 1; next < by_offset.size() && plan.slots[by_offset[next]].offset_bytes < end; ++next) {
      const size_t b = by_offset[next];
      const Slot& y = plan.slots[b];
      if (y.bytes && x.first_step <= y.last_step && y.first_step <= x.last_step)
        faults.push_back(fmt::format("slots {} and {} overlap while both live", std::min(a, b), std::max(a, b)));
    }
  }
  auto check = [&](size_t s, const Place& place, const Operand& operand, bool packed) {
    if (place.kind != Place::Kind::kArena) return;
    const Slot& slot = plan.slots[size_t(place.index)];
    if (int(s) < slot.first_step || int(s) > slot.last_step)
      faults.push_back(fmt::format("step {} uses slot {} outside its life", s, place.index));
    if (!packed && place.offset_bytes + bytes_of(operand.dtype, operand.layout.span()) > slot.bytes)
      faults.push_back(fmt::format("step {} reaches past the end of slot {}", s, place.index));
  };
  std::set<int> written;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      check(s, step.inputs[i], step.call.problem.inputs[i], false);
      if (step.inputs[i].kind == Place::Kind::kArena && step.call.problem.inputs[i].elements() > 0 &&
          !written.count(step.inputs[i].index))
        faults.push_back(fmt::format("step {} reads slot {} before it is written", s, step.inputs[i].index));
    }
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      check(s, step.outputs[o], step.call.problem.outputs[o], false);
      if (step.outputs[o].kind == Place::Kind::kArena) written.insert(step.outputs[o].index);
    }
    if (step.workspace_slot < 0) continue;
    const Slot& workspace = plan.slots[size_t(step.workspace_slot)];
    if (int(s) < workspace.first_step || int(s) > workspace.last_step || workspace.bytes < step.call.workspace_bytes)
      faults.push_back(fmt::format("step {}: slot {} is no workspace of its size and life", s, step.workspace_slot));
  }
  return faults;
}

void require_sound(const Plan& plan) {
  const std::vector<std::string> faults = check_plan(plan);
  if (faults.empty()) return;
  throw std::logic_error(fmt::format("internal error, please report it: the plan is unsound: {}{}", faults.front(),
                                     faults.size() > 1 ? fmt::format(" (and {} more)", faults.size() - 1) : ""));
}

}  // namespace ridgeline
