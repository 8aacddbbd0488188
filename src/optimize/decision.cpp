#include "optimize/decision.h"

#include <algorithm>

namespace ridgeline {

std::string_view name(Action action) {
  constexpr std::string_view kNames[] = {"applied", "refused", "undone"};
  return kNames[size_t(action)];
}

bool Decisions::allowed(const Node& root) {
  asked = root.name;
  if (most_applied >= 0 && applied >= most_applied) return false;
  if (only && !only->count(root.name)) return false;
  return undone.empty() || !undone.count(pass + "/" + root.name);
}

void Decisions::apply(std::vector<std::string> nodes, int64_t bytes_saved, int launches_saved, double intensity_before,
                      double intensity_after) {
  Decision d;
  d.pass = pass;
  d.nodes = std::move(nodes);
  d.root = asked;
  d.bytes_saved = bytes_saved;
  d.launches_saved = launches_saved;
  d.intensity_before = intensity_before;
  d.intensity_after = intensity_after;
  d.stage = stage;
  all.push_back(std::move(d));
  ++applied;
}

void Decisions::refuse(const Node& root, std::string_view code, const std::string& reason) {
  std::vector<std::string> nodes = root.origin.empty() ? std::vector<std::string>{root.name} : root.origin;
  // A pass may look at a root more than once; one refusal a reason is enough.
  // Looked for among the newest: a model of 20,000 nodes would spend its time here.
  constexpr size_t kNewest = 4096;
  const auto begin = all.size() > kNewest ? all.end() - kNewest : all.begin();
  const bool known = std::any_of(
      begin, all.end(), [&](const Decision& d) { return d.nodes == nodes && d.reason_code == code && d.pass == pass; });
  if (known) return;
  Decision d;
  d.pass = pass;
  d.nodes = std::move(nodes);
  d.action = Action::kRefused;
  d.reason_code = std::string(code);
  d.reason = reason;
  d.stage = stage;
  all.push_back(std::move(d));
}

}  // namespace ridgeline
