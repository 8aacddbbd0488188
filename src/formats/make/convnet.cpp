#include "formats/make/convnet.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ridgeline::make {

namespace {

struct Moments {
  double mean = 0, variance = 0;
};

double normal_density(double z) { return std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi); }
double normal_share_below(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

// Moments of f(m + s z), z the largest of `count` independent normals; midpoint rule, good to three digits.
template <typename F>
Moments through(const F& f, double mean, double variance, int count = 1) {
  constexpr double kStep = 0.125;
  const double deviation = std::sqrt(variance);
  double weight = 0, first = 0, second = 0;
  for (double z = -5; z <= 5; z += kStep) {
    const double w = count * normal_density(z) * std::pow(normal_share_below(z), count - 1);
    const double y = f(mean + deviation * z);
    weight += w, first += w * y, second += w * y * y;
  }
  first /= weight, second /= weight;
  return {first, std::max(second - first * first, 1e-6)};
}

template <typename F>
void map_channels(Feature& x, const F& moments_of) {
  for (size_t c = 0; c < x.mean.size(); ++c) {
    const Moments m = moments_of(x.mean[c], x.variance[c]);
    x.mean[c] = m.mean, x.variance[c] = m.variance;
  }
}

double relu(double x) { return std::max(x, 0.0); }
double hard_sigmoid(double x) { return std::clamp(x / 6 + 0.5, 0.0, 1.0); }

}  // namespace

Feature ConvNet::image(const std::string& name, int64_t channels, int64_t extent) {
  b.input(name, onnx::TensorProto::FLOAT, {b.options().batch, {channels, {}}, {extent, {}}, {extent, {}}});
  return {name, extent, std::vector<double>(size_t(channels), 0.0), std::vector<double>(size_t(channels), 1.0)};
}

Feature ConvNet::conv(const std::string& scope, const Feature& x, const ConvOptions& options) {
  const int64_t k = options.kernel, pad = k / 2, in_group = x.channels() / options.groups;
  const int64_t taps = k * k, out_group = options.out / options.groups;
  const std::string w = b.normal(Builder::parameter(scope, "weight"), {options.out, in_group, k, k},
                                 std::sqrt(2.0f / float(in_group * taps)));
  Names inputs = {x.value, w};
  std::vector<double> shift(size_t(options.out), 0.0);
  if (options.bias) {
    inputs.push_back(b.normal(Builder::parameter(scope, "bias"), {options.out}, 0.05f));
    std::vector<float> values(static_cast<size_t>(options.out));
    WeightStream(b.weight(inputs.back())).fill(values);
    shift.assign(values.begin(), values.end());
  }
  Feature y = {b.node("Conv", scope, inputs,
                      {{"dilations", Ints{1, 1}},
                       {"group", options.groups},
                       {"kernel_shape", Ints{k, k}},
                       {"pads", Ints{pad, pad, pad, pad}},
                       {"strides", Ints{options.stride, options.stride}}}),
               (x.extent + 2 * pad - k) / options.stride + 1, std::move(shift),
               std::vector<double>(size_t(options.out), 0.0)};
  WeightStream stream(b.weight(w));
  std::vector<float> filter(size_t(in_group * taps));
  for (int64_t o = 0; o < options.out; ++o) {
    stream.fill(filter);
    const int64_t first = o / out_group * in_group;
    for (int64_t i = 0; i < in_group; ++i) {
      double sum = 0, squares = 0;
      for (int64_t t = i * taps; t < (i + 1) * taps; ++t) {
        sum += filter[size_t(t)];
        squares += filter[size_t(t)] * filter[size_t(t)];
      }
      y.mean[size_t(o)] += sum * x.mean[size_t(first + i)];
      y.variance[size_t(o)] += squares * x.variance[size_t(first + i)];
    }
  }
  return y;
}

