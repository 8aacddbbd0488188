#include "ops/catalogue.h"

#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ops/contributed.h"
#include "ops/families.h"
#include "ops/recurrent.h"

namespace ridgeline {

namespace {

constexpr std::span<const OpSchema* const> (*kFamilies[])() = {elementwise_ops,
                                                               elementwise_logic_ops,
                                                               movement_view_ops,
                                                               movement_slice_ops,
                                                               movement_make_ops,
                                                               movement_blocks_ops,
                                                               movement_gather_ops,
                                                               movement_resize_ops,
                                                               movement_sample_ops,
                                                               movement_select_ops,
                                                               reduce_ops,
                                                               reduce_products_ops,
                                                               softmax_ops,
                                                               normalize_ops,
                                                               normalize_channels_ops,
                                                               matmul_ops,
                                                               low_bit_ops,
                                                               conv_ops,
                                                               conv_columns_ops,
                                                               pool_ops,
                                                               pool_regions_ops,
                                                               attention_ops,
                                                               attention_standard_ops,
                                                               rotary_ops,
                                                               quantize_ops,
                                                               loss_ops,
                                                               control_ops,
                                                               einsum_ops,
                                                               signal_ops,
                                                               random_ops,
                                                               selection_ops,
                                                               linear_attention_ops,
                                                               ngram_ops,
                                                               recurrent_ops,
                                                               contributed_fused_ops,
                                                               contributed_normalize_ops,
                                                               contributed_quantized_ops,
                                                               contributed_low_bit_ops,
                                                               contributed_attention_ops,
                                                               contributed_cache_ops};

// Operators from outside, newest first.
struct Registered {
  std::mutex mutex;
  std::deque<const OpSchema*> ops;
};
Registered& registered() {
  static Registered instance;
  return instance;
}

template <typename Condition>
const OpSchema* find_registered(const Condition& condition) {
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  for (const OpSchema* op : r.ops) {
    if (condition(*op)) return op;
  }
  return nullptr;
}

std::string_view standard_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

}  // namespace

std::span<const OpSchema* const> catalogue() {
  static const std::vector<const OpSchema*> all = [] {
    std::vector<const OpSchema*> list = {&elementwise_op()};
    for (const auto family : kFamilies) {
      const std::span<const OpSchema* const> ops = family();
      list.insert(list.end(), ops.begin(), ops.end());
    }
    return list;
  }();
  return all;
}

const OpSchema* find_op(std::string_view name, std::string_view domain) {
  static const std::unordered_map<std::string, const OpSchema*> by_name = [] {
    std::unordered_map<std::string, const OpSchema*> map;
    for (const OpSchema* op : catalogue()) map.emplace(std::string(op->domain) + ":" + std::string(op->name), op);
    return map;
  }();
  const auto found = by_name.find(std::string(standard_domain(domain)) + ":" + std::string(name));
  if (found != by_name.end()) return found->second;
  return find_registered([&](const OpSchema& op) { return op.name == name && op.domain == standard_domain(domain); });
}

const OpSchema* find_op_in_any_domain(std::string_view name) {
  if (const OpSchema* op = find_op(name)) return op;
  for (const OpSchema* op : catalogue()) {
    if (op->name == name) return op;
  }
  return find_registered([&](const OpSchema& op) { return op.name == name; });
}

// Declared in ridgeline/extend.h.
void register_op(const OpSchema& op) {
  if (op.name.empty() || (!op.infer && !op.is_elementwise())) {
    fail(ErrorCode::kUsage, "an operator needs a name and `infer`");
  }
  if (!op.reference && op.expressions.empty() && op.decompose.empty()) {
    fail(ErrorCode::kUsage, "operator '{}' has no meaning: a reference, an expression or a decomposition is needed",
         op.name);
  }
  if (find_op(op.name, op.domain)) {
    fail(ErrorCode::kUsage, "there is an operator '{}' in the domain '{}' already", op.name, op.domain);
  }
  Registered& r = registered();
  const std::lock_guard lock(r.mutex);
  r.ops.push_front(&op);
}

}  // namespace ridgeline
