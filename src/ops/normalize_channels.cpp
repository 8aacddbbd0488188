// Normalizations with a scale and bias a channel (axis 1), and the rarer ones. Source: ONNX BatchNormalization-15,
// InstanceNormalization-6, GroupNormalization-21, LpNormalization-1, MeanVarianceNormalization-13, LRN-13.
#include <cmath>
#include <numeric>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

void check_channels(Infer& i, int from, int to) {
  i.require(i.rank(0) >= 2,
            "input '" + std::string(i.op().inputs[0].name) + "' is " + describe(i, 0) + ": at least [N, C] is wanted");
  for (int p = from; p <= to; ++p) {
    const bool fits = i.rank(p) == 1 && (!i.dim(p, 0).known() || !i.dim(0, 1).known() || i.dim(p, 0) == i.dim(0, 1));
    i.require(fits, fmt::format("input '{}' is {}: one number for each of the {} channels is wanted",
                                i.op().inputs[p].name, describe(i, p), i.dim(0, 1).text()));
  }
}

struct Channels {
  int64_t batch, channels, inner;
};
Channels channels_of(const Extents& shape) {
  const AxisSpan s = span_of(shape, 1);
  return {s.outer, s.extent, s.inner};
}

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const double* x, int64_t n) {
  Moments m;
  for (int64_t k = 0; k < n; ++k) m.mean += x[k];
  m.mean /= double(n);
  for (int64_t k = 0; k < n; ++k) m.variance += (x[k] - m.mean) * (x[k] - m.mean);
  m.variance /= double(n);
  return m;
}

/// A [C] parameter against [N, C, spatial...].
V per_channel(Builder& b, V parameter, V x) {
  if (b.rank(x) == 2) return parameter;
  std::vector<int64_t> axes(size_t(b.rank(x) - 2));
  std::iota(axes.begin(), axes.end(), 1);
  return b.op("Unsqueeze", {parameter, b.integers_constant(axes)});
}

std::vector<int64_t> spatial_axes(Builder& b, V x) {
  std::vector<int64_t> axes(size_t(std::max(0, b.rank(x) - 2)));
  std::iota(axes.begin(), axes.end(), -int64_t(axes.size()));
  return axes;
}

/// (x - mean) / sqrt(variance + epsilon) over `axes`, and what its gradient needs.
struct Parts {
  V n, inverse;
};
Parts centred(Builder& b, V x, const std::vector<int64_t>& axes) {
  V d = x - b.reduce("ReduceMean", x, axes);
  V variance = b.reduce("ReduceMean", d * d, axes);
  V inverse = b.op("Reciprocal", {b.sqrt(variance + b.number_like("epsilon", variance))});
  return {d * inverse, inverse};
}
V centred_gradient(Gradient& g, const Parts& parts, V dn, const std::vector<int64_t>& axes) {
  return parts.inverse * (dn - g.reduce("ReduceMean", dn, axes) - parts.n * g.reduce("ReduceMean", dn * parts.n, axes));
}

/// Sums what has x's shape to one number a channel.
void channel_gradient(Gradient& g, int input, V value) {
  g.input_gradient(input, g.reshape(g.unbroadcast(value, per_channel(g, g.input(input), value)), {-1}));
}
/// d(scale), d(bias) of y = n * scale + bias with a number a channel.
void channel_gradients(Gradient& g, V n, int scale, int bias) {
  channel_gradient(g, scale, g.gradient() * n);
  channel_gradient(g, bias, g.gradient());
}

// ---- batch

void infer_batch_norm(Infer& i) {
  check_channels(i, 1, 4);
  i.same_as(0, 0);
  i.require(!i.wants(1) || i.flag("training_mode"), "its running statistics are outputs, but training_mode is 0");
  for (int o = 1; o <= 2; ++o)
    if (i.wants(o)) i.output(o, i.dtype(3), {i.dim(0, 1)});
}

