// Fast Fourier transforms of any length, several side by side: element k of transform j lies at k * lanes + j, real and
// imaginary parts in arrays of their own, so that every butterfly is one of whole vectors.
#pragma once

#include <cstdint>
#include <vector>

namespace ridgeline::cpu {

/// One pass of a Stockham transform: m butterflies of `radix` points, each with its twiddle factors.
template <typename T>
struct FftPass {
  int radix = 2;
  int64_t m = 1;
  std::vector<T> twiddle;  // [m][radix - 1][re, im]
  std::vector<T> root;     // [radix][re, im]: e^(-2 pi i k / radix), for radices without a butterfly of their own
};

/// Lengths whose prime factors are at most 13 take passes of 4, 2, 3, 5, 7, 11 and 13 points. Others are a convolution
/// with a chirp, by transforms of a power of two (Bluestein, 1970).
template <typename T>
struct FftPlan {
  int64_t length = 1;  // of the transform
  int64_t size = 1;    // of the arrays: the length, or that power of two
  std::vector<FftPass<T>> passes;
  std::vector<T> chirp;     // [length][re, im]; empty: none is needed
  std::vector<T> spectrum;  // [size][re, im]: of the conjugate chirp, divided by size
};
template <typename T>
FftPlan<T> make_fft(int64_t length);
/// Of its arrays, and what one transform takes, without making the tables.
int64_t fft_size(int64_t length);
double fft_flops(int64_t length);

/// How many f32 (f64) transforms side by side fill a vector.
int fft_lanes(int element_bytes);

/// Forward transforms of `lanes` (a power of two) series in `re` and `im`, which have `size * lanes` elements each, as
/// have the other two. Where the result lies: true: in `other_re` and `other_im`. (An inverse one, without its division
/// by the length: re and im exchanged, before and after.)
bool run_fft(const FftPlan<float>& plan, int64_t lanes, float* re, float* im, float* other_re, float* other_im);
bool run_fft(const FftPlan<double>& plan, int64_t lanes, double* re, double* im, double* other_re, double* other_im);

}  // namespace ridgeline::cpu
