#include "formats/onnx/model_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

using google::protobuf::io::CodedInputStream;

class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe nobody writes to would block
    if (descriptor_ < 0) fail(ErrorCode::kBadModel, "{}: cannot be opened: {}", path, std::strerror(errno));
  }
  ~File() { close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// The wire format has no magic number, so what is not a model at all is told from a broken one by its first bytes.
const char* other_format(std::string_view head) {
  if (head.starts_with("\x89PNG")) return "this is a PNG image";
  if (head.starts_with("PK")) return "this is a ZIP archive; is the model inside of it?";
  if (head.starts_with("version https://git-lfs")) return "this is a Git LFS pointer; fetch the file itself";
  return nullptr;
}

// Which fields of a message hold messages of which kind (onnx.proto): those that can make a small file large in memory.
enum class Kind { kModel, kGraph, kNode, kAttribute, kFunction, kLeaf };
std::optional<Kind> kind_of_field(Kind kind, uint32_t field) {
  switch (kind) {
    case Kind::kModel:
      if (field == 7) return Kind::kGraph;
      if (field == 25) return Kind::kFunction;
      if (field == 8 || field == 14 || field == 20) return Kind::kLeaf;
      break;
    case Kind::kGraph:
      if (field == 1) return Kind::kNode;
      if (field == 5 || (field >= 11 && field <= 15)) return Kind::kLeaf;
      break;
    case Kind::kNode:
      if (field == 5) return Kind::kAttribute;
      break;
    case Kind::kAttribute:
      if (field == 6 || field == 11) return Kind::kGraph;
      if (field == 5 || field == 10 || field == 14 || field == 15 || field == 22 || field == 23) return Kind::kLeaf;
      break;
    case Kind::kFunction:
      if (field == 7) return Kind::kNode;
      if (field == 9) return Kind::kLeaf;
      break;
    case Kind::kLeaf:
      break;
  }
  return std::nullopt;
}

// Counts messages of two bytes and more, each of which takes a few hundred in memory, without making any. Weights are
// skipped, not read. False: too many. What is broken is left to the parser, which says so.
bool few_messages(CodedInputStream& stream, Kind kind, int depth, int64_t& left) {
  if (depth > ModelLimits::kNesting) return true;
  while (const uint32_t tag = stream.ReadTag()) {
    const std::optional<Kind> inner = (tag & 7) == 2 ? kind_of_field(kind, tag >> 3) : std::nullopt;
    uint64_t number = 0;
    uint32_t length = 0;
    if ((tag & 7) == 0) {
      if (!stream.ReadVarint64(&number)) return true;
    } else if ((tag & 7) == 1 || (tag & 7) == 5) {
      if (!stream.Skip((tag & 7) == 1 ? 8 : 4)) return true;
    } else if ((tag & 7) != 2 || !stream.ReadVarint32(&length) || length > uint32_t(ModelLimits::kFileBytes)) {
      return true;
    } else if (!inner || *inner == Kind::kLeaf) {
      if (inner && --left < 0) return false;
      if (!stream.Skip(int(length))) return true;
    } else {
      if (--left < 0) return false;
      const auto limit = stream.PushLimit(int(length));
      if (!few_messages(stream, *inner, depth + 1, left)) return false;
      if (stream.BytesUntilLimit() > 0) return true;  // broken inside
      stream.PopLimit(limit);
    }
  }
  return true;
}

void check_messages(CodedInputStream& stream, const std::string& name) {
  int64_t left = ModelLimits::kMessages;
  if (few_messages(stream, Kind::kModel, 0, left)) return;
  fail(ErrorCode::kBadModel, "{}: more than {} nodes, attributes and values", name, ModelLimits::kMessages);
}

onnx::ModelProto parse(CodedInputStream& stream, const std::string& name, std::string_view head) {
  using namespace std::string_view_literals;
  const bool gguf = head.starts_with("GGUF");
  if (gguf || (head.size() > 8 && head.substr(4, 5) == "\0\0\0\0{"sv)) {  // 64 bits of length, then JSON
    fail(
        ErrorCode::kUnsupported,
        "{}: unsupported: this is a {} file; 'inspect' shows what it holds, running it comes later: convert it to ONNX",
        name, gguf ? "GGUF" : "safetensors");
  }
  if (const char* what = other_format(head)) fail(ErrorCode::kBadModel, "{}: not an ONNX model: {}", name, what);
  stream.SetRecursionLimit(ModelLimits::kNesting);
  onnx::ModelProto model;
  if (!model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    fail(ErrorCode::kBadModel,
         "{}: not an ONNX model: the protobuf message is cut off, corrupt, or nested deeper than {} messages", name,
         ModelLimits::kNesting);
  }
  if (!model.has_graph()) fail(ErrorCode::kBadModel, "{}: not an ONNX model: it has no graph", name);
  // Before IR version 3 models imported nothing: they are of the first operator set.
  if (model.opset_import().empty() && model.ir_version() < 3) model.add_opset_import()->set_version(1);
  return model;
}

int utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  if (lead >= 0xf0 && lead < 0xf5) return 4;
  return 0;
}

