// What the convolutional models share: layers that know what goes through them, channel by channel, so that the
// statistics in each BatchNormalization are those that its input really has. With made-up ones a random network of 50
// layers either dies out, blows up, or gives the same output for every input.
#pragma once

#include <string>
#include <vector>

#include "formats/make/builder.h"

namespace ridgeline::make {

/// A value of shape [N, channels, extent, extent] and the mean and variance that each channel is expected to have for
/// inputs of N(0,1), taken over images and places, places and channels being independent.
struct Feature {
  std::string value;
  int64_t extent = 0;
  std::vector<double> mean, variance;

  int64_t channels() const { return int64_t(mean.size()); }
};

enum class Activation { kNone, kRelu, kHardSwish };

struct ConvOptions {
  int64_t out = 0, kernel = 1, stride = 1, groups = 1;
  bool bias = false;
};

class ConvNet {
 public:
  explicit ConvNet(Builder& builder) : b(builder) {}

  Feature image(const std::string& name, int64_t channels, int64_t extent);
  /// Padded with kernel / 2 zeros on each side, as all of these models are.
  Feature conv(const std::string& scope, const Feature& x, const ConvOptions& options);
  /// Scales are drawn from U(low, high): a small scale where a branch joins its residual keeps the sum from growing.
  Feature batch_norm(const std::string& scope, const Feature& x, float epsilon, float low, float high);
  Feature activation(const std::string& scope, const Feature& x, Activation kind);
  Feature max_pool(const std::string& scope, const Feature& x);  // 3x3, stride 2, padded by 1, of values after a Relu
  Feature average_all(const std::string& scope, const Feature& x);
  Feature add(const std::string& scope, const Feature& x, const Feature& y);
  /// Pool, reduce by a convolution, Relu, expand, HardSigmoid, and Mul onto x.
  Feature squeeze_excite(const std::string& scope, const Feature& x, int64_t squeezed);
  /// Gemm (transB = 1) of a [N, from] value.
  std::string gemm(const std::string& scope, const std::string& x, int64_t from, int64_t to);

  Builder& b;
};

}  // namespace ridgeline::make