void batch_norm_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const Channels s = channels_of(x.shape);
  const double epsilon = c.number("epsilon"), momentum = c.number("momentum");
  const bool training = c.flag("training_mode");
  c.parallel_for(s.channels, [&](int64_t begin, int64_t end) {
    for (int64_t channel = begin; channel < end; ++channel) {
      const size_t at = size_t(channel);
      double mean = c.in[3].f[at], variance = c.in[4].f[at];
      if (training) {
        std::vector<double> values;
        for (int64_t n = 0; n < s.batch; ++n)
          for (int64_t k = 0; k < s.inner; ++k) values.push_back(x.f[size_t((n * s.channels + channel) * s.inner + k)]);
        const Moments m = moments(values.data(), int64_t(values.size()));
        if (c.wants(1)) c.out[1].f[at] = mean * momentum + m.mean * (1 - momentum);
        if (c.wants(2)) c.out[2].f[at] = variance * momentum + m.variance * (1 - momentum);
        mean = m.mean, variance = m.variance;
      }
      const double factor = c.in[1].f[at] / std::sqrt(variance + epsilon);
      for (int64_t n = 0; n < s.batch; ++n) {
        for (int64_t k = 0; k < s.inner; ++k) {
          const size_t p = size_t((n * s.channels + channel) * s.inner + k);
          c.out[0].f[p] = (x.f[p] - mean) * factor + c.in[2].f[at];
        }
      }
    }
  });
}

std::vector<int64_t> batch_axes(Builder& b, V x) {
  std::vector<int64_t> axes = spatial_axes(b, x);
  axes.insert(axes.begin(), -int64_t(axes.size()) - 2);
  return axes;
}

void decompose_batch_norm(Builder& b) {
  V x = b.input(0), scale = per_channel(b, b.input(1), x), bias = per_channel(b, b.input(2), x);
  if (b.flag("training_mode")) {
    const std::vector<int64_t> axes = batch_axes(b, x);
    b.result(centred(b, x, axes).n * scale + bias);
    V mean = b.reduce("ReduceMean", x, axes, false), d = x - b.reduce("ReduceMean", x, axes);
    V variance = b.reduce("ReduceMean", d * d, axes, false);
    V momentum = b.number_like("momentum", mean), rest = b.constant(1, mean) - momentum;
    b.result(b.input(3) * momentum + mean * rest);
    b.result(b.input(4) * momentum + variance * rest);
    return;
  }
  V variance = per_channel(b, b.input(4), x);
  b.result((x - per_channel(b, b.input(3), x)) / b.sqrt(variance + b.number_like("epsilon", variance)) * scale + bias);
}

void batch_norm_gradient(Gradient& g) {
  V x = g.input(0), dy = g.gradient(), scale = per_channel(g, g.input(1), x);
  if (g.flag("training_mode")) {
    const std::vector<int64_t> axes = batch_axes(g, x);
    const Parts parts = centred(g, x, axes);
    g.input_gradient(0, centred_gradient(g, parts, dy * scale, axes));
    return channel_gradients(g, parts.n, 1, 2);
  }
  V mean = per_channel(g, g.input(3), x), variance = per_channel(g, g.input(4), x);
  V inverse = g.op("Reciprocal", {g.sqrt(variance + g.number_like("epsilon", variance))});
  V n = (x - mean) * inverse;
  g.input_gradient(0, dy * scale * inverse);
  channel_gradients(g, n, 1, 2);
  V dn = dy * scale;
  channel_gradient(g, 3, g.neg(dn * inverse));
  channel_gradient(g, 4, g.constant(-0.5, x) * dn * n * inverse * inverse);
}

// ---- instance and group: the same over `groups` slices of the channels

