// If, Loop and Scan. Source: the ONNX operators' documents, opsets 1 to 28. docs/control.md says how they are imported,
// planned and run.
#include "ir/control.h"

#include <algorithm>

#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

// Shapes that change from one iteration to the next are followed this far where the count is known.
constexpr int64_t kMostFollowed = 64;
// Nodes of bodies inferred for one node, bodies in bodies included; what takes more is left to the run.
constexpr int64_t kMostInferred = 1 << 16;

struct Inferred {
  int depth = 0;
  int64_t nodes = 0;
};
thread_local Inferred inferred;

struct InferScope {
  InferScope() {
    if (inferred.depth++ == 0) inferred.nodes = 0;
  }
  ~InferScope() { --inferred.depth; }
  InferScope(const InferScope&) = delete;
  InferScope& operator=(const InferScope&) = delete;
};

/// What Infer knows of an input.
ValueInfo info_of(const Infer& i, int input) {
  ValueInfo info;
  info.dtype = i.dtype(input);
  info.values = i.values(input);
  if (const Tensor* constant = i.constant(input)) info.constant = *constant;
  try {
    info.shape = i.shape(input);
  } catch (const NeedsValues&) {
    // Its rank is not known yet.
  }
  return info;
}

/// "node 'n' (If): ", as Infer's own messages begin.
std::string prefix_of(const Infer& i) {
  try {
    i.reject("");
  } catch (const Error& error) {
    return error.what();
  }
}

[[noreturn]] void unresolved(const Infer& i, int input, const std::string& why) {
  throw NeedsValues(input, prefix_of(i) + "unsupported: " + why);
}

// The input whose content is asked for next where something depends on the run: the first that is no constant.
int next_open(const Infer& i) {
  for (int k = 0; k < i.inputs(); ++k)
    if (i.has(k) && !i.constant(k)) return k;
  return 0;
}

/// A body with what is known of its inputs.
struct Body {
  Graph graph;
  std::vector<Graph::Unresolved> unresolved;
  const ValueInfo& output(int k) const { return graph.value(graph.outputs[size_t(k)]).info; }
};

Body infer_body(const Infer& i, const Graph& body, const std::vector<ValueInfo>& inputs) {
  inferred.nodes += body.live_nodes() + 1;
  if (inferred.nodes > kMostInferred) unresolved(i, next_open(i), "its shapes take too many iterations to follow");
  Body out{body, {}};
  for (size_t k = 0; k < inputs.size(); ++k) {
    Value& value = out.graph.value(out.graph.inputs[k]);
    if (inputs[k].dtype != DType::kNone && value.dtype() != DType::kNone && value.dtype() != inputs[k].dtype) {
      i.reject(fmt::format("the input '{}' of its subgraph is {}, but is given {}", value.name, name(value.dtype()),
                           name(inputs[k].dtype)));
    }
    const DType dtype = inputs[k].dtype == DType::kNone ? value.dtype() : inputs[k].dtype;
    value.info = inputs[k];
    value.info.dtype = dtype;
  }
  out.unresolved = out.graph.infer();
  return out;
}

std::string why_open(const Body& body, const std::string& otherwise) {
  return body.unresolved.empty() ? otherwise : body.unresolved.front().reason;
}

ValueInfo without_content(ValueInfo info) {
  info.values.reset();
  info.constant = {};
  return info;
}

// 1 or 0 if known, else -1.
int known_condition(const ValueInfo& info) {
  if (info.constant && info.constant.elements() == 1) return info.constant.i64(0) != 0;
  if (info.values && info.values->size() == 1 && (*info.values)[0].known()) return (*info.values)[0].value() != 0;
  return -1;
}

void require_one(const Infer& i, int input, std::string_view what) {
  if (!i.has(input)) return;
  const std::optional<Shape> shape = info_of(i, input).shape;
  if (!shape || !known(*shape)) return;
  i.require(product(*shape).is(1),
            [&] { return fmt::format("{} has the shape {}: it has to be one element", what, text(*shape)); });
}

void give(Infer& i, int output, const ValueInfo& info) {
  i.output(output, info.dtype, *info.shape);
  std::optional<std::vector<Dim>> values = info.values;
  if (!values && info.constant && !is_float(info.dtype) && info.constant.rank() <= 1 &&
      info.constant.elements() <= 64) {
    values.emplace();
    for (const int64_t v : info.constant.to_i64()) values->push_back(v);
  }
  if (values) i.output_values(output, std::move(*values));
}

