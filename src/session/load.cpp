// Loading: from a file to a graph whose shapes are settled and whose inputs are at hand.
#include <algorithm>
#include <chrono>
#include <set>

#include "formats/onnx/import.h"
#include "formats/ridge/saved_file.h"
#include "ir/value_extents.h"
#include "optimize/passes.h"
#include "session/load.h"
#include "session/saved_plan.h"

namespace ridgeline {
namespace {

// A given tensor against the declared input: dtype and rank must agree; symbols take its extents.
void bind_given(Graph& graph, ValueId v, const Tensor& tensor, Bindings& bindings) {
  Value& value = graph.value(v);
  if (value.dtype() != tensor.dtype()) {
    fail(ErrorCode::kBadInput, "input '{}' is {}, but {} was given", value.name, name(value.dtype()),
         name(tensor.dtype()));
  }
  if (!value.info.shape) {
    value.info.shape = to_shape(tensor.shape());
    return;
  }
  const Shape& shape = value.shape();
  if (shape.size() != tensor.shape().size())
    fail(ErrorCode::kBadInput, "input '{}' has the shape {}, but {} was given", value.name, text(shape),
         text(tensor.shape()));
  for (size_t a = 0; a < shape.size(); ++a) {
    std::vector<std::string> open;
    shape[a].collect_symbols(open);
    if (open.size() == 1 && shape[a] == Dim::symbol(open[0])) {
      const auto [it, fresh] = bindings.emplace(open[0], tensor.shape()[a]);
      if (!fresh && it->second != tensor.shape()[a]) {
        fail(ErrorCode::kBadInput, "input '{}' gives the dimension '{}' the extent {}, but it is {} already",
             value.name, open[0], tensor.shape()[a], it->second);
      }
    } else if (shape[a].known() && shape[a].value() != tensor.shape()[a]) {
      fail(ErrorCode::kBadInput, "input '{}' has the shape {}, but {} was given", value.name, text(shape),
           text(tensor.shape()));
    }
  }
}

// Graph inputs that the value's content is computed from.
void inputs_behind(const Graph& graph, ValueId v, std::set<ValueId>& found, std::set<ValueId>& seen) {
  if (v == kNoValue || !seen.insert(v).second) return;
  if (graph.value(v).is_input) found.insert(v);
  const Node* producer = graph.producer(v);
  if (!producer || producer->is("Shape") || producer->is("Size")) return;  // a Shape reads extents, not contents
  for (ValueId i : producer->inputs) inputs_behind(graph, i, found, seen);
}

// Shapes that depend on the content of inputs are settled by making those inputs constants.
void settle_shapes(Model& model) {
  Graph& graph = model.graph;
  constexpr int kMostRounds = 64;
  for (int round = 0; round < kMostRounds; ++round) {
    const std::vector<Graph::Unresolved> unresolved = graph.infer();
    if (unresolved.empty()) return;
    bool progress = false;
    if (round == 0) {
      // What depends on symbols alone is settled by their extents, what depends on constants alone by folding: before
      // that, everything behind an unsettled shape seems to depend on the inputs' content (Silero VAD without `If`
      // became one constant).
      if (!graph.symbols().empty()) graph.bind(model.bindings);
      progress = true;
    } else {
      std::set<ValueId> behind, seen;
      for (const Graph::Unresolved& u : unresolved) inputs_behind(graph, u.depends_on, behind, seen);
      for (ValueId v : behind) {
        const std::string name = graph.value(v).name;
        const auto it = model.feeds.find(name);
        if (it == model.feeds.end()) continue;
        model.value_inputs.push_back(name);
        graph.make_constant(v, it->second);
        progress = true;
      }
    }
    if (!progress) {
      const std::string why = unresolved.front().reason;
      fail(ErrorCode::kUnsupported, "{}{}", why.find("unsupported") == std::string::npos ? "unsupported: " : "", why);
    }
    Decisions ignored;
    fold_constants(graph, ignored);
  }
}

}  // namespace

void check_dims(const Graph& graph, const Bindings& dims) {
  const std::vector<std::string> symbols = graph.symbols();
  for (const auto& [name, extent] : dims) {
    if (std::find(symbols.begin(), symbols.end(), name) == symbols.end()) {
      fail(ErrorCode::kUsage, "the model has no open dimension '{}'; it has: {}", name,
           symbols.empty() ? "none" : fmt::format("{}", fmt::join(symbols, ", ")));
    }
    if (extent < 0) fail(ErrorCode::kUsage, "the dimension '{}' cannot be {}", name, extent);
  }
}

Model bind_model(Graph graph, const LoadOptions& options) {
  Model model;
  model.graph = std::move(graph);
  model.bindings = options.dims;
  for (ValueId v : model.graph.inputs) model.input_names.push_back(model.graph.value(v).name);
  for (ValueId v : model.graph.outputs) model.output_names.push_back(model.graph.value(v).name);
  check_dims(model.graph, options.dims);
  for (const auto& [name, tensor] : options.inputs) {
    const ValueId v = model.graph.find_value(name);
    if (v == kNoValue || !model.graph.value(v).is_input) {
      fail(ErrorCode::kBadInput, "the model has no input '{}'; it has: {}", name, fmt::join(model.input_names, ", "));
    }
    bind_given(model.graph, v, tensor, model.bindings);
    model.feeds[name] = tensor;
  }
  std::vector<std::string> unbound;
  for (const std::string& symbol : model.graph.symbols())
    if (model.bindings.emplace(symbol, 1).second) unbound.push_back(symbol);
  if (options.batch > 0) {
    for (ValueId v : model.graph.inputs) {
      Value& value = model.graph.value(v);
      if (value.info.shape && !value.shape().empty()) (*value.info.shape)[0] = options.batch;
    }
  }
  if (options.make_inputs) {
    for (ValueId v : model.graph.inputs) {
      const Value& value = model.graph.value(v);
      if (model.feeds.count(value.name)) continue;
      if (!value.info.shape)
        fail(ErrorCode::kBadInput, "the rank of the input '{}' is not known: give it with --input {}=FILE.npy",
             value.name, value.name);
      model.feeds[value.name] = make_input(model.graph, v, extents_of(value, model.bindings), options.seed);
    }
  }
  if (unbound.empty()) {
    settle_shapes(model);
    return model;
  }
  // 1 is a guess that an image, say, is too small for. What it breaks is found here, where the remedy can be named.
  try {
    settle_shapes(model);
    Graph bound = model.graph;
    bound.bind(model.bindings);
    bound.infer();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}. Nothing gives the open dimensions {}, so each counts as 1: bind them "
                                          "with --dim {}=N, or give the inputs",
                                          error.what(), fmt::join(unbound, ", "), unbound.back()));
  }
  return model;
}

Model load_model(const std::string& path, const LoadOptions& options) {
  std::vector<std::string> ignored;
  return load_model(path, options, ignored);
}

Model load_model(const std::string& path, const LoadOptions& options, std::vector<std::string>& notes,
                 const std::string& external_root) {
  if (is_saved_file(path)) return load_saved_plan(path, options, notes);
  const auto begin = std::chrono::steady_clock::now();
  ImportReport report;
  ImportOptions import_options;
  import_options.report = &report;
  import_options.external_root = external_root;
  Graph graph = import_onnx(path, import_options);
  notes = std::move(report.notes);
  const double load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  try {
    Model model = bind_model(std::move(graph), options);
    model.path = path;
    model.load_ms = load_ms;
    return model;
  } catch (const Error& error) {
    const std::string message = error.what();
    throw Error(error.code(), message.starts_with(path) ? message : path + ": " + message);
  }
}

}  // namespace ridgeline
