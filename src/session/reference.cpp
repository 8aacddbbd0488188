// The control: the untouched graph, node by node, on the naive references.
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>

#include "formats/npy.h"
#include "machine/ceilings.h"
#include "session/session.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

uint64_t mix(uint64_t h, const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    h = (h ^ word) * 0x9e3779b97f4a7c15ull;
    h ^= h >> 29;
  }
  for (; bytes > 0; --bytes, ++p) h = (h ^ *p) * 1099511628211ull;
  return h;
}

// This build of the program that the references are part of: a number raised by hand would be forgotten after a fix.
uint64_t build_stamp() {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::canonical("/proc/self/exe", ignored);
  const int64_t written = std::filesystem::last_write_time(program, ignored).time_since_epoch().count();
  return mix(uint64_t(std::filesystem::file_size(program, ignored)), &written, sizeof written);
}

// Everything the result depends on: the graph's text, its constants, the inputs, and the references themselves.
uint64_t fingerprint(const Model& model) {
  const std::string text = model.graph.text();
  uint64_t h = mix(build_stamp(), text.data(), text.size());
  for (const auto& [symbol, extent] : model.bindings) {
    h = mix(h, symbol.data(), symbol.size());
    h = mix(h, &extent, sizeof extent);
  }
  for (int v = 0; v < model.graph.value_count(); ++v) {
    if (const Tensor* c = model.graph.constant(v)) h = mix(h, c->data(), size_t(c->bytes()));
  }
  for (const auto& [name, tensor] : model.feeds) {
    h = mix(h, name.data(), name.size());
    h = mix(h, tensor.data(), size_t(tensor.bytes()));
  }
  return h;
}

// The model on the first `items` of the batch, if every input has the batch first and every output follows it.
std::optional<Model> fewer_items(const Model& model, int64_t items) {
  int64_t batch = -1;
  LoadOptions options;
  for (ValueId v : model.graph.inputs) {
    const Tensor& full = model.feeds.at(model.graph.value(v).name);
    if (full.rank() < 1 || (batch >= 0 && full.shape()[0] != batch)) return std::nullopt;
    batch = full.shape()[0];
    if (batch <= items) return std::nullopt;
    Extents shape = full.shape();
    shape[0] = items;
    Tensor part(full.dtype(), shape);
    std::memcpy(part.data(), full.data(), size_t(part.bytes()));
    options.inputs[model.graph.value(v).name] = part;
  }
  if (batch <= items || !model.value_inputs.empty()) return std::nullopt;
  try {
    Graph graph = model.graph;
    graph.bind(model.bindings);
    for (ValueId v : graph.inputs) (*graph.value(v).info.shape)[0] = items;
    Model smaller = bind_model(std::move(graph), options);
    for (size_t i = 0; i < model.graph.outputs.size(); ++i) {
      const Extents full = evaluate(model.graph.value(model.graph.outputs[i]).shape(), model.bindings);
      Extents part = evaluate(smaller.graph.value(smaller.graph.outputs[i]).shape(), {});
      if (full.empty() || full[0] != batch || part.size() != full.size() || part[0] != items) return std::nullopt;
      part[0] = batch;
      if (part != full) return std::nullopt;
    }
    return smaller;
  } catch (const Error&) {
    return std::nullopt;  // a Reshape that spells the batch out, say: then all of it is computed
  }
}

}  // namespace

std::vector<Tensor> run_reference_graph(const Graph& graph, const Feeds& feeds, int threads,
                                        const std::function<void(ValueId, const Tensor&)>& observe) {
  return run_reference(graph, inputs_in_order(graph, feeds), {threads, observe});
}

ReferenceResult reference_outputs(const Model& model, int threads) {
  constexpr int64_t kItems = 2;  // of a batch: enough to see items apart
  ReferenceResult result;
  const std::optional<Model> smaller = fewer_items(model, kItems);
  const Model& used = smaller ? *smaller : model;
  result.items = smaller ? kItems : 0;
  namespace fs = std::filesystem;
  const std::optional<fs::path> cache = cache_directory();
  const std::string stem = fmt::format("reference-{:016x}", fingerprint(used));
  std::error_code ignored;
  if (cache) {
    try {
      for (size_t i = 0; i < used.graph.outputs.size(); ++i) {
        const fs::path file = *cache / fmt::format("{}-{}.npy", stem, i);
        if (!fs::exists(file, ignored)) break;
        result.outputs.push_back(read_npy(file.string()));
      }
    } catch (const Error&) {
      result.outputs.clear();
    }
    if (result.outputs.size() == used.graph.outputs.size()) return result;
  }
  result.outputs = run_reference_graph(used.graph, used.feeds, threads);
  if (!cache) return result;
  fs::create_directories(*cache, ignored);
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const fs::path file = *cache / fmt::format("{}-{}.npy", stem, i);
    const std::string part = file.string() + fmt::format(".{}", getpid());
    try {
      write_npy(result.outputs[i], part);
      fs::rename(part, file, ignored);
    } catch (const Error&) {
      fs::remove(part, ignored);  // no cache is no fault
    }
  }
  return result;
}

}  // namespace ridgeline