void infer_if(Infer& i) {
  const InferScope scope;
  require_one(i, 0, "the condition");
  std::vector<ValueInfo> inputs;
  for (int k = 1; k < i.inputs(); ++k) inputs.push_back(info_of(i, k));
  std::vector<Body> branches;
  std::string rejected;
  const int known = known_condition(info_of(i, 0));
  for (const bool then : {true, false}) {
    const Graph& body = body_of(i.attributes(), then ? "then_branch" : "else_branch");
    if (body.inputs.size() != inputs.size())
      i.reject(fmt::format("its branch reads {} values, {} are given", body.inputs.size(), inputs.size()));
    if (int(body.outputs.size()) != i.outputs())
      i.reject(fmt::format("has {} outputs, its branch gives {}", i.outputs(), body.outputs.size()));
    if (known >= 0 && (known == 1) != then) continue;
    try {
      branches.push_back(infer_body(i, body, inputs));
    } catch (const NeedsValues&) {
      throw;
    } catch (const Error& error) {
      // Exporters write branches that fit other shapes than these: such a branch is never taken. (If it is, the run
      // says so.)
      if (known >= 0 || error.code() != ErrorCode::kBadModel || !rejected.empty()) throw;
      rejected = error.what();
    }
  }
  for (int o = 0; o < i.outputs(); ++o) {
    const ValueInfo &first = branches.front().output(o), &last = branches.back().output(o);
    i.require(first.dtype == last.dtype || first.dtype == DType::kNone || last.dtype == DType::kNone, [&] {
      return fmt::format("output {} is {} in one branch and {} in the other", o, name(first.dtype), name(last.dtype));
    });
    for (const Body& branch : branches) {
      if (!branch.output(o).shape)
        unresolved(i, known < 0 ? 0 : next_open(i), why_open(branch, "the shape of its branch's output is unknown"));
    }
    if (*first.shape != *last.shape) {
      unresolved(i, 0,
                 fmt::format("output {} is {} in one branch and {} in the other, and the condition is computed at run "
                             "time",
                             o, text(*first.shape), text(*last.shape)));
    }
    const bool same = branches.size() == 1 || (first.values && last.values && *first.values == *last.values);
    give(i, o, same && rejected.empty() ? first : without_content(first));
  }
}

/// Loop and Scan: shapes of what is carried, followed over iterations; and of what is collected, without its new axis.
struct Iterations {
  std::vector<ValueInfo> carried, collected;
};

Iterations follow(const Infer& i, const LoopForm& form, const Graph& graph, std::vector<ValueInfo> inputs,
                  std::optional<int64_t> trips) {
  Iterations out;
  for (int64_t trip = 0;; ++trip) {
    const Body body = infer_body(i, graph, inputs);
    bool changes = false;
    out.carried.clear();
    for (int k = 0; k < form.carried; ++k) {
      const ValueInfo& next = body.output(form.first_result() + k);
      ValueInfo& now = inputs[size_t(form.conditions + k)];
      i.require(next.dtype == now.dtype || next.dtype == DType::kNone || now.dtype == DType::kNone, [&] {
        return fmt::format("its body turns the carried value {} from {} into {}", k, name(now.dtype), name(next.dtype));
      });
      if (!next.shape && trips != 0)
        unresolved(i, next_open(i), why_open(body, "the shape of a carried value is unknown"));
      changes = changes || (next.shape && now.shape && *next.shape != *now.shape);
      out.carried.push_back(trips == 0 ? now : without_content(next));
    }
    for (int k = 0; k < form.collected; ++k) {
      const ValueInfo& part = body.output(form.first_result() + form.carried + k);
      if (!part.shape) unresolved(i, next_open(i), why_open(body, "the shape of what it collects is unknown"));
      if (trip == 0) {
        out.collected.push_back(without_content(part));
      } else if (*part.shape != *out.collected[size_t(k)].shape) {
        i.reject(fmt::format("what it collects is {} in one iteration and {} in another",
                             text(*out.collected[size_t(k)].shape), text(*part.shape)));
      }
    }
    if (!changes || trips == 0) return out;
    if (!trips || *trips > kMostFollowed) {
      unresolved(i, trips ? next_open(i) : 0,
                 "the shape of a carried value changes from one iteration to the next, and how many there are is not "
                 "known (or too many)");
    }
    if (trip + 1 >= *trips) return out;
    for (int k = 0; k < form.carried; ++k) inputs[size_t(form.conditions + k)] = out.carried[size_t(k)];
  }
}

void give_all(Infer& i, const LoopForm& form, const Iterations& found, const std::vector<ScanAxis>& axes,
              const Dim& trips) {
  if (form.carried + form.collected != i.outputs())
    i.reject(fmt::format("has {} outputs, its body gives {}", i.outputs(), form.carried + form.collected));
  for (int k = 0; k < form.carried; ++k) {
    if (!found.carried[size_t(k)].shape) unresolved(i, next_open(i), "the shape of a carried value is unknown");
    give(i, k, found.carried[size_t(k)]);
  }
  for (int k = 0; k < form.collected; ++k) {
    Shape shape = *found.collected[size_t(k)].shape;
    const int axis = i.axis(axes[size_t(k)].axis, int(shape.size()) + 1);
    shape.insert(shape.begin() + axis, trips);
    i.output(form.carried + k, found.collected[size_t(k)].dtype, std::move(shape));
  }
}

