// The ONNX importer and exporter under test: a model built piece by piece, and a folder of its own.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "formats/onnx/import.h"
#include "onnx.pb.h"

namespace ridgeline {

class OnnxTest : public testing::Test {
 protected:
  OnnxTest() {
    folder_ = std::filesystem::temp_directory_path() / ("ridgeline_onnx_" + std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    opset(17);
  }
  ~OnnxTest() override { std::filesystem::remove_all(folder_); }

  // ---- a model, piece by piece
  void opset(int64_t version, const std::string& domain = "") {
    for (auto& import : *model_.mutable_opset_import()) {
      if (import.domain() == domain) return import.set_version(version);
    }
    auto& import = *model_.add_opset_import();
    import.set_domain(domain);
    import.set_version(version);
  }
  onnx::GraphProto& graph() { return *model_.mutable_graph(); }
  static void set_type(onnx::ValueInfoProto& info, const std::vector<std::string>& dims, int type) {
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const std::string& dim : dims) {
      auto& to = *tensor.mutable_shape()->add_dim();
      if (dim.empty()) continue;
      if (std::isdigit(static_cast<unsigned char>(dim[0])) || dim[0] == '-')
        to.set_dim_value(std::stoll(dim));
      else
        to.set_dim_param(dim);
    }
  }
  void input(const std::string& name, const std::vector<std::string>& dims, int type = 1) {
    auto& info = *graph().add_input();
    info.set_name(name);
    set_type(info, dims, type);
  }
  void output(const std::string& name) { graph().add_output()->set_name(name); }
  onnx::NodeProto& node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = "") {
    return add_node(graph().mutable_node(), op, inputs, outputs, name);
  }
  static onnx::NodeProto& add_node(google::protobuf::RepeatedPtrField<onnx::NodeProto>* nodes, const std::string& op,
                                   const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                                   const std::string& name) {
    auto& out = *nodes->Add();
    out.set_op_type(op);
    out.set_name(name);
    for (const auto& each : inputs) out.add_input(each);
    for (const auto& each : outputs) out.add_output(each);
    return out;
  }
  static void set(onnx::NodeProto& node, const std::string& name, int64_t value) {
    auto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(value);
  }
  static void set(onnx::NodeProto& node, const std::string& name, float value) {
    auto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::FLOAT);
    a.set_f(value);
  }
  static void set(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
    auto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : values) a.add_ints(value);
  }
  onnx::TensorProto& weight(const std::string& name, const std::vector<int64_t>& dims, int type = 1) {
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const int64_t dim : dims) tensor.add_dims(dim);
    return tensor;
  }
  void raw_weight(const std::string& name, const std::vector<float>& values) {
    weight(name, {int64_t(values.size())}).set_raw_data(values.data(), values.size() * sizeof(float));
  }

  Graph import(const ImportOptions& options = {}) {
    const std::string bytes = model_.SerializeAsString();
    return import_onnx(std::as_bytes(std::span(bytes.data(), bytes.size())), folder_.string(), "model.onnx", options);
  }
  /// The message of the refusal; every string has to occur in it.
  void refused(ErrorCode code, const std::vector<std::string>& mentions) {
    try {
      import();
    } catch (const Error& error) {
      EXPECT_EQ(int(error.code()), int(code)) << error.what();
      EXPECT_EQ(error.exit_code(), 2);
      for (const std::string& each : mentions)
        EXPECT_NE(std::string(error.what()).find(each), std::string::npos) << error.what();
      return;
    }
    ADD_FAILURE() << "accepted";
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  onnx::ModelProto model_;
  std::filesystem::path folder_;
};

inline const Node& only(const Graph& graph, std::string_view op) {
  const Node* found = nullptr;
  for (const NodeId id : graph.order()) {
    if (graph.node(id).is(op)) found = &graph.node(id);
  }
  if (!found) throw std::runtime_error("no " + std::string(op) + " in\n" + graph.text());
  return *found;
}

inline std::vector<double> constant(const Graph& graph, ValueId value) {
  const Tensor* tensor = graph.constant(value);
  return tensor ? tensor->to_f64() : std::vector<double>{-12345};
}

}  // namespace ridgeline