void normalize_groups(Reference& c, int64_t groups) {
  const RefArray& x = c.in[0];
  const Channels s = channels_of(x.shape);
  const double epsilon = c.number("epsilon");
  const int64_t members = groups ? s.channels / groups : 0, count = members * s.inner;
  c.parallel_for(s.batch * groups, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const double* from = x.f.data() + k * count;
      const Moments m = moments(from, count);
      const double inverse = 1 / std::sqrt(m.variance + epsilon);
      for (int64_t j = 0; j < count; ++j) {
        const size_t channel = size_t(k % groups * members + j / s.inner);
        c.out[0].f[size_t(k * count + j)] = (from[j] - m.mean) * inverse * c.in[1].f[channel] + c.in[2].f[channel];
      }
    }
  });
}

/// x as [N, G, -1]; extents that are not known yet are copied.
V grouped(Builder& b, V x) { return b.reshape(x, {0, b.integer("num_groups"), -1}); }
V ungrouped(Builder& b, V v, V x) { return b.op("Reshape", {v, b.op("Shape", {x})}); }

Cost statistics_cost(const Problem& p, int each, int64_t groups) {
  const int64_t n = p.input(0).elements();
  return {.flops = each * n + 4 * groups,
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = 2 * groups};
}

// ---- Lp, mean and variance, local response

void lp_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const AxisSpan s = span_of(x.shape, positive_axis(c.integer("axis"), x.rank()));
  const bool absolute = c.integer("p") == 1;
  for (int64_t k = 0; k < s.outer * s.inner; ++k) {
    const int64_t first = k / s.inner * s.extent * s.inner + k % s.inner;
    double sum = 0;
    for (int64_t j = 0; j < s.extent; ++j) {
      const double v = x.f[size_t(first + j * s.inner)];
      sum += absolute ? std::fabs(v) : v * v;
    }
    const double norm = absolute ? sum : std::sqrt(sum);
    for (int64_t j = 0; j < s.extent; ++j) {
      const size_t at = size_t(first + j * s.inner);
      c.out[0].f[at] = norm == 0 ? 0 : x.f[at] / norm;
    }
  }
}

std::vector<int64_t> mvn_axes(const Builder& b) { return b.integers("axes", {0, 2, 3}); }

void mvn_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const std::vector<int> axes = positive_axes(c.integers("axes", {0, 2, 3}), x.rank());
  Extents kept = x.shape;
  for (int axis : axes) kept[size_t(axis)] = 1;
  std::vector<std::vector<double>> groups(size_t(element_count(kept)));
  std::vector<size_t> group_of;
  for (Index at(x.shape); at.more(); ++at) {
    group_of.push_back(size_t(broadcast_index(kept, at.at())));
    groups[group_of.back()].push_back(x.f[size_t(at.flat())]);
  }
  std::vector<Moments> all;
  for (const auto& group : groups) all.push_back(moments(group.data(), int64_t(group.size())));
  for (size_t k = 0; k < group_of.size(); ++k) {
    const Moments& m = all[group_of[k]];
    c.out[0].f[k] = (x.f[k] - m.mean) / (std::sqrt(m.variance) + 1e-9);
  }
}

void lrn_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const Channels s = channels_of(x.shape);
  const int64_t size = c.integer("size"), before = (size - 1) / 2, after = size - 1 - before;
  const double alpha = c.number("alpha") / double(size), beta = c.number("beta"), bias = c.number("bias");
  c.parallel_for(s.batch * s.channels, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t channel = k % s.channels, image = (k - channel) * s.inner;
      const int64_t from = std::max<int64_t>(0, channel - before), to = std::min(s.channels - 1, channel + after);
      for (int64_t j = 0; j < s.inner; ++j) {
        double sum = 0;
        for (int64_t other = from; other <= to; ++other) {
          const double v = x.f[size_t(image + other * s.inner + j)];
          sum += v * v;
        }
        const size_t at = size_t(k * s.inner + j);
        c.out[0].f[at] = x.f[at] / std::pow(bias + alpha * sum, beta);
      }
    }
  });
}

}  // namespace

