// How far a result is from the right one.
#pragma once

#include <string>

#include "ridgeline/tensor.h"

namespace ridgeline {

/// Largest |y - reference| over largest |reference| (over 1 if all of that is 0). NaN equals NaN, an infinity its own;
/// where only one of the two is finite the error is infinite. Integers and bool count alike. Shapes and types must
/// agree: else infinite.
double max_error(const Tensor& y, const Tensor& reference);

/// What a test case of ONNX asks for: |y - right| <= atol + rtol * |right|, or one unit in the last place of the type;
/// integers and bool exactly.
struct Closeness {
  double rtol = 1e-3, atol = 1e-7;
  bool last_place = true;    // a case with its own tolerance does not have this
  bool signed_zero = false;  // the sign of zeros counts
};
/// Empty if it is close; else in one line what is not: "3 of 24 differ, first at [0,2]: 1.5, right is 1.25".
std::string difference(const Tensor& y, const Tensor& right, const Closeness& closeness = {});

}  // namespace ridgeline
