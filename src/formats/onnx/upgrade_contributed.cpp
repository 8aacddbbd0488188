// Forms of com.microsoft's operators that the catalogue declares in one spelling only. Source: ONNX Runtime's
// ContribOperators.md.
#include "formats/onnx/upgrade.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

struct Defaults {
  std::string_view activation;
  double alpha, beta;
  int count;
};
// Those of the standard's operators.
constexpr Defaults kDefaults[] = {{"LeakyRelu", 0.01, 0, 1},
                                  {"ThresholdedRelu", 1, 0, 1},
                                  {"Elu", 1, 0, 1},
                                  {"HardSigmoid", 0.2, 0.5, 2},
                                  {"Selu", 1.67326319217681884765625, 1.05070102214813232421875, 2},
                                  {"Clip", -3.402823466385288598e38, 3.402823466385288598e38, 2}};

/// FusedConv lists the activation's parameters, FusedGemm names them alpha, beta and gamma: here alpha and beta, in the
/// order of the standard's operator, all of them written out.
void activation(NodeForm& form) {
  if (form.attributes.has("activation_params")) {
    const std::vector<double> values = form.attributes.numbers("activation_params");
    const char* names[] = {"activation_alpha", "activation_beta"};
    if (values.size() > 2) fail(ErrorCode::kUnsupported, "activation_params of {} numbers", values.size());
    for (size_t k = 0; k < values.size(); ++k) form.attributes.set(names[k], values[k]);
    form.attributes.erase("activation_params");
  }
  const std::string name = form.attributes.string("activation", "");
  if (form.attributes.has("activation_gamma")) {
    if (name == "Selu") form.attributes.set("activation_beta", form.attributes.number("activation_gamma", 0));
    form.attributes.erase("activation_gamma");
  }
  for (const Defaults& d : kDefaults) {
    if (d.activation != name) continue;
    if (d.count > 0 && !form.attributes.has("activation_alpha")) form.attributes.set("activation_alpha", d.alpha);
    if (d.count > 1 && !form.attributes.has("activation_beta")) form.attributes.set("activation_beta", d.beta);
  }
}

/// [m, batches.., k] as [batches.., m, k]: the first axis goes before the last.
void batch_transposes(NodeForm& form) {
  const char* flags[] = {"transBatchA", "transBatchB"};
  for (int side = 0; side < 2; ++side) {
    const bool moved = form.attributes.integer(flags[side], 0) != 0;
    form.attributes.erase(flags[side]);
    if (!moved || !form.has(side)) continue;
    const std::optional<Shape>& shape = form.graph.value(form.inputs[size_t(side)]).info.shape;
    if (!shape) fail(ErrorCode::kUnsupported, "{} on an operand of unknown rank", flags[side]);
    const int64_t rank = int64_t(shape->size());
    if (rank < 3) continue;  // no batch to move past
    std::vector<int64_t> perm;
    for (int64_t a = 1; a + 1 < rank; ++a) perm.push_back(a);
    perm.insert(perm.end(), {0, rank - 1});
    Attributes attributes;
    attributes.set("perm", perm);
    form.inputs[size_t(side)] = form.before("Transpose", {form.inputs[size_t(side)]}, std::move(attributes));
  }
}

}  // namespace

void upgrade_contributed(NodeForm& form) {
  if (form.domain != "com.microsoft") return;
  if (form.op == "FusedConv" || form.op == "FusedGemm") activation(form);
  if (form.op == "FusedMatMul" || form.op == "TransposeMatMul") {
    form.op = "FusedMatMul";
    batch_transposes(form);
  }
}

}  // namespace ridgeline