constinit const OpSchema kBatchNormalization = {
    .name = "BatchNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "(x - mean) / sqrt(variance + epsilon) * scale + bias a channel; statistics given, or of the batch in training "
        "mode. "
        "Source: ONNX BatchNormalization-15; Ioffe and Szegedy, 2015.",
    .since = 15,
    .versions = {1, 6, 7, 9, 14, 15},
    .inputs = {{"x", kFloats},
               {"scale", kFloats},
               {"bias", kFloats, "scale"},
               {"mean", kFloats},
               {"variance", kFloats, "mean"}},
    .outputs = {{"y"}, {"running_mean", true}, {"running_variance", true}},
    .attributes = {{"epsilon", 1e-5}, {"momentum", 0.9}, {"training_mode", 0}},
    .infer = infer_batch_norm,
    .cost =
        [](const Problem& p) {
          const int64_t n = p.input(0).elements(), channels = p.input(0).shape()[1];
          const int64_t each =
              p.flag("training_mode") ? 7 : 4;  // mean, centre, square and sum; centre, divide, scale, bias
          return Cost{.flops = each * n + 3 * channels,
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes(),
                      .special = 2 * channels};
        },
    .reference = batch_norm_reference,
    .decompose = {decompose_batch_norm},
    .gradient = batch_norm_gradient,
    .samples = {"x=f32[2,5,7,3] scale=f32[5] bias=f32[5] mean=f32[5] variance=f32[5]",
                "x=f32[3,17] scale=f32[17] bias=f32[17] mean=f32[17] variance=f32[17]",
                "x=f32[1,3,9] scale=f32[3] bias=f32[3] mean=f32[3] variance=f32[3] epsilon=0.01",
                "x=f32[4,3,5,5] scale=f32[3] bias=f32[3] mean=f32[3] variance=f32[3] training_mode=1 momentum=0.7",
                "x=f32[0,3,4,4] scale=f32[3] bias=f32[3] mean=f32[3] variance=f32[3]",
                "x=f16[1,4,3,3] scale=f32[4] bias=f32[4] mean=f32[4] variance=f32[4]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kInstanceNormalization = {
    .name = "InstanceNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "(x - mean) / sqrt(variance + epsilon) * scale + bias, statistics of each image's channel. Source: ONNX "
        "InstanceNormalization-6.",
    .since = 6,
    .versions = {1, 6, 22},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}, {"bias", kFloats, "x"}},
    .outputs = {{"y"}},
    .attributes = {{"epsilon", 1e-5}},
    .infer =
        [](Infer& i) {
          check_channels(i, 1, 2);
          i.same_as(0, 0);
        },
    .cost = [](const Problem& p) { return statistics_cost(p, 7, p.input(0).shape()[0] * p.input(0).shape()[1]); },
    .reference = [](Reference& c) { normalize_groups(c, c.in[0].shape[1]); },
    .decompose = {[](Builder& b) {
      V x = b.input(0);
      b.result(centred(b, x, spatial_axes(b, x)).n * per_channel(b, b.input(1), x) + per_channel(b, b.input(2), x));
    }},
    .gradient =
        [](Gradient& g) {
          V x = g.input(0);
          const Parts parts = centred(g, x, spatial_axes(g, x));
          g.input_gradient(
              0, centred_gradient(g, parts, g.gradient() * per_channel(g, g.input(1), x), spatial_axes(g, x)));
          channel_gradients(g, parts.n, 1, 2);
        },
    .samples = {"x=f32[2,5,7,3] scale=f32[5] bias=f32[5]", "x=f32[1,32,129] scale=f32[32] bias=f32[32] epsilon=0.001",
                "x=f32[0,3,4,4] scale=f32[3] bias=f32[3]", "x=f16[2,3,9,9] scale=f16[3] bias=f16[3]",
                "x=f32[1,2,3,5,4] scale=f32[2] bias=f32[2]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kGroupNormalization = {
    .name = "GroupNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "InstanceNormalization over groups of channels, with a scale and bias a channel. Source: ONNX "
        "GroupNormalization-21; Wu and He, 2018.",
    .since = 21,
    .versions = {21},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}, {"bias", kFloats, "x"}},
    .outputs = {{"y"}},
    .attributes = {{"num_groups", AttributeType::kInt, kRequired}, {"epsilon", 1e-5}, {"stash_type", 1}},
    .infer =
        [](Infer& i) {
          check_channels(i, 1, 2);
          const int64_t groups = i.integer("num_groups");
          const Dim& channels = i.dim(0, 1);
          i.require(groups > 0 && (!channels.known() || channels.value() % groups == 0),
                    fmt::format("{} channels do not divide into num_groups = {}", channels.text(), groups));
          i.same_as(0, 0);
        },
    .cost = [](const Problem& p) { return statistics_cost(p, 7, p.input(0).shape()[0] * p.integer("num_groups")); },
    .reference = [](Reference& c) { normalize_groups(c, c.integer("num_groups")); },
    .decompose = {[](Builder& b) {
      V x = b.input(0), n = ungrouped(b, centred(b, grouped(b, x), {-1}).n, x);
      b.result(n * per_channel(b, b.input(1), x) + per_channel(b, b.input(2), x));
    }},
    .gradient =
        [](Gradient& g) {
          V x = g.input(0);
          const Parts parts = centred(g, grouped(g, x), {-1});
          V dn = grouped(g, g.gradient() * per_channel(g, g.input(1), x));
          g.input_gradient(0, ungrouped(g, centred_gradient(g, parts, dn, {-1}), x));
          channel_gradients(g, ungrouped(g, parts.n, x), 1, 2);
        },
    .samples = {"x=f32[2,6,7,3] scale=f32[6] bias=f32[6] num_groups=3",
                "x=f32[1,32,129] scale=f32[32] bias=f32[32] num_groups=1 epsilon=0.001",
                "x=f32[0,4,4,4] scale=f32[4] bias=f32[4] num_groups=2",
                "x=f16[2,4,9,9] scale=f16[4] bias=f16[4] num_groups=4"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kLpNormalization = {
    .name = "LpNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "x divided by its L1 or L2 norm along an axis; 0 where the norm is 0. Source: ONNX LpNormalization-1.",
    .since = 1,
    .versions = {1, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"axis", -1}, {"p", 2}},
    .infer =
        [](Infer& i) {
          i.axis(i.integer("axis"), i.rank(0));
          i.require(i.integer("p") == 1 || i.integer("p") == 2,
                    "p = " + std::to_string(i.integer("p")) + ": allowed are 1 and 2");
          i.same_as(0, 0);
        },
    .cost =
        [](const Problem& p) {
          const int64_t n = p.input(0).elements();
          return Cost{.flops = 3 * n, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes(), .special = n};
        },
    .reference = lp_reference,
    .decompose = {[](Builder& b) {
      V x = b.input(0);
      V norm = b.reduce(b.integer("p") == 1 ? "ReduceL1" : "ReduceL2", x, {b.integer("axis")});
      V is_zero = b.op("Equal", {norm, b.constant(0, norm)});
      b.result(x / b.op("Where", {is_zero, b.constant(1, norm), norm}));
    }},
    .samples = {"x=f32[3,5,127]", "x=f32[5,33] axis=0 p=1", "x=f32[2,7,5,3] axis=1", "x=f32[0,64]", "x=f16[5,65] p=1"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kMeanVarianceNormalization = {
    .name = "MeanVarianceNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "(x - mean) / (deviation + 1e-9) over `axes` (0, 2, 3 if not given). Source: ONNX "
        "MeanVarianceNormalization-13.",
    .since = 13,
    .versions = {9, 13},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"axes", AttributeType::kInts}},
    .infer =
        [](Infer& i) {
          i.axes(i.integers("axes", {0, 2, 3}), i.rank(0));
          i.same_as(0, 0);
        },
    .cost = [](const Problem& p) { return statistics_cost(p, 5, 0); },
    .reference = mvn_reference,
    .decompose = {[](Builder& b) {
      V d = b.input(0) - b.reduce("ReduceMean", b.input(0), mvn_axes(b));
      V deviation = b.sqrt(b.reduce("ReduceMean", d * d, mvn_axes(b)));
      b.result(d / (deviation + b.constant(1e-9, deviation)));
    }},
    .samples = {"x=f32[2,5,7,3]", "x=f32[3,5,17] axes=1,2", "x=f32[0,3,4,4]", "x=f32[4,9] axes=-1", "x=f16[2,3,5,5]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kLrn = {
    .name = "LRN",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "x / (bias + alpha / size * sum of squares of `size` neighbouring channels) ^ beta. Source: ONNX LRN-13; "
        "Krizhevsky et al., 2012.",
    .since = 13,
    .versions = {1, 13},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"size", AttributeType::kInt, kRequired}, {"alpha", 1e-4}, {"beta", 0.75}, {"bias", 1.0}},
    .infer =
        [](Infer& i) {
          i.require(i.rank(0) >= 2, "x is " + describe(i, 0) + ": at least [N, C] is wanted");
          i.require(i.integer("size") > 0,
                    "size = " + std::to_string(i.integer("size")) + ": a positive number is wanted");
          i.same_as(0, 0);
        },
    .cost =
        [](const Problem& p) {
          const int64_t n = p.input(0).elements();
          return Cost{.flops = saturated_product({saturated_sum(saturated_product({2, p.integer("size")}), 4), n}),
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes(),
                      .special = 2 * n};
        },
    .reference = lrn_reference,
    .gradient =
        [](Gradient& g) {
          // y = x * s^-beta, s = bias + a * sum of neighbours' squares: dx = dy * s^-beta - 2 a beta x * sum(dy * y /
          // s), the sum over those whose window holds this channel. A window's sum is a convolution with ones along the
          // channels.
          V x = g.input(0), dy = g.gradient();
          const int64_t size = g.integer("size"), before = (size - 1) / 2, after = size - 1 - before;
          auto window_sum = [&](V v, int64_t low, int64_t high) {
            V flat = g.op("Unsqueeze", {g.reshape(v, {0, 0, -1}), g.integers_constant({1})});  // [N, 1, C, inner]
            V ones = g.op("Expand", {g.constant(1, x), g.integers_constant({1, 1, size, 1})});
            Attributes a;
            a.set("pads", std::vector<int64_t>{low, 0, high, 0});
            return g.op("Reshape", {g.op("Conv", {flat, ones}, a), g.op("Shape", {x})});
          };
          V scale = g.constant(g.number("alpha") / double(size), x);
          V s = g.number_like("bias", x) + scale * window_sum(x * x, before, after);
          V beta = g.number_like("beta", x);
          V power = g.op("Pow", {s, g.neg(beta)});
          V shared = window_sum(dy * x * power / s, after, before);
          g.input_gradient(0, dy * power - g.constant(2, x) * scale * beta * x * shared);
        },
    .samples = {"x=f32[2,5,7,3] size=3", "x=f32[1,9,4,4] size=4 alpha=0.01 beta=0.5 bias=2.0", "x=f32[0,3,4,4] size=3",
                "x=f16[1,6,5,5] size=5", "x=f32[2,7] size=1"},
    .tolerance = Tolerance::reduction(),
};

std::span<const OpSchema* const> normalize_channels_ops() {
  static constexpr const OpSchema* kOps[] = {&kBatchNormalization, &kInstanceNormalization,     &kGroupNormalization,
                                             &kLpNormalization,    &kMeanVarianceNormalization, &kLrn};
  return kOps;
}

}  // namespace ridgeline
