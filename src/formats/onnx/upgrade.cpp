// Source of every rule: the change log of the ONNX operators (docs/Changelog.md there), opsets 7 to 28
// (upgrade_before_7.cpp: 1 to 6).
#include "formats/onnx/upgrade.h"

#include <algorithm>

#include "formats/onnx/upgrade_before_7.h"
#include "ridgeline/error.h"

namespace ridgeline {

void NodeForm::set_input(int input, ValueId value) {
  if (int(inputs.size()) <= input) inputs.resize(size_t(input) + 1, kNoValue);
  inputs[size_t(input)] = value;
}

ValueId NodeForm::constant(const std::string& what, Tensor tensor) {
  return graph.add_constant(graph.fresh_name(name + "/" + what), std::move(tensor));
}

ValueId NodeForm::integers(const std::string& what, const std::vector<int64_t>& values) {
  return constant(what, Tensor::from<int64_t>({int64_t(values.size())}, values));
}

ValueId NodeForm::before(const std::string& op_name, std::vector<ValueId> operands, Attributes with) {
  const OpSchema* schema = find_op(op_name);
  if (!schema) fail(ErrorCode::kUnsupported, "its new form needs the operator {}", op_name);
  const NodeId id = graph.add_node(*schema, std::move(operands), std::move(with), 1, {}, name + "/" + op_name);
  graph.node(id).origin = {name};
  return graph.node(id).output(0);
}

namespace {

ValueId scalar_like(NodeForm& form, const std::string& what, double value) {
  return form.constant(what, Tensor::scalar_of(form.graph.value(form.inputs[0]).dtype(), value));
}

void need_input(const NodeForm& form) {
  if (!form.has(0)) fail(ErrorCode::kBadModel, "input 0 is missing");
}

void axes_to_input(NodeForm& form) {
  if (form.inputs.size() > 1)
    fail(ErrorCode::kBadModel, "in opset {} it has one input, here are {}", form.opset, form.inputs.size());
  const std::vector<int64_t> axes = form.attributes.integers("axes");
  form.attributes.erase("axes");
  if (!axes.empty()) form.set_input(1, form.integers("axes", axes));
}

void slice(NodeForm& form) {
  if (!form.attributes.has("starts") || !form.attributes.has("ends"))
    fail(ErrorCode::kBadModel, "attributes 'starts' and 'ends' are required");
  form.set_input(1, form.integers("starts", form.attributes.integers("starts")));
  form.set_input(2, form.integers("ends", form.attributes.integers("ends")));
  if (form.attributes.has("axes")) form.set_input(3, form.integers("axes", form.attributes.integers("axes")));
  for (const char* key : {"starts", "ends", "axes"}) form.attributes.erase(key);
}

void clip(NodeForm& form) {
  need_input(form);
  const char* keys[] = {"min", "max"};
  for (int i = 0; i < 2; ++i) {
    if (!form.attributes.has(keys[i])) continue;
    form.set_input(i + 1, scalar_like(form, keys[i], form.attributes.number(keys[i], 0)));
    form.attributes.erase(keys[i]);
  }
}

void pad(NodeForm& form) {
  need_input(form);
  if (!form.attributes.has("pads")) fail(ErrorCode::kBadModel, "attribute 'pads' is required");
  form.set_input(1, form.integers("pads", form.attributes.integers("pads")));
  const double value = form.attributes.number("value", 0);
  if (value != 0) form.set_input(2, scalar_like(form, "value", value));
  form.attributes.erase("pads");
  form.attributes.erase("value");
}

// Up to opset 12 the input is seen as a matrix, split before `axis` (default 1), and each row is one distribution.
void softmax(NodeForm& form) {
  need_input(form);
  const ValueId x = form.inputs[0];
  const std::optional<Shape>& shape = form.graph.value(x).info.shape;
  if (!shape)
    fail(ErrorCode::kUnsupported, "form of opset {} on an input of unknown rank; opset 13 and newer have no need of it",
         form.opset);
  const int rank = int(shape->size());
  const int64_t given = form.attributes.integer("axis", 1);
  if (given < -rank || given > rank) fail(ErrorCode::kBadModel, "axis {} is out of range for rank {}", given, rank);
  const int64_t axis = given < 0 ? given + rank : given;
  const auto is_one = [](const Dim& d) { return d.is(1); };
  if (axis < rank &&
      std::all_of(shape->begin() + axis + 1, shape->end(), is_one)) {  // one axis that matters: the usual case
    form.attributes.set("axis", axis - rank);
    return;
  }
  Attributes flatten, last;
  flatten.set("axis", axis);
  last.set("axis", int64_t(-1));
  const ValueId rows = form.before("Flatten", {x}, std::move(flatten));
  const ValueId result = form.before(form.op, {rows}, std::move(last));
  const ValueId old_shape = form.before("Shape", {x});
  form.op = "Reshape";
  form.inputs = {result, old_shape};
  form.attributes = Attributes();
}

void batch_normalization(NodeForm& form) {
  if (form.attributes.integer("spatial", 1) != 1)
    fail(ErrorCode::kUnsupported, "spatial = 0 (statistics per position) has no newer form; supported: spatial = 1");
  if (form.outputs > 1)
    fail(ErrorCode::kUnsupported, "{} outputs (training) in opset {}; supported: one output, or opset 14 and newer",
         form.outputs, form.opset);
  form.attributes.erase("spatial");
}

void dropout(NodeForm& form) {  // inference by definition; the ratio has no say
  form.attributes.erase("ratio");
  if (form.opset < 10 && form.outputs > 1)
    fail(ErrorCode::kUnsupported, "a mask of floats (before opset 10); supported: one output, or opset 10 and newer");
}

void split_to_input(NodeForm& form) {
  if (!form.attributes.has("split")) return;
  form.set_input(1, form.integers("split", form.attributes.integers("split")));
  form.attributes.erase("split");
}

void split_counts(NodeForm& form) {
  if (!form.has(1)) form.attributes.set("num_outputs", int64_t(form.outputs));
}

void top_k(NodeForm& form) {
  if (!form.attributes.has("k")) fail(ErrorCode::kBadModel, "attribute 'k' is required");
  form.set_input(1, form.integers("k", {form.attributes.integer("k", 0)}));
  form.attributes.erase("k");
}

void resize_mode(NodeForm& form, const char* nearest) {
  const std::string mode = form.attributes.string("mode", "nearest");
  if (mode != "nearest" && mode != "linear" && mode != "bilinear")
    fail(ErrorCode::kBadModel, "mode '{}' is none of nearest, linear", mode);
  form.attributes.set("mode", mode == "bilinear" ? std::string("linear") : mode);
  form.attributes.set("coordinate_transformation_mode", std::string("asymmetric"));
  form.attributes.set("nearest_mode", std::string(nearest));
  if (form.has(1)) {  // X, scales -> X, roi, scales
    const ValueId scales = form.inputs[1];
    form.inputs = {form.inputs[0], kNoValue, scales};
  }
}

void upsample(NodeForm& form) {
  need_input(form);
  if (form.opset < 9) {
    const std::vector<double> scales = form.attributes.numbers("scales");
    if (scales.empty()) fail(ErrorCode::kBadModel, "attribute 'scales' is required");
    form.set_input(1, form.constant("scales", Tensor::from<float>({int64_t(scales.size())},
                                                                  std::vector<float>(scales.begin(), scales.end()))));
    form.attributes.erase("scales");
  }
  resize_mode(form, "floor");
  form.op = "Resize";
}

// The operator text is silent about nearest-neighbour rounding; its example and the usual runtime take the floor when
// enlarging and the ceiling when shrinking.
void resize_10(NodeForm& form) {
  need_input(form);
  bool grows = false, shrinks = false;
  const Tensor* scales = form.has(1) ? form.graph.constant(form.inputs[1]) : nullptr;
  if (scales && is_float(scales->dtype()) && scales->elements() <= 64) {
    for (int64_t i = 0; i < scales->elements(); ++i) {
      grows |= scales->f64(i) > 1;
      shrinks |= scales->f64(i) < 1;
    }
  }
  if (grows && shrinks && form.attributes.string("mode", "nearest") == "nearest") {
    fail(ErrorCode::kUnsupported,
         "mode nearest that enlarges one axis and shrinks another (opset 10); supported: opset 11 and newer");
  }
  resize_mode(form, shrinks ? "ceil" : "floor");
}

// Before opset 13 an input that is not wanted was an empty tensor; exporters still write it so.
void resize_empty_inputs(NodeForm& form) {
  for (int i = 1; i < int(form.inputs.size()); ++i) {
    if (!form.has(i)) continue;
    const std::optional<Shape>& shape = form.graph.value(form.inputs[size_t(i)]).info.shape;
    if (shape && shape->size() == 1 && (*shape)[0].is(0)) form.inputs[size_t(i)] = kNoValue;
  }
}

void scatter(NodeForm& form) { form.op = "ScatterElements"; }

void roi_align(NodeForm& form) {
  if (!form.attributes.has("coordinate_transformation_mode"))
    form.attributes.set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

void grid_sample(NodeForm& form) {
  const std::string mode = form.attributes.string("mode", "bilinear");
  form.attributes.set("mode", mode == "bilinear"  ? std::string("linear")
                              : mode == "bicubic" ? std::string("cubic")
                                                  : mode);
}

// Opset 18 has a scale and a bias per group, opset 21 per channel.
void group_normalization(NodeForm& form) {
  need_input(form);
  const int64_t groups = form.attributes.integer("num_groups", 0);
  const std::optional<Shape>& shape = form.graph.value(form.inputs[0]).info.shape;
  if (!shape || shape->size() < 2 || !(*shape)[1].known())
    fail(ErrorCode::kUnsupported, "scale per group (opset 18) with an unknown number of channels");
  const int64_t channels = (*shape)[1].value();
  if (groups < 1 || channels % groups != 0)
    fail(ErrorCode::kBadModel, "{} channels do not make {} groups", channels, groups);
  for (int i = 1; i <= 2; ++i) {
    if (!form.has(i)) continue;
    const ValueId column = form.before("Unsqueeze", {form.inputs[size_t(i)], form.integers("axis", {1})});
    const ValueId wide = form.before("Expand", {column, form.integers("per_group", {groups, channels / groups})});
    form.inputs[size_t(i)] = form.before("Reshape", {wide, form.integers("channels", {channels})});
  }
}

void dft(NodeForm& form) {
  form.set_input(2, form.constant("axis", Tensor::scalar<int64_t>(form.attributes.integer("axis", 1))));
  form.attributes.erase("axis");
}

// The shape becomes an input, as ConstantOfShape has it.
void random_shape(NodeForm& form) {
  if (!form.inputs.empty()) fail(ErrorCode::kBadModel, "it has no inputs, here are {}", form.inputs.size());
  if (!form.attributes.has("shape")) fail(ErrorCode::kBadModel, "attribute 'shape' is required");
  form.set_input(0, form.integers("shape", form.attributes.integers("shape")));
  form.attributes.erase("shape");
}

// A node without a seed has one of its own, so that two of them differ and every run gives the same numbers: FNV-1a of
// its name, as many bits as a float holds.
void seed(NodeForm& form) {
  if (form.attributes.has("seed")) return;
  uint32_t hash = 2166136261u;
  for (const char c : form.name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  form.attributes.set("seed", double(1 + (hash ^ hash >> 24) % (1u << 23)));
}

struct Rule {
  std::string_view op;
  int before;  // forms of opsets older than this
  void (*apply)(NodeForm&);
};

constexpr int kEvery = 1 << 30;
// Applied in this order; a rule may rename the operator for the rules after it.
constexpr Rule kRules[] = {
    {"Upsample", 10, upsample},
    {"Scatter", kEvery, scatter},
    {"Squeeze", 13, axes_to_input},
    {"Unsqueeze", 13, axes_to_input},
    {"ReduceSum", 13, axes_to_input},
    {"ReduceL1", 18, axes_to_input},
    {"ReduceL2", 18, axes_to_input},
    {"ReduceLogSum", 18, axes_to_input},
    {"ReduceLogSumExp", 18, axes_to_input},
    {"ReduceMax", 18, axes_to_input},
    {"ReduceMean", 18, axes_to_input},
    {"ReduceMin", 18, axes_to_input},
    {"ReduceProd", 18, axes_to_input},
    {"ReduceSumSquare", 18, axes_to_input},
    {"Slice", 10, slice},
    {"Clip", 11, clip},
    {"Pad", 11, pad},
    {"Softmax", 13, softmax},
    {"LogSoftmax", 13, softmax},
    {"Hardmax", 13, softmax},
    {"BatchNormalization", 14, batch_normalization},
    {"Dropout", 12, dropout},
    {"Split", 13, split_to_input},
    {"Split", 18, split_counts},
    {"TopK", 10, top_k},
    {"Resize", 11, resize_10},
    {"Resize", kEvery, resize_empty_inputs},
    {"RoiAlign", 16, roi_align},
    {"GridSample", 20, grid_sample},
    {"GroupNormalization", 21, group_normalization},
    {"DFT", 20, dft},
    {"RandomNormal", kEvery, random_shape},
    {"RandomUniform", kEvery, random_shape},
    {"RandomNormal", kEvery, seed},
    {"RandomUniform", kEvery, seed},
    {"RandomNormalLike", kEvery, seed},
    {"RandomUniformLike", kEvery, seed},
    {"Bernoulli", kEvery, seed},
    {"Multinomial", kEvery, seed},
};

}  // namespace

std::string newest_name(const std::string& op, const std::string& domain, int64_t opset) {
  if (domain.empty() && op == "Upsample" && opset < 10) return "Resize";
  if (domain.empty() && op == "Scatter") return "ScatterElements";
  return op;
}

void upgrade(NodeForm& form) {
  if (!form.domain.empty()) return upgrade_contributed(form);
  const std::string written = form.op;
  if (form.opset < 7) upgrade_to_7(form);
  for (const Rule& rule : kRules) {
    if (form.opset < rule.before && form.op == rule.op) {
      // Upsample becomes Resize complete: the rule for Resize-10 would take it for that operator's old form.
      if (written == "Upsample" && rule.apply == resize_10) continue;
      rule.apply(form);
    }
  }
}

}  // namespace ridgeline
