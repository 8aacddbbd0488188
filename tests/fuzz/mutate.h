// Mutants of a parsed model: what bytes changed at random hardly ever yield, since a model has to parse before anything
// that matters sees it. Used by tests/mutants_test.cpp and by the fuzz target.
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "onnx.pb.h"

namespace ridgeline {

class Mutator {
 public:
  Mutator(uint64_t seed, std::vector<std::string> operators) : random_(seed), operators_(std::move(operators)) {}

  /// One to four changes.
  void mutate(onnx::ModelProto& model) {
    for (uint64_t i = 0, n = 1 + below(4); i < n; ++i) change(model);
  }

  /// Bytes of another format: some are overwritten, inserted or cut off.
  void mutate(std::string& bytes) {
    for (uint64_t i = 0, n = 1 + below(4); i < n && !bytes.empty(); ++i) {
      const size_t at = below(bytes.size());
      switch (below(6)) {
        case 0:
          bytes[at] = char(below(256));
          break;
        case 1:
          bytes[at] = char(bytes[at] ^ char(1 << below(8)));
          break;
        case 2:
          bytes.insert(at, 1 + below(9), char(below(3) == 0 ? 0xff : below(256)));
          break;
        case 3:
          bytes.erase(at, 1 + below(9));
          break;
        case 4:
          bytes.resize(at);
          break;
        default: {  // a number where one may be
          const int64_t value = number();
          for (size_t k = 0; k < 8 && at + k < bytes.size(); ++k) bytes[at + k] = char(uint64_t(value) >> 8 * k);
        }
      }
    }
  }

 private:
  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <typename List>
  auto& any(List& list) {
    return *(list.begin() + int64_t(below(uint64_t(list.size()))));
  }

  template <typename T, size_t N>
  const T& one_of(const T (&list)[N]) {
    return list[below(N)];
  }

  int64_t number() {
    constexpr int64_t kOdd[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                -2,
                                5,
                                7,
                                16,
                                63,
                                64,
                                65,
                                255,
                                4096,
                                1 << 20,
                                int64_t(1) << 31,
                                -(int64_t(1) << 31),
                                int64_t(1) << 40,
                                (int64_t(1) << 46) + 1,
                                int64_t(1) << 62,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};
    return one_in(3) ? int64_t(below(8)) - 2 : one_of(kOdd);
  }
  float real() {
    constexpr float kOdd[] = {0,
                              -0.0F,
                              1,
                              -1,
                              0.5F,
                              1e-30F,
                              3e38F,
                              -3e38F,
                              std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()};
    return one_of(kOdd);
  }

  std::string name_in(const onnx::GraphProto& graph) {
    std::vector<std::string> names = {"", "nobody"};
    for (const auto& each : graph.input()) names.push_back(each.name());
    for (const auto& each : graph.initializer()) names.push_back(each.name());
    for (const auto& each : graph.node()) names.insert(names.end(), each.output().begin(), each.output().end());
    return any(names);
  }

  void change(onnx::ModelProto& model) {
    onnx::GraphProto* graph = model.mutable_graph();
    // Into a branch or a body, where there is one.
    for (int depth = 0; depth < 3 && one_in(2); ++depth) {
      std::vector<onnx::GraphProto*> inner;
      for (auto& node : *graph->mutable_node())
        for (auto& attribute : *node.mutable_attribute())
          if (attribute.has_g()) inner.push_back(attribute.mutable_g());
      if (inner.empty()) break;
      graph = any(inner);
    }
    switch (below(8)) {
      case 0:
        return graph->input().empty() ? void() : type(any(*graph->mutable_input()), *graph);
      case 1:
        return graph->output().empty() ? void() : type(any(*graph->mutable_output()), *graph);
      case 2:
        return graph->initializer().empty() ? void() : tensor(any(*graph->mutable_initializer()), *graph);
      case 3:
        return whole(model, *graph);
      default:
        if (!graph->node().empty()) node(any(*graph->mutable_node()), *graph);
    }
  }

  void whole(onnx::ModelProto& model, onnx::GraphProto& graph) {
    switch (below(6)) {
      case 0:
        if (!model.opset_import().empty()) any(*model.mutable_opset_import()).set_version(1 + int64_t(below(30)));
        break;
      case 1:
        if (!graph.node().empty()) *graph.add_node() = onnx::NodeProto(any(graph.node()));
        break;
      case 2:
        if (!graph.node().empty()) graph.mutable_node()->DeleteSubrange(int(below(uint64_t(graph.node_size()))), 1);
        break;
      case 3:
        if (graph.node_size() > 1)
          graph.mutable_node()->SwapElements(0, 1 + int(below(uint64_t(graph.node_size()) - 1)));
        break;
      case 4:  // an input becomes a constant: what reads it may be folded
        if (!graph.input().empty()) {
          onnx::ValueInfoProto& input = any(*graph.mutable_input());
          onnx::TensorProto& made = *graph.add_initializer();
          made.set_name(input.name());
          made.set_data_type(7);
          made.add_dims(int64_t(1 + below(4)));
          for (int64_t i = 0; i < made.dims(0); ++i) made.add_int64_data(number());
          input.mutable_type()->mutable_tensor_type()->set_elem_type(7);
        }
        break;
      default:
        graph.add_output()->set_name(name_in(graph));
    }
  }

