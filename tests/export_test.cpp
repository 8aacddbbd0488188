// What is written: ONNX models, .npy files; and tensors read back.
#include "formats/onnx/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "formats/npy.h"
#include "formats/onnx/tensor_proto.h"
#include "ir/reference.h"
#include "onnx_model.h"

namespace ridgeline {
namespace {

using ExportTest = OnnxTest;

/// Runs a graph of plain operators by their references.
std::vector<Tensor> evaluate(const Graph& graph, const std::vector<Tensor>& inputs) {
  std::map<ValueId, Tensor> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i]] = inputs[i];
  for (ValueId v = 0; v < graph.value_count(); ++v) {
    if (graph.constant(v)) values[v] = *graph.constant(v);
  }
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    std::vector<Tensor> operands;
    for (const ValueId v : node.inputs) operands.push_back(v == kNoValue ? Tensor() : values[v]);
    const std::vector<Tensor> results = run_reference(*node.op, node.attributes, operands, int(node.outputs.size()));
    for (size_t o = 0; o < results.size(); ++o) values[node.outputs[o]] = results[o];
  }
  std::vector<Tensor> outputs;
  for (const ValueId v : graph.outputs) outputs.push_back(values[v]);
  return outputs;
}

Tensor ramp(Extents shape, float start, float step) {
  Tensor tensor(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.as<float>()[i] = std::sin(start + step * float(i));
  return tensor;
}

void expect_near(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < want.elements(); ++i) EXPECT_NEAR(got.f64(i), want.f64(i), 1e-5) << i;
}

TEST_F(ExportTest, NpyRoundTrip) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                            DType::kU8, DType::kU16, DType::kU32, DType::kU64, DType::kBool}) {
    for (const Extents& shape : {Extents{}, Extents{3}, Extents{2, 3}, Extents{0, 4}}) {
      Tensor tensor(dtype, shape);
      for (int64_t i = 0; i < tensor.elements(); ++i) store_f64(dtype, tensor.data(), i, double(i % 2 + 1));
      write_npy(tensor, path("t.npy"));
      const Tensor back = read_npy(path("t.npy"));
      EXPECT_EQ(name(back.dtype()), name(dtype));
      EXPECT_EQ(back.shape(), shape);
      EXPECT_EQ(back.to_f64(), tensor.to_f64());
    }
  }
}

TEST_F(ExportTest, BrokenNpyIsRefused) {
  const auto npy = [](const std::string& header, const std::string& data, int length = -1) {
    const int bytes = length < 0 ? int(header.size()) : length;
    return std::string("\x93NUMPY\x01\x00", 8) + char(bytes & 255) + char(bytes >> 8) + header + data;
  };
  const std::string eight(8, '\0');
  const std::vector<std::string> broken = {
      "",
      "NUMPY",
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", eight, 60000),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", eight),
      npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", eight),
      npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", eight),
      npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", eight + eight),
      npy("{'descr': '<f4', 'shape': (2,), }", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)", eight),
      npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }", eight),
  };
  for (size_t i = 0; i < broken.size(); ++i) {
    write("b.npy", broken[i]);
    EXPECT_THROW(read_npy(path("b.npy")), Error) << i;
  }
}

// ---- export

TEST_F(ExportTest, ExportWritesProgramsAsStandardOperators) {
  Graph g;
  g.name = "g";
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim::symbol("n"), Dim(4)});
  const ValueId w = g.add_constant("w", Tensor::of<float>({4}, {1, 2, 3, 4}));
  const std::string_view names[] = {"a", "b"};
  const NodeId id =
      g.add_program(Program::parse("clamp(a * b + 0.5, 0, 6) * sigmoid(a)", names, DType::kF32), {x, w}, "y");
  g.mark_output(g.node(id).output());
  for (const bool external : {false, true}) {
    export_onnx(g, path("out.onnx"), {.external_data = external});
    Graph back = import_onnx(path("out.onnx"));
    EXPECT_TRUE(back.verify().empty());
    EXPECT_EQ(back.value(back.outputs[0]).name, "y");
    EXPECT_EQ(text(back.value(back.outputs[0]).shape()), "[n,4]");
    EXPECT_EQ(constant(back, back.find_value("w")), (std::vector<double>{1, 2, 3, 4}));
    EXPECT_EQ(constant(back, only(back, "Clip").input(2)), std::vector<double>{6});
    for (const NodeId n : back.order()) EXPECT_TRUE(back.node(n).op->domain.empty());
  }
}

// A Program's cast to bytes saturates; the standard's Cast leaves what is out of range open, and ONNX Runtime wraps it.
TEST_F(ExportTest, CastsToBytesAreClipped) {
  Graph g;
  const ValueId x = g.add_input("x", DType::kF32, Shape{5});
  const std::string_view names[] = {"a"};
  const NodeId id = g.add_program(Program::parse("cast_i8(round(a * 10))", names, DType::kF32), {x}, "y");
  g.mark_output(g.node(id).output());
  export_onnx(g, path("out.onnx"));
  const Graph back = import_onnx(path("out.onnx"));
  const Node& clip = only(back, "Clip");
  EXPECT_EQ(constant(back, clip.input(1)), std::vector<double>{-128});
  EXPECT_EQ(constant(back, clip.input(2)), std::vector<double>{127});
  EXPECT_EQ(back.users(clip.output()).size(), 1u);
  EXPECT_TRUE(back.node(back.users(clip.output())[0]).is("Cast"));
  const Tensor y = evaluate(back, {Tensor::of<float>({5}, {-40, -1.25f, 0, 1, 40})})[0];
  EXPECT_EQ(y.to_f64(), (std::vector<double>{-128, -12, 0, 10, 127}));
}

