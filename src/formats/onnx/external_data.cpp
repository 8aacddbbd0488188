#include "formats/onnx/external_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "formats/onnx/model_file.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr int64_t kMapFrom = 1 << 20;  // below this a copy costs less than the mapping's page faults and table entry
constexpr int kMostFiles = 256;        // open at once

[[noreturn]] void refuse(const std::string& item, const std::string& location, const std::string& reason) {
  fail(ErrorCode::kBadModel, "tensor {}: external data at {}: {}", item, quote(location), reason);
}

// The parts of a path that stays inside its folder whatever the system's rules for paths are.
std::vector<std::string> parts_of(const std::string& item, const std::string& location) {
  if (location.empty()) refuse(item, location, "the location is empty");
  if (location.find('\0') != std::string::npos) refuse(item, location, "the location holds a zero byte");
  if (location.find('\\') != std::string::npos) refuse(item, location, "a backslash is not allowed in the location");
  if (location[0] == '/') refuse(item, location, "an absolute path; it must lie in the model's folder");
  if (location.size() > 1 && location[1] == ':') refuse(item, location, "a drive; it must lie in the model's folder");
  std::vector<std::string> parts;
  for (size_t at = 0; at <= location.size();) {
    const size_t end = std::min(location.find('/', at), location.size());
    const std::string part = location.substr(at, end - at);
    if (part == "..") refuse(item, location, "'..' leaves the model's folder");
    if (!part.empty() && part != ".") parts.push_back(part);
    at = end + 1;
  }
  if (parts.empty()) refuse(item, location, "it is the folder itself");
  return parts;
}

struct Mapping {
  void* base;
  size_t bytes;
  ~Mapping() { munmap(base, bytes); }
};

// Walked part by part without following links: a check of the text alone, or of the resolved path before opening it,
// can be deceived by a link, or by one that is made in between. The last part's descriptor, or -1 with errno.
int open_below(const std::string& folder, const std::vector<std::string>& parts) {
  int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; descriptor >= 0 && i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (last ? 0 : O_DIRECTORY);
    const int inner = openat(descriptor, parts[i].c_str(), flags);
    const int error = errno;
    close(descriptor);
    descriptor = inner;
    errno = error;
  }
  return descriptor;
}

bool is_link_among(std::filesystem::path path, const std::vector<std::string>& parts) {
  std::error_code ignored;
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return std::filesystem::is_symlink(path /= part, ignored); });
}

}  // namespace

ExternalData::File::~File() {
  if (descriptor >= 0) close(descriptor);
}

std::shared_ptr<ExternalData::File> ExternalData::open(const std::string& item, const std::string& location) {
  if (const auto found = files_.find(location); found != files_.end()) return found->second;
  const std::vector<std::string> parts = parts_of(item, location);
  if (folder_.empty()) refuse(item, location, "this model was not read from a folder");
  auto file = std::make_shared<File>();
  file->descriptor = open_below(folder_, parts);
  // A link among the folders is said to be no folder.
  if (file->descriptor < 0 && (errno == ELOOP || errno == ENOTDIR) && !root_.empty())
    file->descriptor = open_linked(item, location);
  if (file->descriptor < 0) {
    if (errno == ELOOP || (errno == ENOTDIR && is_link_among(folder_, parts))) {
      refuse(item, location,
             "a symbolic link, which is not followed; put the file itself there, or name the folder that such links "
             "may lead into with --external-root");
    }
    refuse(item, location, std::strerror(errno));
  }
  struct stat status {};
  if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode)) refuse(item, location, "not a file");
  file->bytes = status.st_size;
  if (int(files_.size()) >= kMostFiles) files_.clear();
  return files_[location] = file;
}

// The place that the links lead to has to lie below the root; it is then opened from there without following any, so
// that a link made in between is refused.
int ExternalData::open_linked(const std::string& item, const std::string& location) const {
  std::error_code trouble;
  const std::filesystem::path root = std::filesystem::canonical(root_, trouble);
  if (trouble) fail(ErrorCode::kUsage, "--external-root {}: {}", root_, trouble.message());
  const std::filesystem::path target = std::filesystem::canonical(std::filesystem::path(folder_) / location, trouble);
  if (trouble) refuse(item, location, trouble.message());
  std::vector<std::string> parts;
  for (const auto& part : target.lexically_relative(root)) parts.push_back(part.string());
  if (parts.empty() || parts[0] == "..")
    refuse(item, location, "its links lead to " + target.string() + ", which is not below " + root.string());
  return open_below(root.string(), parts);
}

Tensor ExternalData::read(const std::string& item, const std::string& location, int64_t offset, int64_t length,
                          DType dtype, Extents shape) {
  const std::shared_ptr<File> file = open(item, location);
  const int64_t bytes = bytes_of(dtype, element_count(shape));
  if (length >= 0 && length != bytes) {
    refuse(item, location, fmt::format("length {}, but {}{} takes {} bytes", length, name(dtype), text(shape), bytes));
  }
  if (offset > file->bytes || bytes > file->bytes - offset) {
    refuse(item, location,
           fmt::format("{} bytes from offset {}, but the file has {} bytes", bytes, offset, file->bytes));
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  if (bytes >= kMapFrom && offset % 64 == 0) {
    const int64_t skip = offset % page;
    void* base =
        mmap(nullptr, size_t(bytes + skip), PROT_READ | PROT_WRITE, MAP_PRIVATE, file->descriptor, offset - skip);
    if (base != MAP_FAILED) {
      // clang 14 has no make_shared for aggregates.
      const std::shared_ptr<Mapping> mapping(new Mapping{base, size_t(bytes + skip)});
      return Tensor::wrap(dtype, std::move(shape), std::shared_ptr<void>(mapping, static_cast<char*>(base) + skip));
    }
  }
  Tensor tensor(dtype, std::move(shape));
  for (int64_t done = 0; done < bytes;) {
    const ssize_t got = pread(file->descriptor, tensor.as<char>() + done, size_t(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) refuse(item, location, got == 0 ? "the file ends early" : std::strerror(errno));
    done += got;
  }
  return tensor;
}

}  // namespace ridgeline
