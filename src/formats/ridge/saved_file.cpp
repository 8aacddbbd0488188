#include "formats/ridge/saved_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "core/new_file.h"
#include "core/sha256.h"

namespace ridgeline {
namespace {

using Json = nlohmann::json;

constexpr std::array<char, 8> kMagic = {'R', 'I', 'D', 'G', 'E', 'P', 'L', 'N'};
constexpr uint32_t kFormat = 1;
constexpr uint32_t kByteOrder = 0x01020304;
constexpr int64_t kAlignment = 64;                 // what kernels are promised of a tensor
constexpr int64_t kMostRecord = int64_t(1) << 27;  // bytes; a model of 20,000 nodes takes 8 MB
constexpr size_t kMostDepth = 128;                 // the parser of CBOR recurses: each level is a frame

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t byte_order = kByteOrder;
  uint32_t format = kFormat;
  int64_t record_bytes = 0;
  std::array<char, 64> record_sha256{};
};
static_assert(sizeof(Header) == 88);

int64_t aligned(int64_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) fail(ErrorCode::kBadModel, "{}: cannot be opened: {}", path, std::strerror(errno));
    struct stat status {};
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    bytes_ = regular ? int64_t(status.st_size) : 0;
    // Private and writable, as weights of a model are: nothing writes them.
    if (bytes_ >= int64_t(sizeof(Header)))
      data_ = mmap(nullptr, size_t(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    close(file);
    if (!regular) fail(ErrorCode::kBadModel, "{}: not a file", path);
    if (bytes_ < int64_t(sizeof(Header))) fail(ErrorCode::kBadModel, "{}: a saved plan is cut off", path);
    if (data_ == MAP_FAILED) fail(ErrorCode::kResource, "{}: cannot be mapped: {}", path, std::strerror(errno));
  }
  ~Mapping() { munmap(data_, size_t(bytes_)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  char* at(int64_t offset) const { return static_cast<char*>(data_) + offset; }
  int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Walks the heads of CBOR (RFC 8949, section 3) without recursion: false where it nests too deeply. What is broken is
// left to the parser, which says so.
bool nests_little(const uint8_t* at, const uint8_t* end) {
  std::vector<uint64_t> left;  // items still to come, by level; those without a stated end count down from the largest
  constexpr uint64_t kOpen = ~uint64_t(0);
  while (at < end) {
    const int major = *at >> 5, extra = *at & 31;
    ++at;
    if (major == 7 && extra == 31) {  // "break"
      if (left.empty()) return true;
      left.pop_back();
    } else {
      uint64_t number = uint64_t(extra);
      if (extra >= 24 && extra <= 27) {
        const int bytes = 1 << (extra - 24);
        if (end - at < bytes) return true;
        number = 0;
        for (int i = 0; i < bytes; ++i) number = number << 8 | *at++;
      }
      if (!left.empty() && left.back() != kOpen) --left.back();
      if ((major == 2 || major == 3) && extra != 31) {
        if (number > uint64_t(end - at)) return true;
        at += number;
      } else if (major >= 2 && major <= 5) {
        left.push_back(extra == 31 ? kOpen : major == 5 ? 2 * std::min(number, kOpen / 4) : number);
      } else if (major == 6) {
        left.push_back(1);  // a tag and what it tags
      }
    }
    if (left.size() > kMostDepth) return false;
    while (!left.empty() && left.back() == 0) left.pop_back();
  }
  return true;
}

Tensor mapped_tensor(const std::string& path, const Json& entry, int64_t data_begin,
                     const std::shared_ptr<const Mapping>& mapping) {
  const DType dtype = dtype_named(entry.at("dtype").get<std::string>());
  const auto shape = entry.at("shape").get<Extents>();
  const auto offset = entry.at("offset").get<int64_t>();
  for (const int64_t extent : shape)
    if (extent < 0) fail(ErrorCode::kBadModel, "{}: a tensor with a negative extent", path);
  if (dtype == DType::kNone) fail(ErrorCode::kBadModel, "{}: a tensor of an unknown type", path);
  const int64_t bytes = bytes_of(dtype, element_count(shape));
  const int64_t room = mapping->bytes() - data_begin;
  if (offset < 0 || offset % kAlignment != 0 || bytes < 0 || bytes > room || offset > room - bytes)
    fail(ErrorCode::kBadModel, "{}: a tensor of {} bytes at {} lies outside of the file", path, bytes, offset);
  return Tensor::wrap(dtype, shape, {mapping, static_cast<void*>(mapping->at(data_begin + offset))});
}

}  // namespace

bool is_saved_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 8> head{};
  return in.read(head.data(), std::streamsize(head.size())) && head == kMagic;
}

void write_saved_file(const std::string& path, const SavedFile& file) {
  Json document = {{"record", file.record}, {"tensors", Json::array()}};
  int64_t offset = 0;
  for (const Tensor& t : file.tensors) {
    document["tensors"].push_back({{"dtype", name(t.dtype())}, {"shape", t.shape()}, {"offset", offset}});
    offset = aligned(offset + t.bytes());
  }
  const std::vector<uint8_t> record = Json::to_cbor(document);
  Header header;
  header.record_bytes = int64_t(record.size());
  const std::string sum = sha256(record.data(), record.size());
  std::copy(sum.begin(), sum.end(), header.record_sha256.begin());

  NewFileName name(path);
  std::ofstream out(name.part(), std::ios::binary);
  int64_t at = 0;
  const std::array<char, kAlignment> zeros{};
  auto write = [&](const void* data, int64_t bytes) {
    if (bytes > 0) out.write(static_cast<const char*>(data), std::streamsize(bytes));
    at += bytes;
    out.write(zeros.data(), std::streamsize(aligned(at) - at));
    at = aligned(at);
  };
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  at = sizeof header;
  write(record.data(), int64_t(record.size()));
  for (const Tensor& t : file.tensors) write(t.data(), t.bytes());
  out.close();
  if (!out || !name.finish()) fail(ErrorCode::kResource, "{} cannot be written: {}", path, std::strerror(errno));
}

SavedFile read_saved_file(const std::string& path) {
  const auto mapping = std::make_shared<const Mapping>(path);
  Header header;
  std::memcpy(&header, mapping->at(0), sizeof header);
  if (header.magic != kMagic) fail(ErrorCode::kBadModel, "{}: this is no saved plan", path);
  if (header.byte_order != kByteOrder || header.format != kFormat)
    fail(ErrorCode::kUnsupported,
         "{}: unsupported: a saved plan of format {}, this version reads format {}: write it anew with `ridgeline "
         "optimize MODEL.onnx -o {}`",
         path, header.format, kFormat, path);
  if (header.record_bytes < 0 || header.record_bytes > kMostRecord ||
      header.record_bytes > mapping->bytes() - int64_t(sizeof header))
    fail(ErrorCode::kBadModel, "{}: a saved plan is cut off", path);
  const char* const record = mapping->at(sizeof header);
  if (sha256(record, size_t(header.record_bytes)) !=
      std::string_view(header.record_sha256.data(), header.record_sha256.size()))
    fail(ErrorCode::kBadModel, "{}: the record of the saved plan does not have its checksum", path);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(record);
  if (!nests_little(bytes, bytes + header.record_bytes))
    fail(ErrorCode::kBadModel, "{}: the record of the saved plan nests more than {} deep", path, kMostDepth);
  SavedFile file;
  try {
    Json document = Json::from_cbor(record, record + header.record_bytes);
    const int64_t data_begin = aligned(int64_t(sizeof header) + header.record_bytes);
    for (const Json& entry : document.at("tensors"))
      file.tensors.push_back(mapped_tensor(path, entry, data_begin, mapping));
    file.record = std::move(document.at("record"));
  } catch (const Json::exception& error) {
    fail(ErrorCode::kBadModel, "{}: the record of the saved plan is broken: {}", path, error.what());
  }
  return file;
}

}  // namespace ridgeline
