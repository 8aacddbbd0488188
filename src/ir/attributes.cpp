#include "ir/attributes.h"

#include <algorithm>

#include "ir/control.h"

namespace ridgeline {
namespace {

[[noreturn]] void wrong_type(std::string_view name, std::string_view wanted) {
  fail(ErrorCode::kBadModel, "attribute '{}' is not {}", name, wanted);
}

// FNV-1a, to tell constants apart in text.
uint64_t hash_of(const Tensor& tensor) {
  uint64_t h = 1469598103934665603ull;
  for (int64_t i = 0; i < tensor.bytes(); ++i) h = (h ^ tensor.as<uint8_t>()[i]) * 1099511628211ull;
  return h;
}

}  // namespace

const AttributeValue* Attributes::find(std::string_view name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Attributes::set(std::string_view name, AttributeValue value) {
  const auto at = std::lower_bound(items_.begin(), items_.end(), name,
                                   [](const auto& item, std::string_view n) { return item.first < n; });
  if (at != items_.end() && at->first == name)
    at->second = std::move(value);
  else
    items_.insert(at, {std::string(name), std::move(value)});
}

void Attributes::erase(std::string_view name) {
  std::erase_if(items_, [&](const auto& item) { return item.first == name; });
}

int64_t Attributes::integer(std::string_view name, int64_t fallback) const {
  const AttributeValue* v = find(name);
  if (!v) return fallback;
  if (const auto* i = std::get_if<int64_t>(v)) return *i;
  wrong_type(name, "an integer");
}

double Attributes::number(std::string_view name, double fallback) const {
  const AttributeValue* v = find(name);
  if (!v) return fallback;
  if (const auto* f = std::get_if<double>(v)) return *f;
  if (const auto* i = std::get_if<int64_t>(v)) return double(*i);
  wrong_type(name, "a number");
}

std::string Attributes::string(std::string_view name, std::string_view fallback) const {
  const AttributeValue* v = find(name);
  if (!v) return std::string(fallback);
  if (const auto* s = std::get_if<std::string>(v)) return *s;
  wrong_type(name, "a string");
}

std::vector<int64_t> Attributes::integers(std::string_view name, std::vector<int64_t> fallback) const {
  const AttributeValue* v = find(name);
  if (!v) return fallback;
  if (const auto* list = std::get_if<std::vector<int64_t>>(v)) return *list;
  if (const auto* i = std::get_if<int64_t>(v)) return {*i};
  wrong_type(name, "a list of integers");
}

std::vector<double> Attributes::numbers(std::string_view name, std::vector<double> fallback) const {
  const AttributeValue* v = find(name);
  if (!v) return fallback;
  if (const auto* list = std::get_if<std::vector<double>>(v)) return *list;
  if (const auto* f = std::get_if<double>(v)) return {*f};
  wrong_type(name, "a list of numbers");
}

std::string attribute_text(const AttributeValue& value) {
  struct Visitor {
    std::string operator()(int64_t i) const { return fmt::format("{}", i); }
    std::string operator()(double f) const { return fmt::format("{:.9g}", f); }
    std::string operator()(const std::string& s) const { return s; }
    std::string operator()(const std::vector<int64_t>& v) const { return fmt::format("{}", fmt::join(v, ",")); }
    std::string operator()(const std::vector<double>& v) const { return fmt::format("{:.9g}", fmt::join(v, ",")); }
    std::string operator()(const std::vector<std::string>& v) const { return fmt::format("{}", fmt::join(v, ",")); }
    std::string operator()(const Tensor& t) const {
      return fmt::format("{}{}#{:016x}", name(t.dtype()), ridgeline::text(t.shape()), hash_of(t));
    }
    std::string operator()(const std::shared_ptr<const Graph>& graph) const {
      if (!graph) return "<no graph>";
      return sample_body(graph->name) ? graph->name : fmt::format("<{} nodes>", graph->live_nodes());
    }
  };
  return std::visit(Visitor{}, value);
}

std::string Attributes::text() const {
  std::string out;
  for (const auto& [key, value] : items_) out += (out.empty() ? "" : " ") + key + "=" + attribute_text(value);
  return out;
}

}  // namespace ridgeline