  void type(onnx::ValueInfoProto& info, const onnx::GraphProto& graph) {
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    auto& dims = *tensor.mutable_shape()->mutable_dim();
    switch (below(6)) {
      case 0:
        tensor.set_elem_type(int(below(28)));
        break;
      case 1:
        if (!dims.empty()) any(dims).set_dim_value(number());
        break;
      case 2:
        if (!dims.empty()) any(dims).set_dim_param(one_in(2) ? "n" : "m");
        break;
      case 3:
        dims.Add()->set_dim_value(number());
        break;
      case 4:
        one_in(2) && !dims.empty() ? dims.RemoveLast() : tensor.clear_shape();
        break;
      default:
        info.set_name(name_in(graph));
    }
  }

  void tensor(onnx::TensorProto& t, const onnx::GraphProto& graph) {
    switch (below(7)) {
      case 0:
        t.set_data_type(int(below(28)));
        break;
      case 1:
        if (!t.dims().empty()) t.set_dims(int(below(uint64_t(t.dims_size()))), number());
        break;
      case 2:
        t.add_dims(number());
        break;
      case 3:
        t.mutable_raw_data()->resize(below(uint64_t(t.raw_data().size()) * 2 + 1));
        break;
      case 4: {  // another content of the same size
        std::string& raw = *t.mutable_raw_data();
        const int64_t value = number();
        const size_t width = t.data_type() == 7 ? 8 : 4;
        if (raw.size() < width) break;
        const size_t at = below(raw.size() / width) * width;
        for (size_t k = 0; k < width; ++k) raw[at + k] = char(uint64_t(value) >> 8 * k);
        break;
      }
      case 5:
        if (!t.int64_data().empty()) t.set_int64_data(int(below(uint64_t(t.int64_data_size()))), number());
        if (!t.float_data().empty()) t.set_float_data(int(below(uint64_t(t.float_data_size()))), real());
        break;
      default:
        t.set_name(name_in(graph));
    }
  }

  void node(onnx::NodeProto& n, const onnx::GraphProto& graph) {
    switch (below(9)) {
      case 0:
        n.set_op_type(any(operators_));
        break;
      case 1:
        n.set_op_type(any(graph.node()).op_type());
        break;
      case 2:
        if (!n.input().empty()) n.mutable_input()->DeleteSubrange(int(below(uint64_t(n.input_size()))), 1);
        break;
      case 3:
        n.add_input(name_in(graph));
        break;
      case 4:
        if (!n.input().empty()) *n.mutable_input(int(below(uint64_t(n.input_size())))) = name_in(graph);
        break;
      case 5:
        one_in(2) || n.output().empty() ? n.add_output("extra" + std::to_string(below(9)))
                                        : n.mutable_output()->RemoveLast();
        break;
      default:
        attribute(n);
    }
  }

  void attribute(onnx::NodeProto& n) {
    constexpr const char* kNames[] = {"axis",      "axes",        "perm",      "pads",     "kernel_shape", "strides",
                                      "dilations", "group",       "to",        "keepdims", "shape",        "value",
                                      "mode",      "num_outputs", "blocksize", "alpha"};
    if (n.attribute().empty() || one_in(5)) {
      onnx::AttributeProto& made = *n.add_attribute();
      made.set_name(one_of(kNames));
      made.set_type(onnx::AttributeProto::INTS);
      for (uint64_t i = 0, count = below(5); i < count; ++i) made.add_ints(number());
      if (one_in(2)) {
        made.set_type(onnx::AttributeProto::INT);
        made.set_i(number());
      }
      return;
    }
    onnx::AttributeProto& a = any(*n.mutable_attribute());
    switch (below(8)) {
      case 0:
        a.set_type(onnx::AttributeProto_AttributeType(below(12)));
        break;
      case 1:
        a.set_name(one_of(kNames));
        break;
      case 2:
        n.mutable_attribute()->RemoveLast();
        break;
      case 3:
        if (a.has_t()) tensor(*a.mutable_t(), onnx::GraphProto());
        break;
      case 4:
        a.add_ints(number());
        break;
      default:
        if (!a.ints().empty())
          one_in(4) ? a.mutable_ints()->RemoveLast() : a.set_ints(int(below(uint64_t(a.ints_size()))), number());
        else if (a.has_i())
          a.set_i(number());
        else if (a.has_f())
          a.set_f(real());
        else if (a.has_s())
          a.set_s(one_in(2) ? "" : a.s() + "x");
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> operators_;
};

}  // namespace ridgeline