// Errors of control.h have the bare reason.
template <typename Call>
auto named(const Infer& i, const Call& call) {
  try {
    return call();
  } catch (const NeedsValues&) {
    throw;
  } catch (const Error& error) {
    i.reject(error.what());
  }
}

void infer_loop(Infer& i) {
  const InferScope scope;
  const Graph& graph =
      named(i, [&]() -> std::reference_wrapper<const Graph> { return body_of(i.attributes(), "body"); });
  const int inputs = std::max(i.inputs(), 2);
  const LoopForm form = named(i, [&] { return loop_form(i.op(), i.attributes(), inputs); });
  require_one(i, 0, "the count of iterations");
  require_one(i, 1, "the condition");
  std::vector<ValueInfo> known;
  for (int k = 0; k < inputs; ++k) {
    known.push_back(i.has(k) ? info_of(i, k) : ValueInfo());
    if (k >= form.conditions && k < form.conditions + form.carried) known.back() = without_content(known.back());
  }
  const int keep = i.has(1) ? known_condition(info_of(i, 1)) : 1;
  std::optional<int64_t> count;  // at most
  if (i.has(0)) {
    const auto m = i.values(0);
    if (m && m->size() == 1 && (*m)[0].known()) count = std::max<int64_t>(0, (*m)[0].value());
  }
  if (keep == 0) count = 0;
  // The iteration's number and condition have the shape that the body declares.
  for (int c = 0; c < form.conditions; ++c) {
    const std::optional<Shape>& declared = graph.value(graph.inputs[size_t(c)]).info.shape;
    known[size_t(c)] = {
        c ? DType::kBool : DType::kI64, declared && declared->size() == 1 ? Shape{Dim(1)} : Shape(), std::nullopt, {}};
  }
  known[1].values = std::vector<Dim>{1};  // where the body runs
  bool stays = false;
  if (count != 0) {
    const Body once = infer_body(i, graph, known);
    stays = known_condition(once.output(0)) == 1;
    const ValueInfo& condition = once.output(0);
    i.require(condition.dtype == DType::kBool || condition.dtype == DType::kNone,
              [&] { return fmt::format("its body's condition is {}, not bool", name(condition.dtype)); });
  }
  i.require(i.has(0) || !stays || keep == 0,
            "it has no count of iterations and its condition is always true: it would never end");
  std::optional<int64_t> trips;
  if (count == 0 || (count && stays && keep == 1)) trips = count;
  const Iterations found = follow(i, form, graph, known, trips);
  if (form.collected > 0 && !trips) {
    const int open = keep < 0 ? 1 : stays ? 0 : next_open(i);
    unresolved(i, i.has(open) && !i.constant(open) ? open : next_open(i),
               "how many values it collects depends on the run");
  }
  give_all(i, form, found, named(i, [&] { return scan_axes(i.attributes(), true, form.collected); }),
           Dim(trips.value_or(0)));
}

void infer_scan(Infer& i) {
  const InferScope scope;
  const Graph& graph =
      named(i, [&]() -> std::reference_wrapper<const Graph> { return body_of(i.attributes(), "body"); });
  const LoopForm form = named(i, [&] { return loop_form(i.op(), i.attributes(), i.inputs()); });
  i.require(form.scanned > 0, "num_scan_inputs has to be 1 at least");
  const std::vector<ScanAxis> axes = named(i, [&] { return scan_axes(i.attributes(), false, form.scanned); });
  std::vector<ValueInfo> known;
  std::optional<Dim> trips;
  for (int k = 0; k < i.inputs(); ++k) {
    known.push_back(k < form.carried ? without_content(info_of(i, k)) : info_of(i, k));
    const int scanned = k - form.carried;
    if (scanned < 0 || scanned >= form.scanned) continue;
    Shape shape = i.shape(k);
    const int axis = i.axis(axes[size_t(scanned)].axis, int(shape.size()));
    const Dim extent = shape[size_t(axis)];
    i.require(!trips || *trips == extent || !trips->known() || !extent.known(), [&] {
      return fmt::format("its scan inputs have {} and {} elements along their axes", trips->text(), extent.text());
    });
    if (!trips || !trips->known()) trips = extent;
    shape.erase(shape.begin() + axis);
    known.back() = {i.dtype(k), std::move(shape), std::nullopt, {}};
  }
  const std::optional<int64_t> count = trips->known() ? std::optional<int64_t>(trips->value()) : std::nullopt;
  const Iterations found = follow(i, form, graph, known, count);
  give_all(i, form, found, named(i, [&] { return scan_axes(i.attributes(), true, form.collected); }), *trips);
}

