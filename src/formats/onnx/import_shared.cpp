#include "formats/onnx/import_shared.h"

#include <algorithm>
#include <cctype>

#include "core/words.h"
#include "formats/onnx/model_file.h"
#include "formats/onnx/node_order.h"
#include "formats/onnx/upgrade_before_7.h"
#include "ops/catalogue.h"
#include "ridgeline/error.h"

namespace ridgeline {

std::string shown_domain(const std::string& domain) { return domain.empty() ? "ai.onnx" : escaped(domain); }

void check_versions(const onnx::ModelProto& model, const std::string& file) {
  if (model.ir_version() > ModelLimits::kNewestIrVersion) {
    fail(ErrorCode::kUnsupported, "{}: IR version {} is unsupported: the newest known is {}", file, model.ir_version(),
         ModelLimits::kNewestIrVersion);
  }
  const Opsets opsets = opsets_of(model.opset_import());
  const auto standard = opsets.find("");
  if (standard == opsets.end()) {
    if (opsets.empty()) fail(ErrorCode::kBadModel, "{}: it imports no operator set", file);
    return;
  }
  if (standard->second < 1 || standard->second > ModelLimits::kNewestOpset) {
    fail(ErrorCode::kUnsupported, "{}: operator set {} of ai.onnx is unsupported: supported are {} to {}", file,
         standard->second, 1, ModelLimits::kNewestOpset);
  }
  if (model.training_info_size() > 0)
    fail(ErrorCode::kUnsupported, "{}: training information in a model is unsupported", file);
}

std::string ImportShared::symbol_for(const std::string& param) {
  const auto found = symbols_.find(param);
  if (found != symbols_.end()) return found->second;
  std::string clean;
  for (const char c : param.substr(0, 64)) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
    clean += plain ? c : '_';
  }
  if (clean.empty() || std::isdigit(static_cast<unsigned char>(clean[0]))) clean = "d" + clean;
  return symbols_[param] = fresh_symbol(clean);
}

std::string ImportShared::fresh_symbol(const std::string& stem) {
  std::string name = stem;
  for (int i = 1; !used_symbols_.insert(name).second; ++i) name = stem + "_" + std::to_string(i);
  return name;
}

const OpSchema& ImportShared::known_op(const std::string& name, const std::string& domain, int64_t opset) {
  const OpSchema* op = find_op(name, domain);
  if (!op) fail(ErrorCode::kUnsupported, "there is no such operator here{}", nearest(name));
  // Older forms have been brought up by then.
  if (opset < kOldestOpset && in_first_opset(name)) opset = kOldestOpset;
  if (!op->versions.empty() && domain.empty() && opset < op->versions[0]) {
    fail(ErrorCode::kUnsupported, "the oldest supported form is that of operator set {}", op->versions[0]);
  }
  return *op;
}

std::string ImportShared::nearest(const std::string& name) {
  constexpr size_t kMostNames = 200, kLongest = 64;  // a hostile file may hold a million
  if (nearest_.size() >= kMostNames || name.size() > kLongest) return "";
  const auto [entry, fresh] = nearest_.emplace(name, "");
  if (!fresh) return entry->second;
  size_t best = std::max<size_t>(1, name.size() / 4) + 1;
  for (const OpSchema* op : catalogue()) {
    const size_t distance = edit_distance(name, op->name);
    if (distance >= best || op->domain == "ridgeline") continue;
    best = distance;
    entry->second = fmt::format("; the nearest is {} of {}", op->name, shown_domain(std::string(op->domain)));
  }
  return entry->second;
}

void ImportShared::compare_shapes(const onnx::ValueInfoProto& output, const Value& value) {
  const auto& type = output.type().tensor_type();
  if (!type.has_shape() || !value.info.shape) return;
  bool fits = type.shape().dim_size() == value.rank();
  std::string declared;
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const auto& dim = type.shape().dim(i);
    const bool number = dim.value_case() == onnx::TensorShapeProto::Dimension::kDimValue && dim.dim_value() >= 0;
    declared += (i ? "," : "") + (number                    ? std::to_string(dim.dim_value())
                                  : dim.dim_param().empty() ? "?"
                                                            : escaped(dim.dim_param()));
    fits = fits && (!number || !value.shape()[size_t(i)].known() || value.shape()[size_t(i)].is(dim.dim_value()));
  }
  if (!fits)
    note(fmt::format("output {} is declared as [{}], but it is {}", quote(output.name()), declared,
                     text(value.shape())));
}

bool ImportShared::leaves_out(const Error& error, const char* what, const std::string& name) {
  if (!options.collect_unsupported || error.code() != ErrorCode::kUnsupported) return false;
  mark_unsupported(what, name, error.what());
  return true;
}

void ImportShared::mark_unsupported(const char* what, const std::string& name, std::string reason) {
  if (reason.starts_with(file + ": ")) reason = reason.substr(file.size() + 2);
  const auto [at, fresh] = unsupported_.emplace(std::tuple(what, "", reason), report.unsupported.size());
  if (fresh)
    report.unsupported.push_back({what, shown_domain(""), 0, 1, escaped(name), reason});
  else
    ++report.unsupported[at->second].count;
}

void ImportShared::mark_unsupported(const SourceNode& node, std::string reason) {
  const std::string op = escaped(node.proto->op_type()), domain = normal_domain(node.proto->domain());
  const std::string own = describe(node);  // inference begins with it; the list names the node itself
  for (const std::string& prefix : {own + ": unsupported: ", own + ": "}) {
    if (reason.starts_with(prefix)) reason = reason.substr(prefix.size());
  }
  const auto [at, fresh] = unsupported_.emplace(std::tuple(op, domain, reason), report.unsupported.size());
  if (!fresh) {
    ++report.unsupported[at->second].count;
    return;
  }
  const auto version = node.opsets->find(domain);
  report.unsupported.push_back({op, shown_domain(domain), version == node.opsets->end() ? 0 : int(version->second), 1,
                                escaped(node.name), reason});
}

void ImportShared::refuse_unsupported() const {
  constexpr int kMostLines = 50;
  std::string text;
  int nodes = 0, lines = 0;
  for (const UnsupportedOperator& each : report.unsupported) {
    nodes += each.count;
    if (++lines > kMostLines) continue;
    text += fmt::format("\n  {} (domain {}, operator set {}): {} node{}, first '{}': {}", each.op, each.domain,
                        each.version, each.count, each.count == 1 ? "" : "s", each.first_node, each.reason);
  }
  if (lines > kMostLines) text += fmt::format("\n  and {} more", lines - kMostLines);
  fail(ErrorCode::kUnsupported, "{}: {} node{} unsupported:{}", file, nodes, nodes == 1 ? " is" : "s are", text);
}

void ImportShared::note(std::string text) {
  constexpr size_t kMost = 1000;
  if (report.notes.size() < kMost) report.notes.push_back(std::move(text));
}

}  // namespace ridgeline
