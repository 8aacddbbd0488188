#include "optimize/pipeline.h"

#include <array>
#include <chrono>
#include <tuple>

#include "ir/control.h"
#include "optimize/expand_functions.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// The order is the design: functions become what they mean before anything is sought in it; quantized graphs become
// integer ones before their weights are folded to f32; movement is tidied before patterns are sought, patterns are
// sought before their insides are fused away, weights are folded before epilogues form, residuals join what is left,
// types are lowered, layout comes last.
constexpr std::array<Pass, 23> kPasses = {{
    {"inline_control", Stage::kUnfused, PassClass::kExact,
     "an If whose condition is known becomes its branch, a loop of few iterations their nodes; the bodies of the "
     "others "
     "go through all passes themselves, at the end",
     inline_control},
    {"expand_functions", Stage::kUnfused, PassClass::kReorders,
     "functions without a kernel of their own (Einsum, windows) are spelled in the operators that they mean",
     expand_functions},
    {"expand_quantized", Stage::kEpilogues, PassClass::kReorders,
     "QLinearConv and QLinearMatMul are spelled as dequantizations, the operator and a quantization, which the next "
     "passes take up",
     expand_quantized},
    {"move_quantization", Stage::kEpilogues, PassClass::kExact,
     "dequantization sinks below what only moves values and meets its quantization, so that bytes move; activations "
     "that the quantized range makes anyway go",
     move_quantization},
    {"integer_products", Stage::kEpilogues, PassClass::kReorders,
     "convolutions and products of dequantized 8-bit operands sum integers, exactly", integer_products},
    {"spell_quantization", Stage::kEpilogues, PassClass::kExact,
     "QuantizeLinear and DequantizeLinear become elementwise Programs, one for each reader", spell_quantization},
    {"fold_constants", Stage::kUnfused, PassClass::kExact, "nodes whose inputs are all constants are computed once",
     fold_constants},
    {"eliminate_identities", Stage::kUnfused, PassClass::kExact,
     "Identity, inference Dropout, casts to the same type and moves that move nothing go", eliminate_identities},
    {"canonicalize", Stage::kEpilogues, PassClass::kReorders,
     "one spelling for what exporters write in several: x / c is x * (1 / c), Pow(x, 2) is x * x, Gemm is MatMul and "
     "Add",
     canonicalize},
    {"simplify_movement", Stage::kWholeGraph, PassClass::kExact,
     "transposes of transposes and reshapes of reshapes become one", simplify_movement},
    {"match_composites", Stage::kWholeGraph, PassClass::kReorders,
     "normalizations and attention spelled out in small operators become one step, by their declared decomposition",
     match_composites},
    {"fold_batch_normalization", Stage::kEpilogues, PassClass::kReorders,
     "BatchNormalization with fixed statistics goes into the weights of the convolution before it",
     fold_batch_normalization},
    {"fold_affine", Stage::kEpilogues, PassClass::kReorders,
     "a constant scale or shift per channel goes into the weights and bias before it", fold_affine},
    {"lift_denormals", Stage::kEpilogues, PassClass::kReorders,
     "weights with denormals are multiplied by a power of two, and their sums by its inverse", lift_denormals},
    {"fuse_epilogues", Stage::kEpilogues, PassClass::kReorders,
     "bias, activation and any elementwise program join the contraction that produces their operand", fuse_epilogues},
    {"fuse_add_normalization", Stage::kResiduals, PassClass::kReorders,
     "Add and the normalization after it become one step", fuse_add_normalization},
    {"fuse_residuals", Stage::kResiduals, PassClass::kReorders,
     "a residual Add, with its activation, joins the contraction that produces one of its operands", fuse_residuals},
    {"merge_projections", Stage::kWholeGraph, PassClass::kReorders,
     "products that share their input (Q, K, V) become one wider product", merge_projections},
    {"fuse_elementwise", Stage::kWholeGraph, PassClass::kReorders, "chains of elementwise operators become one Program",
     fuse_elementwise},
    {"lower_to_bf16", Stage::kWholeGraph, PassClass::kLossy,
     "products and convolutions with constant weights multiply in bf16, images between them are stored so; sums and "
     "epilogues stay f32",
     lower_to_bf16},
    {"lower_to_int8", Stage::kWholeGraph, PassClass::kLossy,
     "products with constant weights multiply 8-bit integers: a scale a column, activations rounded row by row",
     lower_to_int8},
    {"lower_to_f16", Stage::kUnfused, PassClass::kLossy,
     "every operator that takes f16 works on f16 values, with casts where f32 ones enter and leave; sums stay f32",
     lower_to_f16},
    {"channels_last", Stage::kWholeGraph, PassClass::kReorders,
     "results of convolutions, and the cast or quantization of an image for one, may be stored with the channels "
     "innermost; the plan decides for each, by the sum of kernels and copies",
     channels_last},
}};

