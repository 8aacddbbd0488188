#include "formats/header_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "ridgeline/error.h"

namespace ridgeline {

static_assert(std::endian::native == std::endian::little);

HeaderReader::HeaderReader(const std::string& path)
    : name_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail(ErrorCode::kBadModel, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    fail(ErrorCode::kBadModel, "{}: not a regular file", path);
  }
  size_ = status.st_size;
}

HeaderReader::HeaderReader(std::span<const std::byte> bytes, int64_t size, std::string name)
    : name_(std::move(name)), size_(size), memory_(bytes) {}

HeaderReader::~HeaderReader() {
  if (descriptor_ >= 0) close(descriptor_);
}

void HeaderReader::need(int64_t bytes, const char* what) const {
  if (bytes > left())
    fail(ErrorCode::kBadModel, "{}: it ends within {}: {} bytes are wanted at {}, {} are left", name_, what, bytes,
         position_, left());
}

void HeaderReader::skip(int64_t bytes, const char* what) {
  need(bytes, what);
  position_ += bytes;
}

void HeaderReader::read(void* to, int64_t bytes, const char* what) {
  need(bytes, what);
  if (bytes == 0) return;
  if (descriptor_ < 0) {
    if (position_ + bytes > int64_t(memory_.size())) fail(ErrorCode::kBadModel, "{}: it ends within {}", name_, what);
    std::memcpy(to, memory_.data() + position_, size_t(bytes));
    position_ += bytes;
    return;
  }
  constexpr int64_t kBuffer = 1 << 16;
  for (auto* at = static_cast<std::byte*>(to); bytes > 0;) {
    int64_t held = buffer_begin_ + int64_t(buffer_.size()) - position_;
    if (position_ < buffer_begin_ || held <= 0) {
      buffer_.resize(size_t(std::min(kBuffer, left())));
      buffer_begin_ = position_;
      const ssize_t got = pread(descriptor_, buffer_.data(), buffer_.size(), position_);
      if (got < 0 && errno == EINTR) {
        buffer_.clear();
        continue;
      }
      if (got <= 0) fail(ErrorCode::kBadModel, "{}: reading failed within {}", name_, what);
      buffer_.resize(size_t(got));
      held = got;
    }
    const int64_t step = std::min(held, bytes);
    std::memcpy(at, buffer_.data() + (position_ - buffer_begin_), size_t(step));
    at += step;
    position_ += step;
    bytes -= step;
  }
}

std::string HeaderReader::text(int64_t bytes, const char* what) {
  need(bytes, what);
  std::string out(size_t(bytes), '\0');
  read(out.data(), bytes, what);
  return out;
}

}  // namespace ridgeline
