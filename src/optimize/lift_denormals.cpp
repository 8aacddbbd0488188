// Weights that hold denormals are multiplied by a power of two that makes all of them normal, and sums by its inverse:
// rounding does not ask for the exponent, so with fused multiply-adds a sum has the same bits. A multiply-add of a
// denormal takes an assist of the processor, some 400 cycles: two squeeze layers of PP-OCRv4 recognition were a
// twentieth of the model's time.
#include <bit>
#include <cmath>

#include "optimize/passes.h"
#include "optimize/quantization.h"

namespace ridgeline {
namespace {

// Larger weights than these are seldom looked through for nothing: it takes half a millisecond a megabyte.
constexpr int64_t kMostBytes = 1 << 20;
// With weights below 2^20 sums overflow only where inputs reach 2^84.
constexpr int kMostLift = 24;

/// The power of two that makes the smallest of the weights normal; 0: there is no denormal.
int lift_of(const Tensor& weights) {
  const float* w = weights.as<float>();
  uint32_t least = 0x00800000;  // of the magnitudes as bits, zeros left out
  for (int64_t k = 0, count = weights.elements(); k < count; ++k) {
    const uint32_t size = std::bit_cast<uint32_t>(w[k]) & 0x7fffffff;
    if (size - 1 < least - 1) least = size;
  }
  return least == 0x00800000 ? 0 : -126 - std::ilogb(std::bit_cast<float>(least));
}

bool small(const Tensor& weights) {
  const float* w = weights.as<float>();
  for (int64_t k = 0, count = weights.elements(); k < count; ++k)
    if (!(std::fabs(w[k]) < 0x1p20f)) return false;
  return true;
}

}  // namespace

void lift_denormals(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.alive || node.program || !(node.is("Conv") || node.is("MatMul")) || node.inputs.size() < 2) continue;
    const Tensor* weights = graph.constant(node.input(1));
    if (!weights || weights->dtype() != DType::kF32 || weights->bytes() > kMostBytes) continue;
    const Tensor* bias = node.is("Conv") && node.input(2) != kNoValue ? graph.constant(node.input(2)) : nullptr;
    if (node.is("Conv") && node.input(2) != kNoValue && !bias) continue;
    const int lift = lift_of(*weights);
    if (lift == 0) continue;
    if (lift > kMostLift || !small(*weights)) {
      decisions.refuse(node, "range", "its weights reach from denormals to above 2^20");
      continue;
    }
    if (!decisions.allowed(node)) continue;
    const std::vector<std::string> names = origins({&node});
    Tensor lifted(DType::kF32, weights->shape());
    for (int64_t k = 0, count = weights->elements(); k < count; ++k)
      lifted.as<float>()[k] = std::ldexp(weights->as<float>()[k], lift);
    std::vector<float> numbers;  // before the graph grows and moves what `bias` points to
    if (bias) numbers.assign(bias->as<float>(), bias->as<float>() + bias->elements());
    const ValueId old = node.input(1);
    std::vector<ValueId> inputs = {node.input(0), graph.add_constant(node.name + ".lifted", std::move(lifted))};
    const NodeId sums = graph.add_node(*node.op, inputs, node.attributes, 1, {}, node.name);
    std::vector<ValueId> operands = {graph.node(sums).output()};
    std::vector<std::string_view> operand_names = {"v"};
    if (!numbers.empty()) {
      const int rank = graph.value(operands[0]).rank();
      operands.push_back(graph.add_constant(graph.node(id).name + ".bias", along_axis(numbers, 1, rank)));
      operand_names.push_back("b");
    }
    const double down = std::ldexp(1.0, -lift);
    const NodeId real =
        graph.add_program(Program::parse(numbers.empty() ? "v * down" : "v * down + b", operand_names, DType::kF32,
                                         [down](std::string_view) { return std::optional<double>(down); }),
                          operands);
    graph.node(real).name = graph.node(id).name + "/lowered";
    graph.node(sums).origin = graph.node(real).origin = names;
    graph.replace_uses(graph.node(id).output(), graph.node(real).output());
    graph.remove(graph.node(id));
    release_unread(graph, old);
    decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
