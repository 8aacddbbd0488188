#include "formats/onnx/import.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "core/words.h"
#include "formats/onnx/attribute_proto.h"
#include "formats/onnx/functions.h"
#include "formats/onnx/model_file.h"
#include "formats/onnx/node_order.h"
#include "formats/onnx/tensor_proto.h"
#include "formats/onnx/upgrade.h"
#include "ops/catalogue.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr int64_t kOldestOpset = 7;

std::string shown_domain(const std::string& domain) { return domain.empty() ? "ai.onnx" : escaped(domain); }

class Importer {
 public:
  Importer(onnx::ModelProto model, std::string file, const std::string& folder, const ImportOptions& options)
      : model_(std::move(model)),
        file_(std::move(file)),
        external_(folder),
        options_(options),
        report_(options.report ? *options.report : own_report_) {}

  Graph run() {
    check_versions();
    const InlinedNodes inlined(model_, file_);
    opsets_ = &inlined.opsets();
    graph_.name = is_utf8(model_.graph().name()) ? model_.graph().name() : "";
    add_initializers(inlined.nodes());
    add_inputs();
    const std::vector<SourceNode>& nodes = inlined.nodes();
    for (const int index : node_order(file_, nodes, given_)) add(nodes[size_t(index)]);
    add_outputs();
    if (!report_.unsupported.empty() && !options_.collect_unsupported) refuse_unsupported();
    return std::move(graph_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadModel, "{}: {}", file_, fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename Body>
  auto with_file(const Body& body) const {
    try {
      return body();
    } catch (const Error& error) {
      throw Error(error.code(), file_ + ": " + error.what());
    }
  }

  void check_versions() const {
    if (model_.ir_version() > ModelLimits::kNewestIrVersion) {
      fail(ErrorCode::kUnsupported, "{}: IR version {} is unsupported: the newest known is {}", file_,
           model_.ir_version(), ModelLimits::kNewestIrVersion);
    }
    const Opsets opsets = opsets_of(model_.opset_import());
    const auto standard = opsets.find("");
    if (standard == opsets.end()) {
      if (opsets.empty()) refuse("it imports no operator set");
      return;
    }
    if (standard->second < kOldestOpset || standard->second > ModelLimits::kNewestOpset) {
      fail(ErrorCode::kUnsupported, "{}: operator set {} of ai.onnx is unsupported: supported are {} to {}", file_,
           standard->second, kOldestOpset, ModelLimits::kNewestOpset);
    }
    if (model_.training_info_size() > 0)
      fail(ErrorCode::kUnsupported, "{}: training information in a model is unsupported", file_);
  }

  void check_name(const std::string& name, const char* what) const {
    if (name.empty()) refuse("{} has no name", what);
    if (!is_utf8(name)) refuse("the name {} of {} is no UTF-8", quote(name), what);
  }

  // ---- values that the graph starts from

  void add_initializers(const std::vector<SourceNode>& nodes) {
    onnx::GraphProto& graph = *model_.mutable_graph();
    if (graph.sparse_initializer_size() > 0) {
      fail(ErrorCode::kUnsupported, "{}: initializer {}: sparse tensors are unsupported", file_,
           quote(graph.sparse_initializer(0).values().name()));
    }
    std::unordered_set<std::string> read;
    for (const SourceNode& node : nodes) read.insert(node.proto->input().begin(), node.proto->input().end());
    for (const auto& output : graph.output()) read.insert(output.name());
    for (onnx::TensorProto& proto : *graph.mutable_initializer()) {
      const std::string name = proto.name();
      check_name(name, "an initializer");
      if (!given_.insert(name).second) refuse("two initializers are named {}", quote(name));
      Tensor tensor = with_file([&] { return take_tensor(proto, quote(name), external_); });
      report_.parameters += tensor.elements();
      initializers_.emplace(name, tensor.dtype());
      // One that nobody reads is checked, and its memory given back at once.
      if (read.count(name)) values_[name] = graph_.add_constant(name, std::move(tensor));
    }
  }

  void add_inputs() {
    std::set<std::string> names;
    for (const onnx::ValueInfoProto& input : model_.graph().input()) collect_symbols(input);
    for (const onnx::ValueInfoProto& input : model_.graph().input()) {
      const std::string& name = input.name();
      check_name(name, "a graph input");
      if (!names.insert(name).second) refuse("two inputs are named {}", quote(name));
      const DType dtype = dtype_of_input(input);
      if (const auto found = initializers_.find(name); found != initializers_.end()) {
        if (found->second != dtype) {
          refuse("input {} is declared as {}, its initializer is {}", quote(name), ridgeline::name(dtype),
                 ridgeline::name(found->second));
        }
        note(fmt::format("input {} has an initializer: it is taken as a constant", quote(name)));
        continue;
      }
      given_.insert(name);
      values_[name] = with_file([&] { return graph_.add_input(name, dtype, shape_of(input)); });
    }
  }

  DType dtype_of_input(const onnx::ValueInfoProto& input) const {
    const std::string item = "input " + quote(input.name());
    if (!input.has_type()) refuse("{} has no type", item);
    switch (input.type().value_case()) {
      case onnx::TypeProto::kTensorType:
        break;
      case onnx::TypeProto::VALUE_NOT_SET:
        refuse("{} has no type", item);
      default:
        fail(ErrorCode::kUnsupported, "{}: {}: sequences, maps, optionals and sparse tensors are unsupported", file_,
             item);
    }
    return with_file([&] { return dtype_of_proto(input.type().tensor_type().elem_type(), item); });
  }

  void collect_symbols(const onnx::ValueInfoProto& input) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (dim.value_case() == onnx::TensorShapeProto::Dimension::kDimParam) symbol_for(dim.dim_param());
    }
  }

