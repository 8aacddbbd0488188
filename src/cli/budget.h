// Memory on the command line: what the process takes, and budgets for it.
#pragma once

#include <cstdint>
#include <string>

#include "session/session.h"

namespace ridgeline::cli {

/// Of /proc/self/status, in bytes: resident now, and the most so far.
int64_t resident_bytes();
int64_t most_resident_bytes();

/// What the program comes to hold beside weights, arena, inputs and outputs: pages of its own code that loading and
/// planning touch (3.1 MiB), the graph, the plan and the heap's slack (2.5 to 3.2 MiB, over the nine models of
/// docs/status.md, 60 to 700 nodes).
inline constexpr int64_t kProgramBytes = 6 << 20;

/// "150000000", "150MB", "143MiB", "1.5GB" to bytes. Throws Error{kUsage}.
int64_t parse_bytes(const std::string& text);

/// Makes `options` keep the process within `text` (--mem-budget; empty: no limit). `at_start`: resident bytes before
/// the model was loaded.
void set_budget(CompileOptions& options, const std::string& text, int64_t at_start);

/// The budget to give for a process that is predicted to take this.
int64_t budget_for(int64_t process_bytes);

/// Throws Error{kResource} if the process took more than the budget after all.
void check_budget(const std::string& text);

}  // namespace ridgeline::cli
