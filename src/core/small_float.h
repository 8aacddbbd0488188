// Floats of a byte and less. Formats: OCP 8-bit floating point (e4m3fn, e5m2) of 2023; "8-bit numerical formats for
// deep neural networks" of 2022 (the fnuz forms); OCP microscaling formats of 2023 (e8m0, f4, f6).
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline {

/// The number that the lowest bits of `code` stand for; NaN keeps its sign.
double decode_small(DType dtype, unsigned code);

/// The code for `value`, rounded to nearest even (e8m0: up). Beyond the largest number: infinity, else NaN, else the
/// largest number, whichever the format has first; e8m0 stays within its range, and has NaN for numbers below 0. NaN
/// becomes -0 where there is none. The fnuz forms have no -0.
unsigned encode_small(DType dtype, double value);

}  // namespace ridgeline
