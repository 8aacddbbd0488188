// What `bench` times is what it prints.
#include "tune/bench.h"

#include <gtest/gtest.h>

#include "ops/catalogue.h"
#include "session/problem_words.h"

namespace ridgeline {
namespace {

std::vector<std::string> layouts(std::string_view op, std::string_view keys) {
  std::vector<std::string> names;
  for (const auto& [name, problem] : layouts_of(parse_problem(*find_op_in_any_domain(op), keys))) {
    names.push_back(name);
    const bool last = problem.output().layout.is_channels_last() && problem.input(0).layout.is_channels_last();
    if (name == "channels last") EXPECT_TRUE(last) << op << " " << keys;
  }
  return names;
}

TEST(Bench, OnlyOperatorsWhoseLayoutIsFreeAreLaidOtherwise) {
  const std::vector<std::string> both = {"channels last", ""}, given = {""};
  EXPECT_EQ(layouts("Conv", "x=f32[1,8,7,7] w=f32[16,8,3,3]!"), both);
  EXPECT_EQ(layouts("MaxPool", "x=f32[1,8,7,7] kernel_shape=2,2"), both);
  EXPECT_EQ(layouts("GlobalAveragePool", "x=f32[1,8,7,7]"), both);
  EXPECT_EQ(layouts("BatchNormalization", "x=f32[1,8,7,7] scale=f32[8] bias=f32[8] mean=f32[8] variance=f32[8]"), both);
  // An explicit layout, on either side.
  EXPECT_EQ(layouts("Conv", "x=f32[1,8,7,7]~cl w=f32[16,8,3,3]!"), given);
  EXPECT_EQ(layouts("MaxPool", "x=f32[1,8,7,7] kernel_shape=2,2 out=~cl"), given);
  // Movement is its layouts.
  EXPECT_EQ(layouts("Copy", "x=f32[1,3,16,16] out=~cl"), given);
  EXPECT_EQ(layouts("Copy", "x=f32[1,3,16,16]"), given);
  EXPECT_EQ(layouts("Transpose", "data=f32[1,3,16,16] perm=0,2,3,1"), given);
  EXPECT_EQ(layouts("Pad", "data=f32[1,3,8,8] pads=i64{0,0,1,1,0,0,1,1}"), given);
  // Operators that name an axis, products, sums: four axes do not make an image.
  EXPECT_EQ(layouts("Softmax", "x=f32[1,3,16,16]"), given);
  EXPECT_EQ(layouts("ReduceSum", "x=f32[1,3,16,16] axes=i64{1}"), given);
  EXPECT_EQ(layouts("MatMul", "a=f32[1,3,16,16] b=f32[1,3,16,16]"), given);
  EXPECT_EQ(layouts("Relu", "x=f32[1,3,16,16]"), given);
}

TEST(Bench, ConvolutionsOfBytesAreConvInteger) {
  const std::vector<std::string> shape = {"c=8", "h=10", "oc=16", "kh=3", "pad=1", "stride=2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), shape.begin(), shape.end());
    return more;
  };
  const Problem p = parse_bench_problem("conv", with({"dtype=u8s8"}), 1).problem;
  EXPECT_EQ(p.op->name, "ConvInteger");
  EXPECT_EQ(p.input(0).dtype, DType::kU8);
  EXPECT_EQ(p.input(1).dtype, DType::kI8);
  EXPECT_EQ(p.output().shape(), (Extents{1, 16, 5, 5}));
  EXPECT_EQ(parse_bench_problem("conv", with({"dtype=s8s8"}), 1).problem.input(0).dtype, DType::kI8);
  const Problem plain = parse_bench_problem("conv", shape, 1).problem;
  EXPECT_EQ(plain.op->name, "Conv");
  EXPECT_EQ(plain.output().shape(), (Extents{1, 16, 5, 5}));
  const auto refused = [](const std::string& op, const std::vector<std::string>& keys, const std::string& words) {
    try {
      parse_bench_problem(op, keys, 1);
      ADD_FAILURE() << op;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused("conv", with({"dtype=u8s8", "epilogue=bias+relu"}), "ConvInteger");
  refused("relu", {"shape=4", "dtype=u8s8"}, "two types");
}

}  // namespace
}  // namespace ridgeline
