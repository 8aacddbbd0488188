// safetensors. Source: the format's README: 8 bytes of length, a JSON object, the data; no holes, no overlaps.
#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "core/words.h"
#include "formats/header_reader.h"
#include "formats/onnx/model_file.h"
#include "formats/tensor_file.h"
#include "ridgeline/error.h"
#include "ridgeline/tensor.h"

namespace ridgeline {
namespace {

using Json = nlohmann::json;
using Limits = TensorFileLimits;

struct ElementType {
  const char* name;
  int bits;
};
constexpr ElementType kTypes[] = {{"BOOL", 8},    {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
                                  {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16},    {"BF16", 16},
                                  {"I32", 32},    {"U32", 32}, {"F32", 32}, {"F64", 64},    {"I64", 64},
                                  {"U64", 64},    {"C64", 64}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};

/// Walks the events of the parser; the document is never in memory. It has three shapes of value at known depths, all
/// else is refused where it is met, so that nesting costs nothing.
class Handler final : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(TensorFile& out) : out_(out) {}

  std::string fault;  // why the parser was stopped

  bool null() override { return wrong("null"); }
  bool boolean(bool) override { return wrong("a boolean"); }
  bool number_integer(number_integer_t value) override { return wrong(fmt::format("{}", value)); }
  bool number_float(number_float_t, const string_t&) override { return wrong("a number that is not whole"); }
  bool binary(binary_t&) override { return wrong("bytes"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > number_unsigned_t(std::numeric_limits<int64_t>::max())) return wrong(fmt::format("{}", value));
    if (place_ == Place::kShape && int(tensor_.shape.size()) < ModelLimits::kRank) {
      tensor_.shape.push_back(int64_t(value));
      return true;
    }
    if (place_ == Place::kOffsets && offsets_.size() < 2) {
      offsets_.push_back(int64_t(value));
      return true;
    }
    return wrong(fmt::format("{}", value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      constexpr size_t kKept = 1024;
      const bool whole = value.size() <= kKept;
      value.resize(std::min(value.size(), kKept));
      out_.metadata.emplace_back(key_, MetadataValue{"string", one_line(value) + (whole ? "" : "..."), 1});
      return true;
    }
    if (place_ != Place::kTensor || key_ != "dtype" || !tensor_.type.empty()) return wrong("a string");
    const auto* type =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const ElementType& each) { return each.name == value; });
    if (type == std::end(kTypes)) return stop("{}: dtype {} is none that the format defines", item(), quote(value));
    tensor_.type = type->name;
    bits_ = type->bits;
    return true;
  }

