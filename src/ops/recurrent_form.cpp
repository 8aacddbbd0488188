#include "ir/problem.h"
#include "ops/common.h"
#include "ops/recurrent.h"

namespace ridgeline {
namespace {

struct FunctionSpec {
  std::string_view name;
  GateFunction function;
  bool alpha, beta;  // does it take one?
  float default_alpha, default_beta;
};
constexpr FunctionSpec kFunctions[] = {
    {"Sigmoid", GateFunction::kSigmoid, false, false, 0, 0},
    {"Tanh", GateFunction::kTanh, false, false, 0, 0},
    {"Relu", GateFunction::kRelu, false, false, 0, 0},
    {"Affine", GateFunction::kAffine, true, true, 1, 0},
    {"LeakyRelu", GateFunction::kLeakyRelu, true, false, 0.01f, 0},
    {"ThresholdedRelu", GateFunction::kThresholdedRelu, true, false, 1, 0},
    {"ScaledTanh", GateFunction::kScaledTanh, true, true, 1, 1},
    {"HardSigmoid", GateFunction::kHardSigmoid, true, true, 0.2f, 0.5f},
    {"Elu", GateFunction::kElu, true, false, 1, 0},
    {"Softsign", GateFunction::kSoftsign, false, false, 0, 0},
    {"Softplus", GateFunction::kSoftplus, false, false, 0, 0},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return out;
}

const FunctionSpec* find_function(std::string_view name) {
  for (const FunctionSpec& spec : kFunctions)
    if (lower(spec.name) == lower(name)) return &spec;  // exporters differ in case
  return nullptr;
}

std::vector<std::string> activation_names(const RecurrentForm& form, const Attributes& attributes) {
  if (const AttributeValue* value = attributes.find("activations")) {
    if (const auto* list = std::get_if<std::vector<std::string>>(value)) return *list;
    if (const auto* one = std::get_if<std::string>(value)) return {*one};
    return {};
  }
  std::vector<std::string> names;
  for (int d = 0; d < form.directions; ++d) {
    if (form.kind != CellKind::kRnn) names.emplace_back("Sigmoid");
    names.emplace_back("Tanh");
    if (form.kind == CellKind::kLstm) names.emplace_back("Tanh");
  }
  return names;
}

// A list of values that the functions take in their order, those that have no such parameter taking none.
struct Taken {
  std::vector<double> values;
  size_t next = 0;
  float take(bool wanted, float fallback) { return wanted && next < values.size() ? float(values[next++]) : fallback; }
};

void read_activations(RecurrentForm& form, const Attributes& attributes) {
  std::vector<std::string> names = activation_names(form, attributes);
  const size_t wanted = size_t(form.functions * form.directions);
  // RNN's default names both directions; of a node with one direction the first counts.
  if (form.kind == CellKind::kRnn && form.directions == 1 && names.size() == 2 && names[0] == names[1])
    names.pop_back();
  if (names.size() != wanted) {
    form.refusal = fmt::format("'activations' names {} functions; allowed: {}, {} for each direction", names.size(),
                               wanted, form.functions);
    return;
  }
  Taken alpha{attributes.numbers("activation_alpha")}, beta{attributes.numbers("activation_beta")};
  for (const std::string& name : names) {
    const FunctionSpec* spec = find_function(name);
    if (!spec) {
      std::string known;
      for (const FunctionSpec& each : kFunctions) known += (known.empty() ? "" : ", ") + std::string(each.name);
      form.refusal = fmt::format("activation '{}' is not known; allowed: {}", name, known);
      return;
    }
    form.activation.push_back(
        {spec->function, alpha.take(spec->alpha, spec->default_alpha), beta.take(spec->beta, spec->default_beta)});
  }
  // More values than functions take: one for each function, or a mistake? Where none takes any it is the same.
  const auto unclear = [](const Taken& t) { return t.next > 0 && t.next < t.values.size(); };
  if (unclear(alpha) || unclear(beta))
    form.refusal =
        fmt::format("'{}' has {} values, of which the activations take {}; allowed: as many as they take",
                    unclear(alpha) ? "activation_alpha" : "activation_beta",
                    unclear(alpha) ? alpha.values.size() : beta.values.size(), unclear(alpha) ? alpha.next : beta.next);
}

}  // namespace

RecurrentForm recurrent_form(const OpSchema& op, const Attributes& attributes) {
  RecurrentForm form;
  form.kind = op.name == "LSTM" ? CellKind::kLstm : op.name == "GRU" ? CellKind::kGru : CellKind::kRnn;
  form.gates = form.kind == CellKind::kLstm ? 4 : form.kind == CellKind::kGru ? 3 : 1;
  form.functions = form.kind == CellKind::kLstm ? 3 : form.kind == CellKind::kGru ? 2 : 1;
  const std::string direction = schema_string(op, attributes, "direction");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    form.refusal = fmt::format("direction '{}'; allowed: forward, reverse, bidirectional", direction);
    return form;
  }
  form.directions = direction == "bidirectional" ? 2 : 1;
  form.backward = direction == "reverse";
  const int64_t layout = schema_integer(op, attributes, "layout");
  if (layout != 0 && layout != 1) {
    form.refusal = fmt::format("layout = {}; allowed: 0 and 1", layout);
    return form;
  }
  form.batch_first = layout == 1;
  form.input_forget = form.kind == CellKind::kLstm && schema_integer(op, attributes, "input_forget") != 0;
  form.linear_before_reset = form.kind == CellKind::kGru && schema_integer(op, attributes, "linear_before_reset") != 0;
  form.clip = attributes.number("clip", 0);
  if (!(form.clip >= 0)) {
    form.refusal = fmt::format("clip = {}; allowed: a threshold that is not negative (0: none)", form.clip);
    return form;
  }
  read_activations(form, attributes);
  return form;
}

RecurrentExtents recurrent_extents(const Problem& problem, const RecurrentForm& form) {
  const Extents& x = problem.input(kRecurrentX).shape();
  return {x[form.batch_first ? 1 : 0], x[form.batch_first ? 0 : 1], x[2], problem.input(kRecurrentR).shape()[2]};
}

}  // namespace ridgeline
