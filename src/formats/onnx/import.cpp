#include "formats/onnx/import.h"

#include <filesystem>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "formats/onnx/attribute_proto.h"
#include "formats/onnx/functions.h"
#include "formats/onnx/import_shared.h"
#include "formats/onnx/model_file.h"
#include "formats/onnx/node_order.h"
#include "formats/onnx/subgraphs.h"
#include "formats/onnx/tensor_proto.h"
#include "formats/onnx/upgrade.h"
#include "ir/control.h"
#include "ops/catalogue.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr std::string_view kOtherTypes = "sequences, maps, optionals and sparse tensors are unsupported";

bool is_no_tensor(const onnx::ValueInfoProto& value) {
  const auto kind = value.type().value_case();
  return kind != onnx::TypeProto::kTensorType && kind != onnx::TypeProto::VALUE_NOT_SET;
}

/// Imports the graph of a model or, with a parent, a subgraph of one of the parent's nodes.
class Importer {
 public:
  Importer(ImportShared& shared, LocalFunctions& functions, onnx::GraphProto& proto, const Opsets& opsets)
      : shared_(shared), functions_(functions), proto_(proto), opsets_(opsets), file_(shared.file) {}

  Graph run() {
    add_all(std::nullopt);
    if (!shared_.report.unsupported.empty() && !shared_.options.collect_unsupported) shared_.refuse_unsupported();
    return std::move(graph_);
  }

 private:
  /// A subgraph of `node`; names of its nodes begin with `prefix`.
  Importer(Importer& parent, const SourceNode& node, onnx::GraphProto& proto, std::string prefix)
      : shared_(parent.shared_),
        functions_(parent.functions_),
        proto_(proto),
        opsets_(*node.opsets),
        file_(parent.file_),
        parent_(&parent),
        prefix_(std::move(prefix)),
        depth_(parent.depth_ + 1) {
    if (depth_ > ModelLimits::kSubgraphDepth) {
      fail(ErrorCode::kUnsupported, "subgraphs nest deeper than {}: unsupported", ModelLimits::kSubgraphDepth);
    }
  }

  /// `formals`: what is known of the inputs, where it is more than the file says (a subgraph's).
  void add_all(const std::optional<std::vector<ValueInfo>>& formals) {
    const std::vector<SourceNode> nodes = functions_.inlined(proto_, opsets_, prefix_);
    graph_.name = is_utf8(proto_.name()) ? proto_.name() : "";
    add_initializers(nodes);
    add_inputs(formals);
    for (const SourceNode& node : nodes) written_.insert(node.proto->output().begin(), node.proto->output().end());
    const auto around = [this](const std::string& name) { return parent_ && parent_->defines(name); };
    for (const int index : node_order(file_, nodes, given_, around)) add(nodes[size_t(index)]);
    add_outputs();
  }

  /// Is the name one of this graph's, or of one around it? (Nodes that are still to come count: the order of a graph's
  /// nodes follows what their subgraphs read.)
  bool defines(const std::string& name) const {
    return given_.count(name) || written_.count(name) || values_.count(name) || (parent_ && parent_->defines(name));
  }

  /// The value of that name: of this graph or, captured, of one around it. kNoValue: an unsupported node writes it.
  ValueId lookup(const std::string& name) {
    if (const auto found = values_.find(name); found != values_.end()) return found->second;
    const ValueId outer = parent_ ? parent_->lookup(name) : kNoValue;
    if (outer == kNoValue) return kNoValue;
    const Value& value = parent_->graph_.value(outer);
    if (value.is_constant()) {  // one content, one identity: it is packed once for all graphs
      const ValueId own = graph_.add_constant(name, value.info.constant);
      graph_.value(own).constant_id = value.constant_id;
      return values_[name] = own;
    }
    captures_.push_back({name, outer});
    return values_[name] = graph_.add_input(name, value.dtype(), value.info.shape);
  }

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

  void check_name(const std::string& name, const char* what) const {
    if (name.empty()) refuse("{} has no name", what);
    if (!is_utf8(name)) refuse("the name {} of {} is no UTF-8", quote(name), what);
  }

  // ---- values that the graph starts from

