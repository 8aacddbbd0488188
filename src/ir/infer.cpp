#include "ir/infer.h"

#include <algorithm>

#include "ir/graph.h"

namespace ridgeline {
namespace {

// Content of integer tensors this long is worth following (shapes, axes, pads, split sizes).
constexpr int64_t kMostKnownValues = 1024;

const AttributeSpec* spec_of(const OpSchema& op, std::string_view attribute) {
  for (const AttributeSpec& spec : op.attributes) {
    if (spec.name == attribute) return &spec;
  }
  return nullptr;
}

}  // namespace

std::string text(TypeSet set) {
  std::string out;
  for (int i = 1; i < kDTypeCount; ++i) {
    if (contains(set, DType(i))) out += (out.empty() ? "" : ", ") + std::string(name(DType(i)));
  }
  return out;
}

std::string_view name(OpKind kind) {
  constexpr std::string_view kNames[] = {"elementwise", "reduction", "contraction", "movement", "opaque"};
  return kNames[size_t(kind)];
}

int64_t schema_integer(const OpSchema& op, const Attributes& attributes, std::string_view attribute) {
  const AttributeSpec* spec = spec_of(op, attribute);
  return attributes.integer(attribute, spec ? spec->integer : 0);
}
double schema_number(const OpSchema& op, const Attributes& attributes, std::string_view attribute) {
  const AttributeSpec* spec = spec_of(op, attribute);
  return attributes.number(attribute,
                           spec ? (spec->type == AttributeSpec::Type::kInt ? double(spec->integer) : spec->number) : 0);
}
std::string schema_string(const OpSchema& op, const Attributes& attributes, std::string_view attribute) {
  const AttributeSpec* spec = spec_of(op, attribute);
  return attributes.string(attribute, spec ? spec->string : std::string_view());
}

Infer::Infer(const OpSchema& op, const Attributes& attributes, std::string node_name,
             std::vector<const ValueInfo*> inputs, int outputs)
    : op_(op),
      attributes_(attributes),
      node_name_(std::move(node_name)),
      inputs_(std::move(inputs)),
      results_(size_t(outputs)) {
  while (!inputs_.empty() && !inputs_.back()) inputs_.pop_back();
}

void Infer::reject(const std::string& message) const {
  fail(ErrorCode::kBadModel, "node '{}' ({}): {}", node_name_, op_.name, message);
}

DType Infer::dtype(int input) const {
  if (!has(input)) reject(fmt::format("input {} is missing", input));
  return inputs_[size_t(input)]->dtype;
}

const Shape& Infer::shape(int input) const {
  if (!has(input)) reject(fmt::format("input {} is missing", input));
  const ValueInfo& info = *inputs_[size_t(input)];
  if (!info.shape)
    throw NeedsValues(input,
                      fmt::format("node '{}' ({}): the rank of input {} is unknown", node_name_, op_.name, input));
  return *info.shape;
}

std::optional<std::vector<Dim>> Infer::values(int input) const {
  if (!has(input)) return std::nullopt;
  const ValueInfo& info = *inputs_[size_t(input)];
  if (info.values) return info.values;
  if (!info.constant || is_float(info.dtype) || info.constant.rank() > 1 || info.constant.elements() > kMostKnownValues)
    return std::nullopt;
  std::vector<Dim> dims;
  for (int64_t v : info.constant.to_i64()) dims.push_back(v);
  return dims;
}

std::vector<Dim> Infer::need_values(int input) const {
  if (auto known = values(input)) return *known;
  const std::string_view what = input < op_.inputs.size() ? op_.inputs[input].name : "input";
  throw NeedsValues(input, fmt::format("node '{}' ({}): unsupported: the output's shape depends on the content of "
                                       "input '{}', which is computed at run time",
                                       node_name_, op_.name, what));
}

std::vector<int64_t> Infer::need_integers(int input) const {
  std::vector<int64_t> out;
  for (const Dim& d : need_values(input)) {
    if (!d.known())
      throw NeedsValues(input, fmt::format("node '{}' ({}): unsupported: input {} depends on the symbolic dimension {}",
                                           node_name_, op_.name, input, d.text()));
    out.push_back(d.value());
  }
  return out;
}

const Tensor* Infer::constant(int input) const {
  return has(input) && inputs_[size_t(input)]->constant ? &inputs_[size_t(input)]->constant : nullptr;
}

int64_t Infer::integer(std::string_view name) const { return schema_integer(op_, attributes_, name); }
double Infer::number(std::string_view name) const { return schema_number(op_, attributes_, name); }
std::string Infer::string(std::string_view name) const { return schema_string(op_, attributes_, name); }
std::vector<int64_t> Infer::integers(std::string_view name, std::vector<int64_t> fallback) const {
  return attributes_.integers(name, std::move(fallback));
}

int Infer::axis(int64_t axis, int rank) const {
  if (rank == 0) reject(fmt::format("axis {}: a scalar has no axes", axis));
  if (axis < -rank || axis >= rank)
    reject(fmt::format("axis {} is out of range for rank {}: allowed are {} to {}", axis, rank, -rank, rank - 1));
  return int(axis < 0 ? axis + rank : axis);
}

std::vector<int> Infer::axes(const std::vector<int64_t>& axes, int rank) const {
  std::vector<int> out;
  for (int64_t a : axes) out.push_back(axis(a, rank));
  std::sort(out.begin(), out.end());
  for (size_t i = 1; i < out.size(); ++i) {
    if (out[i] == out[i - 1]) reject(fmt::format("axis {} is given twice", out[i]));
  }
  return out;
}

Shape Infer::broadcast_shape(const std::vector<int>& inputs) const {
  Shape out;
  for (int input : inputs) {
    const Shape& s = shape(input);
    Shape joined(std::max(out.size(), s.size()), Dim(1));
    for (size_t i = 0; i < joined.size(); ++i) {
      const Dim a = i + out.size() < joined.size() ? Dim(1) : out[i + out.size() - joined.size()];
      const Dim b = i + s.size() < joined.size() ? Dim(1) : s[i + s.size() - joined.size()];
      if (!broadcast(a, b, joined[i])) {
        reject(fmt::format("the shapes {} and {} do not broadcast: each pair of extents must be equal or one of them 1",
                           text(out), text(s)));
      }
    }
    out = std::move(joined);
  }
  return out;
}

void Infer::output(int output, DType dtype, Shape shape) {
  if (output >= outputs()) return;
  for (const Dim& d : shape) {
    if (d.known() && d.value() < 0)
      reject(fmt::format("the output's shape {} would have a negative extent", text(shape)));
  }
  if (known(shape)) {
    try {
      element_count(extents(shape));
    } catch (const Error& error) {
      reject(fmt::format("the output: {}", error.what()));
    }
  }
  results_[size_t(output)].dtype = dtype;
  results_[size_t(output)].shape = std::move(shape);
}

void Infer::output_values(int output, std::vector<Dim> values) {
  if (output < outputs() && int64_t(values.size()) <= kMostKnownValues)
    results_[size_t(output)].values = std::move(values);
}

void infer_elementwise(Infer& i) {
  std::vector<int> present;
  std::vector<DType> dtypes;
  for (int k = 0; k < i.inputs(); ++k) {
    if (i.has(k)) present.push_back(k);
    dtypes.push_back(i.has(k) ? i.dtype(k) : DType::kNone);
  }
  DType result = i.op().result;
  if (result == DType::kNone) {
    if (i.op().name == "Cast") {
      result = dtype_of_onnx(int(i.integer("to")));
      i.require(result != DType::kNone, fmt::format("unsupported: cast to the type numbered {}", i.integer("to")));
    } else if (i.op().name == "CastLike") {
      result = i.dtype(1);
    } else {
      result = i.dtype(i.op().name == "Where" ? 1 : 0);
    }
  }
  const bool only_first =
      i.op().name == "CastLike" || i.op().name == "Clip";  // the others give a type or scalar bounds
  const Shape shape = i.broadcast_shape(only_first ? std::vector<int>{0} : present);
  i.output(0, result, shape);

  // Shape arithmetic: small integer contents are followed, numbers exactly, symbols through + - * / min max.
  if (shape.size() > 1 || is_float(result)) return;
  std::vector<std::vector<Dim>> contents;
  for (int k : present) {
    auto content = i.values(k);
    if (!content) return;
    contents.push_back(std::move(*content));
  }
  if (!known(shape)) return;
  const int64_t count = shape.empty() ? 1 : shape[0].value();
  if (count > kMostKnownValues) return;
  auto at = [&](size_t k, int64_t n) { return contents[k].size() == 1 ? contents[k][0] : contents[k][size_t(n)]; };
  bool numbers = true;
  for (const auto& content : contents)
    for (const Dim& d : content) numbers = numbers && d.known();
  std::vector<Dim> out;
  if (numbers) {
    for (DType d : dtypes)
      if (is_float(d)) return;
    const Program program = program_of(i.op(), i.attributes(), dtypes);
    for (int64_t n = 0; n < count; ++n) {
      std::vector<ScalarValue> x;
      for (size_t k = 0; k < contents.size(); ++k) x.push_back({0, at(k, n).value()});
      if (x.size() > program.inputs.size()) x.resize(program.inputs.size());
      ScalarValue y;
      evaluate(program, x, {&y, 1});
      out.push_back(y.i);
    }
  } else {
    const std::string_view name = i.op().name;
    for (int64_t n = 0; n < count; ++n) {
      if (name == "Add")
        out.push_back(at(0, n) + at(1, n));
      else if (name == "Sub")
        out.push_back(at(0, n) - at(1, n));
      else if (name == "Mul")
        out.push_back(at(0, n) * at(1, n));
      else if (name == "Div")
        out.push_back(floor_div(at(0, n), at(1, n)));
      else if (name == "Min" && contents.size() == 2)
        out.push_back(min(at(0, n), at(1, n)));
      else if (name == "Max" && contents.size() == 2)
        out.push_back(max(at(0, n), at(1, n)));
      else if (name == "Cast" && is_integer(result))
        out.push_back(at(0, n));
      else if (name == "Equal") {
        // An extent never equals a negative number; that is all exporters ask (`shape == -1`).
        const Dim a = at(0, n), b = at(1, n);
        if (a == b)
          out.push_back(1);
        else if ((a.known() && a.value() < 0) || (b.known() && b.value() < 0))
          out.push_back(0);
        else
          return;
      } else if (name == "Where") {
        if (!at(0, n).known()) return;
        out.push_back(at(0, n).value() ? at(1, n) : at(2, n));
      } else {
        return;
      }
    }
  }
  i.output_values(0, std::move(out));
}

std::vector<ValueInfo> infer_node(const OpSchema& op, const Attributes& attributes, const std::string& node_name,
                                  const std::vector<const ValueInfo*>& inputs, int outputs) {
  Infer i(op, attributes, node_name, inputs, outputs);
  const bool variadic = !op.inputs.empty() && op.inputs[op.inputs.size() - 1].variadic;
  if (i.inputs() > op.inputs.size() && !variadic)
    i.reject(fmt::format("has {} inputs, the operator takes at most {}", i.inputs(), op.inputs.size()));
  if (outputs > op.outputs.size() && !(op.outputs.size() && op.outputs[op.outputs.size() - 1].variadic)) {
    i.reject(fmt::format("has {} outputs, the operator gives at most {}", outputs, op.outputs.size()));
  }
  for (int k = 0; k < std::max(op.inputs.size(), i.inputs()); ++k) {
    const InputSpec& spec = op.inputs[std::min(k, op.inputs.size() - 1)];
    if (!i.has(k)) {
      if (!spec.optional && k < op.inputs.size()) i.reject(fmt::format("input {} ('{}') is missing", k, spec.name));
      continue;
    }
    const DType dtype = i.dtype(k);
    if (dtype == DType::kNone) continue;  // not known yet
    if (!contains(spec.types, dtype)) {
      fail(ErrorCode::kUnsupported, "node '{}' ({}): unsupported: input '{}' is {}; allowed are {}", node_name, op.name,
           spec.name, name(dtype), text(spec.types));
    }
    const std::string_view like =
        spec.variadic && k >= op.inputs.size() ? (spec.same_as.empty() ? spec.name : spec.same_as) : spec.same_as;
    const int declared = like.empty() ? 0 : std::min(k, op.inputs.size());  // a variadic one stands for many
    for (int j = 0; j < declared; ++j) {
      if (op.inputs[j].name == like && i.has(j) && i.dtype(j) != DType::kNone && i.dtype(j) != dtype) {
        i.reject(fmt::format("input '{}' is {}, but must have the type of '{}', which is {}", spec.name, name(dtype),
                             like, name(i.dtype(j))));
      }
    }
  }
  for (const AttributeSpec& spec : op.attributes) {
    if (spec.presence == AttributeSpec::Presence::kRequired && !attributes.has(spec.name))
      i.reject(fmt::format("the attribute '{}' is missing", spec.name));
  }
  if (op.infer)
    op.infer(i);
  else
    infer_elementwise(i);
  for (int o = 0; o < outputs; ++o) {
    if (i.results()[size_t(o)].dtype == DType::kNone || !i.results()[size_t(o)].shape) {
      if (op.outputs.size() > o && op.outputs[o].optional) continue;
      i.reject(fmt::format("output {} was not inferred", o));
    }
  }
  return std::move(i.results());
}

}  // namespace ridgeline
