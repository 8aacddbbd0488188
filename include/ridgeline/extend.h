// For those who add operators or kernels from outside the library. This header alone shows parts of the inside; what it
// shows may change with a minor version. docs/adding.md tells how to use it; examples/add_operator.cpp and
// add_kernel.cpp do.
//
//   OpSchema (ir/op_schema.h): what an operator means. Infer, Reference, Builder: what its functions see.
//   Kernel (kernels/kernel.h): one way to run it. Problem (ir/problem.h): what a kernel is asked about.
//   register_op, register_kernel (kernels/kernel.h): both keep a reference, so register what lives as long as the
//   process. Register the operator first, and both before models that use them are loaded.
#pragma once

#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/op_schema.h"
#include "ir/problem.h"
#include "ir/reference.h"
#include "kernels/kernel.h"

namespace ridgeline {

/// The importer, the dispatcher and Op find the operator from now on. Throws Error{kUsage} if it has no name, `infer`
/// or meaning, or its name is taken in its domain. (Defined beside the catalogue: src/ops/catalogue.cpp.)
void register_op(const OpSchema& op);

}  // namespace ridgeline
