// What files of tensors hold, by their headers alone: GGUF, safetensors, npy. No byte of a tensor is read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ridgeline {

struct ListedTensor {
  std::string name;
  std::string type;            // as the format names it: "Q4_K", "BF16"
  std::vector<int64_t> shape;  // row-major: the last extent is that of a row, whatever the file's order
  int64_t offset_bytes = 0;    // in the file
  int64_t bytes = 0;
  int64_t elements = 0;
};

/// A value of the metadata. Lists keep their length and their first items.
struct MetadataValue {
  std::string type;  // "u32", "string", "list of string"
  std::string text;  // as a user reads it, without control characters, cut at 1 KiB
  int64_t count = 1;
};

struct TensorFile {
  std::string format;  // "GGUF", "safetensors", "npy"
  int64_t version = 0;
  std::vector<std::pair<std::string, MetadataValue>> metadata;  // in the file's order
  std::vector<ListedTensor> tensors;                            // in the file's order
  int64_t data_offset_bytes = 0;
};

struct TensorFileLimits {
  static constexpr int64_t kTensors = 1 << 20;
  static constexpr int64_t kKeys = 1 << 20;
  static constexpr int64_t kGgufHeaderBytes = 1 << 28;             // tokenizers take some 10 MiB
  static constexpr int64_t kSafetensorsHeaderBytes = 100'000'000;  // the format's own
  static constexpr int64_t kKeyBytes = 65535;                      // of GGUF's keys: the format's own
  static constexpr int64_t kNameBytes = 1024;                      // of a tensor's name
  static constexpr int kListDepth = 4;                             // lists in lists
};

/// "GGUF", "safetensors" or "npy" where the first bytes say so, or where they say nothing and the name does; else "".
std::string tensor_file_format(const std::string& path);

/// Reads and checks the header: counts, lengths, types, names, offsets and sizes against the file's length. Throws
/// Error{kBadModel} (Error{kUnsupported} for a version or type that is not known here) naming file, item and reason.
TensorFile read_tensor_file(const std::string& path);

class HeaderReader;
TensorFile read_gguf(HeaderReader& in);
TensorFile read_safetensors(HeaderReader& in);
/// From memory, of which `bytes` is the beginning and `file_bytes` the whole length: for tests and fuzzing.
TensorFile read_gguf(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& name);
TensorFile read_safetensors(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& name);

}  // namespace ridgeline
