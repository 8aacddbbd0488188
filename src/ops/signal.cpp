// Fourier transforms and what surrounds them. Source: ONNX DFT-20, STFT-17, BlackmanWindow-17, HammingWindow-17,
// HannWindow-17, MelWeightMatrix-17.
#include "ops/signal.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/saturate.h"
#include "ops/common.h"
#include "ops/families.h"

namespace ridgeline {
namespace {

constexpr int64_t kMostLength = int64_t(1) << 26;  // of one transform: positions are multiplied in 64 bits

constexpr InputSpec optional_input(std::string_view name, TypeSet types, std::string_view same_as = "") {
  InputSpec spec{name, types, same_as};
  spec.optional = true;
  return spec;
}

/// The only element of an input that is a scalar, or a list of one.
Dim scalar(const Infer& i, int input) {
  i.require(product(i.shape(input)).is(1), [&] {
    return fmt::format("'{}' has shape {}; allowed: a scalar", i.op().inputs[input].name, text(i.shape(input)));
  });
  return i.need_values(input)[0];
}

int parts_of(const Infer& i, int input) {
  const Shape& s = i.shape(input);
  i.require(!s.empty() && (s.back().is(1) || s.back().is(2)), [&] {
    return fmt::format("'{}' is {}; allowed: a last axis of 1 (real) or 2 (complex)", i.op().inputs[input].name,
                       text(s));
  });
  return int(s.back().value());
}

void check_length(const Infer& i, const Dim& length) {
  i.require(!length.known() || (length.value() >= 1 && length.value() <= kMostLength),
            [&] { return fmt::format("a transform of length {}; allowed: 1 to {}", length.text(), kMostLength); });
}

/// e^(2 pi i k / n), exact at the eighths.
struct Turn {
  double re, im;
};
std::vector<Turn> turns(int64_t n) {
  std::vector<Turn> table(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    // The angle within an eighth of a turn, so that symmetric entries are equal to the bit.
    const int64_t quadrant = 4 * k / n, rest = 4 * k - quadrant * n;  // angle = (quadrant + rest / n) * pi / 2
    const bool upper = 2 * rest > n;
    const double a = double(upper ? n - rest : rest) / double(n) * std::numbers::pi / 2;
    double c = std::cos(a), s = std::sin(a);
    if (upper) std::swap(c, s);
    const Turn by_quadrant[] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    table[size_t(k)] = by_quadrant[quadrant];
  }
  return table;
}

/// y[k] = sum of x[t] e^(sign 2 pi i k t / n), by definition.
struct Direct {
  int64_t n;
  std::vector<Turn> turn = turns(n);
  Turn bin(int64_t k, double sign, const std::vector<Turn>& x) const {
    Turn sum{0, 0};
    for (int64_t t = 0, at = 0; t < int64_t(x.size()); ++t) {
      const Turn w{turn[size_t(at)].re, sign * turn[size_t(at)].im};
      sum.re += x[size_t(t)].re * w.re - x[size_t(t)].im * w.im;
      sum.im += x[size_t(t)].re * w.im + x[size_t(t)].im * w.re;
      at += k;
      if (at >= n) at -= n;
    }
    return sum;
  }
};

// ---- DFT

enum DftInput { kX, kLength, kAxis };

void infer_dft(Infer& i) {
  const int rank = i.rank(kX), parts = parts_of(i, kX);
  i.require(rank >= 2, [&] { return fmt::format("'input' is {}; allowed: rank 2 and above", text(i.shape(kX))); });
  int64_t given = -2;
  if (i.has(kAxis)) {
    const Dim axis = scalar(i, kAxis);
    i.require(axis.known(), "'axis' is not a known number");
    given = axis.value();
  }
  const int axis = i.axis(given, rank);
  i.require(axis != rank - 1, [&] { return fmt::format("axis = {} is that of real and imaginary parts", given); });
  const bool inverse = i.flag("inverse"), one_sided = i.flag("onesided");
  i.require(!one_sided || (inverse ? parts == 2 : parts == 1), [&] {
    return fmt::format("onesided = 1 and inverse = {}: 'input' is {}; allowed: a last axis of {}", int(inverse),
                       text(i.shape(kX)), inverse ? 2 : 1);
  });
  Shape y = i.shape(kX);
  Dim length = one_sided && inverse ? Dim(2) * (y[size_t(axis)] - Dim(1)) : y[size_t(axis)];
  if (i.has(kLength)) length = scalar(i, kLength);
  check_length(i, length);
  y[size_t(axis)] = one_sided && !inverse ? floor_div(length, Dim(2)) + Dim(1) : length;
  y.back() = one_sided && inverse ? 1 : 2;
  i.output(0, i.dtype(kX), y);
}

DftShape dft_shape(const Extents& x, const Extents& y, int64_t given_axis, int64_t length, bool inverse,
                   bool one_sided) {
  const size_t axis = size_t(positive_axis(given_axis, int(x.size())));
  DftShape s;
  s.inverse = inverse;
  s.one_sided = one_sided;
  for (size_t a = 0; a + 1 < x.size(); ++a) (a < axis ? s.outer : a > axis ? s.inner : s.extent) *= x[a];
  s.extent = x[axis];
  s.parts = int(x.back());
  s.out_parts = int(y.back());
  s.bins = y[axis];
  s.length = one_sided && !inverse ? length : s.bins;
  return s;
}

void reference_dft(Reference& r) {
  const RefArray& x = r.in[kX];
  const bool inverse = r.flag("inverse"), one_sided = r.flag("onesided");
  const int64_t axis = r.has(kAxis) ? r.in[kAxis].integer(0) : -2;
  const int64_t extent = x.dim(positive_axis(axis, x.rank()));
  const int64_t length = r.has(kLength) ? r.in[kLength].integer(0) : one_sided && inverse ? 2 * (extent - 1) : extent;
  const DftShape s = dft_shape(x.shape, r.out[0].shape, axis, length, inverse, one_sided);
  if (r.out[0].elements() == 0) return;
  const Direct direct{s.length};
  const bool to_real = one_sided && inverse;
  const double scale = inverse ? 1 / double(s.length) : 1;
  r.parallel_for(s.outer * s.inner, [&](int64_t begin, int64_t end) {
    std::vector<Turn> line(static_cast<size_t>(s.length));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t o = row / s.inner, in = row % s.inner;
      std::fill(line.begin(), line.end(), Turn{0, 0});
      const int64_t read = std::min(s.extent, to_real ? s.length / 2 + 1 : s.length);
      for (int64_t t = 0; t < read; ++t) {
        const double* from = x.f.data() + ((o * s.extent + t) * s.inner + in) * s.parts;
        line[size_t(t)] = {from[0], s.parts == 2 ? from[1] : 0};
      }
      if (to_real) {  // the other half is the conjugate; what has no partner is real
        line[0].im = 0;
        if (s.length % 2 == 0) line[size_t(s.length / 2)].im = 0;
        for (int64_t t = 1; t < s.length - t; ++t)
          line[size_t(s.length - t)] = {line[size_t(t)].re, -line[size_t(t)].im};
      }
      for (int64_t k = 0; k < s.bins; ++k) {
        const Turn bin = direct.bin(k, inverse ? 1 : -1, line);
        double* to = r.out[0].f.data() + ((o * s.bins + k) * s.inner + in) * s.out_parts;
        to[0] = bin.re * scale;
        if (s.out_parts == 2) to[1] = bin.im * scale;
      }
    }
  });
}

/// The direct algorithm has a complex multiply-add for each pair.
Cost cost_of_transforms(const Problem& p, int64_t transforms, int64_t length, int64_t bins, int parts) {
  return {.flops = saturated_product({transforms, length, bins, parts == 2 ? 8 : 4}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

// ---- STFT

enum StftInput { kSignal, kStep, kWindow, kFrameLength };

void infer_stft(Infer& i) {
  const int parts = parts_of(i, kSignal);
  i.require(i.rank(kSignal) == 3, [&] {
    return fmt::format("'signal' is {}; allowed: [batch, samples, 1] or [batch, samples, 2]", text(i.shape(kSignal)));
  });
  const bool one_sided = i.flag("onesided");
  i.require(!one_sided || parts == 1, "onesided = 1 with a complex signal; allowed: a real one");
  const Dim step = scalar(i, kStep), samples = i.dim(kSignal, 1);
  i.require(!step.known() || step.value() >= 1,
            [&] { return fmt::format("frame_step = {}; allowed: 1 and more", step.text()); });
  Dim length = samples;
  if (i.has(kFrameLength)) length = scalar(i, kFrameLength);
  if (i.has(kWindow)) {
    i.require(
        i.rank(kWindow) == 1 &&
            (!i.has(kFrameLength) || !length.known() || !i.dim(kWindow, 0).known() || i.dim(kWindow, 0) == length),
        [&] { return fmt::format("'window' is {}; allowed: one axis of the frame's length", text(i.shape(kWindow))); });
    if (!i.has(kFrameLength)) length = i.dim(kWindow, 0);
  }
  check_length(i, length);
  i.require(!length.known() || !samples.known() || length.value() <= samples.value(), [&] {
    return fmt::format("frames of {} samples in a signal of {}; allowed: no longer than the signal", length.text(),
                       samples.text());
  });
  const Dim frames = floor_div(samples - length, step) + Dim(1);
  const Dim bins = one_sided ? floor_div(length, Dim(2)) + Dim(1) : length;
  i.output(0, i.dtype(kSignal), {i.dim(kSignal, 0), frames, bins, 2});
}

void reference_stft(Reference& r) {
  const RefArray& x = r.in[kSignal];
  if (r.out[0].elements() == 0) return;
  const int64_t samples = x.dim(1), parts = x.dim(2), step = r.in[kStep].integer(0), frames = r.out[0].dim(1),
                bins = r.out[0].dim(2);
  const int64_t length = r.has(kFrameLength) ? r.in[kFrameLength].integer(0)
                         : r.has(kWindow)    ? r.in[kWindow].dim(0)
                                             : samples;
  const Direct direct{length};
  r.parallel_for(x.dim(0) * frames, [&](int64_t begin, int64_t end) {
    std::vector<Turn> line(static_cast<size_t>(length));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row / frames * samples + row % frames * step;
      for (int64_t t = 0; t < length; ++t) {
        const double w = r.has(kWindow) ? r.in[kWindow].f[size_t(t)] : 1;
        const double* from = x.f.data() + (first + t) * parts;
        line[size_t(t)] = {from[0] * w, parts == 2 ? from[1] * w : 0};
      }
      for (int64_t k = 0; k < bins; ++k) {
        const Turn bin = direct.bin(k, -1, line);
        r.out[0].f[size_t((row * bins + k) * 2)] = bin.re;
        r.out[0].f[size_t((row * bins + k) * 2 + 1)] = bin.im;
      }
    }
  });
}

// ---- windows

void infer_window(Infer& i) {
  const Dim size = scalar(i, 0);
  i.require(!size.known() || size.value() >= 0,
            [&] { return fmt::format("size = {}; allowed: 0 and more", size.text()); });
  const DType dtype = dtype_of_onnx(int(i.integer("output_datatype")));
  i.require(dtype != DType::kNone && contains(kNumbers, dtype), [&] {
    return fmt::format("output_datatype = {} is unsupported; allowed: {}", i.integer("output_datatype"),
                       text(kNumbers));
  });
  i.output(0, dtype, {size});
}

/// a0 - a1 cos(2 pi k / n) + a2 cos(4 pi k / n), n the size, or one less for a symmetric window. In double: the angles
/// of a long one have few digits left in f32. A symmetric window of one point has no value (0 / 0), in the standard
/// too.
void window(Builder& b, double a0, double a1, double a2) {
  V size = b.input(0);
  if (b.rank(size) != 0) size = b.op("Squeeze", {size});
  V k = b.cast(b.op("Range", {b.constant(0, size), size, b.constant(1, size)}), DType::kF64);
  V n = b.cast(b.flag("periodic") ? size : size - b.constant(1, size), DType::kF64);
  V turn = k / n * b.constant(2 * std::numbers::pi, k);
  V y = b.constant(a0, k) - b.constant(a1, k) * b.op("Cos", {turn});
  if (a2 != 0) y = y + b.constant(a2, k) * b.op("Cos", {turn * b.constant(2, k)});
  b.result(b.cast(y, dtype_of_onnx(int(b.integer("output_datatype")))));
}

constexpr OpSchema window_schema(std::string_view name, std::string_view doc, void (*decompose)(Builder&)) {
  OpSchema s;
  s.name = name;
  s.family = "signal";
  s.kind = OpKind::kOpaque;
  s.doc = doc;
  s.since = 17;
  s.versions = {17};
  s.inputs = {{"size", kIndices}};
  s.outputs = {{"output"}};
  s.attributes = {{"output_datatype", 1}, {"periodic", 1}};
  s.infer = infer_window;
  s.decompose = {decompose};
  s.no_gradient = "the input is a size";
  s.samples = {"size=i64{10}", "size=i32{7} periodic=0 output_datatype=11", "size=i64{1}", "size=i64{0}",
               "size=i64{65} output_datatype=10"};
  s.tolerance = Tolerance::reduction(4);
  return s;
}

// ---- MelWeightMatrix

enum MelInput { kBins, kDftLength, kRate, kLower, kUpper };

void infer_mel(Infer& i) {
  const Dim bins = scalar(i, kBins), length = scalar(i, kDftLength);
  i.require(!bins.known() || bins.value() >= 0,
            [&] { return fmt::format("num_mel_bins = {}; allowed: 0 and more", bins.text()); });
  check_length(i, length);
  for (int k : {kRate, kLower, kUpper})
    i.require(product(i.shape(k)).is(1), [&] {
      return fmt::format("'{}' has shape {}; allowed: a scalar", i.op().inputs[k].name, text(i.shape(k)));
    });
  const DType dtype = dtype_of_onnx(int(i.integer("output_datatype")));
  i.require(dtype != DType::kNone && contains(kNumbers, dtype), [&] {
    return fmt::format("output_datatype = {} is unsupported; allowed: {}", i.integer("output_datatype"),
                       text(kNumbers));
  });
  i.output(0, dtype, {floor_div(length, Dim(2)) + Dim(1), bins});
}

/// Triangles between neighbouring edges, which stand at equal distances on the mel scale and at whole bins of the
/// spectrum; each rises to 1 at its middle edge.
void reference_mel(Reference& r) {
  const int64_t mels = r.out[0].dim(1), bins = r.out[0].dim(0), length = r.in[kDftLength].integer(0);
  const double rate = double(r.in[kRate].integer(0)), low = r.in[kLower].f[0], high = r.in[kUpper].f[0];
  if (!(rate > 0) || !(low >= 0) || !(high >= low) || !std::isfinite(high))
    fail(ErrorCode::kBadInput, "MelWeightMatrix: a sample rate of {} and edges at {} and {} Hz; allowed: {}", rate, low,
         high, "a rate above 0 and edges from 0 on, the upper not below the lower");
  const auto mel = [](double hertz) { return 2595 * std::log1p(hertz / 700) / std::log(10.0); };
  const double first = mel(low), step = (mel(high) - first) / double(mels + 2);
  std::vector<int64_t> edge;
  for (int64_t k = 0; k < mels + 2; ++k) {
    const double hertz = 700 * std::expm1((double(k) * step + first) / 2595 * std::log(10.0));
    edge.push_back(int64_t(std::clamp(std::floor(double(length + 1) * hertz / rate), 0.0, double(kMostLength) * 2)));
  }
  for (int64_t k = 0; k < mels; ++k) {
    const int64_t from = edge[size_t(k)], middle = edge[size_t(k) + 1], to = edge[size_t(k) + 2];
    const auto put = [&](int64_t bin, double value) {
      if (bin < bins) r.out[0].set(bin * mels + k, value);
    };
    if (middle == from) put(middle, 1);
    for (int64_t bin = from; bin <= std::min(middle, bins - 1) && middle > from; ++bin)
      put(bin, double(bin - from) / double(middle - from));
    for (int64_t bin = middle; bin < std::min(to, bins) && to > middle; ++bin)
      put(bin, double(to - bin) / double(to - middle));
  }
}

constexpr std::string_view kNoAdjoint =
    "its adjoint, with padding, truncation and halves left out, is no operator of the standard";

}  // namespace

DftShape dft_shape(const Problem& p) {
  const Extents& x = p.input(kX).shape();
  const int64_t axis = p.has(kAxis) ? p.values(kAxis).at(0) : -2;
  const bool inverse = p.flag("inverse"), one_sided = p.flag("onesided");
  const int64_t extent = x[size_t(positive_axis(axis, int(x.size())))];
  const int64_t length = p.has(kLength) ? p.values(kLength).at(0) : one_sided && inverse ? 2 * (extent - 1) : extent;
  return dft_shape(x, p.output().shape(), axis, length, inverse, one_sided);
}

StftShape stft_shape(const Problem& p) {
  const Extents &x = p.input(kSignal).shape(), &y = p.output().shape();
  StftShape s;
  s.batch = x[0];
  s.samples = x[1];
  s.parts = int(x[2]);
  s.frames = y[1];
  s.bins = y[2];
  s.step = p.values(kStep).at(0);
  s.length = p.has(kFrameLength) ? p.values(kFrameLength).at(0)
             : p.has(kWindow)    ? p.input(kWindow).shape()[0]
                                 : s.samples;
  return s;
}

constinit const OpSchema kDft = {
    .name = "DFT",
    .family = "signal",
    .kind = OpKind::kContraction,
    .doc =
        "sum over n of x[n] e^(-2 pi i k n / N) along an axis, padded with zeros or cut to dft_length; inverse: the "
        "other sign, divided by N; onesided: bins 0 to N / 2 of a real signal, or back from these. Source: ONNX DFT-20",
    .since = 20,
    .versions = {17, 20},
    .inputs = {{"input", kFloats}, optional_input("dft_length", kIndices), optional_input("axis", kInt64)},
    .outputs = {{"output"}},
    .attributes = {{"inverse", 0}, {"onesided", 0}},
    .infer = infer_dft,
    .cost =
        [](const Problem& p) {
          const DftShape s = dft_shape(p);
          return cost_of_transforms(p, saturated_product({s.outer, s.inner}), std::min(s.length, s.extent), s.bins,
                                    s.parts);
        },
    .reference = reference_dft,
    .no_gradient = kNoAdjoint,
    .samples = {"input=f32[2,64,1]", "input=f32[3,10,2] inverse=1", "input=f32[2,15,1] onesided=1",
                "input=f32[2,9,2] onesided=1 inverse=1", "input=f32[5,4,3,2] axis=i64{0}",
                "input=f64[2,7,2] dft_length=i64{11}", "input=f32[1,100,1] dft_length=i32{48} onesided=1",
                "input=f32[4,5,2] axis=i64{-3}", "input=f16[2,16,1]", "input=f32[0,8,1]", "input=f32[3,1,2]",
                "input=f32[2,6,2] onesided=1 inverse=1 dft_length=i64{13}", "input=f32[1,331,2]",
                "input=f32[1,1024,2]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kStft = {
    .name = "STFT",
    .family = "signal",
    .kind = OpKind::kContraction,
    .doc = "the DFT of each frame of a signal times a window, a frame every frame_step samples. Source: ONNX STFT-17",
    .since = 17,
    .versions = {17},
    .inputs = {{"signal", kFloats},
               {"frame_step", kIndices},
               optional_input("window", kFloats, "signal"),
               optional_input("frame_length", kIndices)},
    .outputs = {{"output"}},
    .attributes = {{"onesided", 1}},
    .infer = infer_stft,
    .cost =
        [](const Problem& p) {
          const StftShape s = stft_shape(p);
          return cost_of_transforms(p, saturated_product({s.batch, s.frames}), s.length, s.bins, s.parts);
        },
    .reference = reference_stft,
    .no_gradient = kNoAdjoint,
    .samples = {"signal=f32[1,128,1] frame_step=i64{8} frame_length=i64{16}",
                "signal=f32[2,100,1] frame_step=i64{7} window=f32[20]",
                "signal=f32[2,40,2] frame_step=i32{5} window=f32[11] onesided=0",
                "signal=f64[1,64,1] frame_step=i64{64} window=f64[64] frame_length=i64{64}",
                "signal=f32[1,33,1] frame_step=i64{3}", "signal=f16[1,50,1] frame_step=i64{10} window=f16[16]",
                "signal=f32[0,50,1] frame_step=i64{10} window=f32[16]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kBlackmanWindow =
    window_schema("BlackmanWindow", "0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n). Source: ONNX BlackmanWindow-17",
                  [](Builder& b) { window(b, 0.42, 0.5, 0.08); });
// The standard's coefficients: 25 / 46 and its rest.
constinit const OpSchema kHammingWindow =
    window_schema("HammingWindow", "25 / 46 - 21 / 46 cos(2 pi k / n). Source: ONNX HammingWindow-17",
                  [](Builder& b) { window(b, 25.0 / 46, 21.0 / 46, 0); });
constinit const OpSchema kHannWindow = window_schema(
    "HannWindow", "0.5 - 0.5 cos(2 pi k / n). Source: ONNX HannWindow-17", [](Builder& b) { window(b, 0.5, 0.5, 0); });

constinit const OpSchema kMelWeightMatrix = {
    .name = "MelWeightMatrix",
    .family = "signal",
    .kind = OpKind::kOpaque,
    .doc =
        "[dft_length / 2 + 1, num_mel_bins]: triangles of height 1 between edges at equal distances on the mel scale, "
        "2595 log10(1 + f / 700). Source: ONNX MelWeightMatrix-17",
    .since = 17,
    .versions = {17},
    .inputs = {{"num_mel_bins", kIndices},
               {"dft_length", kIndices, "num_mel_bins"},
               {"sample_rate", kIndices, "num_mel_bins"},
               {"lower_edge_hertz", kFloats},
               {"upper_edge_hertz", kFloats, "lower_edge_hertz"}},
    .outputs = {{"output"}},
    .attributes = {{"output_datatype", 1}},
    .infer = infer_mel,
    .reference = reference_mel,
    .no_gradient = "piecewise constant in the edges, which fall on whole bins",
    .samples = {"num_mel_bins=i64{8} dft_length=i64{16} sample_rate=i64{8192} lower_edge_hertz=f32{0} "
                "upper_edge_hertz=f32{4096}",
                "num_mel_bins=i32{0} dft_length=i32{1} sample_rate=i32{16000} lower_edge_hertz=f32{20} "
                "upper_edge_hertz=f32{8000} output_datatype=11"},
    .tolerance = Tolerance::reduction(4),
};

std::span<const OpSchema* const> signal_ops() {
  static constexpr const OpSchema* kOps[] = {&kBlackmanWindow, &kDft,  &kHammingWindow,
                                             &kHannWindow,     &kStft, &kMelWeightMatrix};
  return kOps;
}

}  // namespace ridgeline