TEST_F(ExportTest, EpilogueFollowsItsContraction) {
  Graph g;
  const ValueId x = g.add_input("x", DType::kF32, to_shape(Extents{3, 4}));
  const ValueId w = g.add_constant("w", ramp({4, 5}, 1, 0.7f));
  const ValueId b = g.add_constant("b", ramp({5}, 2, 0.9f));
  const NodeId id = g.add_node(*find_op("MatMul"), {x, w}, {}, 1, {"y"}, "product");
  const std::string_view names[] = {"v", "b"};
  Node& node = g.node(id);
  node.program = std::make_shared<const Program>(Program::parse("relu(v + b) * 2", names, DType::kF32));
  g.set_inputs(node, {x, w, b}, 2);
  g.mark_output(node.output());
  export_onnx(g, path("out.onnx"));
  const Graph back = import_onnx(path("out.onnx"));
  EXPECT_EQ(back.live_nodes(), 4) << back.text();  // MatMul, Add, Relu, Mul: no copies
  const Tensor input = ramp({3, 4}, 0, 0.3f);
  Tensor want = run_reference(*find_op("MatMul"), {}, {input, *g.constant(w)}, 1)[0];
  for (int64_t i = 0; i < want.elements(); ++i) {
    want.as<float>()[i] = 2 * std::max(0.f, want.as<float>()[i] + g.constant(b)->as<float>()[i % 5]);
  }
  expect_near(evaluate(back, {input})[0], want);
}

TEST_F(ExportTest, FusedOperatorsAreWrittenAsTheirDecomposition) {
  struct Case {
    const char* op;
    const char* domain;
    std::vector<Extents> inputs;
    int outputs;
    std::vector<std::pair<std::string, AttributeValue>> attributes;
  };
  const std::vector<Case> cases = {
      {"AddLayerNormalization", "ridgeline", {{2, 3, 8}, {2, 3, 8}, {8}, {8}}, 2, {}},
      {"AddLayerNormalization", "ridgeline", {{2, 3, 8}, {2, 3, 8}, {8}}, 1, {}},
      {"AddRMSNormalization", "ridgeline", {{2, 3, 8}, {2, 3, 8}, {8}}, 1, {}},
      {"ScaledDotProductAttention",
       "ridgeline",
       {{1, 2, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}, {5, 7}},
       1,
       {{"scale", 0.35}}},
      {"ScaledDotProductAttention",
       "ridgeline",
       {{1, 2, 5, 8}, {1, 2, 7, 8}, {1, 2, 7, 8}},
       1,
       {{"scale", 0.35}, {"causal", int64_t(1)}}},
      {"FusedMatMul", "com.microsoft", {{2, 3, 4}, {2, 5, 4}}, 1, {{"transB", int64_t(1)}, {"alpha", 0.25}}},
      {"SiLU", "ridgeline", {{3, 4}}, 1, {}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.op);
    const OpSchema* op = find_op(each.op, each.domain);
    ASSERT_NE(op, nullptr);
    Graph g;
    Attributes attributes;
    for (const auto& [name, value] : each.attributes) attributes.set(name, value);
    std::vector<ValueId> inputs;
    std::vector<Tensor> tensors;
    std::vector<std::string> names;
    for (size_t i = 0; i < each.inputs.size(); ++i) {
      inputs.push_back(g.add_input("in" + std::to_string(i), DType::kF32, to_shape(each.inputs[i])));
      tensors.push_back(ramp(each.inputs[i], float(i), 0.7f));
    }
    for (int o = 0; o < each.outputs; ++o) names.push_back("out" + std::to_string(o));
    const NodeId id = g.add_node(*op, inputs, attributes, each.outputs, names, "fused");
    for (const ValueId output : g.node(id).outputs) g.mark_output(output);
    export_onnx(g, path("out.onnx"));
    const Graph back = import_onnx(path("out.onnx"));
    for (const NodeId n : back.order()) EXPECT_TRUE(back.node(n).op->domain.empty());
    const std::vector<Tensor> got = evaluate(back, tensors),
                              want = run_reference(*op, attributes, tensors, each.outputs);
    for (int o = 0; o < each.outputs; ++o) {
      EXPECT_EQ(back.value(back.outputs[size_t(o)]).name, names[size_t(o)]);
      expect_near(got[size_t(o)], want[size_t(o)]);
    }
  }
}

TEST_F(ExportTest, ExportKeepsLargeWeightsOutsideOnRequest) {
  Graph g;
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim(1000)});
  Tensor big(DType::kF32, {1000});
  for (int64_t i = 0; i < 1000; ++i) big.as<float>()[i] = float(i);
  const ValueId w = g.add_constant("w", big);
  const NodeId id = g.add_node(*find_op("Add"), {x, w}, {}, 1, {"y"}, "n");
  g.mark_output(g.node(id).output());
  export_onnx(g, path("big.onnx"), {.external_data = true});
  EXPECT_EQ(std::filesystem::file_size(path("big.onnx.data")), 4000u);
  EXPECT_LT(std::filesystem::file_size(path("big.onnx")), 1000u);
  Graph back = import_onnx(path("big.onnx"));
  EXPECT_EQ(constant(back, back.find_value("w"))[999], 999);
}

TEST_F(ExportTest, ReadsTensorProtoFiles) {
  onnx::TensorProto proto;
  put_tensor(Tensor::of<int64_t>({2}, {3, -4}), proto);
  proto.set_name("given");
  write("t.pb", proto.SerializeAsString());
  std::string name;
  EXPECT_EQ(read_tensor_proto(path("t.pb"), &name).to_i64(), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(name, "given");
}

}  // namespace
}  // namespace ridgeline
