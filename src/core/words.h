// Words as users meet them: what was probably meant, and text that a terminal shows as it is.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridgeline {

/// Insertions, deletions and replacements that lead from one word to the other; case does not count.
size_t edit_distance(std::string_view a, std::string_view b);
/// The word nearest to `given`, or "" if none is near: more than a quarter of its letters would have to change.
std::string_view nearest_word(std::string_view given, std::span<const std::string_view> words);

/// Control characters (but line ends and tabs) as \x1b: a name in a file must not steer the terminal.
std::string printable(std::string_view text);
/// Line ends and tabs too.
std::string one_line(std::string_view name);

}  // namespace ridgeline
