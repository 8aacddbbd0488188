// The format: NumPy Enhancement Proposal 1 and its later versions: magic, version, length of the header, the header (a
// Python literal), the data.
#include "formats/npy.h"

#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "formats/npy_header.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kMostHeaderBytes = 64 << 10;
constexpr size_t kMostRank = 64;

struct TypeCode {
  DType dtype;
  std::string_view code;  // without the byte order
};
constexpr std::array<TypeCode, 12> kTypes = {{{DType::kF64, "f8"},
                                              {DType::kF32, "f4"},
                                              {DType::kF16, "f2"},
                                              {DType::kI8, "i1"},
                                              {DType::kI16, "i2"},
                                              {DType::kI32, "i4"},
                                              {DType::kI64, "i8"},
                                              {DType::kU8, "u1"},
                                              {DType::kU16, "u2"},
                                              {DType::kU32, "u4"},
                                              {DType::kU64, "u8"},
                                              {DType::kBool, "b1"}}};

struct Header {
  std::string descr;
  bool fortran_order = false;
  Extents shape;
};

// The one dictionary that the format has: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Header parse() {
    Header header;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        if (peek() != '\'' && peek() != '"')
          fail(ErrorCode::kUnsupported, "{}: arrays of records are unsupported", path_);
        header.descr = string();
        descr = true;
      } else if (key == "fortran_order" && !order) {
        header.fortran_order = boolean();
        order = true;
      } else if (key == "shape" && !shape) {
        header.shape = tuple();
        shape = true;
      } else {
        refuse("the keys are descr, fortran_order and shape, each once");
      }
      if (!accept(',') && peek() != '}') refuse("a , or } is wanted");
    }
    if (!descr || !order || !shape) refuse("one of the keys descr, fortran_order and shape is missing");
    if (peek() != 0) refuse("the header goes on after its }");
    return header;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    std::string there;
    for (const char c : text_.substr(at_, 16)) there += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
    fail(ErrorCode::kBadInput, "{}: the header of the .npy file is broken at byte {}: {}, there is '{}'", path_, at_,
         what, there);
  }
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : char(0);
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse(fmt::format("a {} is wanted", c));
  }
  std::string string() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') refuse("a string is wanted");
    const size_t end = text_.find(mark, ++at_);
    if (end == std::string_view::npos) refuse("a string has no end");
    const std::string out(text_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    peek();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    refuse("True or False is wanted");
  }
  Extents tuple() {
    Extents out;
    expect('(');
    while (!accept(')')) {
      if (peek() == '-') fail(ErrorCode::kBadInput, "{}: the shape has a negative extent", path_);
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (error != std::errc()) refuse("an extent of 64 bits is wanted");
      at_ = size_t(end - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // written by Python 2
      out.push_back(value);
      if (out.size() > kMostRank) fail(ErrorCode::kBadInput, "{}: more than {} dimensions", path_, kMostRank);
      if (!accept(',') && peek() != ')') refuse("a , or ) is wanted");
    }
    return out;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
};

DType dtype_of_code(const std::string& descr, const std::string& path) {
  for (const TypeCode& type : kTypes) {
    if (descr.size() == 3 && std::string_view(descr).substr(1) == type.code) {
      const bool one_byte = info(type.dtype).bits == 8;
      if (descr[0] == '<' || descr[0] == '|' || descr[0] == '=' || one_byte) return type.dtype;
      fail(ErrorCode::kBadInput, "{}: big-endian data ('{}'); convert it with array.astype('<{}')", path, descr,
           type.code);
    }
  }
  std::string shown;
  for (const char c : descr.substr(0, 16)) shown += std::isprint(static_cast<unsigned char>(c)) ? c : '?';
  fail(ErrorCode::kUnsupported, "{}: element type '{}' is unsupported", path, shown);
}

std::string code_of(DType dtype) {
  for (const TypeCode& type : kTypes) {
    if (type.dtype == dtype) return (info(dtype).bits == 8 ? "|" : "<") + std::string(type.code);
  }
  return "";
}

Tensor converted(const Tensor& from, DType dtype) {
  Tensor to(dtype, from.shape());
  for (int64_t i = 0, n = from.elements(); i < n; ++i) {
    if (is_float(dtype))
      store_f64(dtype, to.data(), i, from.f64(i));
    else
      store_i64(dtype, to.data(), i, from.i64(i));
  }
  return to;
}

std::ifstream open_npy(const std::string& path, NpyHeader& out) {
  static_assert(std::endian::native == std::endian::little);
  std::error_code missing;
  const auto kind = std::filesystem::status(path, missing).type();
  using enum std::filesystem::file_type;
  if (kind != regular && kind != not_found && kind != none) {
    fail(ErrorCode::kBadInput, "{}: not a regular file{}", path,  // a pipe nobody writes to would block
         kind == directory ? " but a folder" : "");
  }
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail(ErrorCode::kBadInput, "{}: cannot be opened: {}", path, std::strerror(errno));
  const int64_t size = int64_t(file.tellg());
  file.seekg(0);
  std::array<unsigned char, 12> start{};
  file.read(reinterpret_cast<char*>(start.data()), 10);
  if (file.gcount() != 10 || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
    fail(ErrorCode::kBadInput, "{}: not a .npy file (it does not start with \\x93NUMPY)", path);
  }
  const int version = start[6];
  int64_t length = start[8] | start[9] << 8, begin = 10;
  if (version == 2 || version == 3) {
    file.read(reinterpret_cast<char*>(start.data()) + 10, 2);
    length |= int64_t(start[10]) << 16 | int64_t(start[11]) << 24;
    begin = 12;
  } else if (version != 1) {
    fail(ErrorCode::kUnsupported, "{}: version {} of the .npy format is unsupported; 1 to 3 are", path, version);
  }
  if (length > kMostHeaderBytes || begin + length > size)
    fail(ErrorCode::kBadInput, "{}: the header ends beyond the file", path);
  std::string text(size_t(length), ' ');
  file.read(text.data(), length);
  const Header header = HeaderParser(text, path).parse();
  const DType dtype = dtype_of_code(header.descr, path);
  int64_t elements = 0;
  try {
    elements = element_count(header.shape);
  } catch (const Error& error) {
    fail(ErrorCode::kBadInput, "{}: {}", path, error.what());
  }
  int64_t wide = 0;  // axes of more than one element: with one at most, both orders are the same
  for (const int64_t extent : header.shape) wide += extent != 1;
  if (header.fortran_order && wide > 1 && elements > 0) {
    fail(ErrorCode::kBadInput, "{}: column-major data; save it with numpy.ascontiguousarray", path);
  }
  const int64_t bytes = bytes_of(dtype, elements);
  if (size - begin - length != bytes) {
    fail(ErrorCode::kBadInput, "{}: {}{} takes {} bytes, the file holds {}", path, name(dtype),
         ridgeline::text(header.shape), bytes, size - begin - length);
  }
  out = {version, dtype, header.shape, begin + length};
  return file;
}

}  // namespace

