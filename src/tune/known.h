// What was measured before, for the dispatcher: results of `ridgeline tune` on this very machine, then the shipped
// table of its class. A tuned answer goes first, since it was measured where it is used; the table is of a class, whose
// members differ in clock, memory and neighbours.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/kernel.h"

namespace ridgeline {

/// One measured answer, as the table and the database hold it.
struct MeasuredRow {
  std::string key;  // problem_key
  MeasuredChoice choice;
};

/// "threads=2 MatMul a=f32[1024,1024] b=f32[1024,1024]!": what an answer depends on beside the machine.
std::string problem_key(const Problem& problem);

/// What a tile table is of: instruction set and second cache, which is what kernels cut by: "avx512-l2-2048k".
std::string machine_class();
/// What a tuned answer is of: the machine's fingerprint and the instruction set in use.
std::string machine_key();

/// Rows by key. Of equal keys the last counts.
class MeasuredMap : public MeasuredChoices {
 public:
  MeasuredMap(std::string_view name, std::vector<MeasuredRow> rows);
  std::string_view name() const override { return name_; }
  std::optional<MeasuredChoice> find(const Problem& problem) const override;
  const std::vector<MeasuredRow>& rows() const { return rows_; }

 private:
  std::string name_;
  std::vector<MeasuredRow> rows_;
  std::unordered_map<std::string, size_t> by_key_;
};

/// A table as text: a row a line, "threads TAB kernel TAB version TAB tile TAB us TAB problem"; # begins a comment.
/// Throws Error{kUsage} that names `source` and the line.
std::vector<MeasuredRow> parse_tile_table(std::string_view text, const std::string& source);
std::string tile_table_line(const MeasuredRow& row);

/// Everything known about this machine: read once a process.
struct Known {
  std::optional<MeasuredMap> tuned, table;
  std::string table_source;  // a file's name, or "built in: avx512-l2-2048k"; empty: there is no table of this class
  std::string trouble;       // why the tuned results could not be read; empty: they could, or there are none
};
/// RIDGELINE_TILE_TABLE names a file to use instead of the shipped table ("none": no table). Throws Error if that
/// cannot be read. A database that cannot be read is `trouble`: commands print it, and choices go without.
const Known& known_choices();
/// `trouble` of what this process has read; empty while it has read nothing.
std::string known_trouble();

/// The dispatcher with all that is known: what plans, benchmarks and typed calls use.
Choice choose(const Problem& problem, const Ceilings& ceilings, std::string_view forced = {});
/// The same without the tuned results: what tuning competes against.
Choice choose_untuned(const Problem& problem, const Ceilings& ceilings);

}  // namespace ridgeline
