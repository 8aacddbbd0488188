#include "tune/known.h"

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/cpu/simd.h"
#include "machine/probe.h"
#include "tune/bench.h"
#include "tune/database.h"
#include "tune/tile_tables.h"

namespace ridgeline {
namespace {

std::atomic<bool> g_read = false;  // has known_choices() been asked?

std::string table_text(std::string& source) {
  const char* const given = std::getenv("RIDGELINE_TILE_TABLE");
  if (given && *given) {
    source = given;
    if (source == "none") return source.clear(), "";
    std::ifstream file(source);
    std::ostringstream text;
    text << file.rdbuf();
    // A folder opens and reads as if it were empty.
    std::error_code unknown;
    if (!file || std::filesystem::is_directory(source, unknown))
      fail(ErrorCode::kUsage, "RIDGELINE_TILE_TABLE={}: cannot be read", given);
    return text.str();
  }
  const std::string name = machine_class();
  for (const ShippedTable& table : shipped_tile_tables()) {
    if (table.machine_class != name) continue;
    source = "built in: " + name;
    return std::string(table.text);
  }
  return "";
}

Known read_known() {
  Known known;
  std::string source;
  if (const std::string text = table_text(source); !text.empty())
    known.table.emplace("table", parse_tile_table(text, source));
  known.table_source = source;
  try {
    known.tuned.emplace("tuned", read_tuned_results());
  } catch (const Error& error) {
    known.trouble = error.what();
  }
  return known;
}

Choice choose_with(const Problem& problem, const Ceilings& ceilings, std::string_view forced, bool tuned) {
  if (problem.device != DeviceKind::kCpu) return choose_kernel(problem, ceilings, forced);
  const Known& known = known_choices();
  const MeasuredChoices* list[2];
  size_t count = 0;
  if (tuned && known.tuned && !known.tuned->rows().empty()) list[count++] = &*known.tuned;
  if (known.table && !known.table->rows().empty()) list[count++] = &*known.table;
  return choose_kernel(problem, ceilings, forced, {list, count});
}

}  // namespace

std::string problem_key(const Problem& problem) {
  return fmt::format("threads={} {}", problem.threads, problem.text());
}

std::string machine_class() {
  return fmt::format("{}-l2-{}k", cpu::name(cpu::active_isa()), this_cpu().caches.l2 / 1024);
}

std::string machine_key() {
  return fmt::format("{} | kernels {}", this_cpu().fingerprint(), cpu::name(cpu::active_isa()));
}

MeasuredMap::MeasuredMap(std::string_view name, std::vector<MeasuredRow> rows) : name_(name), rows_(std::move(rows)) {
  for (size_t i = 0; i < rows_.size(); ++i) by_key_[rows_[i].key] = i;
}

std::optional<MeasuredChoice> MeasuredMap::find(const Problem& problem) const {
  const auto it = by_key_.find(problem_key(problem));
  if (it == by_key_.end()) return std::nullopt;
  return rows_[it->second].choice;
}

std::vector<MeasuredRow> parse_tile_table(std::string_view text, const std::string& source) {
  std::vector<MeasuredRow> rows;
  int line_number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> fields;
    for (size_t from = 0; from <= line.size() && fields.size() < 6;) {
      const size_t tab = fields.size() == 5 ? line.size() : std::min(line.find('\t', from), line.size());
      fields.emplace_back(line.substr(from, tab - from));
      from = tab + 1;
    }
    MeasuredRow row;
    int threads = 0;
    double us = 0;
    const auto number = [](const std::string& word, auto& value) {
      const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
      return error == std::errc() && stop == word.data() + word.size() && value > 0;
    };
    if (fields.size() != 6 || !number(fields[0], threads) || fields[1].empty() ||
        !number(fields[2], row.choice.version) || !number(fields[4], us) || fields[5].empty())
      fail(ErrorCode::kUsage,
           "{}, line {}: expected threads, kernel, version, tile, microseconds and problem with tabs between", source,
           line_number);
    row.choice.kernel = fields[1];
    if (fields[3] != "-") row.choice.tile = parse_kernel_tile(fields[3]);
    row.choice.time_ns = us * 1e3;
    row.key = fmt::format("threads={} {}", threads, fields[5]);
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string tile_table_line(const MeasuredRow& row) {
  const size_t space = row.key.find(' ');
  const std::string tile = tile_words(row.choice.tile);
  return fmt::format("{}\t{}\t{}\t{}\t{:.2f}\t{}", row.key.substr(8, space - 8), row.choice.kernel, row.choice.version,
                     tile.empty() ? "-" : tile, row.choice.time_ns / 1e3, row.key.substr(space + 1));
}

const Known& known_choices() {
  static const Known known = read_known();
  g_read.store(true, std::memory_order_release);
  return known;
}

std::string known_trouble() { return g_read.load(std::memory_order_acquire) ? known_choices().trouble : ""; }

Choice choose(const Problem& problem, const Ceilings& ceilings, std::string_view forced) {
  return choose_with(problem, ceilings, forced, true);
}

Choice choose_untuned(const Problem& problem, const Ceilings& ceilings) {
  return choose_with(problem, ceilings, {}, false);
}

}  // namespace ridgeline
