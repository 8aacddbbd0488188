// The movement operators: hand values for what is easily got wrong, shapes with symbols, contents followed through
// them.
#include <gtest/gtest.h>

#include <limits>

#include "ir/graph.h"
#include "ir/problem.h"
#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

struct Named {
  std::string_view name;
  AttributeValue value;
};
Attributes with(std::initializer_list<Named> items) {
  Attributes a;
  for (const Named& item : items) a.set(item.name, item.value);
  return a;
}

Tensor ints(const std::vector<int64_t>& values) { return Tensor::from<int64_t>({int64_t(values.size())}, values); }
Tensor floats(Extents shape, const std::vector<float>& values) { return Tensor::from<float>(std::move(shape), values); }
Tensor counted(Extents shape) {
  Tensor t(DType::kF32, std::move(shape));
  for (int64_t k = 0; k < t.elements(); ++k) t.as<float>()[k] = float(k);
  return t;
}

std::vector<Tensor> run_all(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                            int outputs) {
  const OpSchema* schema = find_op(op);
  if (!schema) throw std::runtime_error("no " + std::string(op));
  return run_reference(*schema, attributes, inputs, outputs);
}
Tensor run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {}) {
  return run_all(op, inputs, attributes, 1)[0];
}
std::vector<double> values(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {}) {
  return run(op, inputs, attributes).to_f64();
}

using Numbers = std::vector<double>;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

TEST(Movement, Slice) {
  const Tensor x = counted({5});
  EXPECT_EQ(values("Slice", {x, ints({1}), ints({kMost})}), Numbers({1, 2, 3, 4}));
  EXPECT_EQ(values("Slice", {x, ints({-2}), ints({kMost})}), Numbers({3, 4}));
  EXPECT_EQ(values("Slice", {x, ints({-1}), ints({kLeast}), ints({0}), ints({-2})}), Numbers({4, 2, 0}));
  EXPECT_EQ(values("Slice", {x, ints({kMost}), ints({0}), ints({0}), ints({-1})}), Numbers({4, 3, 2, 1}));
  EXPECT_EQ(values("Slice", {x, ints({3}), ints({1})}), Numbers());
  EXPECT_EQ(values("Slice", {x, ints({-100}), ints({100}), ints({-1}), ints({3})}), Numbers({0, 3}));
  EXPECT_EQ(values("Slice", {counted({2, 3}), ints({1}), ints({2}), ints({1})}), Numbers({1, 4}));
  EXPECT_EQ(values("Slice", {counted({0}), ints({-1}), ints({kLeast}), ints({0}), ints({-1})}), Numbers());
}

