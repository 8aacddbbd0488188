// The file: protobuf's wire format, with the weights' bytes streamed into it. All lengths are known beforehand, so that
// a model of 440 MB takes one buffer of memory.
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <fstream>

#include "core/new_file.h"
#include "formats/make/builder.h"
#include "ridgeline/error.h"

namespace ridgeline::make {

namespace {

using google::protobuf::io::CodedOutputStream;

constexpr int kGraphOfModel = 7, kInitializerOfGraph = 5, kRawDataOfTensor = 9;  // field numbers of onnx.proto
constexpr size_t kChunk = 1 << 18;                                               // floats made before they are written

// The head of a length-delimited field (wire type 2).
std::string head_of(int field, int64_t bytes) {
  uint8_t buffer[20];
  uint8_t* end = CodedOutputStream::WriteTagToArray(uint32_t(field << 3 | 2), buffer);
  end = CodedOutputStream::WriteVarint64ToArray(uint64_t(bytes), end);
  return {reinterpret_cast<char*>(buffer), size_t(end - buffer)};
}

// All of an initializer but its values.
std::string head_of(const Weight& weight) {
  onnx::TensorProto tensor;
  for (int64_t d : weight.dims) tensor.add_dims(d);
  tensor.set_data_type(weight.kind == Weight::Kind::kInts ? onnx::TensorProto::INT64 : onnx::TensorProto::FLOAT);
  tensor.set_name(weight.name);
  const std::string fields = tensor.SerializeAsString() + head_of(kRawDataOfTensor, weight.bytes());
  return head_of(kInitializerOfGraph, int64_t(fields.size()) + weight.bytes()) + fields;
}

void write_values(std::ofstream& file, const Weight& weight, std::vector<float>& buffer) {
  if (weight.kind == Weight::Kind::kInts) {
    file.write(reinterpret_cast<const char*>(weight.ints.data()), weight.bytes());
    return;
  }
  WeightStream stream(weight);
  for (int64_t left = weight.elements(); left > 0;) {
    const size_t now = size_t(std::min<int64_t>(left, kChunk));
    stream.fill({buffer.data(), now});
    file.write(reinterpret_cast<const char*>(buffer.data()), std::streamsize(now * sizeof(float)));
    left -= int64_t(now);
  }
}

}  // namespace

void Builder::write(const std::string& path) const {
  onnx::ModelProto outer = model_;
  outer.clear_graph();
  const std::string graph = model_.graph().SerializeAsString();
  int64_t graph_bytes = int64_t(graph.size());
  std::vector<std::string> heads;
  for (const Weight& w : weights_) {
    heads.push_back(head_of(w));
    graph_bytes += int64_t(heads.back().size()) + w.bytes();
  }

  NewFileName name(path);
  std::ofstream file(name.part(), std::ios::binary);
  file << outer.SerializeAsString() << head_of(kGraphOfModel, graph_bytes) << graph;
  std::vector<float> buffer(kChunk);
  for (size_t i = 0; i < weights_.size() && file; ++i) {
    file << heads[i];
    write_values(file, weights_[i], buffer);
  }
  file.close();
  if (!file || !name.finish()) {
    fail(ErrorCode::kResource, "{}: cannot be written (does the folder exist, is it writable, are {} MB free?)", path,
         (graph_bytes >> 20) + 1);
  }
}

}  // namespace ridgeline::make
