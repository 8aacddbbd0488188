// GGUF, versions 2 and 3. Source: the specification in ggml's docs/gguf.md (layout, limits, types), the block sizes of
// the quantized types in ggml's headers.
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "core/words.h"
#include "formats/header_reader.h"
#include "formats/onnx/model_file.h"
#include "formats/tensor_file.h"
#include "ridgeline/error.h"
#include "ridgeline/tensor.h"

namespace ridgeline {
namespace {

using Limits = TensorFileLimits;

struct BlockType {
  uint32_t id;
  const char* name;
  int64_t elements, bytes;  // of a block
};
constexpr BlockType kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
};

enum class Kind : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kList, kU64, kI64, kF64 };
constexpr std::array<const char*, 13> kKinds = {"u8",   "i8",     "u16",  "i16", "u32", "i32", "f32",
                                                "bool", "string", "list", "u64", "i64", "f64"};
constexpr std::array<int64_t, 13> kKindBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // at the least

constexpr int64_t kTextBytes = 1024;  // what is kept of a string
constexpr int64_t kFirstItems = 8;    // and of a list

class GgufReader {
 public:
  explicit GgufReader(HeaderReader& in) : in_(in) {}

  TensorFile run() {
    out_.format = "GGUF";
    if (in_.size() < 24 || in_.text(4, "its magic") != "GGUF") refuse("not a GGUF file");
    const auto version = in_.number<uint32_t>("its version");
    if (version == 0x02000000 || version == 0x03000000)
      fail(ErrorCode::kUnsupported, "{}: unsupported: a GGUF file of big-endian numbers", in_.name());
    if (version != 2 && version != 3)
      fail(ErrorCode::kUnsupported, "{}: unsupported: version {} of GGUF; 2 and 3 are read", in_.name(), version);
    out_.version = version;
    const auto tensors = in_.number<uint64_t>("the number of tensors");
    const auto keys = in_.number<uint64_t>("the number of metadata entries");
    // An entry takes 8 + 1 + 4 + 1 bytes at the least, a tensor 8 + 1 + 4 + 4 + 8.
    check_count("metadata entries", keys, Limits::kKeys, 14);
    check_count("tensors", tensors, Limits::kTensors, 25);
    for (uint64_t i = 0; i < keys; ++i) entry();
    for (uint64_t i = 0; i < tensors; ++i) tensor();
    place();
    hyper_parameters();
    return std::move(out_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadModel, "{}: {}", in_.name(), fmt::format(format, std::forward<Args>(args)...));
  }

  void check_count(const char* what, uint64_t count, int64_t most, int64_t bytes_each) const {
    if (count > uint64_t(most)) refuse("{} {}, at most {} are allowed", count, what, most);
    if (int64_t(count) > in_.left() / bytes_each)
      refuse("{} {} do not fit into the {} bytes that are left", count, what, in_.left());
  }

  void check_header() const {
    if (in_.position() > Limits::kGgufHeaderBytes)
      refuse("its header takes more than {} bytes", Limits::kGgufHeaderBytes);
  }

  std::string name(const char* what, int64_t most) {
    const auto length = in_.number<uint64_t>(what);
    if (length == 0) refuse("{} without a name", what);
    if (length > uint64_t(most)) refuse("the name of {} takes {} bytes, at most {} are allowed", what, length, most);
    std::string out = in_.text(int64_t(length), what);
    if (!is_utf8(out)) refuse("the name {} of {} is no UTF-8", quote(out), what);
    return out;
  }

  // ---- metadata

  void entry() {
    const std::string key = name("a metadata key", Limits::kKeyBytes);
    if (!keys_.insert(key).second) refuse("the metadata has the key {} twice", quote(key));
    what_ = "the value of key " + quote(key);
    const Kind kind = kind_here();
    MetadataValue value{kKinds[size_t(kind)], "", 1};
    if (kind == Kind::kList) {
      const auto [item, count] = list(0, &value.text);
      value.type = std::string("list of ") + kKinds[size_t(item)];
      value.count = count;
    } else {
      value.text = scalar(kind, key);
    }
    out_.metadata.emplace_back(key, std::move(value));
    check_header();
  }

  Kind kind_here() {
    const auto kind = in_.number<uint32_t>(what_.c_str());
    if (kind >= kKinds.size()) refuse("{} is of type {}, which GGUF does not define", what_, kind);
    return Kind(kind);
  }

