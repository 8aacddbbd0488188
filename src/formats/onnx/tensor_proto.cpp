#include "formats/onnx/tensor_proto.h"

#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "formats/onnx/model_file.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr int64_t kCopyBelow = 64 << 10;  // small ones are copied to aligned memory, large strings are kept as they are

Extents extents_of(const onnx::TensorProto& proto, const std::string& item) {
  if (proto.dims_size() > ModelLimits::kRank) {
    fail(ErrorCode::kBadModel, "tensor {}: {} dimensions, at most {} are allowed", item, proto.dims_size(),
         ModelLimits::kRank);
  }
  Extents shape(proto.dims().begin(), proto.dims().end());
  for (const int64_t extent : shape) {
    if (extent < 0) fail(ErrorCode::kBadModel, "tensor {}: dims {} has a negative extent", item, text(shape));
  }
  try {
    element_count(shape);
  } catch (const Error& error) {
    fail(ErrorCode::kBadModel, "tensor {}: {}", item, error.what());
  }
  return shape;
}

[[noreturn]] void wrong_size(const std::string& item, DType dtype, const Extents& shape, int64_t given, int64_t needed,
                             const char* unit) {
  fail(ErrorCode::kBadModel, "tensor {}: {}{} takes {} {}, the file holds {}", item, name(dtype), text(shape), needed,
       unit, given);
}

// Bytes other than 0 and 1 in a bool tensor would mean different things to different kernels.
void normalize_bools(Tensor& tensor) {
  auto* bytes = tensor.as<uint8_t>();
  for (int64_t i = 0, n = tensor.elements(); i < n; ++i) bytes[i] = bytes[i] != 0;
}

Tensor take_raw(onnx::TensorProto& proto, DType dtype, Extents shape, const std::string& item) {
  const int64_t bytes = bytes_of(dtype, element_count(shape));
  if (int64_t(proto.raw_data().size()) != bytes) {
    wrong_size(item, dtype, shape, int64_t(proto.raw_data().size()), bytes, "bytes");
  }
  auto owner = std::make_shared<std::string>();
  owner->swap(*proto.mutable_raw_data());
  Tensor tensor;
  if (bytes < kCopyBelow || reinterpret_cast<uintptr_t>(owner->data()) % 16 != 0) {
    tensor = Tensor(dtype, std::move(shape));
    if (bytes > 0) std::memcpy(tensor.data(), owner->data(), size_t(bytes));
  } else {
    // malloc's 16 bytes of alignment, not 64: weights are packed before they are used, and a second copy costs more.
    tensor = Tensor::wrap(dtype, std::move(shape), std::shared_ptr<void>(owner, owner->data()));
  }
  if (dtype == DType::kBool) normalize_bools(tensor);
  return tensor;
}

template <typename Target, typename Field>
void convert(const Field& field, Tensor& tensor) {
  auto* out = tensor.as<Target>();
  for (int i = 0; i < field.size(); ++i) out[i] = static_cast<Target>(field.Get(i));
}

Tensor take_sixes(onnx::TensorProto& proto, DType dtype, Extents shape) {
  Tensor tensor = Tensor::zeros(dtype, std::move(shape));
  auto* bytes = tensor.as<uint8_t>();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const unsigned code = unsigned(proto.int32_data(int(i))) & 63, shift = unsigned(i * 6 % 8);
    bytes[i * 6 / 8] |= uint8_t(code << shift);
    if (shift > 2) bytes[i * 6 / 8 + 1] |= uint8_t(code >> (8 - shift));
  }
  proto.Clear();
  return tensor;
}

// Which field holds what: the comments of onnx.proto at TensorProto.
Tensor take_typed(onnx::TensorProto& proto, DType dtype, Extents shape, const std::string& item) {
  const int64_t elements = element_count(shape);
  int64_t given = 0, others = 0;
  const int64_t counts[] = {proto.float_data_size(), proto.double_data_size(), proto.int32_data_size(),
                            proto.int64_data_size(), proto.uint64_data_size()};
  int field = 2;
  if (dtype == DType::kF32) field = 0;
  if (dtype == DType::kF64) field = 1;
  if (dtype == DType::kI64) field = 3;
  if (dtype == DType::kU64 || dtype == DType::kU32) field = 4;
  for (int i = 0; i < 5; ++i) (i == field ? given : others) += counts[i];
  const int bits = info(dtype).bits;
  // Those of 4 and of 2 bits stand packed, one byte to an int32; those of 6 bits one by one.
  const int64_t needed = bits == 4 || bits == 2 ? bytes_of(dtype, elements) : elements;
  if (others > 0)
    fail(ErrorCode::kBadModel, "tensor {}: its data stands in a field of another type than {}", item, name(dtype));
  if (given != needed) wrong_size(item, dtype, shape, given, needed, "values");
  if (bits == 6) return take_sixes(proto, dtype, std::move(shape));
  Tensor tensor(dtype, std::move(shape));
  switch (dtype) {
    case DType::kF32:
      convert<float>(proto.float_data(), tensor);
      break;
    case DType::kF64:
      convert<double>(proto.double_data(), tensor);
      break;
    case DType::kI64:
      convert<int64_t>(proto.int64_data(), tensor);
      break;
    case DType::kU64:
      convert<uint64_t>(proto.uint64_data(), tensor);
      break;
    case DType::kU32:
      convert<uint32_t>(proto.uint64_data(), tensor);
      break;
    case DType::kI32:
      convert<int32_t>(proto.int32_data(), tensor);
      break;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      convert<uint16_t>(proto.int32_data(), tensor);
      break;
    default:
      convert<uint8_t>(proto.int32_data(), tensor);
      break;
  }
  if (dtype == DType::kBool) {  // from the int32, so that 256 is true
    for (int i = 0; i < proto.int32_data_size(); ++i) tensor.as<uint8_t>()[i] = proto.int32_data(i) != 0;
  }
  proto.Clear();
  return tensor;
}

