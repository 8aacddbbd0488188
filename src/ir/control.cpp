#include "ir/control.h"

#include <algorithm>
#include <cstring>

namespace ridgeline {
namespace {

// Counted over loops in loops: the outermost one starts anew.
struct Work {
  int depth = 0;
  int64_t nodes = 0, elements = 0, most_nodes = LoopLimits::kNodes;
};
thread_local Work work;

struct WorkScope {
  WorkScope() {
    if (work.depth++ == 0) work.nodes = work.elements = 0;
  }
  ~WorkScope() { --work.depth; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
};

void count_iteration(const Graph& body) {
  work.nodes += 1 + body.live_nodes() + int64_t(body.inputs.size());
  if (work.nodes > work.most_nodes) {
    fail(ErrorCode::kResource, "its iterations run more than {} nodes: the limit of loops that run node by node",
         work.most_nodes);
  }
}

void count_collected(const Tensor& tensor) {
  work.elements += tensor.elements();
  if (work.elements > LoopLimits::kElements) {
    fail(ErrorCode::kResource, "its iterations collect more than {} elements, the limit of loops",
         LoopLimits::kElements);
  }
}

int positive(int64_t axis, int rank, std::string_view what) {
  if (axis < -rank || axis >= rank)
    fail(ErrorCode::kBadModel, "{} is {}; allowed are {} to {}", what, axis, -rank, rank - 1);
  return int(axis < 0 ? axis + rank : axis);
}

Extents without_axis(const Extents& shape, int axis) {
  Extents out = shape;
  out.erase(out.begin() + axis);
  return out;
}

// Copies `count` elements; of types smaller than a byte one by one.
void copy_run(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
  const int bits = info(from.dtype()).bits;
  if (count == 0) return;
  if (bits % 8 == 0) {
    const int64_t bytes = bits / 8;
    std::memcpy(to.as<char>() + to_at * bytes, from.as<char>() + from_at * bytes, size_t(count * bytes));
    return;
  }
  for (int64_t k = 0; k < count; ++k) {
    if (is_float(from.dtype()))
      store_f64(to.dtype(), to.data(), to_at + k, from.f64(from_at + k));
    else
      store_i64(to.dtype(), to.data(), to_at + k, from.i64(from_at + k));
  }
}

// What a body that never ran would have given: its declared or inferred shape, unknown extents 0.
Tensor empty_collection(const Graph& body, ValueId output, const std::vector<Tensor>& inputs, int64_t axis) {
  Graph copy = body;
  for (size_t i = 0; i < copy.inputs.size(); ++i) {
    ValueInfo& info = copy.value(copy.inputs[i]).info;
    if (i < inputs.size() && inputs[i]) {
      info.dtype = inputs[i].dtype();
      info.shape = to_shape(inputs[i].shape());
    }
  }
  try {
    copy.infer();
  } catch (const Error&) {
    // It never runs.
  }
  const ValueInfo& info = copy.value(output).info;
  if (info.dtype == DType::kNone)
    fail(ErrorCode::kUnsupported, "unsupported: the type of an output that no iteration gives");
  Extents shape;
  if (info.shape)
    for (const Dim& d : *info.shape) shape.push_back(d.known() ? d.value() : 0);
  const int at = positive(axis, int(shape.size()) + 1, "the axis of an output");
  shape.insert(shape.begin() + at, 0);
  return Tensor::zeros(info.dtype, shape);
}

std::vector<Tensor> run_if(const Attributes& attributes, const std::vector<Tensor>& inputs, const RunBody& run_body) {
  const bool taken = single_integer(inputs.empty() ? Tensor() : inputs[0], "the condition") != 0;
  const Graph& body = body_of(attributes, taken ? "then_branch" : "else_branch");
  const std::vector<Tensor> captured(inputs.begin() + 1, inputs.end());
  if (captured.size() != body.inputs.size())
    fail(ErrorCode::kBadModel, "its branch reads {} values, {} are given", body.inputs.size(), captured.size());
  return run_body(body, taken ? 0 : 1, captured);
}

}  // namespace

LoopBudget::LoopBudget(int64_t nodes) : outer_(work.most_nodes) {
  if (work.depth++ == 0) work.nodes = work.elements = 0;
  work.most_nodes = std::min(work.most_nodes, work.nodes + nodes);
}
LoopBudget::~LoopBudget() {
  --work.depth;
  work.most_nodes = outer_;
}

bool has_bodies(const OpSchema& op) {
  return std::any_of(op.attributes.begin(), op.attributes.end(),
                     [](const AttributeSpec& spec) { return spec.type == AttributeSpec::Type::kGraph; });
}

std::vector<std::string_view> bodies_of(const OpSchema& op) {
  std::vector<std::string_view> out;
  for (const AttributeSpec& spec : op.attributes)
    if (spec.type == AttributeSpec::Type::kGraph) out.push_back(spec.name);
  return out;
}

const Graph& body_of(const Attributes& attributes, std::string_view attribute) {
  const AttributeValue* value = attributes.find(attribute);
  const auto* graph = value ? std::get_if<std::shared_ptr<const Graph>>(value) : nullptr;
  if (!graph || !*graph) fail(ErrorCode::kBadModel, "the attribute '{}' is missing", attribute);
  return **graph;
}

std::string body_label(std::string_view attribute) { return std::string(attribute.substr(0, attribute.find('_'))); }

LoopForm loop_form(const OpSchema& op, const Attributes& attributes, int inputs) {
  const Graph& body = body_of(attributes, "body");
  LoopForm form;
  form.conditions = op.name == "Loop" ? 2 : 0;
  const int64_t captures = attributes.integer(kCaptures, 0), scanned = attributes.integer("num_scan_inputs", 0);
  if (captures < 0 || captures > inputs || scanned < 0 || scanned > inputs)
    fail(ErrorCode::kBadModel, "it has {} inputs, {} of them scanned and {} captured", inputs, scanned, captures);
  form.captures = int(captures);
  form.scanned = int(scanned);
  form.carried = inputs - form.conditions - form.captures - form.scanned;
  form.collected = int(body.outputs.size()) - form.first_result() - form.carried;
  if (form.carried < 0 || int(body.inputs.size()) != inputs)
    fail(ErrorCode::kBadModel, "its body has {} inputs; the node gives {}", body.inputs.size(), inputs);
  if (form.collected < 0) {
    fail(ErrorCode::kBadModel, "its body has {} outputs; with {} values carried it needs {} at least",
         body.outputs.size(), form.carried, form.first_result() + form.carried);
  }
  return form;
}

std::vector<ScanAxis> scan_axes(const Attributes& attributes, bool outputs, int count) {
  const std::vector<int64_t> axes = attributes.integers(outputs ? "scan_output_axes" : "scan_input_axes");
  const std::vector<int64_t> directions =
      attributes.integers(outputs ? "scan_output_directions" : "scan_input_directions");
  for (const std::vector<int64_t>* list : {&axes, &directions}) {
    if (!list->empty() && int(list->size()) != count) {
      fail(ErrorCode::kBadModel, "{} of its {} {}; there are {}", list == &axes ? "axes" : "directions", list->size(),
           outputs ? "scan outputs are given" : "scan inputs are given", count);
    }
  }
  std::vector<ScanAxis> out(static_cast<size_t>(count));
  for (size_t k = 0; k < out.size(); ++k) {
    if (k < axes.size()) out[k].axis = axes[k];
    if (k >= directions.size()) continue;
    if (directions[k] != 0 && directions[k] != 1)
      fail(ErrorCode::kBadModel, "a direction is {}; allowed are 0 and 1", directions[k]);
    out[k].backwards = directions[k] == 1;
  }
  return out;
}

std::optional<Graph> bound_body(const Graph& around, const Node& node, std::string_view attribute, std::string& why) {
  Graph body = body_of(node.attributes, attribute);
  body.target = around.target;
  const auto info_of = [&](ValueId v) {
    ValueInfo info = around.value(v).info;
    info.constant = {};  // a plan's input stays one; captured constants are the body's own before that
    return info;
  };
  LoopForm form;
  size_t first = 1;  // an If's condition is none of its bodies' inputs
  std::vector<ScanAxis> axes;
  if (!node.is("If")) {
    form = loop_form(*node.op, node.attributes, int(node.inputs.size()));
    axes = scan_axes(node.attributes, false, form.scanned);
    first = 0;
  }
  for (const auto* operands : {&node.inputs, &node.outputs}) {
    for (const ValueId v : *operands) {
      if (v == kNoValue || info(around.value(v).dtype()).bits % 8 == 0) continue;
      why = fmt::format("'{}' is {}: no slice of it begins at a byte", around.value(v).name,
                        name(around.value(v).dtype()));
      return std::nullopt;
    }
  }
  for (size_t i = first; i < node.inputs.size(); ++i) {
    Value& value = body.value(body.inputs[i - first]);
    const int at = int(i), carried = at - form.conditions, scanned = carried - form.carried;
    if (at < form.conditions) {
      value.info.dtype = at == 0 ? DType::kI64 : DType::kBool;
      value.info.shape = value.info.shape && value.info.shape->size() == 1 ? Shape{Dim(1)} : Shape();
      if (at == 1) value.info.values = std::vector<Dim>{1};  // where the body runs
      continue;
    }
    value.info = info_of(node.inputs[i]);
    if (node.is("If") || scanned >= form.scanned) continue;
    value.info.values.reset();
    if (scanned < 0 || !value.info.shape) continue;
    Shape& shape = *value.info.shape;
    shape.erase(shape.begin() + positive(axes[size_t(scanned)].axis, int(shape.size()), "the axis of a scan input"));
  }
  try {
    const std::vector<Graph::Unresolved> open = body.infer();
    if (!open.empty()) why = open.front().reason;
  } catch (const Error& error) {
    why = error.what();
  }
  if (!why.empty()) return std::nullopt;
  for (const ValueId v : body.inputs) {
    if (body.value(v).info.shape) continue;
    why = fmt::format("the shape of '{}' is not known before the run", body.value(v).name);
    return std::nullopt;
  }
  for (int k = 0; k < form.carried; ++k) {
    const Value& now = body.value(body.inputs[size_t(form.conditions + k)]);
    const Value& next = body.value(body.outputs[size_t(form.first_result() + k)]);
    if (now.shape() == next.shape() && now.dtype() == next.dtype()) continue;
    why = fmt::format("the carried value '{}' changes from {} to {}", now.name, text(now.shape()), text(next.shape()));
    return std::nullopt;
  }
  return body;
}

int64_t single_integer(const Tensor& tensor, std::string_view what) {
  if (!tensor || is_float(tensor.dtype()) || tensor.elements() != 1) {
    fail(ErrorCode::kBadInput, "{} has to be one integer or bool, but is {}", what,
         tensor ? text(std::span<const int64_t>(tensor.shape())) : std::string("missing"));
  }
  return tensor.i64(0);
}

Tensor slice_at(const Tensor& tensor, int axis, int64_t index) {
  int64_t outer = 1, inner = 1;
  for (int a = 0; a < axis; ++a) outer *= tensor.shape()[size_t(a)];
  for (int a = axis + 1; a < tensor.rank(); ++a) inner *= tensor.shape()[size_t(a)];
  const Extents shape = without_axis(tensor.shape(), axis);
  const int bits = info(tensor.dtype()).bits;
  // Kernels want 64-byte alignment: a part that has it is used where it lies.
  if (outer == 1 && bits % 8 == 0 && (index * inner * bits / 8) % 64 == 0) {
    char* const at = tensor.as<char>() + index * inner * bits / 8;
    return Tensor::wrap(tensor.dtype(), shape, std::shared_ptr<void>(tensor.memory(), at));
  }
  Tensor out = Tensor::zeros(tensor.dtype(), shape);
  const int64_t extent = tensor.shape()[size_t(axis)];
  for (int64_t o = 0; o < outer; ++o) copy_run(tensor, (o * extent + index) * inner, out, o * inner, inner);
  return out;
}

Tensor stacked(const std::vector<Tensor>& parts, int64_t axis, bool backwards) {
  const Tensor& first = parts.at(0);
  const int at = positive(axis, first.rank() + 1, "the axis of an output");
  Extents shape = first.shape();
  shape.insert(shape.begin() + at, int64_t(parts.size()));
  Tensor out = Tensor::zeros(first.dtype(), shape);
  int64_t outer = 1, inner = 1;
  for (int a = 0; a < first.rank(); ++a) (a < at ? outer : inner) *= first.shape()[size_t(a)];
  const auto count = int64_t(parts.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = backwards ? count - 1 - i : i;
    for (int64_t o = 0; o < outer; ++o) copy_run(parts[size_t(i)], o * inner, out, (o * count + to) * inner, inner);
  }
  return out;
}

std::vector<Tensor> run_control(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& given,
                                const RunBody& run_body) {
  const WorkScope scope;
  if (op.name == "If") return run_if(attributes, given, run_body);
  const Graph& body = body_of(attributes, "body");
  std::vector<Tensor> inputs = given;
  if (op.name == "Loop" && inputs.size() < 2) inputs.resize(2);  // omitted ones at the end are not passed on
  const LoopForm form = loop_form(op, attributes, int(inputs.size()));
  const std::vector<ScanAxis> in = scan_axes(attributes, false, form.scanned);
  const std::vector<ScanAxis> out = scan_axes(attributes, true, form.collected);

  int64_t trips = INT64_MAX;
  bool keep = true;
  if (form.conditions > 0) {
    if (inputs[0]) trips = single_integer(inputs[0], "the count of iterations");
    if (inputs[1]) keep = single_integer(inputs[1], "the condition") != 0;
  }
  std::vector<int> axes;
  for (int k = 0; k < form.scanned; ++k) {
    const Tensor& scanned = inputs[size_t(form.conditions + form.carried + k)];
    axes.push_back(positive(in[size_t(k)].axis, scanned.rank(), "the axis of a scan input"));
    const int64_t extent = scanned.shape()[size_t(axes.back())];
    if (k > 0 && extent != trips)
      fail(ErrorCode::kBadInput, "its scan inputs have {} and {} elements along their axes", trips, extent);
    trips = extent;
  }

  // The body's inputs, which change in place from one iteration to the next.
  std::vector<Tensor> now = inputs;
  const auto formal = [&](int i, DType dtype) {  // [] or [1], as the body declares it
    const std::optional<Shape>& shape = body.value(body.inputs[size_t(i)]).info.shape;
    return Tensor::zeros(dtype, shape && shape->size() == 1 ? Extents{1} : Extents{});
  };
  std::vector<std::vector<Tensor>> collected(static_cast<size_t>(form.collected));
  for (int64_t i = 0; keep && i < trips; ++i) {
    count_iteration(body);
    if (form.conditions > 0) {
      now[0] = formal(0, DType::kI64);
      store_i64(DType::kI64, now[0].data(), 0, i);
      now[1] = formal(1, DType::kBool);
      store_i64(DType::kBool, now[1].data(), 0, 1);
    }
    for (int k = 0; k < form.scanned; ++k) {
      const auto at = size_t(form.conditions + form.carried + k);
      now[at] = slice_at(inputs[at], axes[size_t(k)], in[size_t(k)].backwards ? trips - 1 - i : i);
    }
    const std::vector<Tensor> results = run_body(body, 0, now);
    if (form.conditions > 0) keep = single_integer(results[0], "the body's condition") != 0;
    for (int k = 0; k < form.carried; ++k) {
      Tensor& value = now[size_t(form.conditions + k)];
      const Tensor& next = results[size_t(form.first_result() + k)];
      if (next.dtype() != value.dtype()) {
        fail(ErrorCode::kBadModel, "its body turns the carried value {} from {} into {}", k, name(value.dtype()),
             name(next.dtype()));
      }
      value = next;
    }
    for (int k = 0; k < form.collected; ++k) {
      const Tensor& part = results[size_t(form.first_result() + form.carried + k)];
      std::vector<Tensor>& list = collected[size_t(k)];
      if (!list.empty() && list[0].shape() != part.shape()) {
        fail(ErrorCode::kBadModel, "its body's output {} is {} in one iteration and {} in another",
             form.first_result() + form.carried + k, text(std::span<const int64_t>(list[0].shape())),
             text(std::span<const int64_t>(part.shape())));
      }
      count_collected(part);
      list.push_back(part);
    }
  }
  std::vector<Tensor> outputs(now.begin() + form.conditions, now.begin() + form.conditions + form.carried);
  for (int k = 0; k < form.collected; ++k) {
    const ScanAxis& axis = out[size_t(k)];
    const std::vector<Tensor>& parts = collected[size_t(k)];
    if (!parts.empty()) {
      outputs.push_back(stacked(parts, axis.axis, axis.backwards));
      continue;
    }
    const ValueId value = body.outputs[size_t(form.first_result() + form.carried + k)];
    std::vector<Tensor> known = now;
    for (int s = 0; s < form.scanned; ++s) {  // what a slice would look like
      Tensor& scanned = known[size_t(form.conditions + form.carried + s)];
      scanned = Tensor::zeros(scanned.dtype(), without_axis(scanned.shape(), axes[size_t(s)]));
    }
    for (int c = 0; c < form.conditions; ++c) known[size_t(c)] = formal(c, c ? DType::kBool : DType::kI64);
    outputs.push_back(empty_collection(body, value, known, axis.axis));
  }
  return outputs;
}

}  // namespace ridgeline