// Length of the well-formed sequence at `at`, or 0 (Unicode 15, table 3-7).
int sequence_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const int length = utf8_length(byte(at));
  if (length == 0 || at + size_t(length) > text.size()) return 0;
  for (int i = 1; i < length; ++i) {
    if ((byte(at + size_t(i)) & 0xc0) != 0x80) return 0;
  }
  if (length == 3 && byte(at) == 0xe0 && byte(at + 1) < 0xa0) return 0;   // overlong
  if (length == 3 && byte(at) == 0xed && byte(at + 1) >= 0xa0) return 0;  // surrogates
  if (length == 4 && byte(at) == 0xf0 && byte(at + 1) < 0x90) return 0;
  if (length == 4 && byte(at) == 0xf4 && byte(at + 1) >= 0x90) return 0;
  return length;
}

}  // namespace

onnx::ModelProto read_model(const std::string& path) {
  const File file(path);
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) {
    fail(ErrorCode::kBadModel, "{}: not a regular file{}", path,
         S_ISDIR(status.st_mode) ? " but a folder" : ", but a pipe or a device");
  }
  if (status.st_size == 0) fail(ErrorCode::kBadModel, "{}: not an ONNX model: the file is empty", path);
  if (status.st_size > ModelLimits::kFileBytes) {
    fail(ErrorCode::kBadModel, "{}: {} bytes; an ONNX file holds at most 2 GiB: keep the weights as external data",
         path, status.st_size);
  }
  char head[32];
  const ssize_t got = pread(file.descriptor(), head, sizeof(head), 0);
  {
    google::protobuf::io::FileInputStream input(file.descriptor(), 1 << 16);
    CodedInputStream stream(&input);
    check_messages(stream, path);
  }
  lseek(file.descriptor(), 0, SEEK_SET);
  google::protobuf::io::FileInputStream input(file.descriptor(), 1 << 20);
  CodedInputStream stream(&input);
  return parse(stream, path, std::string_view(head, size_t(got > 0 ? got : 0)));
}

onnx::ModelProto read_model(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.empty()) fail(ErrorCode::kBadModel, "{}: not an ONNX model: it is empty", name);
  if (int64_t(bytes.size()) > ModelLimits::kFileBytes) fail(ErrorCode::kBadModel, "{}: more than 2 GiB", name);
  CodedInputStream counted(reinterpret_cast<const uint8_t*>(bytes.data()), int(bytes.size()));
  check_messages(counted, name);
  CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()), int(bytes.size()));
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 32));
  return parse(stream, name, head);
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const int length = sequence_at(text, at);
    if (length == 0) return false;
    at += size_t(length);
  }
  return true;
}

std::string quote(std::string_view name) { return "'" + escaped(name) + "'"; }

std::string escaped(std::string_view name) {
  constexpr size_t kMost = 120;
  std::string out;
  for (size_t at = 0; at < name.size();) {
    if (out.size() > kMost) {
      out += "...";
      break;
    }
    const int length = sequence_at(name, at);
    const auto byte = static_cast<unsigned char>(name[at]);
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    out += name.substr(at, size_t(length));
    at += size_t(length);
  }
  return out;
}

}  // namespace ridgeline
