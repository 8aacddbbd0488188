// MobileNetV3-small (Howard et al., 2019), as torchvision exports it: 34 Conv with BatchNormalization, HardSwish 19,
// nine squeeze-and-excite blocks of two convolutions with HardSigmoid and Mul.
#include <algorithm>

#include "formats/make/convnet.h"

namespace ridgeline::make {

namespace {

constexpr float kEpsilon = 1e-3f;

struct Row {  // the paper's table 2, a row a block
  int64_t kernel, expanded, out;
  bool squeeze;
  Activation activation;
  int64_t stride;
};
constexpr Activation RE = Activation::kRelu, HS = Activation::kHardSwish;
constexpr Row kRows[] = {
    {3, 16, 16, true, RE, 2},  {3, 72, 24, false, RE, 2}, {3, 88, 24, false, RE, 1}, {5, 96, 40, true, HS, 2},
    {5, 240, 40, true, HS, 1}, {5, 240, 40, true, HS, 1}, {5, 120, 48, true, HS, 1}, {5, 144, 48, true, HS, 1},
    {5, 288, 96, true, HS, 2}, {5, 576, 96, true, HS, 1}, {5, 576, 96, true, HS, 1},
};

// A multiple of 8, at most a tenth below: channel counts as the reference implementation rounds them.
int64_t rounded(int64_t channels) {
  const int64_t near = std::max<int64_t>(8, (channels + 4) / 8 * 8);
  return near * 10 < channels * 9 ? near + 8 : near;
}

Feature conv_norm(ConvNet& net, const std::string& scope, const Feature& x, const ConvOptions& options, Activation kind,
                  float low = 0.5f, float high = 1.5f) {
  const Feature y = net.batch_norm(scope + "/" + "1", net.conv(scope + "/" + "0", x, options), kEpsilon, low, high);
  return net.activation(scope + "/2", y, kind);
}

Feature inverted_residual(ConvNet& net, const std::string& scope, const Feature& x, const Row& row) {
  Feature y = x;
  int part = 0;
  const auto next = [&] { return scope + "/block/block." + std::to_string(part++); };
  if (row.expanded != x.channels()) y = conv_norm(net, next(), y, {.out = row.expanded}, row.activation);
  y = conv_norm(net, next(), y,
                {.out = row.expanded, .kernel = row.kernel, .stride = row.stride, .groups = row.expanded},
                row.activation);
  if (row.squeeze) y = net.squeeze_excite(next(), y, rounded(row.expanded / 4));
  const bool residual = row.stride == 1 && x.channels() == row.out;
  y = conv_norm(net, next(), y, {.out = row.out}, Activation::kNone, residual ? 0.2f : 0.5f, residual ? 0.8f : 1.5f);
  return residual ? net.add(scope, y, x) : y;
}

}  // namespace

void mobilenet_v3(Builder& b) {
  ConvNet net(b);
  Feature x = net.image("input", 3, 224);
  int number = 0;
  const auto next = [&] { return "/features/features." + std::to_string(number++); };
  x = conv_norm(net, next(), x, {.out = 16, .kernel = 3, .stride = 2}, HS);
  for (const Row& row : kRows) x = inverted_residual(net, next(), x, row);
  x = conv_norm(net, next(), x, {.out = 576}, HS);
  x = net.average_all("/avgpool", x);
  const std::string flat = b.node("Flatten", "", {x.value}, {{"axis", int64_t{1}}});
  const std::string hidden =
      b.hard_swish("/classifier/classifier.1", net.gemm("/classifier/classifier.0", flat, 576, 1024));
  b.output("output", net.gemm("/classifier/classifier.3", hidden, 1024, 1000), {b.options().batch, {1000, {}}});
}

}  // namespace ridgeline::make
