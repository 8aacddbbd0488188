// Forms of operator sets 1 to 6.
#pragma once

#include <string>

#include "formats/onnx/upgrade.h"

namespace ridgeline {

/// Rewrites `form` to what operator set 7 has; `upgrade` begins with it.
void upgrade_to_7(NodeForm& form);

/// Whether operator set 1 of ai.onnx has it. Sets 2 to 6 changed operators and added none.
bool in_first_opset(const std::string& op);

}  // namespace ridgeline
