#include "verify/reference_run.h"

#include "ir/interpret.h"

namespace ridgeline {
std::vector<Tensor> run_reference(const Graph& graph, const std::vector<Tensor>& inputs, const ReferenceRun& options) {
  InterpretOptions run;
  run.threads = options.threads;
  run.observe = options.observe;
  run.replace = options.replace;
  return interpret(graph, inputs, run);
}

std::vector<Tensor> inputs_in_order(const Graph& graph, const std::map<std::string, Tensor>& feeds) {
  std::vector<Tensor> inputs;
  for (ValueId v : graph.inputs) {
    const auto found = feeds.find(graph.value(v).name);
    if (found == feeds.end()) fail(ErrorCode::kBadInput, "the input '{}' was not given", graph.value(v).name);
    inputs.push_back(found->second);
  }
  return inputs;
}

Bindings bindings_of(const Graph& graph, const std::vector<Tensor>& inputs) {
  Bindings bindings;
  for (size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i) {
    const Value& value = graph.value(graph.inputs[i]);
    const Tensor& given = inputs[i];
    if (given.dtype() != value.info.dtype)
      fail(ErrorCode::kBadInput, "input '{}' is {}, the model wants {}", value.name, name(given.dtype()),
           name(value.info.dtype));
    if (!value.info.shape) continue;
    const Shape& shape = value.shape();
    auto refuse = [&] {
      fail(ErrorCode::kBadInput, "input '{}' is {}, the model wants {}", value.name,
           text(std::span<const int64_t>(given.shape())), text(shape));
    };
    if (shape.size() != given.shape().size()) refuse();
    for (size_t a = 0; a < shape.size(); ++a) {
      const Dim bound = shape[a].bind(bindings);
      std::vector<std::string> symbols;
      bound.collect_symbols(symbols);
      if (bound.known() && bound.value() != given.shape()[a]) refuse();
      if (symbols.size() == 1 && bound == Dim::symbol(symbols[0])) bindings[symbols[0]] = given.shape()[a];
    }
  }
  return bindings;
}

}  // namespace ridgeline
