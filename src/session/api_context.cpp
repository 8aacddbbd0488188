#include "session/api_context.h"

#include "core/thread_pool.h"
#include "session/session.h"
#include "tune/probes.h"

namespace ridgeline {
namespace {

constexpr size_t kMostNeeded = 4096;  // entries of `needed`: a few hundred bytes each

}  // namespace

Context::Context(const ContextOptions& options) : state_(std::make_shared<State>()) {
  state_->threads = options.threads > 0 ? options.threads : available_cores();
  state_->most_planned = std::max<size_t>(1, options.planned_calls);
  const Ceilings* cached = cached_ceilings();
  state_->measured = cached != nullptr;
  state_->ceilings = cached ? *cached : unmeasured_ceilings();
}

int Context::threads() const { return state_->threads; }

void Context::measure_machine(bool again) {
  state_->ceilings = machine_ceilings(again);
  state_->measured = true;
}

bool Context::measured() const { return state_->measured; }
std::string Context::ceilings_json() const { return state_->ceilings.to_json(); }
size_t Context::planned_calls() const { return state_->planned.size(); }
size_t Context::cache_hits() const { return state_->hits; }

Context& thread_context() {
  static thread_local Context context;
  return context;
}

Op* Context::State::find(std::string_view key) {
  const auto it = by_key.find(key);
  if (it == by_key.end()) return nullptr;
  planned.splice(planned.begin(), planned, it->second);
  ++hits;
  return &planned.front().second;
}

Op& Context::State::put(std::string key, Op op) {
  planned.emplace_front(std::move(key), std::move(op));
  by_key[planned.front().first] = planned.begin();
  if (planned.size() > most_planned) {
    by_key.erase(planned.back().first);
    planned.pop_back();
  }
  if (needed.size() > kMostNeeded) needed.clear();
  return planned.front().second;
}

}  // namespace ridgeline