bool enabled(const Pass& pass, const PipelineOptions& options) {
  if (options.none) return false;
  if (!options.only.empty()) return options.only.count(pass.name) > 0;
  if (options.lossy.count(pass.name)) return pass.stage <= options.stage && !options.disabled.count(pass.name);
  return pass.stage <= options.stage && pass.pass_class != PassClass::kLossy && !options.disabled.count(pass.name);
}

}  // namespace

std::string_view name(Stage stage) {
  constexpr std::string_view kNames[] = {"unfused", "epilogues", "residuals", "whole graph"};
  return kNames[size_t(stage)];
}

std::string_view name(PassClass pass_class) {
  constexpr std::string_view kNames[] = {"exact", "reorders", "lossy"};
  return kNames[size_t(pass_class)];
}

std::span<const Pass> passes() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  for (const Pass& pass : kPasses)
    if (pass.name == name) return &pass;
  return nullptr;
}

namespace {

// Each body of what is still an If, Loop or Scan, with the shapes that it will have. One whose shapes change from one
// iteration to the next stays as it is: it is interpreted.
void optimize_bodies(Graph& graph, const PipelineOptions& options, Decisions& decisions) {
  for (const NodeId id : graph.order()) {
    Node& node = graph.node(id);
    for (const std::string_view key : bodies_of(*node.op)) {
      std::string why;
      std::optional<Graph> body = bound_body(graph, node, key, why);
      if (!body) {
        decisions.pass = "inline_control";
        decisions.stage = int(Stage::kUnfused);
        decisions.refuse(node, "shapes_change", fmt::format("its {} is not optimized: {}", body_label(key), why));
        continue;
      }
      run_passes(*body, options, decisions);
      node.attributes.set(key, std::make_shared<const Graph>(std::move(*body)));
    }
  }
}

}  // namespace

std::vector<PassTime> run_passes(Graph& graph, const PipelineOptions& options, Decisions& decisions) {
  std::vector<PassTime> times;
  decisions.undone = options.undone_nodes;
  decisions.most_applied = options.most_rewrites;
  for (const Pass& pass : kPasses) {
    if (!enabled(pass, options)) continue;
    const auto begin = std::chrono::steady_clock::now();
    Graph before;
    if (options.rollback) before = graph;  // shares tensors; what a pass breaks is rolled back
    const size_t decided = decisions.all.size();
    decisions.pass = std::string(pass.name);
    decisions.stage = int(pass.stage);
    const auto only = options.only_nodes.find(pass.name);
    decisions.only = only == options.only_nodes.end() ? nullptr : &only->second;
    std::vector<std::string> faults;
    const auto extent = [&] {
      return std::tuple(decisions.applied, graph.node_capacity(), graph.live_nodes(), graph.value_count());
    };
    const auto before_it = extent();
    try {
      pass.run(graph, decisions);
      // Most passes find nothing in most models: checking those again was half of the time of 20,000 nodes.
      if (extent() != before_it) faults = graph.verify();
    } catch (const Error& error) {
      faults = {error.what()};
    }
    if (!faults.empty() && !options.rollback) {
      fail(ErrorCode::kUnsupported,
           "unsupported: the pass '{}' left the graph unsound ({}); run with --disable-pass {}", pass.name,
           faults.front(), pass.name);
    }
    if (!faults.empty()) {
      graph = before;
      decisions.all.resize(decided);
      Decision d;
      d.pass = std::string(pass.name);
      d.action = Action::kUndone;
      d.reason_code = "unsound";
      d.reason = "the pass left the graph unsound and was rolled back: " + faults.front();
      d.stage = int(pass.stage);
      decisions.all.push_back(std::move(d));
    }
    times.push_back({pass.name, (std::chrono::steady_clock::now() - begin).count()});
  }
  decisions.only = nullptr;
  if (!options.none && graph.target == DeviceKind::kCpu) optimize_bodies(graph, options, decisions);
  return times;
}

}  // namespace ridgeline
