// The attributes of a node: few, looked up by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ridgeline/tensor.h"

namespace ridgeline {

class Graph;

using AttributeValue = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                                    std::vector<std::string>, Tensor, std::shared_ptr<const Graph>>;

class Attributes {
 public:
  bool has(std::string_view name) const { return find(name) != nullptr; }
  const AttributeValue* find(std::string_view name) const;
  void set(std::string_view name, AttributeValue value);
  void erase(std::string_view name);

  /// The value, or the fallback if the attribute is absent. A value of another type throws Error{kBadModel}.
  int64_t integer(std::string_view name, int64_t fallback) const;
  double number(std::string_view name, double fallback) const;  // an integer is taken too
  std::string string(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> integers(std::string_view name,
                                std::vector<int64_t> fallback = {}) const;  // a single one is taken too
  std::vector<double> numbers(std::string_view name, std::vector<double> fallback = {}) const;
  bool flag(std::string_view name, bool fallback = false) const { return integer(name, fallback) != 0; }

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  /// "axis=-1 epsilon=1e-05", sorted by name; tensors by shape and a hash of their bytes. Equal text, equal meaning.
  std::string text() const;

 private:
  std::vector<std::pair<std::string, AttributeValue>> items_;  // sorted by name
};

std::string attribute_text(const AttributeValue& value);

struct OpSchema;
/// An attribute with the schema's default; 0 or "" if the schema has none.
int64_t schema_integer(const OpSchema& op, const Attributes& attributes, std::string_view attribute);
double schema_number(const OpSchema& op, const Attributes& attributes, std::string_view attribute);
std::string schema_string(const OpSchema& op, const Attributes& attributes, std::string_view attribute);

}  // namespace ridgeline