  void add_initializers(const std::vector<SourceNode>& nodes) {
    onnx::GraphProto& graph = proto_;
    if (graph.sparse_initializer_size() > 0) {
      fail(ErrorCode::kUnsupported, "{}: initializer {}: sparse tensors are unsupported", file_,
           quote(graph.sparse_initializer(0).values().name()));
    }
    std::unordered_set<std::string> read;
    for (const SourceNode& node : nodes) {
      read.insert(node.proto->input().begin(), node.proto->input().end());
      for (std::string& name : captured_names(*node.proto)) read.insert(std::move(name));
    }
    for (const auto& output : graph.output()) read.insert(output.name());
    for (onnx::TensorProto& proto : *graph.mutable_initializer()) {
      const std::string name = proto.name();
      check_name(name, "an initializer");
      if (!given_.insert(name).second) refuse("two initializers are named {}", quote(name));
      Tensor tensor = with_file([&] { return take_tensor(proto, quote(name), shared_.external); });
      shared_.report.parameters += tensor.elements();
      initializers_.emplace(name, tensor.dtype());
      // One that nobody reads is checked, and its memory given back at once.
      if (read.count(name)) values_[name] = graph_.add_constant(name, std::move(tensor));
    }
  }

  void add_inputs(const std::optional<std::vector<ValueInfo>>& formals) {
    std::set<std::string> names;
    if (!formals)
      for (const onnx::ValueInfoProto& input : proto_.input()) collect_symbols(input);
    for (const onnx::ValueInfoProto& input : proto_.input()) {
      const std::string& name = input.name();
      check_name(name, "a graph input");
      if (!names.insert(name).second) refuse("two inputs are named {}", quote(name));
      const bool formal = formals && !initializers_.count(name);
      if (formal && graph_.inputs.size() >= formals->size()) refuse_formals(formals->size());
      const ValueInfo known = formal ? (*formals)[graph_.inputs.size()] : ValueInfo();
      DType dtype = known.dtype;
      try {
        if (dtype == DType::kNone || input.has_type()) dtype = dtype_of_input(input);
      } catch (const Error& error) {
        // Types that the standard has; a number that it has not is a broken file.
        constexpr int kNewestType = 28;
        const bool defined = input.type().tensor_type().elem_type() <= kNewestType;
        if (formal || !defined || !shared_.leaves_out(error, "input", name)) throw;
        given_.insert(name);
        continue;
      }
      if (const auto found = initializers_.find(name); found != initializers_.end()) {
        if (found->second != dtype) {
          refuse("input {} is declared as {}, its initializer is {}", quote(name), ridgeline::name(dtype),
                 ridgeline::name(found->second));
        }
        shared_.note(fmt::format("input {} has an initializer: it is taken as a constant", quote(name)));
        continue;
      }
      given_.insert(name);
      if (formal && known.dtype != DType::kNone && known.dtype != dtype) {
        fail(ErrorCode::kBadModel, "input {} of its subgraph is declared as {}, but is given {}", quote(name),
             ridgeline::name(dtype), ridgeline::name(known.dtype));
      }
      values_[name] = with_file(
          [&] { return graph_.add_input(name, dtype, formal ? formal_shape(input, known.shape) : shape_of(input)); });
    }
    if (formals && graph_.inputs.size() != formals->size()) refuse_formals(formals->size());
  }

  [[noreturn]] void refuse_formals(size_t wanted) const {
    fail(ErrorCode::kBadModel, "its subgraph has {} inputs, the node needs one with {}", proto_.input_size(), wanted);
  }