int64_t decimal(const std::string& item, const std::string& key, const std::string& digits) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) {
    fail(ErrorCode::kBadModel, "tensor {}: external data: {} is {}, not a number of bytes", item, key, quote(digits));
  }
  return value;
}

Tensor take_external(const onnx::TensorProto& proto, DType dtype, Extents shape, const std::string& item,
                     ExternalData& external) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location")
      location = entry.value();
    else if (entry.key() == "offset")
      offset = decimal(item, "offset", entry.value());
    else if (entry.key() == "length")
      length = decimal(item, "length", entry.value());
  }
  Tensor tensor = external.read(item, location, offset, length, dtype, std::move(shape));
  if (dtype == DType::kBool) normalize_bools(tensor);
  return tensor;
}

bool has_typed_data(const onnx::TensorProto& proto) {
  return proto.float_data_size() || proto.double_data_size() || proto.int32_data_size() || proto.int64_data_size() ||
         proto.uint64_data_size() || proto.string_data_size();
}

}  // namespace

std::string onnx_type_name(int onnx_type) {
  if (const DType dtype = dtype_of_onnx(onnx_type); dtype != DType::kNone) return std::string(name(dtype));
  switch (onnx_type) {
    case 0:
      return "undefined";
    case 8:
      return "string";
    case 14:
      return "complex64";
    case 15:
      return "complex128";
    default:
      return "number " + std::to_string(onnx_type);
  }
}

DType dtype_of_proto(int onnx_type, const std::string& item) {
  const DType dtype = dtype_of_onnx(onnx_type);
  if (dtype != DType::kNone) return dtype;
  if (onnx_type == 0) fail(ErrorCode::kBadModel, "{}: it has no element type", item);
  fail(ErrorCode::kUnsupported, "{}: element type {} is unsupported", item, onnx_type_name(onnx_type));
}

Tensor take_tensor(onnx::TensorProto& proto, const std::string& item, ExternalData& external) {
  const DType dtype = dtype_of_proto(proto.data_type(), "tensor " + item);
  Extents shape = extents_of(proto, item);
  if (proto.has_segment()) fail(ErrorCode::kUnsupported, "tensor {}: data in segments is unsupported", item);
  const bool raw = proto.has_raw_data() && !proto.raw_data().empty();
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    if (raw || has_typed_data(proto)) fail(ErrorCode::kBadModel, "tensor {}: data in the file and external data", item);
    return take_external(proto, dtype, std::move(shape), item, external);
  }
  if (raw && has_typed_data(proto)) fail(ErrorCode::kBadModel, "tensor {}: raw data and typed data", item);
  if (proto.string_data_size() > 0)
    fail(ErrorCode::kBadModel, "tensor {}: strings in a tensor of {}", item, name(dtype));
  return raw ? take_raw(proto, dtype, std::move(shape), item) : take_typed(proto, dtype, std::move(shape), item);
}

void put_tensor(const Tensor& tensor, onnx::TensorProto& proto) {
  const int onnx_type = info(tensor.dtype()).onnx_id;
  if (onnx_type == 0)
    fail(ErrorCode::kUnsupported, "element type {} has no form in ONNX: unsupported", name(tensor.dtype()));
  proto.set_data_type(onnx_type);
  for (const int64_t extent : tensor.shape()) proto.add_dims(extent);
  proto.set_raw_data(tensor.data(), size_t(tensor.bytes()));
}

Tensor read_tensor_proto(const std::string& path, std::string* name) {
  if (std::error_code error; !std::filesystem::is_regular_file(path, error))
    fail(ErrorCode::kBadInput, "{}: there is no such regular file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::kBadInput, "{}: cannot be opened", path);
  onnx::TensorProto proto;
  if (!proto.ParseFromIstream(&file))
    fail(ErrorCode::kBadInput, "{}: not a tensor: the protobuf message is corrupt", path);
  if (name) *name = proto.name();
  ExternalData none("");
  return take_tensor(proto, quote(path), none);
}

}  // namespace ridgeline
