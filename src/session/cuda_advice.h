#pragma once

#include <string>

#include "plan/plan.h"

namespace ridgeline {

/// Of a step on a GPU whose type the tensor cores multiply: which matrix instructions its code has; if it has none,
/// what that costs and why the kernels that have them do not run it. "" for every other step.
std::string matrix_code_words(const Step& step, const Ceilings& ceilings);

}  // namespace ridgeline
