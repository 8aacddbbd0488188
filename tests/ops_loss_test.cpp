// Losses over classes: hand values of every reduction, weights, and the ignored class.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

std::vector<Tensor> run(std::string_view op, const std::vector<Tensor>& inputs, std::string reduction,
                        int64_t ignored = -1, int outputs = 1) {
  Attributes attributes;
  attributes.set("reduction", std::move(reduction));
  if (ignored >= 0) attributes.set("ignore_index", ignored);
  return run_reference(*find_op(op), attributes, inputs, outputs);
}

TEST(Loss, NegativeLogLikelihood) {
  const Tensor x = Tensor::of<float>({2, 2}, {-1, -2, -3, -4}), target = Tensor::of<int64_t>({2}, {0, 1});
  const Tensor weight = Tensor::of<float>({2}, {2, 1});
  auto loss = [&](const std::vector<Tensor>& inputs, const char* reduction, int64_t ignored = -1) {
    return run("NegativeLogLikelihoodLoss", inputs, reduction, ignored)[0].to_f64();
  };
  EXPECT_EQ(loss({x, target}, "none"), (std::vector<double>{1, 4}));
  EXPECT_EQ(loss({x, target}, "sum"), (std::vector<double>{5}));
  EXPECT_EQ(loss({x, target}, "mean"), (std::vector<double>{2.5}));
  EXPECT_EQ(loss({x, target, weight}, "none"), (std::vector<double>{2, 4}));
  EXPECT_EQ(loss({x, target, weight}, "mean"), (std::vector<double>{2}));
  EXPECT_EQ(loss({x, target}, "mean", 1), (std::vector<double>{1}));
  EXPECT_EQ(loss({x, target, weight}, "sum", 0), (std::vector<double>{4}));
  // More axes: [N, C, d] with classes [N, d].
  const Tensor deep = Tensor::of<float>({1, 2, 3}, {-1, -2, -3, -4, -5, -6});
  EXPECT_EQ(loss({deep, Tensor::of<int64_t>({1, 3}, {1, 0, 1})}, "none"), (std::vector<double>{4, 2, 6}));
  EXPECT_THROW(loss({x, Tensor::of<int64_t>({3}, {0, 1, 0})}, "sum"), Error);
}

TEST(Loss, SoftmaxCrossEntropy) {
  const Tensor scores = Tensor::of<float>({1, 4}, {0, 0, 0, 0});
  const std::vector<Tensor> results =
      run("SoftmaxCrossEntropyLoss", {scores, Tensor::of<int32_t>({1}, {2})}, "mean", -1, 2);
  EXPECT_NEAR(results[0].f64(0), std::log(4.0), 1e-6);
  EXPECT_EQ(results[1].shape(), Extents({1, 4}));
  EXPECT_NEAR(results[1].f64(3), -std::log(4.0), 1e-6);
}

}  // namespace
}  // namespace ridgeline
