// The results of `ridgeline tune`: one SQLite file in the user's data folder.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tune/known.h"

namespace ridgeline {

/// RIDGELINE_DATA_DIR, else XDG_DATA_HOME/ridgeline, else HOME/.local/share/ridgeline; nothing if none is set.
std::optional<std::filesystem::path> data_directory();
/// tuned.sqlite in it.
std::optional<std::filesystem::path> tuning_file();

/// The rows of this machine; none if there is no file. Throws Error{kResource} that names the file and the remedy if it
/// is broken, not ours, or cannot be read. Rows of older kernels are among them: the dispatcher passes them over.
std::vector<MeasuredRow> read_tuned_results();

/// For writing. Several processes may have it open: each write is a transaction of its own, and waits for the others'
/// (5 s).
class TuningDatabase {
 public:
  struct Connection;
  /// Makes folder and file if need be. Throws Error{kResource} with file, reason and remedy, at once if the file cannot
  /// be written: before anything is measured for it.
  TuningDatabase();
  ~TuningDatabase();
  TuningDatabase(const TuningDatabase&) = delete;
  TuningDatabase& operator=(const TuningDatabase&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void store(const MeasuredRow& row);
  /// True if there was one.
  bool forget(const std::string& key);
  /// All of this machine; returns how many.
  int64_t forget_all();
  std::vector<MeasuredRow> rows() const;

 private:
  std::filesystem::path path_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace ridgeline