// The bodies' nodes for each iteration; a branch costs as much as the larger of the two.
Cost control_cost(const Problem& p) {
  Cost cost;
  const auto nodes_of = [](const Graph& body) {
    int64_t elements = 0;
    for (int v = 0; v < body.value_count(); ++v) {
      const Value& value = body.value(v);
      if (value.producer != kNoNode && value.info.shape && known(*value.info.shape))
        elements += element_count(extents(*value.info.shape));
    }
    return elements;
  };
  for (const std::string_view body : bodies_of(*p.op))
    cost.flops = std::max(cost.flops, nodes_of(body_of(p.attributes, body)));
  return cost;
}

constexpr std::string_view kWhyNoGradient =
    "control flow is not differentiated: unroll the loop or settle the condition";

constexpr InputSpec any(std::string_view name) {
  InputSpec spec{name, ~TypeSet(0), "*"};  // each of a type of its own
  spec.optional = true;
  spec.variadic = true;
  return spec;
}

constexpr OpSchema kIf = {
    .name = "If",
    .family = "control",
    .kind = OpKind::kOpaque,
    .doc = "The outputs of then_branch where the condition is true, else of else_branch. (ONNX If)",
    .versions = {1, 11, 13, 16, 19, 21, 23, 24, 25},
    .inputs = {{"cond", kBools}, any("captured")},
    .outputs = {{"output", false, true}},
    .attributes = {{"then_branch", AttributeType::kGraph, kRequired},
                   {"else_branch", AttributeType::kGraph, kRequired}},
    .infer = infer_if,
    .cost = control_cost,
    .reference = control_reference,
    .no_gradient = kWhyNoGradient,
    .samples = {"cond=bool[] captured0=f32[2,3] then_branch=twice else_branch=negated",
                "cond=bool[1] captured0=f32[0,5] then_branch=negated else_branch=twice",
                "cond=bool[] captured0=i64[4] then_branch=twice else_branch=twice"},
};

constexpr OpSchema kLoop = {
    .name = "Loop",
    .family = "control",
    .kind = OpKind::kOpaque,
    .doc =
        "Runs its body M times at most, as long as its condition holds; carries values over and collects others. "
        "(ONNX Loop)",
    .versions = {1, 11, 13, 16, 19, 21, 23, 24, 25},
    .inputs = {{"M", kInt64, "", true}, {"cond", kBools, "", true}, any("initial")},
    .outputs = {{"result", false, true}},
    .attributes = {{"body", AttributeType::kGraph, kRequired}, {"captures", 0}},
    .infer = infer_loop,
    .cost = control_cost,
    .reference = control_reference,
    .no_gradient = kWhyNoGradient,
    .samples = {"M=i64{3} initial0=f32[2,3] body=doubling outputs=2",
                "M=i64{0} initial0=f32[4] body=doubling outputs=2", "M=i64{5} initial0=f32[] body=doubling outputs=2",
                "M=i64{4} initial0=f32[1,2] body=growing outputs=1"},
};

constexpr OpSchema kScan = {
    .name = "Scan",
    .family = "control",
    .kind = OpKind::kOpaque,
    .doc =
        "Runs its body once for each element along the scanned axes; carries states over and collects outputs. "
        "(ONNX Scan)",
    .versions = {8, 9, 11, 16, 19, 21, 23, 24, 25},
    .inputs = {any("initial")},
    .outputs = {{"result", false, true}},
    .attributes = {{"body", AttributeType::kGraph, kRequired},
                   {"num_scan_inputs", AttributeType::kInt, kRequired},
                   {"scan_input_axes", AttributeType::kInts},
                   {"scan_input_directions", AttributeType::kInts},
                   {"scan_output_axes", AttributeType::kInts},
                   {"scan_output_directions", AttributeType::kInts},
                   {"captures", 0}},
    .infer = infer_scan,
    .cost = control_cost,
    .reference = control_reference,
    .no_gradient = kWhyNoGradient,
    .samples = {"initial0=f32[2] initial1=f32[3,2] body=summing num_scan_inputs=1 outputs=2",
                "initial0=f32[2] initial1=f32[2,5] body=summing num_scan_inputs=1 scan_input_axes=-1 "
                "scan_input_directions=1 scan_output_axes=1 scan_output_directions=1 outputs=2",
                "initial0=f32[0] initial1=f32[4,0] body=summing num_scan_inputs=1 outputs=2"},
};

constexpr const OpSchema* kOps[] = {&kIf, &kLoop, &kScan};

}  // namespace

std::span<const OpSchema* const> control_ops() { return kOps; }

}  // namespace ridgeline
