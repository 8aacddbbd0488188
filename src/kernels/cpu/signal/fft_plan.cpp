// Factors of a length, and the tables of its passes.
#include <bit>
#include <cmath>
#include <numbers>

#include "kernels/cpu/signal/fft.h"

namespace ridgeline::cpu {

namespace {

constexpr int kLargestRadix = 13;

struct Complex {
  double re, im;
};

/// e^(-2 pi i k / n), 0 <= k < n: the angle within an eighth of a turn, as sine and cosine are exact there.
Complex root(int64_t k, int64_t n) {
  const int64_t quadrant = 4 * k / n, rest = 4 * k - quadrant * n;
  const bool upper = 2 * rest > n;
  const double a = double(upper ? n - rest : rest) / double(n) * std::numbers::pi / 2;
  double c = std::cos(a), s = -std::sin(a);
  if (upper) {
    const double t = c;
    c = -s;
    s = -t;
  }
  switch (quadrant) {
    case 0:
      return {c, s};
    case 1:
      return {s, -c};
    case 2:
      return {-c, -s};
    default:
      return {-s, c};
  }
}

/// Fours first: their strides then hold whole vectors for the odd ones. Empty: a prime factor is too large.
std::vector<int> radices_of(int64_t n) {
  std::vector<int> radices;
  for (const int r : {4, 2, 3, 5, 7, 11, kLargestRadix})
    for (; n % r == 0; n /= r) radices.push_back(r);
  if (n != 1) radices.clear();
  return radices;
}

template <typename T>
void add_passes(FftPlan<T>& plan, const std::vector<int>& radices) {
  int64_t n = plan.size;
  for (const int r : radices) {
    FftPass<T> pass;
    pass.radix = r;
    pass.m = n / r;
    pass.twiddle.reserve(size_t(pass.m * (r - 1) * 2));
    for (int64_t p = 0; p < pass.m; ++p)
      for (int k = 1; k < r; ++k) {
        const Complex w = root(p * k % n, n);
        pass.twiddle.push_back(T(w.re));
        pass.twiddle.push_back(T(w.im));
      }
    for (int k = 0; k < r && r > 5; ++k) {
      const Complex w = root(k, r);
      pass.root.push_back(T(w.re));
      pass.root.push_back(T(w.im));
    }
    plan.passes.push_back(std::move(pass));
    n /= r;
  }
}

}  // namespace

template <typename T>
FftPlan<T> make_fft(int64_t length) {
  FftPlan<T> plan;
  plan.length = plan.size = length;
  const std::vector<int> radices = radices_of(length);
  if (length == 1 || !radices.empty()) {
    add_passes(plan, radices);
    return plan;
  }
  // kn = (k^2 + n^2 - (k - n)^2) / 2: the transform is a convolution with the chirp e^(pi i k^2 / length).
  plan.size = fft_size(length);
  add_passes(plan, radices_of(plan.size));
  const auto chirp = [&](int64_t k) {
    return root(int64_t(uint64_t(k) * uint64_t(k) % uint64_t(2 * length)), 2 * length);
  };
  // Its spectrum in double whatever T: its error would be one of every result.
  FftPlan<double> wide;
  wide.length = wide.size = plan.size;
  add_passes(wide, radices_of(plan.size));
  std::vector<double> re(static_cast<size_t>(plan.size)), im(re.size()), other_re(re.size()), other_im(re.size());
  for (int64_t k = 0; k < length; ++k) {
    const Complex w = chirp(k);
    plan.chirp.push_back(T(w.re));
    plan.chirp.push_back(T(w.im));
    const size_t mirrored = k == 0 ? 0 : size_t(plan.size - k);
    re[size_t(k)] = re[mirrored] = w.re;
    im[size_t(k)] = im[mirrored] = -w.im;
  }
  const bool other = run_fft(wide, 1, re.data(), im.data(), other_re.data(), other_im.data());
  for (size_t k = 0; k < re.size(); ++k) {
    plan.spectrum.push_back(T((other ? other_re : re)[k] / double(plan.size)));
    plan.spectrum.push_back(T((other ? other_im : im)[k] / double(plan.size)));
  }
  return plan;
}

int64_t fft_size(int64_t length) {
  const bool passes = length == 1 || !radices_of(length).empty();
  return passes ? length : int64_t(std::bit_ceil(uint64_t(2 * length - 1)));
}

double fft_flops(int64_t length) {
  const int64_t size = fft_size(length);
  double flops = 0;
  for (const int radix : radices_of(size)) {
    const double r = radix;
    const double butterfly = radix == 4 ? 16 : radix == 2 ? 4 : radix > 5 ? 4 * r * r : 2 * r * r + 2 * r;
    flops += double(size) / r * (butterfly + 6 * (r - 1));
  }
  return size == length ? flops : 2 * flops + 6 * double(size) + 12 * double(length);
}

template FftPlan<float> make_fft<float>(int64_t);
template FftPlan<double> make_fft<double>(int64_t);

}  // namespace ridgeline::cpu