TEST(Movement, ReshapeAndFriends) {
  EXPECT_EQ(run("Reshape", {counted({2, 3, 4}), ints({0, -1})}).shape(), Extents({2, 12}));
  EXPECT_EQ(run("Reshape",
                {
                    counted({0, 3}),
                    ints({3, 0}),
                },
                with({{"allowzero", int64_t(1)}}))
                .shape(),
            Extents({3, 0}));
  EXPECT_THROW(run("Reshape", {counted({2, 3}), ints({4, -1})}), Error);
  EXPECT_THROW(run("Reshape", {counted({2, 3}), ints({-1, -1})}), Error);
  EXPECT_EQ(run("Flatten", {counted({2, 3, 4})}, with({{"axis", int64_t(-1)}})).shape(), Extents({6, 4}));
  EXPECT_EQ(run("Squeeze", {counted({1, 3, 1})}).shape(), Extents({3}));
  EXPECT_EQ(run("Unsqueeze", {counted({3}), ints({-1, 0})}).shape(), Extents({1, 3, 1}));
  EXPECT_THROW(run("Squeeze", {counted({1, 3}), ints({1})}), Error);
  EXPECT_EQ(values("Transpose", {counted({2, 3})}), Numbers({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(values("Expand", {floats({2, 1}, {1, 2}), ints({1, 2, 2})}), Numbers({1, 1, 2, 2}));
  EXPECT_EQ(values("Shape", {counted({2, 3, 4})}, with({{"start", int64_t(-2)}})), Numbers({3, 4}));
}

TEST(Movement, JoinAndCut) {
  EXPECT_EQ(values("Concat", {counted({2, 1}), floats({2, 2}, {7, 8, 9, 10})}, with({{"axis", int64_t(-1)}})),
            Numbers({0, 7, 8, 1, 9, 10}));
  const std::vector<Tensor> parts = run_all("Split", {counted({7})}, with({{"num_outputs", int64_t(3)}}), 3);
  EXPECT_EQ(parts[0].to_f64(), Numbers({0, 1, 2}));
  EXPECT_EQ(parts[2].to_f64(), Numbers({6}));
  EXPECT_EQ(values("Tile", {floats({1, 2}, {1, 2}), ints({2, 2})}), Numbers({1, 2, 1, 2, 1, 2, 1, 2}));
  const Tensor x = counted({3});
  EXPECT_EQ(values("Pad", {x, ints({2, 1}), Tensor::scalar(9.0f)}), Numbers({9, 9, 0, 1, 2, 9}));
  EXPECT_EQ(values("Pad", {x, ints({2, 2})}, with({{"mode", std::string("reflect")}})), Numbers({2, 1, 0, 1, 2, 1, 0}));
  EXPECT_EQ(values("Pad", {x, ints({1, 2})}, with({{"mode", std::string("edge")}})), Numbers({0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(values("Pad", {x, ints({2, 4})}, with({{"mode", std::string("wrap")}})),
            Numbers({1, 2, 0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(values("Pad", {x, ints({-1, 1})}), Numbers({1, 2, 0}));
}

TEST(Movement, Indices) {
  EXPECT_EQ(values("Gather", {counted({3, 2}), ints({2, -3})}), Numbers({4, 5, 0, 1}));
  EXPECT_EQ(values("Gather", {counted({2, 3}), ints({-1})}, with({{"axis", int64_t(1)}})), Numbers({2, 5}));
  EXPECT_THROW(run("Gather", {counted({3}), ints({3})}), Error);
  const Tensor indices = Tensor::of<int64_t>({2, 2}, {0, 0, 1, 0});
  EXPECT_EQ(values("GatherElements", {floats({2, 2}, {1, 2, 3, 4}), indices}, with({{"axis", int64_t(1)}})),
            Numbers({1, 1, 4, 3}));
  EXPECT_EQ(
      values("GatherND", {counted({2, 2, 2}), Tensor::of<int64_t>({2, 1}, {1, 0})}, with({{"batch_dims", int64_t(1)}})),
      Numbers({2, 3, 4, 5}));
  EXPECT_EQ(
      values("ScatterElements",
             {floats({1, 5}, {1, 2, 3, 4, 5}), Tensor::of<int64_t>({1, 2}, {1, -2}), floats({1, 2}, {1.5f, 2.5f})},
             with({{"axis", int64_t(1)}})),
      Numbers({1, 1.5, 3, 2.5, 5}));
  EXPECT_EQ(values("ScatterElements", {floats({3}, {1, 2, 3}), ints({1, 1}), floats({2}, {10, 20})},
                   with({{"reduction", std::string("add")}})),
            Numbers({1, 32, 3}));
  EXPECT_EQ(values("ScatterND", {counted({2, 2}), Tensor::of<int64_t>({1, 1}, {1}), floats({1, 2}, {8, 9})}),
            Numbers({0, 1, 8, 9}));
  EXPECT_EQ(values("OneHot", {ints({1, -1, 5}), ints({3}), floats({2}, {0, 7})}), Numbers({0, 7, 0, 0, 0, 7, 0, 0, 0}));
  EXPECT_EQ(values("ReverseSequence", {counted({4, 2}), ints({3, 1})}), Numbers({4, 1, 2, 3, 0, 5, 6, 7}));
}

TEST(Movement, MadeFromLittle) {
  EXPECT_EQ(values("Range", {Tensor::scalar(int64_t(10)), Tensor::scalar(int64_t(4)), Tensor::scalar(int64_t(-3))}),
            Numbers({10, 7}));
  EXPECT_EQ(values("Range", {Tensor::scalar(1.0f), Tensor::scalar(2.0f), Tensor::scalar(0.3f)}).size(), 4u);
  EXPECT_EQ(values("ConstantOfShape", {ints({2})}, with({{"value", Tensor::of<int32_t>({1}, {3})}})), Numbers({3, 3}));
  EXPECT_EQ(run("ConstantOfShape", {ints({})}).shape(), Extents());
  EXPECT_EQ(values("EyeLike", {counted({2, 3})}, with({{"k", int64_t(1)}})), Numbers({0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(values("Trilu", {floats({2, 2}, {1, 2, 3, 4})}), Numbers({1, 2, 0, 4}));
  EXPECT_EQ(values("Trilu", {floats({2, 2}, {1, 2, 3, 4}), Tensor::scalar(int64_t(-1))}, with({{"upper", int64_t(0)}})),
            Numbers({0, 0, 3, 0}));
  EXPECT_EQ(
      values("CumSum", {floats({3}, {1, 2, 3}), ints({0})}, with({{"exclusive", int64_t(1)}, {"reverse", int64_t(1)}})),
      Numbers({5, 3, 0}));
  const std::vector<Tensor> top = run_all("TopK", {floats({4}, {2, 5, 5, 1}), ints({3})}, {}, 2);
  EXPECT_EQ(top[0].to_f64(), Numbers({5, 5, 2}));
  EXPECT_EQ(top[1].to_f64(), Numbers({1, 2, 0}));
  EXPECT_EQ(values("NonZero", {Tensor::of<bool>({2, 2}, {true, false, true, true})}), Numbers({0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(values("DepthToSpace", {counted({1, 4, 1, 1})}, with({{"blocksize", int64_t(2)}})), Numbers({0, 1, 2, 3}));
  const Tensor deep = counted({1, 8, 1, 1});
  EXPECT_EQ(values("DepthToSpace", {deep}, with({{"blocksize", int64_t(2)}})), Numbers({0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(values("DepthToSpace", {deep}, with({{"blocksize", int64_t(2)}, {"mode", std::string("CRD")}})),
            Numbers({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(values("SpaceToDepth", {counted({1, 1, 2, 4})}, with({{"blocksize", int64_t(2)}})),
            Numbers({0, 2, 1, 3, 4, 6, 5, 7}));
}

// Values of the standard's own examples (Resize-19).
TEST(Movement, Resize) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4}), none, scales = floats({4}, {1, 1, 2, 2});
  EXPECT_EQ(values("Resize", {floats({1, 2}, {1, 2}), none, floats({2}, {1, 3})}), Numbers({1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(values("Resize", {x, none, scales}, with({{"mode", std::string("linear")}})),
            Numbers({1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}));
  const Attributes corners =
      with({{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("align_corners")}});
  const std::vector<double> aligned = values("Resize", {x, none, scales}, corners);
  EXPECT_NEAR(aligned[1], 4.0 / 3, 1e-6);
  EXPECT_NEAR(aligned[15], 4, 1e-6);
  const Tensor row = counted({4});
  const std::vector<double> cubic =
      values("Resize", {row, none, floats({1}, {0.8f})}, with({{"mode", std::string("cubic")}}));
  ASSERT_EQ(cubic.size(), 3u);
  EXPECT_NEAR(cubic[0], 0.09423827, 1e-6);
  EXPECT_EQ(values("Resize", {floats({4}, {1, 2, 3, 4}), none, none, ints({2})}), Numbers({1, 3}));
  EXPECT_EQ(run("Resize", {counted({2, 4}), none, none, ints({7, 8})},
                with({{"keep_aspect_ratio_policy", std::string("not_larger")}}))
                .shape(),
            Extents({4, 8}));
}

ValueInfo symbolic(Shape shape) { return {DType::kF32, std::move(shape), std::nullopt, {}}; }
ValueInfo constant(Tensor t) { return {t.dtype(), to_shape(t.shape()), std::nullopt, t}; }
ValueInfo infer(std::string_view op, std::vector<ValueInfo> inputs, const Attributes& attributes = {}) {
  std::vector<const ValueInfo*> pointers;
  for (const ValueInfo& i : inputs) pointers.push_back(&i);
  return infer_node(*find_op(op), attributes, "n", pointers, 1)[0];
}

TEST(Movement, SymbolsAndContents) {
  const Dim n = Dim::symbol("n"), c = Dim::symbol("c");
  EXPECT_EQ(text(*infer("Reshape", {symbolic({n, 8, 4}), constant(ints({0, -1}))}).shape), "[n,32]");
  EXPECT_EQ(text(*infer("Reshape", {symbolic({n, 8, c}), constant(ints({-1, 8}))}).shape), "[c*n,8]");
  // x[1:] and x[:-1] have one extent.
  const ValueInfo tail = infer("Slice", {symbolic({n}), constant(ints({1})), constant(ints({kMost}))});
  const ValueInfo head = infer("Slice", {symbolic({n}), constant(ints({0})), constant(ints({-1}))});
  EXPECT_EQ(*tail.shape, *head.shape);
  EXPECT_EQ((*tail.shape)[0].evaluate({{"n", 5}}), 4);
  EXPECT_EQ((*tail.shape)[0].evaluate({{"n", 0}}), 0);
  EXPECT_EQ(
      text(
          *infer("Slice", {symbolic({n, c}), constant(ints({0})), constant(ints({kMost})), constant(ints({1}))}).shape),
      "[n,c]");

  // Shape, Gather, Unsqueeze, Concat, Reshape: what every exporter writes.
  const ValueInfo shape = infer("Shape", {symbolic({n, c, 64})});
  const ValueInfo first = infer("Gather", {shape, constant(Tensor::scalar(int64_t(0)))});
  ASSERT_TRUE(first.values);
  EXPECT_EQ((*first.values)[0], n);
  const ValueInfo row = infer("Unsqueeze", {first, constant(ints({0}))});
  const ValueInfo target = infer("Concat", {row, constant(ints({-1, 8, 8}))}, with({{"axis", int64_t(0)}}));
  EXPECT_EQ(text(*infer("Reshape", {symbolic({n, c, 64}), target}).shape), "[n,c,8,8]");
  const ValueInfo range =
      infer("Range", {constant(Tensor::scalar(int64_t(0))), first, constant(Tensor::scalar(int64_t(1)))});
  EXPECT_EQ(text(*range.shape), "[n]");
  const ValueInfo cut = infer("Slice", {shape, constant(ints({-2})), constant(ints({kMost}))});
  ASSERT_TRUE(cut.values);
  EXPECT_EQ((*cut.values)[1], Dim(64));
  EXPECT_EQ(text(*infer("Concat", {symbolic({n, c}), symbolic({n, 3})}, with({{"axis", int64_t(1)}})).shape),
            "[n,c+3]");
  EXPECT_EQ(text(*infer("Resize", {symbolic({1, 3, n, n}),
                                   {DType::kF32, Shape{0}, std::nullopt, {}},
                                   constant(floats({4}, {1, 1, 2, 0.5f}))})
                      .shape),
            "[1,3,2*n,floor((n)/(2))]");
  EXPECT_THROW(infer("Reshape", {symbolic({n}), {DType::kI64, Shape{2}, std::nullopt, {}}}), NeedsValues);
}

}  // namespace
}  // namespace ridgeline
