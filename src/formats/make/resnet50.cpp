// ResNet-50 v1.5 (He et al., 2015; the stride stands in the 3x3 convolution): 53 Conv, 53 BatchNormalization, 49 Relu,
// 16 Add.
#include "formats/make/convnet.h"

namespace ridgeline::make {

namespace {

constexpr float kEpsilon = 1e-5f;

Feature bottleneck(ConvNet& net, const std::string& scope, const Feature& x, int64_t width, int64_t stride) {
  const auto layer = [&](const std::string& number, const Feature& from, const ConvOptions& options, float low,
                         float high) {
    return net.batch_norm(scope + "/bn" + number, net.conv(scope + "/conv" + number, from, options), kEpsilon, low,
                          high);
  };
  Feature y = net.activation(scope + "/relu", layer("1", x, {.out = width}, 0.5f, 1.5f), Activation::kRelu);
  y = net.activation(scope + "/relu", layer("2", y, {.out = width, .kernel = 3, .stride = stride}, 0.5f, 1.5f),
                     Activation::kRelu);
  // Trained networks have small scales here; with 1 the sum would triple within a stage.
  y = layer("3", y, {.out = 4 * width}, 0.2f, 0.6f);
  Feature shortcut = x;
  if (x.channels() != 4 * width) {
    shortcut = net.conv(scope + "/downsample/downsample.0", x, {.out = 4 * width, .stride = stride});
    shortcut = net.batch_norm(scope + "/downsample/downsample.1", shortcut, kEpsilon, 0.5f, 1.5f);
  }
  return net.activation(scope + "/relu", net.add(scope, y, shortcut), Activation::kRelu);
}

}  // namespace

void resnet50(Builder& b) {
  ConvNet net(b);
  Feature x = net.image("input", 3, 224);
  x = net.batch_norm("/bn1", net.conv("/conv1", x, {.out = 64, .kernel = 7, .stride = 2}), kEpsilon, 0.5f, 1.5f);
  x = net.max_pool("/maxpool", net.activation("/relu", x, Activation::kRelu));
  constexpr int kBlocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::string name = "layer" + std::to_string(stage + 1);
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string scope = "/" + name + "/" + name + "." + std::to_string(block);
      x = bottleneck(net, scope, x, int64_t{64} << stage, stage > 0 && block == 0 ? 2 : 1);
    }
  }
  x = net.average_all("/avgpool", x);
  const std::string flat = b.node("Flatten", "", {x.value}, {{"axis", int64_t{1}}});
  b.output("output", net.gemm("/fc", flat, 2048, 1000), {b.options().batch, {1000, {}}});
}

}  // namespace ridgeline::make
