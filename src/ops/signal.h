// Discrete Fourier transforms as their schemas see them: which axis, how long, which of the bins.
#pragma once

#include <cstdint>

#include "ir/problem.h"

namespace ridgeline {

/// A DFT along one axis of [outer, extent, inner, parts] to [outer, bins, inner, out_parts].
struct DftShape {
  int64_t outer = 1, extent = 0, inner = 1;
  int parts = 2, out_parts = 2;  // 1: real, 2: complex
  int64_t length = 1, bins = 0;  // of the transform; of what is kept of it
  bool inverse = false, one_sided = false;
};
DftShape dft_shape(const Problem& problem);

/// Frames of a signal [batch, samples, parts], each transformed to [batch, frames, bins, 2].
struct StftShape {
  int64_t batch = 1, samples = 0, frames = 0, step = 1, length = 1, bins = 0;
  int parts = 1;
};
StftShape stft_shape(const Problem& problem);

}  // namespace ridgeline
