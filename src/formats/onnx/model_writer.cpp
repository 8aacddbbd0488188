// A protobuf message is the concatenation of its fields, and a field of message type is a tag, a length and the
// message: so the weights, nearly all of a model, need never stand in the message or in its serialized form.
#include "formats/onnx/model_writer.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/new_file.h"
#include "formats/onnx/model_file.h"
#include "formats/onnx/tensor_proto.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr int64_t kExternalFrom = 1024;  // bytes; smaller ones (axes, scales) stay readable in the model
constexpr int kGraphField = 7, kInitializerField = 5, kRawDataField = 9;  // onnx.proto

std::string varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += char((value & 127) | 128);
  return out + char(value);
}
std::string head(int field, uint64_t length) { return varint(uint64_t(field) << 3 | 2) + varint(length); }

// A file that takes its name when it is complete.
class NewFile {
 public:
  explicit NewFile(std::string path)
      : path_(std::move(path)), name_(path_), file_(name_.part(), std::ios::binary | std::ios::trunc) {
    if (!file_) fail(ErrorCode::kResource, "{}: cannot be written", path_);
  }
  void write(const void* data, int64_t bytes) {
    if (bytes > 0) file_.write(static_cast<const char*>(data), bytes);
    written_ += bytes;
  }
  void write(const std::string& bytes) { write(bytes.data(), int64_t(bytes.size())); }
  void align(int64_t bytes) { write(std::string(size_t((bytes - written_ % bytes) % bytes), '\0')); }
  int64_t written() const { return written_; }
  void finish() {
    file_.close();
    if (!file_) fail(ErrorCode::kResource, "{}: writing failed; is the disk full?", path_);
    if (!name_.finish()) fail(ErrorCode::kResource, "{}: cannot be written: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  NewFileName name_;
  std::ofstream file_;
  int64_t written_ = 0;
};

onnx::TensorProto header_of(const Weight& weight) {
  onnx::TensorProto proto;
  proto.set_name(weight.name);
  const int onnx_type = info(weight.tensor.dtype()).onnx_id;
  if (onnx_type == 0)
    fail(ErrorCode::kUnsupported, "constant '{}': {} has no form in ONNX: unsupported", weight.name,
         name(weight.tensor.dtype()));
  proto.set_data_type(onnx_type);
  for (const int64_t extent : weight.tensor.shape()) proto.add_dims(extent);
  return proto;
}

void add_entry(onnx::TensorProto& proto, const char* key, const std::string& value) {
  auto& entry = *proto.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

struct Initializer {
  std::string fields;              // of the TensorProto, without raw data
  const Tensor* inside = nullptr;  // its raw data, unless external
  uint64_t length() const {
    if (!inside) return fields.size();
    return fields.size() + head(kRawDataField, uint64_t(inside->bytes())).size() + uint64_t(inside->bytes());
  }
};

}  // namespace

void write_model(const onnx::ModelProto& model, const std::vector<Weight>& weights, bool external,
                 const std::string& path) {
  const std::string data_path = path + ".data";
  int64_t inside_bytes = 0;
  for (const Weight& weight : weights) inside_bytes += weight.tensor.bytes();
  external |= inside_bytes > ModelLimits::kFileBytes - (64 << 20);
  std::optional<NewFile> data;
  std::vector<Initializer> initializers;
  for (const Weight& weight : weights) {
    onnx::TensorProto proto = header_of(weight);
    Initializer& out = initializers.emplace_back();
    if (!external || weight.tensor.bytes() < kExternalFrom) {
      out.inside = &weight.tensor;
    } else {
      if (!data) data.emplace(data_path);
      data->align(weight.tensor.bytes() >= 1 << 20 ? 4096 : 64);  // so that readers can map it
      proto.set_data_location(onnx::TensorProto::EXTERNAL);
      add_entry(proto, "location", std::filesystem::path(data_path).filename().string());
      add_entry(proto, "offset", std::to_string(data->written()));
      add_entry(proto, "length", std::to_string(weight.tensor.bytes()));
      data->write(weight.tensor.data(), weight.tensor.bytes());
    }
    out.fields = proto.SerializeAsString();
  }

  const std::string graph = model.graph().SerializeAsString();
  uint64_t graph_bytes = graph.size();
  for (const Initializer& each : initializers)
    graph_bytes += head(kInitializerField, each.length()).size() + each.length();
  onnx::ModelProto rest = model;
  rest.clear_graph();
  NewFile file(path);
  file.write(rest.SerializeAsString());
  file.write(head(kGraphField, graph_bytes));
  file.write(graph);
  for (const Initializer& each : initializers) {
    file.write(head(kInitializerField, each.length()) + each.fields);
    if (!each.inside) continue;
    file.write(head(kRawDataField, uint64_t(each.inside->bytes())));
    file.write(each.inside->data(), each.inside->bytes());
  }
  if (file.written() > ModelLimits::kFileBytes)
    fail(ErrorCode::kUnsupported, "{}: the model without its weights exceeds 2 GiB: unsupported", path);
  if (data) data->finish();
  file.finish();
}

}  // namespace ridgeline
