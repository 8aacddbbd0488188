// Little-endian numbers and strings from the beginning of a file, each checked against what is left of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridgeline {

class HeaderReader {
 public:
  /// From a file, through a buffer; throws Error{kBadModel} for what is no regular file.
  explicit HeaderReader(const std::string& path);
  /// From memory: `bytes` is the beginning of a file of `size`.
  HeaderReader(std::span<const std::byte> bytes, int64_t size, std::string name);
  ~HeaderReader();
  HeaderReader(const HeaderReader&) = delete;
  HeaderReader& operator=(const HeaderReader&) = delete;

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }
  int64_t position() const { return position_; }
  int64_t left() const { return size_ - position_; }

  /// `what` is named where the file ends first.
  template <typename T>
  T number(const char* what) {
    T value{};
    read(&value, sizeof(T), what);
    return value;
  }
  /// The next `bytes`, which the caller has bounded.
  std::string text(int64_t bytes, const char* what);
  void skip(int64_t bytes, const char* what);

 private:
  void read(void* to, int64_t bytes, const char* what);
  void need(int64_t bytes, const char* what) const;

  std::string name_;
  int descriptor_ = -1;
  int64_t size_ = 0, position_ = 0;
  std::span<const std::byte> memory_;
  std::vector<std::byte> buffer_;  // of the file, from buffer_begin_ on
  int64_t buffer_begin_ = 0;
};

}  // namespace ridgeline
