// A file takes its name when it is whole: nobody reads half a model, and a full disk leaves the old file.
#pragma once

#include <string>

namespace ridgeline {

/// A name of its own, PATH.*.part, to write under (what exists and is no regular file, a device or a pipe, is written
/// itself, and a link is followed); removed with the object unless `finish` gave the file its own name.
class NewFileName {
 public:
  explicit NewFileName(const std::string& path);
  ~NewFileName();
  NewFileName(const NewFileName&) = delete;
  NewFileName& operator=(const NewFileName&) = delete;
  const std::string& part() const { return part_; }
  /// False if the file cannot take its name.
  bool finish();

 private:
  std::string path_, part_;
  bool done_ = false;
};

/// Removes what is not whole yet. May be called from a signal handler.
void remove_unfinished_files();

}  // namespace ridgeline