NpyHeader read_npy_header(const std::string& path) {
  NpyHeader header;
  open_npy(path, header);
  return header;
}

Tensor read_npy(const std::string& path) {
  NpyHeader header;
  std::ifstream file = open_npy(path, header);
  Tensor tensor(header.dtype, header.shape);
  if (!file.read(tensor.as<char>(), tensor.bytes())) fail(ErrorCode::kBadInput, "{}: reading failed", path);
  if (header.dtype == DType::kBool) {
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.as<uint8_t>()[i] = tensor.as<uint8_t>()[i] != 0;
  }
  return tensor;
}

void write_npy(const Tensor& tensor, const std::string& path) {
  if (code_of(tensor.dtype()).empty()) {
    const DTypeInfo& type = info(tensor.dtype());
    const DType other = type.is_float ? DType::kF32 : type.is_signed ? DType::kI8 : DType::kU8;
    return write_npy(converted(tensor, other), path);
  }
  std::string shape;
  for (const int64_t extent : tensor.shape()) shape += std::to_string(extent) + (tensor.rank() == 1 ? "," : ", ");
  if (tensor.rank() > 1) shape.resize(shape.size() - 2);
  std::string header =
      "{'descr': '" + code_of(tensor.dtype()) + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  const size_t total = (10 + header.size() + 1 + 63) / 64 * 64;  // data aligned to 64 bytes
  header.resize(total - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  if (!file) fail(ErrorCode::kResource, "{}: cannot be written", path);
  file.write(kMagic.data(), std::streamsize(kMagic.size()));
  const char rest[] = {1, 0, char(header.size() & 255), char(header.size() >> 8)};
  file.write(rest, sizeof(rest));
  file.write(header.data(), std::streamsize(header.size()));
  file.write(tensor.as<char>(), tensor.bytes());
  file.close();
  if (!file) fail(ErrorCode::kResource, "{}: writing failed; is the disk full?", path);
}

}  // namespace ridgeline