  /// What the node around the subgraph gives decides; a counter or condition may be of shape [] or [1] as the subgraph
  /// declares it.
  static std::optional<Shape> formal_shape(const onnx::ValueInfoProto& input, const std::optional<Shape>& known) {
    const auto& type = input.type().tensor_type();
    if (known && known->empty() && type.has_shape() && type.shape().dim_size() == 1) return Shape{Dim(1)};
    return known;
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
        fail(ErrorCode::kUnsupported, "{}: {}: {}", file_, item, kOtherTypes);
    }
    return with_file([&] { return dtype_of_proto(input.type().tensor_type().elem_type(), item); });
  }

  void collect_symbols(const onnx::ValueInfoProto& input) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (dim.value_case() == onnx::TensorShapeProto::Dimension::kDimParam) shared_.symbol_for(dim.dim_param());
    }
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
        shape.push_back(Dim::symbol(shared_.symbol_for(dim.dim_param())));
      } else {
        shape.push_back(Dim::symbol(shared_.symbol_for(input.name() + "_" + std::to_string(i))));
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
    ++shared_.report.operators[domain.empty() ? op : shown_domain(domain) + "." + op];
    if (!is_utf8(node.name)) refuse("{}: its name is no UTF-8", describe(node));
    try {
      build(node);
    } catch (const Error& error) {
      std::string reason = error.what();
      const bool unsupported =
          error.code() == ErrorCode::kUnsupported || reason.find("unsupported") != std::string::npos;
      if (unsupported && error.code() != ErrorCode::kResource) {
        complete_ = false;
        return shared_.mark_unsupported(node, reason);
      }
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
      form.inputs.push_back(lookup(input));
      complete &= form.inputs.back() != kNoValue;  // else: an output of an unsupported node
    }
    const OpSchema* const known = find_op(proto.op_type(), domain);
    const bool bodies = known && has_bodies(*known);
    while (!form.inputs.empty() && form.inputs.back() == kNoValue && complete) form.inputs.pop_back();
    int outputs = proto.output_size();
    while (outputs > 0 && proto.output(outputs - 1).empty()) --outputs;
    form.outputs = outputs;
    form.attributes = take_attributes(proto, shared_.external, bodies);
    std::vector<std::string> names(proto.output().begin(), proto.output().begin() + outputs);
    if (bodies && complete) complete = add_bodies(node, *known, form, names);
    if (form.op == "Constant" && domain.empty()) return add_constant(node, form.attributes);
    if (!complete) {
      complete_ = false;
      form.op = newest_name(form.op, domain, opset);
      shared_.known_op(form.op, domain, form.op == proto.op_type() ? opset : ModelLimits::kNewestOpset);
      return;
    }
    upgrade(form);
    const OpSchema& op =
        shared_.known_op(form.op, domain, form.op == proto.op_type() ? opset : ModelLimits::kNewestOpset);
    check_attributes(op, form.attributes);
    name_required_outputs(op, node.name, names);
    const NodeId id = graph_.node_capacity();
    try {
      graph_.add_node(op, std::move(form.inputs), std::move(form.attributes), int(names.size()), names, node.name);
    } catch (const Error& error) {
      // In a branch that is never taken shapes need not fit: inference of the node around it decides.
      if (!parent_ || error.code() != ErrorCode::kBadModel || !fits_without_shapes(graph_, graph_.node(id))) {
        graph_.remove(graph_.node(id));  // so that the graph stays sound where unsupported nodes are collected
        throw;
      }
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

  // ---- subgraphs

  /// The subgraphs of a node become graphs; what they read from around them becomes inputs of theirs and of the node.
  /// False: something in them is unsupported.
  bool add_bodies(const SourceNode& node, const OpSchema& op, NodeForm& form, std::vector<std::string>& names) {
    if (form.attributes.has(kCaptures)) fail(ErrorCode::kUnsupported, "attribute '{}' is unsupported", kCaptures);
    if (op.name == "Scan" && form.opset < 9 && !shared_.single_batches.count(node.proto))
      shared_.single_batches.insert(scan_of_batches(*node.proto, form));
    const std::vector<ValueInfo> formals = formals_of(form);
    std::vector<Capture> captures;
    std::unordered_set<std::string> captured;
    std::vector<std::shared_ptr<Graph>> graphs;
    std::vector<std::vector<Capture>> read;
    bool complete = true;
    size_t results = 0;
    for (const AttributeSpec& spec : op.attributes) {
      if (spec.type != AttributeSpec::Type::kGraph) continue;
      const std::string key(spec.name);
      const std::string part = key.substr(0, key.find('_'));  // then, else, body
      Importer body(*this, node, subgraph_of(*node.proto, key), fmt::format("{}/{}/", escaped(node.name), part));
      body.add_all(formals);
      complete &= body.complete_;
      if (!graphs.empty() && body.proto_.output_size() != int(results)) {
        fail(ErrorCode::kBadModel, "its subgraphs have {} and {} outputs", results, body.proto_.output_size());
      }
      results = size_t(body.proto_.output_size());
      read.push_back(body.captures_);
      for (const Capture& capture : read.back())
        if (captured.insert(capture.name).second) captures.push_back(capture);
      if (captures.size() > size_t(ModelLimits::kNodeInputs))
        fail(ErrorCode::kBadModel, "its subgraphs read more than {} values", ModelLimits::kNodeInputs);
      graphs.push_back(std::make_shared<Graph>(std::move(body.graph_)));
      form.attributes.set(key, std::shared_ptr<const Graph>(graphs.back()));
    }
    if (!complete) return false;
    for (size_t g = 0; g < graphs.size(); ++g) order_captures(graph_, *graphs[g], formals.size(), read[g], captures);
    for (const Capture& capture : captures) form.inputs.push_back(capture.outer);
    if (op.name != "If") form.attributes.set(kCaptures, int64_t(captures.size()));
    const size_t conditions = op.name == "Loop" ? 1 : 0;
    if (results < conditions || names.size() > results - conditions) {
      fail(ErrorCode::kBadModel, "it has {} outputs, its subgraph {}{}", names.size(), results,
           conditions ? ", of which the first is the condition" : "");
    }
    names.resize(results - conditions);
    for (std::string& name : names)
      if (name.empty()) name = graph_.fresh_name(node.name + ".unused");
    return true;
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
    if (is_float(tensor.dtype()) && tensor.elements() > 1) shared_.report.parameters += tensor.elements();
    values_[proto.output(0)] = graph_.add_constant(proto.output(0), std::move(tensor));
  }

  // ---- outputs

  void add_outputs() {
    if (proto_.output_size() == 0) refuse("the graph has no output");
    for (const onnx::ValueInfoProto& output : proto_.output()) {
      const std::string& name = output.name();
      check_name(name, "a graph output");
      if (is_no_tensor(output)) {
        if (shared_.report.unsupported.empty() && !shared_.options.collect_unsupported)
          fail(ErrorCode::kUnsupported, "{}: output {}: {}", file_, quote(name), kOtherTypes);
        complete_ = false;
        continue;
      }
      const ValueId value = lookup(name);
      if (value == kNoValue) {
        if (!given_.count(name) && !written_.count(name)) refuse("graph output {} is written by no node", quote(name));
        complete_ = false;
        continue;  // by an unsupported one
      }
      const int declared = output.type().tensor_type().elem_type();
      const DType dtype = graph_.value(value).dtype();
      if (declared != 0 && dtype != DType::kNone && dtype_of_onnx(declared) != dtype) {
        refuse("graph output {} is declared as {}, but it is {}", quote(name), onnx_type_name(declared),
               ridgeline::name(dtype));
      }
      // Where inference has to wait for the content of an input, the declaration is all that is known.
      if (dtype == DType::kNone) graph_.value(value).info.dtype = dtype_of_onnx(declared);
      if (!parent_) shared_.compare_shapes(output, graph_.value(value));
      graph_.mark_output(value);
    }
  }

  ImportShared& shared_;
  LocalFunctions& functions_;
  onnx::GraphProto& proto_;
  const Opsets& opsets_;
  const std::string& file_;
  Importer* const parent_ = nullptr;
  const std::string prefix_;
  const int depth_ = 0;
  bool complete_ = true;  // nothing unsupported in it
  Graph graph_;
  std::unordered_set<std::string> given_;    // inputs and initializers
  std::unordered_set<std::string> written_;  // by nodes
  std::unordered_map<std::string, DType> initializers_;
  std::unordered_map<std::string, ValueId> values_;  // what is in the graph, by its name in the file
  std::vector<Capture> captures_;                    // of a subgraph: names read, and the parent's values
};

Graph import_model(onnx::ModelProto model, const std::string& file, const std::string& folder,
                   const ImportOptions& options) {
  check_versions(model, file);
  ImportShared shared(file, folder, options);
  LocalFunctions functions(model, file);
  return Importer(shared, functions, *model.mutable_graph(), functions.opsets()).run();
}

}  // namespace

Graph import_onnx(const std::string& path, const ImportOptions& options) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return import_model(read_model(path), path, folder.empty() ? "." : folder.string(), options);
}

Graph import_onnx(std::span<const std::byte> bytes, const std::string& folder, const std::string& name,
                  const ImportOptions& options) {
  return import_model(read_model(bytes, name), name, folder, options);
}

}  // namespace ridgeline
