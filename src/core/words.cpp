#include "core/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

namespace ridgeline {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const bool same =
          std::tolower(static_cast<unsigned char>(a[i])) == std::tolower(static_cast<unsigned char>(b[j]));
      const size_t replaced = diagonal + (same ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row[b.size()];
}

std::string_view nearest_word(std::string_view given, std::span<const std::string_view> words) {
  constexpr size_t kLongest = 64;
  if (given.size() > kLongest) return "";
  std::string_view nearest;
  size_t best = std::max<size_t>(2, given.size() / 4) + 1;
  for (const std::string_view word : words) {
    const size_t distance = edit_distance(given, word);
    if (distance >= best || distance >= word.size()) continue;
    best = distance;
    nearest = word;
  }
  return nearest;
}

namespace {

std::string escape(std::string_view text, bool lines) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, as UTF-8: some terminals take them as control characters too.
    const bool c1 = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if ((byte < 0x20 && !(lines && (byte == '\n' || byte == '\t'))) || byte == 0x7f || c1)
      out += fmt::format("\\x{:02x}", c1 ? static_cast<unsigned char>(text[++i]) : byte);
    else
      out += text[i];
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escape(text, true); }
std::string one_line(std::string_view name) { return escape(name, false); }

}  // namespace ridgeline
