#include "formats/tensor_file.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "formats/header_reader.h"
#include "formats/npy_header.h"
#include "ridgeline/error.h"

namespace ridgeline {

namespace {

TensorFile list_npy(const std::string& path) {
  const NpyHeader header = read_npy_header(path);
  TensorFile out;
  out.format = "npy";
  out.version = header.version;
  out.data_offset_bytes = header.data_offset_bytes;
  out.tensors.push_back({"array",
                         std::string(name(header.dtype)),
                         {header.shape.begin(), header.shape.end()},
                         header.data_offset_bytes,
                         bytes_of(header.dtype, element_count(header.shape)),
                         element_count(header.shape)});
  return out;
}

}  // namespace

std::string tensor_file_format(const std::string& path) {
  using namespace std::string_view_literals;
  std::error_code missing;
  if (!std::filesystem::is_regular_file(path, missing)) return "";
  std::array<char, 16> start{};
  std::ifstream file(path, std::ios::binary);
  file.read(start.data(), std::streamsize(start.size()));
  const std::string_view head(start.data(), size_t(file.gcount()));
  if (head.starts_with("GGUF")) return "GGUF";
  if (head.starts_with("\x93NUMPY")) return "npy";
  // 64 bits of length, of which the upper 32 are 0 in any file that can be, then JSON.
  if (head.size() > 8 && head.substr(4, 5) == "\0\0\0\0{"sv) return "safetensors";
  const std::string ending = std::filesystem::path(path).extension().string();
  return ending == ".gguf" ? "GGUF" : ending == ".safetensors" ? "safetensors" : ending == ".npy" ? "npy" : "";
}

TensorFile read_tensor_file(const std::string& path) {
  const std::string format = tensor_file_format(path);
  if (format == "npy") return list_npy(path);
  HeaderReader in(path);
  return format == "GGUF" ? read_gguf(in) : read_safetensors(in);
}

}  // namespace ridgeline
