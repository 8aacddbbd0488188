#include "core/new_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>

namespace ridgeline {
namespace {

std::atomic<const char*> unfinished[16];  // more at a time are not removed by a signal

void replace(const char* from, const char* to) {
  for (auto& slot : unfinished) {
    const char* expected = from;
    if (slot.compare_exchange_strong(expected, to)) return;
  }
}

}  // namespace

NewFileName::NewFileName(const std::string& path) : path_(path) {
  // Two processes, or two threads of one, may write the same file: the last whole one stays.
  static std::atomic<int> count{0};
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    part_ = path;  // renaming a file over /dev/full replaced the device
    return;
  }
  if (std::filesystem::is_symlink(path, error)) {
    const std::filesystem::path target = std::filesystem::canonical(path, error);
    if (!error) path_ = target.string();
  }
  part_ = path_ + "." + std::to_string(getpid()) + "-" + std::to_string(count++) + ".part";
  replace(nullptr, part_.c_str());
}

NewFileName::~NewFileName() {
  replace(part_.c_str(), nullptr);
  if (!done_ && part_ != path_) std::remove(part_.c_str());
}

bool NewFileName::finish() {
  done_ = part_ == path_ || std::rename(part_.c_str(), path_.c_str()) == 0;
  return done_;
}

void remove_unfinished_files() {
  for (const auto& slot : unfinished) {
    if (const char* path = slot.load()) unlink(path);
  }
}

}  // namespace ridgeline