  // A symbol's name becomes part of expressions: "batch size" and "2*n" would be read as more than a name.
  std::string symbol_for(const std::string& param) {
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
  std::string fresh_symbol(const std::string& stem) {
    std::string name = stem;
    for (int i = 1; !used_symbols_.insert(name).second; ++i) name = stem + "_" + std::to_string(i);
    return name;
  }

  std::optional<Shape> shape_of(const onnx::ValueInfoProto& input) {
    using Dimension = onnx::TensorShapeProto::Dimension;
    const auto& type = input.type().tensor_type();
    if (!type.has_shape()) return std::nullopt;
    if (type.shape().dim_size() > ModelLimits::kRank) {
      refuse("input {}: {} dimensions, at most {} are allowed", quote(input.name()), type.shape().dim_size(),
             ModelLimits::kRank);
    }
    Shape shape;
    Extents sizes;
    for (int i = 0; i < type.shape().dim_size(); ++i) {
      const Dimension& dim = type.shape().dim(i);
      // Old exporters write an open dimension as -1.
      if (dim.value_case() == Dimension::kDimValue && dim.dim_value() != -1) {
        if (dim.dim_value() < 0) refuse("input {}: dimension {} is {}", quote(input.name()), i, dim.dim_value());
        shape.push_back(Dim(dim.dim_value()));
        sizes.push_back(dim.dim_value());
      } else if (dim.value_case() == Dimension::kDimParam && !dim.dim_param().empty()) {
        shape.push_back(Dim::symbol(symbol_for(dim.dim_param())));
      } else {
        shape.push_back(Dim::symbol(symbol_for(input.name() + "_" + std::to_string(i))));
      }
    }
    try {
      element_count(sizes);
    } catch (const Error& error) {
      refuse("input {}: {}", quote(input.name()), error.what());
    }
    return shape;
  }

  // ---- nodes

  void add(const SourceNode& node) {
    const std::string op = escaped(node.proto->op_type()), domain = normal_domain(node.proto->domain());
    ++report_.operators[domain.empty() ? op : shown_domain(domain) + "." + op];
    if (!is_utf8(node.name)) refuse("{}: its name is no UTF-8", describe(node));
    try {
      build(node);
    } catch (const Error& error) {
      std::string reason = error.what();
      const bool unsupported =
          error.code() == ErrorCode::kUnsupported || reason.find("unsupported") != std::string::npos;
      if (unsupported && error.code() != ErrorCode::kResource) return mark_unsupported(node, reason);
      // Inference names the node itself; everything else gives the bare reason.
      if (!reason.starts_with("node '")) reason = describe(node) + ": " + reason;
      throw Error(error.code(), file_ + ": " + reason);
    }
  }

  void build(const SourceNode& node) {
    onnx::NodeProto& proto = *node.proto;
    const std::string domain = normal_domain(proto.domain());
    const auto imported = node.opsets->find(domain);
    const int64_t opset = imported == node.opsets->end() ? 1 : imported->second;
    if (proto.op_type().empty()) fail(ErrorCode::kBadModel, "it has no operator");
    if (!is_utf8(proto.op_type()) || !is_utf8(domain)) fail(ErrorCode::kBadModel, "its operator or domain is no UTF-8");
    if (imported == node.opsets->end() && !find_op(proto.op_type(), domain)) {
      fail(ErrorCode::kUnsupported, "domain {} is not imported, and there is no such operator", shown_domain(domain));
    }
    bool complete = true;
    NodeForm form{graph_, proto.op_type(), domain, node.name, opset, {}, {}, 0};
    for (const std::string& input : proto.input()) {
      if (input.empty()) {
        form.inputs.push_back(kNoValue);
        continue;
      }
      const auto found = values_.find(input);
      complete &= found != values_.end();  // else: an output of an unsupported node
      form.inputs.push_back(found == values_.end() ? kNoValue : found->second);
    }
    while (!form.inputs.empty() && form.inputs.back() == kNoValue && complete) form.inputs.pop_back();
    int outputs = proto.output_size();
    while (outputs > 0 && proto.output(outputs - 1).empty()) --outputs;
    form.outputs = outputs;
    form.attributes = take_attributes(proto, external_);
    if (form.op == "Constant" && domain.empty()) return add_constant(node, form.attributes);
    if (!complete) {
      form.op = newest_name(form.op, domain, opset);
      check_known(form.op, domain, form.op == proto.op_type() ? opset : ModelLimits::kNewestOpset);
      return;
    }
    upgrade(form);
    const OpSchema& op = check_known(form.op, domain, form.op == proto.op_type() ? opset : ModelLimits::kNewestOpset);
    check_attributes(op, form.attributes);
    std::vector<std::string> names(proto.output().begin(), proto.output().begin() + outputs);
    name_required_outputs(op, node.name, names);
    const NodeId id = graph_.node_capacity();
    try {
      graph_.add_node(op, std::move(form.inputs), std::move(form.attributes), int(names.size()), names, node.name);
    } catch (const Error&) {
      graph_.remove(graph_.node(id));  // so that the graph stays sound where unsupported nodes are collected
      throw;
    }
    graph_.node(id).origin = {node.name};
    for (int i = 0; i < outputs; ++i) {
      if (names[size_t(i)].empty()) continue;
      const ValueId value = graph_.node(id).output(i);
      if (graph_.value(value).name != names[size_t(i)]) {
        fail(ErrorCode::kBadModel, "the name {} is taken by a node made from an old form", quote(names[size_t(i)]));
      }
      values_[names[size_t(i)]] = value;
    }
  }

  /// Results that the operator always has and this model leaves out get a value all the same: kernels write them.
  void name_required_outputs(const OpSchema& op, const std::string& node, std::vector<std::string>& names) {
    for (int i = 0; i < op.outputs.size(); ++i) {
      const OutputSpec& spec = op.outputs[i];
      if (spec.optional) continue;
      if (int(names.size()) <= i && !spec.variadic) names.resize(size_t(i) + 1);
      const size_t end = spec.variadic ? names.size() : size_t(i) + 1;
      for (size_t k = size_t(i); k < end; ++k)
        if (names[k].empty()) names[k] = graph_.fresh_name(node + ".unused");
    }
  }

  /// The schema, or Error{kUnsupported} with the nearest form that there is.
  const OpSchema& check_known(const std::string& name, const std::string& domain, int64_t opset) {
    const OpSchema* op = find_op(name, domain);
    if (!op) fail(ErrorCode::kUnsupported, "there is no such operator here{}", nearest(name));
    if (!op->versions.empty() && domain.empty() && opset < op->versions[0]) {
      fail(ErrorCode::kUnsupported, "the oldest supported form is that of operator set {}", op->versions[0]);
    }
    return *op;
  }

  /// "; the nearest is ..." or nothing.
  std::string nearest(const std::string& name) {
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

  void add_constant(const SourceNode& node, const Attributes& attributes) {
    const onnx::NodeProto& proto = *node.proto;
    if (proto.output_size() != 1 || proto.input_size() != 0 || attributes.begin() == attributes.end() ||
        std::next(attributes.begin()) != attributes.end()) {
      fail(ErrorCode::kBadModel, "a Constant has no input, one output and exactly one attribute");
    }
    const auto& [key, value] = *attributes.begin();
    Tensor tensor;
    if (const auto* held = std::get_if<Tensor>(&value); held && key == "value")
      tensor = *held;
    else if (const auto* f = std::get_if<double>(&value); f && key == "value_float")
      tensor = Tensor::scalar(float(*f));
    else if (const auto* i = std::get_if<int64_t>(&value); i && key == "value_int")
      tensor = Tensor::scalar(*i);
    else if (const auto* fs = std::get_if<std::vector<double>>(&value); fs && key == "value_floats") {
      tensor = Tensor::from<float>({int64_t(fs->size())}, std::vector<float>(fs->begin(), fs->end()));
    } else if (const auto* is = std::get_if<std::vector<int64_t>>(&value); is && key == "value_ints") {
      tensor = Tensor::from<int64_t>({int64_t(is->size())}, *is);
    } else if (key == "value_string" || key == "value_strings") {
      fail(ErrorCode::kUnsupported, "tensors of strings are unsupported");
    } else {
      fail(ErrorCode::kBadModel,
           "attribute {} is none of value, value_float, value_int, value_floats, value_ints of its type", quote(key));
    }
    // Some exporters write weights as Constant nodes; a single number is none.
    if (is_float(tensor.dtype()) && tensor.elements() > 1) report_.parameters += tensor.elements();
    values_[proto.output(0)] = graph_.add_constant(proto.output(0), std::move(tensor));
  }

  void mark_unsupported(const SourceNode& node, std::string reason) {
    const std::string op = escaped(node.proto->op_type()), domain = normal_domain(node.proto->domain());
    const std::string own = describe(node);  // inference begins with it; the list names the node itself
    for (const std::string& prefix : {own + ": unsupported: ", own + ": "}) {
      if (reason.starts_with(prefix)) reason = reason.substr(prefix.size());
    }
    const auto [at, fresh] = unsupported_.emplace(std::tuple(op, domain, reason), report_.unsupported.size());
    if (!fresh) {
      ++report_.unsupported[at->second].count;
      return;
    }
    const auto version = node.opsets->find(domain);
    report_.unsupported.push_back({op, shown_domain(domain), version == node.opsets->end() ? 0 : int(version->second),
                                   1, escaped(node.name), reason});
  }

  [[noreturn]] void refuse_unsupported() const {
    constexpr int kMostLines = 50;
    std::string text;
    int nodes = 0, lines = 0;
    for (const UnsupportedOperator& each : report_.unsupported) {
      nodes += each.count;
      if (++lines > kMostLines) continue;
      text += fmt::format("\n  {} (domain {}, operator set {}): {} node{}, first '{}': {}", each.op, each.domain,
                          each.version, each.count, each.count == 1 ? "" : "s", each.first_node, each.reason);
    }
    if (lines > kMostLines) text += fmt::format("\n  and {} more", lines - kMostLines);
    fail(ErrorCode::kUnsupported, "{}: {} node{} unsupported:{}", file_, nodes, nodes == 1 ? " is" : "s are", text);
  }

  // ---- outputs

  void add_outputs() {
    if (model_.graph().output_size() == 0) refuse("the graph has no output");
    std::unordered_set<std::string> written(given_);
    for (const onnx::NodeProto& node : model_.graph().node())
      written.insert(node.output().begin(), node.output().end());
    for (const onnx::ValueInfoProto& output : model_.graph().output()) {
      const std::string& name = output.name();
      check_name(name, "a graph output");
      const auto found = values_.find(name);
      if (found == values_.end()) {
        if (!written.count(name)) refuse("graph output {} is written by no node", quote(name));
        continue;  // by an unsupported one
      }
      const int declared = output.type().tensor_type().elem_type();
      const DType dtype = graph_.value(found->second).dtype();
      if (declared != 0 && dtype != DType::kNone && dtype_of_onnx(declared) != dtype) {
        refuse("graph output {} is declared as {}, but it is {}", quote(name), onnx_type_name(declared),
               ridgeline::name(dtype));
      }
      // Where inference has to wait for the content of an input, the declaration is all that is known.
      if (dtype == DType::kNone) graph_.value(found->second).info.dtype = dtype_of_onnx(declared);
      compare_shapes(output, graph_.value(found->second));
      graph_.mark_output(found->second);
    }
  }

  /// The declaration of an output decides nothing, but one that contradicts the graph is a fault of the exporter's.
  void compare_shapes(const onnx::ValueInfoProto& output, const Value& value) {
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

  void note(std::string text) {
    constexpr size_t kMost = 1000;
    if (report_.notes.size() < kMost) report_.notes.push_back(std::move(text));
  }

  onnx::ModelProto model_;
  std::string file_;
  ExternalData external_;
  const ImportOptions& options_;
  ImportReport own_report_;
  ImportReport& report_;
  Graph graph_;
  const Opsets* opsets_ = nullptr;
  std::unordered_set<std::string> given_;  // inputs and initializers
  std::unordered_map<std::string, DType> initializers_;
  std::unordered_map<std::string, ValueId> values_;       // what is in the graph, by its name in the file
  std::unordered_map<std::string, std::string> symbols_;  // dim_param -> symbol
  std::unordered_set<std::string> used_symbols_;
  std::unordered_map<std::string, std::string> nearest_;  // unknown operator -> what is said about it
  std::map<std::tuple<std::string, std::string, std::string>, size_t>
      unsupported_;  // operator, domain, reason -> its line
};

}  // namespace

Graph import_onnx(const std::string& path, const ImportOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return Importer(read_model(path), path, folder.empty() ? "." : folder.string(), options).run();
}

Graph import_onnx(std::span<const std::byte> bytes, const std::string& folder, const std::string& name,
                  const ImportOptions& options) {
  return Importer(read_model(bytes, name), name, folder, options).run();
}

}  // namespace ridgeline
