// Operator sets 1 to 6: what their forms mean, against numbers worked out by hand.
#include "onnx_model.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

class OldFormsTest : public OnnxTest {
 protected:
  void set(onnx::NodeProto& node, const std::string& name, const char* value) {
    auto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::STRING);
    a.set_s(value);
  }
  using OnnxTest::set;

  std::vector<double> result(const std::vector<Tensor>& inputs) {
    const Graph g = import();
    EXPECT_TRUE(g.verify().empty());
    shape_ = extents(g.value(g.outputs[0]).shape());
    return run_reference(g, inputs)[0].to_f64();
  }

  Extents shape_;
};

TEST_F(OldFormsTest, ABroadcastAtAnAxis) {
  for (const int64_t version : {1, 6}) {
    model_.Clear();
    opset(version);
    input("x", {"1", "2", "2"});
    input("y", {"2"});
    auto& n = node("Add", {"x", "y"}, {"z"});
    set(n, "broadcast", int64_t(1));
    set(n, "axis", int64_t(1));
    if (version == 1) set(n, "consumed_inputs", std::vector<int64_t>{0, 0});
    output("z");
    const Tensor x = Tensor::of<float>({1, 2, 2}, {1, 2, 3, 4}), y = Tensor::of<float>({2}, {10, 20});
    EXPECT_EQ(result({x, y}), (std::vector<double>{11, 12, 23, 24}));
    n.mutable_attribute(1)->set_i(2);
    EXPECT_EQ(result({x, y}), (std::vector<double>{11, 22, 13, 24}));
    n.mutable_attribute(1)->set_i(3);
    refused(ErrorCode::kBadModel, {"Add", "axis 3", "do not fit"});
  }
}

TEST_F(OldFormsTest, ASlopePerChannel) {
  opset(6);
  input("x", {"1", "2", "1", "2"});
  input("s", {"2"});
  node("PRelu", {"x", "s"}, {"y"});
  output("y");
  EXPECT_EQ(result({Tensor::of<float>({1, 2, 1, 2}, {-1, 2, -3, -4}), Tensor::of<float>({2}, {0.5, 10})}),
            (std::vector<double>{-0.5, 2, -30, -40}));
}

TEST_F(OldFormsTest, AttributesThatBecameInputs) {
  opset(1);
  input("x", {"2", "3"});
  set(node("Reshape", {"x"}, {"a"}), "shape", std::vector<int64_t>{0, -1, 1});
  auto& pad = node("Pad", {"a"}, {"b"});
  set(pad, "paddings", std::vector<int64_t>{0, 0, 0, 1, 0, 0});
  set(pad, "value", 9.0F);
  set(node("Cast", {"b"}, {"c"}), "to", "INT64");
  raw_weight("tiles", {2});
  raw_weight("axis", {2});
  node("Tile", {"c", "tiles", "axis"}, {"y"});
  output("y");
  EXPECT_EQ(result({Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5})}),
            (std::vector<double>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 9, 9, 9, 9, 9, 9}));
  EXPECT_EQ(shape_, (Extents{3, 3, 2}));
}

TEST_F(OldFormsTest, DefaultsThatChanged) {
  opset(3);
  input("x", {"1", "2"});
  node("Concat", {"x", "x"}, {"a"});
  node("Selu", {"a"}, {"y"});
  output("y");
  const std::vector<double> y = result({Tensor::of<float>({1, 2}, {1, 2})});
  EXPECT_EQ(shape_, (Extents{1, 4}));
  EXPECT_NEAR(y[0], 1.0507, 1e-6);  // 1.05070102 since operator set 6
  EXPECT_NEAR(y[1], 2 * 1.0507, 1e-6);
}

TEST_F(OldFormsTest, ScalesOfTwoAxes) {
  opset(1);
  input("x", {"1", "1", "1", "2"});
  auto& n = node("Upsample", {"x"}, {"y"});
  set(n, "height_scale", 2.0F);
  set(n, "width_scale", 1.0F);
  output("y");
  EXPECT_EQ(result({Tensor::of<float>({1, 1, 1, 2}, {1, 2})}), (std::vector<double>{1, 2, 1, 2}));
}

TEST_F(OldFormsTest, AModelThatImportsNothing) {
  model_.clear_opset_import();
  model_.set_ir_version(2);
  input("x", {"2"});
  node("Relu", {"x"}, {"y"});
  output("y");
  EXPECT_EQ(result({Tensor::of<float>({2}, {-1, 2})}), (std::vector<double>{0, 2}));
  model_.set_ir_version(3);
  refused(ErrorCode::kBadModel, {"operator set"});
}

TEST_F(OldFormsTest, WhatHasNoNewerFormIsRefused) {
  opset(6);
  input("x", {"2", "3"});
  auto& n = node("Dropout", {"x"}, {"y"}, "drop");
  output("y");
  refused(ErrorCode::kUnsupported, {"Dropout", "drop", "is_test = 1"});
  set(n, "is_test", int64_t(1));
  EXPECT_EQ(result({Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6})}), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  n.set_op_type("ThresholdedRelu");
  n.clear_attribute();
  refused(ErrorCode::kUnsupported, {"ThresholdedRelu", "operator set"});
  opset(5);
  n.set_op_type("Cast");
  set(n, "to", "FLOAT99");
  refused(ErrorCode::kBadModel, {"Cast", "drop", "'to'"});
}

}  // namespace
}  // namespace ridgeline
