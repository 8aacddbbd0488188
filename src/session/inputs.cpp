// Seeded inputs for models that were given none.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <random>

#include "session/session.h"

namespace ridgeline {
namespace {

bool name_contains(std::string name, std::string_view part) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return name.find(part) != std::string::npos;
}

uint64_t hash_of(std::string_view name) {
  uint64_t h = 1469598103934665603ull;
  for (char c : name) h = (h ^ uint8_t(c)) * 1099511628211ull;
  return h;
}

// Rows of the tensor that the value indexes, through casts; 0 if it indexes none.
int64_t indexed_rows(const Graph& graph, ValueId v) {
  int64_t rows = 0;
  for (NodeId id : graph.users(v)) {
    const Node& node = graph.node(id);
    if (node.is("Cast") || node.is("Identity") || node.is("Reshape"))
      rows = std::max(rows, indexed_rows(graph, node.output()));
    if (!node.is("Gather") || node.input(1) != v || !graph.value(node.input(0)).info.shape) continue;
    const Shape& data = graph.value(node.input(0)).shape();
    int64_t axis = schema_integer(*node.op, node.attributes, "axis");
    if (axis < 0) axis += int64_t(data.size());
    if (axis < int64_t(data.size()) && data[size_t(axis)].known())
      rows = rows ? std::min(rows, data[size_t(axis)].value()) : data[size_t(axis)].value();
  }
  return rows;
}

}  // namespace

Tensor make_input(const Graph& graph, ValueId input, const Extents& shape, uint64_t seed) {
  const Value& value = graph.value(input);
  Tensor t = Tensor::zeros(value.dtype(), shape);
  std::mt19937_64 random(seed ^ hash_of(value.name));
  const int64_t count = t.elements();
  if (name_contains(value.name, "mask")) {
    for (int64_t i = 0; i < count; ++i) store_f64(t.dtype(), t.data(), i, 1);
  } else if (name_contains(value.name, "token_type") || name_contains(value.name, "segment")) {
    // zeros
  } else if (is_float(t.dtype())) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < count; ++i) store_f64(t.dtype(), t.data(), i, normal(random));
  } else {
    const int64_t rows = indexed_rows(graph, input);
    const int64_t limit = t.dtype() == DType::kBool ? 2 : std::min<int64_t>(1000, rows > 0 ? rows : 1000);
    const int64_t top = std::min<int64_t>(limit, int64_t(info(t.dtype()).largest));
    for (int64_t i = 0; i < count; ++i)
      store_i64(t.dtype(), t.data(), i, int64_t(random() % uint64_t(std::max<int64_t>(top, 1))));
  }
  return t;
}

}  // namespace ridgeline