  /// One that `text` is made of; `key`: also kept as a number, where the value belongs to a key itself.
  std::string scalar(Kind kind, const std::string& key = "") {
    const char* what = what_.c_str();
    const auto whole = [&](uint64_t value) {
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
      if (!key.empty()) numbers_[key] = {kind, int64_t(std::min(value, kMost))};
      return fmt::format("{}", value);
    };
    const auto with_sign = [&](int64_t value) {
      if (!key.empty()) numbers_[key] = {kind, value};
      return fmt::format("{}", value);
    };
    switch (kind) {
      case Kind::kU8:
        return whole(in_.number<uint8_t>(what));
      case Kind::kI8:
        return with_sign(in_.number<int8_t>(what));
      case Kind::kU16:
        return whole(in_.number<uint16_t>(what));
      case Kind::kI16:
        return with_sign(in_.number<int16_t>(what));
      case Kind::kU32:
        return whole(in_.number<uint32_t>(what));
      case Kind::kI32:
        return with_sign(in_.number<int32_t>(what));
      case Kind::kU64:
        return whole(in_.number<uint64_t>(what));
      case Kind::kI64:
        return with_sign(in_.number<int64_t>(what));
      case Kind::kF32:
        return fmt::format("{}", in_.number<float>(what));
      case Kind::kF64:
        return fmt::format("{}", in_.number<double>(what));
      case Kind::kBool: {
        const auto byte = in_.number<uint8_t>(what);
        if (byte > 1) refuse("{} is the bool {}, which is neither 0 nor 1", what_, byte);
        return byte ? "true" : "false";
      }
      case Kind::kString: {
        std::string text = string();
        if (key == "general.architecture") architecture_ = text;
        return text;
      }
      case Kind::kList:
        break;
    }
    return "";
  }

  std::string string() {
    const auto length = in_.number<uint64_t>(what_.c_str());
    if (length > uint64_t(in_.left())) refuse("{} is a string of {} bytes, {} are left", what_, length, in_.left());
    const int64_t kept = std::min(int64_t(length), kTextBytes);
    std::string out = in_.text(kept, what_.c_str());
    in_.skip(int64_t(length) - kept, what_.c_str());
    return one_line(out) + (kept < int64_t(length) ? "..." : "");
  }

  /// Type and count of the list's items; the first ones go to `text` (null: nowhere).
  std::pair<Kind, int64_t> list(int depth, std::string* text) {
    if (depth >= Limits::kListDepth) refuse("{} has lists in lists, more than {} deep", what_, Limits::kListDepth);
    const Kind item = kind_here();
    const auto count = in_.number<uint64_t>(what_.c_str());
    const int64_t least = kKindBytes[size_t(item)];
    if (count > uint64_t(in_.left() / least))
      refuse("{} is a list of {} items, {} bytes are left", what_, count, in_.left());
    int64_t i = 0;
    if (text) *text += "[";
    for (; text && i < std::min(int64_t(count), kFirstItems); ++i) {
      if (i) *text += ", ";
      if (item == Kind::kList)
        list(depth + 1, text);
      else
        *text += item == Kind::kString ? quote(scalar(item)) : scalar(item);
    }
    if (text) *text += i < int64_t(count) ? ", ...]" : "]";
    if (item == Kind::kList || item == Kind::kString) {
      for (; i < int64_t(count); ++i) {
        if (item == Kind::kList) {
          list(depth + 1, nullptr);
        } else {
          const auto length = in_.number<uint64_t>(what_.c_str());
          if (length > uint64_t(in_.left()))
            refuse("{}: item {} is a string of {} bytes, {} are left", what_, i, length, in_.left());
          in_.skip(int64_t(length), what_.c_str());
        }
        check_header();
      }
    } else {
      in_.skip((int64_t(count) - i) * least, what_.c_str());
    }
    check_header();
    return {item, int64_t(count)};
  }

  // ---- tensors

