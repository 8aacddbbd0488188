// The kernel that every operator has: its schema's reference on views of any layout, with any epilogue. Slow, exact,
// the control.
#pragma once

#include "ir/reference.h"
#include "kernels/kernel.h"

namespace ridgeline {

/// All of them have one name: it says that nothing faster ran.
inline constexpr std::string_view kReferenceKernel = "cpu.reference";
inline bool is_reference(const Kernel& kernel) { return kernel.name == kReferenceKernel; }

/// One of these lives for each schema of the catalogue; the same object at each call.
const Kernel& reference_kernel(const OpSchema& op);

/// What the kernel runs: the operator and its program on views. `inputs` and `outputs` in the problem's order; absent
/// ones have dtype kNone. Results before rounding are given to `exact` if it is not null: outputs in order,
/// row-major, then output 0 before the epilogue if there is one.
void run_reference_on_views(const Problem& problem, const std::vector<TensorView>& inputs,
                            const std::vector<TensorView>& outputs, std::vector<RefArray>* exact, int threads);

}  // namespace ridgeline
