// What the passes found in a graph and what they left over, as text with counts: the golden lists of whole models.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ir/program.h"
#include "optimize/pipeline.h"

namespace ridgeline {

/// Names of operators, with how often each: "Conv + 2 Mul + Sigmoid", in the order of appearance.
inline std::string joined_counts(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int>> counts;
  for (const std::string& n : names) {
    const auto it = std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == n; });
    if (it == counts.end())
      counts.push_back({n, 1});
    else
      ++it->second;
  }
  std::string out;
  for (const auto& [n, c] : counts)
    out += fmt::format("{}{}{}", out.empty() ? "" : " + ", c > 1 ? fmt::format("{} ", c) : "", n);
  return out;
}

/// A node of the optimized graph without its operands: operator, and the function of its Program.
inline std::string kind_of(const Node& node) {
  std::string program;
  if (node.program) {
    program = known_function(*node.program);
    if (program.empty()) program = node.program->text();
  }
  if (node.op == &elementwise_op()) return program;
  return std::string(node.op->name) + (program.empty() ? "" : " | " + program);
}

/// Three lists: rewrites by pass, nodes that stand for several imported ones (matches), and nodes left as they were.
inline std::string match_summary(const Graph& imported, const Graph& optimized, const Decisions& decisions) {
  std::map<std::string, std::string, std::less<>> op_of;
  std::map<std::string, int> before;
  for (NodeId id : imported.order()) {
    op_of[imported.node(id).name] = std::string(imported.node(id).op->name);
    ++before[std::string(imported.node(id).op->name)];
  }
  std::string out = fmt::format("imported: {} nodes\n", imported.live_nodes());
  for (const auto& [op, n] : before) out += fmt::format("{:>6}  {}\n", n, op);

  out += "rewrites\n";
  for (const Pass& pass : passes()) {
    const auto n = std::count_if(decisions.all.begin(), decisions.all.end(), [&](const Decision& d) {
      return d.pass == pass.name && d.action == Action::kApplied;
    });
    if (n) out += fmt::format("{:>6}  {}\n", n, pass.name);
  }

  std::map<std::string, int> matches, left;
  for (NodeId id : optimized.order()) {
    const Node& node = optimized.node(id);
    std::vector<std::string> ops;
    for (const std::string& name : node.origin) {
      const auto it = op_of.find(name);
      ops.push_back(it == op_of.end() ? "?" + name : it->second);
    }
    if (ops.size() > 1)
      ++matches[fmt::format("{} <- {}", kind_of(node), joined_counts(ops))];
    else
      ++left[ops.empty() ? kind_of(node) : ops[0]];
  }
  out += "found\n";
  for (const auto& [what, n] : matches) out += fmt::format("{:>6}  {}\n", n, what);
  out += "left over\n";
  for (const auto& [what, n] : left) out += fmt::format("{:>6}  {}\n", n, what);
  return out;
}

}  // namespace ridgeline