  bool start_object(size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && tensor_.name == "__metadata__") {
      place_ = Place::kMetadata;
      metadata_keys_.clear();
    } else if (place_ == Place::kRoot) {
      place_ = Place::kTensor;
    } else {
      return wrong("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    if (!is_utf8(value)) return stop("the key {} is no UTF-8", quote(value));
    key_ = value;
    if (place_ == Place::kMetadata) {
      if (int64_t(metadata_keys_.size()) >= Limits::kKeys) return stop("more than {} metadata entries", Limits::kKeys);
      return metadata_keys_.insert(value).second || stop("the metadata has the key {} twice", quote(value));
    }
    if (place_ != Place::kRoot) return true;
    tensor_ = {};
    tensor_.name = value;
    offsets_.clear();
    has_shape_ = false;
    if (int64_t(value.size()) > Limits::kNameBytes || value.empty())
      return stop("the name {} takes {} bytes, 1 to {} are allowed", quote(value), value.size(), Limits::kNameBytes);
    if (int64_t(names_.size()) > Limits::kTensors) return stop("more than {} tensors", Limits::kTensors);
    return names_.insert(value).second || stop("two tensors are named {}", quote(value));
  }

  bool end_object() override {
    if (place_ == Place::kMetadata) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kTensor) {
      place_ = Place::kRoot;
      return finish();
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape" && !has_shape_) {
      place_ = Place::kShape;
      has_shape_ = true;
    } else if (place_ == Place::kTensor && key_ == "data_offsets" && offsets_.empty()) {
      place_ = Place::kOffsets;
    } else {
      return wrong("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return stop("its header is no JSON, from byte {} of it on", position);
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kEnd };

  std::string item() const { return tensor_.name.empty() ? "its header" : "tensor " + quote(tensor_.name); }

  template <typename... Args>
  bool stop(fmt::format_string<Args...> format, Args&&... args) {
    fault = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }

  bool wrong(const std::string& what) {
    if (place_ == Place::kStart) return stop("its header is {}, not an object", what);
    if (place_ == Place::kMetadata) return stop("metadata {}: {}, where a string is wanted", quote(key_), what);
    if (place_ == Place::kRoot) return stop("{}: {}, where an object is wanted", item(), what);
    return stop("{}: {} in {}; wanted are a dtype, a shape of at most {} extents and two data_offsets, each once",
                item(), what, quote(key_), ModelLimits::kRank);
  }

  bool finish() {
    if (tensor_.type.empty() || !has_shape_ || offsets_.size() != 2)
      return stop("{}: dtype, shape or data_offsets is missing", item());
    try {
      tensor_.elements = element_count(Extents(tensor_.shape.begin(), tensor_.shape.end()));
    } catch (const Error& error) {
      return stop("{}: {}", item(), error.what());
    }
    const int64_t bits = tensor_.elements * bits_;  // 2^46 elements of 64 bits are 2^52
    tensor_.bytes = bits / 8;
    if (bits % 8 != 0) return stop("{}: {} bits are no whole bytes", item(), bits);
    if (offsets_[0] > offsets_[1] || offsets_[1] - offsets_[0] != tensor_.bytes) {
      return stop("{}: {} elements of {} take {} bytes, but data_offsets are {} and {}", item(), tensor_.elements,
                  tensor_.type, tensor_.bytes, offsets_[0], offsets_[1]);
    }
    tensor_.offset_bytes = offsets_[0];
    out_.tensors.push_back(tensor_);
    return true;
  }

  TensorFile& out_;
  Place place_ = Place::kStart;
  std::string key_;
  ListedTensor tensor_;
  int bits_ = 0;
  bool has_shape_ = false;
  std::vector<int64_t> offsets_;
  std::unordered_set<std::string> names_, metadata_keys_;
};

// The data are used to the last byte: by each tensor in turn, none in another's.
void place(TensorFile& file, int64_t begin, int64_t size, const std::string& name) {
  std::vector<ListedTensor*> by_offset;
  for (ListedTensor& t : file.tensors) by_offset.push_back(&t);
  std::stable_sort(by_offset.begin(), by_offset.end(), [](const ListedTensor* a, const ListedTensor* b) {
    return std::pair(a->offset_bytes, a->bytes) < std::pair(b->offset_bytes, b->bytes);
  });
  int64_t at = 0;
  for (ListedTensor* t : by_offset) {
    if (t->offset_bytes > size - begin || t->bytes > size - begin - t->offset_bytes) {
      fail(ErrorCode::kBadModel, "{}: tensor {}: {} bytes at {} of the data, but the file holds {} bytes of data", name,
           quote(t->name), t->bytes, t->offset_bytes, size - begin);
    }
    if (t->offset_bytes != at) {
      fail(ErrorCode::kBadModel, "{}: tensor {}: its data begin at {}, {}", name, quote(t->name), t->offset_bytes,
           t->offset_bytes < at ? "inside of another tensor's" : fmt::format("behind a hole from {} on", at));
    }
    at += t->bytes;
    t->offset_bytes += begin;
  }
  if (at != size - begin)
    fail(ErrorCode::kBadModel, "{}: {} bytes behind the last tensor belong to none", name, size - begin - at);
}

}  // namespace

TensorFile read_safetensors(HeaderReader& in) {
  const auto length = in.number<uint64_t>("the length of its header");
  if (length > uint64_t(Limits::kSafetensorsHeaderBytes) || int64_t(length) > in.left()) {
    fail(ErrorCode::kBadModel, "{}: a header of {} bytes; {} are left in the file, and at most {} are allowed",
         in.name(), length, in.left(), Limits::kSafetensorsHeaderBytes);
  }
  const std::string text = in.text(int64_t(length), "its header");
  if (text.empty() || text[0] != '{') fail(ErrorCode::kBadModel, "{}: its header does not begin with {{", in.name());
  TensorFile out;
  out.format = "safetensors";
  Handler handler(out);
  if (!Json::sax_parse(text, &handler)) fail(ErrorCode::kBadModel, "{}: {}", in.name(), handler.fault);
  out.data_offset_bytes = in.position();
  place(out, in.position(), in.size(), in.name());
  return out;
}

TensorFile read_safetensors(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& name) {
  HeaderReader in(bytes, file_bytes, name);
  return read_safetensors(in);
}

}  // namespace ridgeline
