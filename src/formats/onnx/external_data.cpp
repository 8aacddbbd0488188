#include "formats/onnx/external_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
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

}  // namespace

ExternalData::File::~File() {
  if (descriptor >= 0) close(descriptor);
}

// Walked part by part without following links: a check of the text alone, or of the resolved path before opening it,
// can be deceived by a link, or by one that is made in between.
std::shared_ptr<ExternalData::File> ExternalData::open(const std::string& item, const std::string& location) {
  if (const auto found = files_.find(location); found != files_.end()) return found->second;
  const std::vector<std::string> parts = parts_of(item, location);
  if (folder_.empty()) refuse(item, location, "this model was not read from a folder");
  auto file = std::make_shared<File>();
  file->descriptor = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; file->descriptor >= 0 && i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | (last ? 0 : O_DIRECTORY);
    const int inner = openat(file->descriptor, parts[i].c_str(), flags);
    const int error = errno;
    close(file->descriptor);
    file->descriptor = inner;
    errno = error;
  }
  if (file->descriptor < 0) {
    if (errno == ELOOP) refuse(item, location, "a symbolic link, which is not followed; put the file itself there");
    refuse(item, location, std::strerror(errno));
  }
  struct stat status {};
  if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode)) refuse(item, location, "not a file");
  file->bytes = status.st_size;
  if (int(files_.size()) >= kMostFiles) files_.clear();
  return files_[location] = file;
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