  void tensor() {
    ListedTensor t;
    t.name = name("a tensor", Limits::kNameBytes);
    if (!names_.insert(t.name).second) refuse("two tensors are named {}", quote(t.name));
    const std::string what = "tensor " + quote(t.name);
    const auto rank = in_.number<uint32_t>(what.c_str());
    if (rank > 4) refuse("{}: {} dimensions, at most 4 are allowed", what, rank);
    for (uint32_t i = 0; i < rank; ++i) {
      const auto extent = in_.number<uint64_t>(what.c_str());
      if (extent == 0) refuse("{}: dimension {} is 0", what, i);
      if (extent > uint64_t(std::numeric_limits<int64_t>::max())) refuse("{}: dimension {} is {}", what, i, extent);
      t.shape.insert(t.shape.begin(), int64_t(extent));  // the file has the row's length first
    }
    try {
      t.elements = element_count(Extents(t.shape.begin(), t.shape.end()));
    } catch (const Error& error) {
      refuse("{}: {}", what, error.what());
    }
    const auto id = in_.number<uint32_t>(what.c_str());
    const auto* type =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& each) { return each.id == id; });
    if (type == std::end(kTypes)) refuse("{}: {} is the number of no type that GGUF defines", what, id);
    t.type = type->name;
    const int64_t row = t.shape.empty() ? 1 : t.shape.back();
    if (row % type->elements != 0)
      refuse("{}: rows of {} are no whole blocks of {} ({})", what, row, type->elements, type->name);
    t.bytes = t.elements / type->elements * type->bytes;
    const auto offset = in_.number<uint64_t>(what.c_str());
    if (offset > uint64_t(in_.size())) refuse("{}: its data begin at {}, beyond the file", what, offset);
    t.offset_bytes = int64_t(offset);
    out_.tensors.push_back(std::move(t));
    check_header();
  }

  int64_t alignment() const {
    const std::string key = "general.alignment";
    if (!keys_.count(key)) return 32;
    const auto found = numbers_.find(key);
    if (found == numbers_.end() || found->second.first != Kind::kU32) refuse("{} is no u32, which it has to be", key);
    const int64_t value = found->second.second;
    if (value < 1 || (value & (value - 1)) != 0) refuse("{} is {}, which is no power of two", key, value);
    return value;
  }

  /// Offsets become those in the file: the data begin at the next multiple of the alignment.
  void place() {
    const int64_t align = alignment();
    const int64_t begin = (in_.position() + align - 1) / align * align;
    out_.data_offset_bytes = begin;
    std::vector<const ListedTensor*> by_offset;
    for (ListedTensor& t : out_.tensors) {
      if (t.offset_bytes % align != 0)
        refuse("tensor {}: its data begin at {}, which is no multiple of the alignment {}", quote(t.name),
               t.offset_bytes, align);
      if (begin > in_.size() || t.offset_bytes > in_.size() - begin || t.bytes > in_.size() - begin - t.offset_bytes)
        refuse("tensor {}: {} bytes at {} behind the header of {} (alignment {}), but the file has {}", quote(t.name),
               t.bytes, t.offset_bytes, begin, align, in_.size());
      t.offset_bytes += begin;
      by_offset.push_back(&t);
    }
    std::sort(by_offset.begin(), by_offset.end(), [](const ListedTensor* a, const ListedTensor* b) {
      return std::pair(a->offset_bytes, a->bytes) < std::pair(b->offset_bytes, b->bytes);
    });
    for (size_t i = 1; i < by_offset.size(); ++i) {
      const ListedTensor &a = *by_offset[i - 1], &b = *by_offset[i];
      if (b.offset_bytes < a.offset_bytes + a.bytes)
        refuse("the data of tensors {} and {} overlap", quote(a.name), quote(b.name));
    }
  }

  // ---- what a decoder divides by

  void hyper_parameters() const {
    const auto number = [&](const char* key) -> std::optional<int64_t> {
      const auto found = numbers_.find(architecture_ + "." + key);
      return found == numbers_.end() ? std::nullopt : std::optional(found->second.second);
    };
    if (architecture_.empty()) return;
    // Recurrent ones write 0 heads: only where there is a query projection do they count.
    const bool attends = std::any_of(out_.tensors.begin(), out_.tensors.end(), [](const ListedTensor& t) {
      return t.name.find(".attn_q.") != std::string::npos || t.name.find(".attn_qkv.") != std::string::npos;
    });
    const char *heads_key = "attention.head_count", *kv_key = "attention.head_count_kv";
    for (const char* key : {"block_count", "embedding_length", heads_key, kv_key}) {
      const bool of_attention = key == heads_key || key == kv_key;
      if (const auto value = number(key); value && *value <= 0 && (attends || !of_attention))
        refuse("{}.{} is {}", escaped(architecture_), key, *value);
    }
    const auto heads = number(heads_key), kv = number(kv_key);
    if (attends && heads && kv && (*kv > *heads || *heads % *kv != 0))
      refuse("{}.{} is {}, which does not divide the {} of {}", escaped(architecture_), kv_key, *kv, *heads, heads_key);
  }

  HeaderReader& in_;
  TensorFile out_;
  std::string what_;  // the item that is read
  std::string architecture_;
  std::unordered_set<std::string> keys_, names_;
  std::unordered_map<std::string, std::pair<Kind, int64_t>> numbers_;  // whole ones; what is beyond 63 bits is the most
};

}  // namespace

TensorFile read_gguf(HeaderReader& in) { return GgufReader(in).run(); }

TensorFile read_gguf(std::span<const std::byte> bytes, int64_t file_bytes, const std::string& name) {
  HeaderReader in(bytes, file_bytes, name);
  return read_gguf(in);
}

}  // namespace ridgeline
