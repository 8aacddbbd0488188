// Lowering a node with subgraphs: plans of its bodies where all shapes are known, else a step that interprets it.
#include <algorithm>

#include "plan/control.h"
#include "plan/lower.h"

namespace ridgeline {

bool Lowering::lower_control(const Node& node, const Problem& problem, int position) {
  if (options_.device != DeviceKind::kCpu) return false;
  std::vector<std::shared_ptr<Graph>> graphs;
  std::vector<std::string> why_not;
  const bool fixed = bind_bodies(graph_, node, graphs, why_not).empty();
  std::vector<PlannedBody> bodies;
  const std::vector<std::string_view> keys = bodies_of(*node.op);
  for (size_t b = 0; fixed && b < graphs.size(); ++b) {
    PlannedBody body{body_label(keys[b]), nullptr, why_not[b], nullptr};
    if (graphs[b]) {
      PlanOptions options = options_;
      options.bindings = bindings_;
      try {
        body.plan = std::make_shared<const Plan>(make_plan(*graphs[b], options, store_, consume_));
      } catch (const Error& error) {
        // A branch that is never taken need not fit with these extents.
        if (!node.is("If") || error.code() != ErrorCode::kBadInput) throw;
        body.why_not = error.what();
      }
    }
    bodies.push_back(std::move(body));
  }

  Problem row_major = problem;
  for (Operand& operand : row_major.inputs)
    if (operand.present()) operand.layout = Layout(operand.shape());
  if (fixed && consume_ && !options_.dry) {  // nobody keeps the weights of the bodies beside the packed ones
    Node& own = graph_.node(node.id);
    for (size_t b = 0; b < graphs.size(); ++b) {
      if (!graphs[b]) continue;
      const std::shared_ptr<const Graph> consumed = graphs[b];
      own.attributes.set(keys[b], consumed);
      row_major.attributes.set(keys[b], consumed);
    }
  }
  ControlCall control;
  try {
    if (fixed) {
      control = bind_control(row_major, std::move(bodies));
    } else {
      control.kind = Step::Kind::kKernel;
      control.call = bind_dynamic_control(row_major, options_);
      control.estimate_ns = 1e6;  // it plans
    }
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("node '{}' ({}): {}", node.name, node.op->name, error.what()));
  }
  Step step;
  step.kind = control.kind;
  step.name = node.name;
  step.origin = node.origin;
  step.call = std::move(control.call);
  step.choice.candidates = {{step.call.kernel, {}, control.estimate_ns, yes()}};
  step.choice.chosen = 0;
  step.choice.chosen_by = "only";
  step.predicted_ns = control.estimate_ns;
  std::vector<Ref> inputs, outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    Ref ref = v == kNoValue || !refs_[size_t(v)].ready ? Ref{} : refs_[size_t(v)];
    if (ref.ready && !ref.layout.is_row_major())
      ref = emit_copy(node.name, node.origin, ref, problem.inputs[i].dtype, Layout(problem.inputs[i].shape()));
    inputs.push_back(ref);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId v = node.outputs[o];
    outputs.push_back(v == kNoValue ? Ref{} : allocate_output(node, int(o), row_major, step.call, position));
  }
  emit(std::move(step), inputs, node.inputs, outputs);
  for (size_t o = 0; o < node.outputs.size(); ++o)
    if (node.outputs[o] != kNoValue) refs_[size_t(node.outputs[o])] = outputs[o];
  return true;
}

}  // namespace ridgeline