Feature ConvNet::batch_norm(const std::string& scope, const Feature& x, float epsilon, float low, float high) {
  const int64_t c = x.channels();
  const std::string scale = b.uniform(Builder::parameter(scope, "weight"), {c}, low, high);
  const std::string shift = b.normal(Builder::parameter(scope, "bias"), {c}, 0.1f);
  const std::string mean = b.floats(Builder::parameter(scope, "running_mean"), {c}, {x.mean.begin(), x.mean.end()});
  const std::string variance =
      b.floats(Builder::parameter(scope, "running_var"), {c}, {x.variance.begin(), x.variance.end()});
  Feature y = x;
  const Names inputs = {x.value, scale, shift, mean, variance};
  y.value = b.opset() < 14 ? b.node("BatchNormalization", scope, inputs, {{"epsilon", epsilon}, {"momentum", 0.9f}})
                           : b.node("BatchNormalization", scope, inputs,
                                    {{"epsilon", epsilon}, {"momentum", 0.9f}, {"training_mode", int64_t{0}}});
  std::vector<float> scales(static_cast<size_t>(c)), shifts(static_cast<size_t>(c));
  WeightStream(b.weight(scale)).fill(scales);
  WeightStream(b.weight(shift)).fill(shifts);
  y.mean.assign(shifts.begin(), shifts.end());
  for (size_t i = 0; i < scales.size(); ++i) y.variance[i] = scales[i] * scales[i];
  return y;
}

Feature ConvNet::activation(const std::string& scope, const Feature& x, Activation kind) {
  Feature y = x;
  switch (kind) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      y.value = b.node("Relu", scope, {x.value});
      map_channels(y, [](double m, double v) { return through(relu, m, v); });
      break;
    case Activation::kHardSwish:
      y.value = b.hard_swish(scope, x.value);
      map_channels(y, [](double m, double v) { return through([](double t) { return t * hard_sigmoid(t); }, m, v); });
      break;
  }
  return y;
}

Feature ConvNet::max_pool(const std::string& scope, const Feature& x) {
  Feature y = x;
  y.extent = (x.extent - 1) / 2 + 1;
  y.value = b.node(
      "MaxPool", scope, {x.value},
      {{"ceil_mode", int64_t{0}}, {"kernel_shape", Ints{3, 3}}, {"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}});
  // The nine values overlap in what they see: about as many as five independent ones. A half normal of these moments
  // has the mean 0.4 s and the deviation 0.58 s, s being that of the normal before the Relu.
  map_channels(y, [](double, double v) { return through(relu, 0, v / 0.34, 5); });
  return y;
}

Feature ConvNet::average_all(const std::string& scope, const Feature& x) {
  Feature y = x;
  y.value = b.node("GlobalAveragePool", scope, {x.value});
  for (double& v : y.variance) v /= double(x.extent * x.extent);
  y.extent = 1;
  return y;
}

Feature ConvNet::add(const std::string& scope, const Feature& x, const Feature& y) {
  Feature z = x;
  z.value = b.node("Add", scope, {x.value, y.value});
  for (size_t c = 0; c < z.mean.size(); ++c) z.mean[c] += y.mean[c], z.variance[c] += y.variance[c];
  return z;
}

Feature ConvNet::squeeze_excite(const std::string& scope, const Feature& x, int64_t squeezed) {
  Feature s = average_all(scope + "/avgpool", x);
  s = activation(scope + "/activation", conv(scope + "/fc1", s, {.out = squeezed, .bias = true}), Activation::kRelu);
  s = conv(scope + "/fc2", s, {.out = x.channels(), .bias = true});
  Feature y = x;
  y.value = b.node("Mul", scope,
                   {b.node("HardSigmoid", scope + "/scale_activation", {s.value}, {{"alpha", 1.0f / 6}}), x.value});
  for (size_t c = 0; c < y.mean.size(); ++c) {
    const double factor = through(hard_sigmoid, s.mean[c], s.variance[c]).mean;
    y.mean[c] *= factor, y.variance[c] *= factor * factor;
  }
  return y;
}

std::string ConvNet::gemm(const std::string& scope, const std::string& x, int64_t from, int64_t to) {
  const std::string w = b.normal(Builder::parameter(scope, "weight"), {to, from}, 1 / std::sqrt(float(from)));
  const std::string bias = b.normal(Builder::parameter(scope, "bias"), {to}, 0.05f);
  return b.node("Gemm", scope, {x, w, bias}, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}});
}

}  // namespace ridgeline::make
