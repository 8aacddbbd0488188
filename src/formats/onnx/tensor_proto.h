// TensorProto to Tensor and back.
#pragma once

#include <string>

#include "formats/onnx/external_data.h"
#include "onnx.pb.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

/// The element type, or Error{kUnsupported} that names it and `item`.
DType dtype_of_proto(int onnx_type, const std::string& item);
std::string onnx_type_name(int onnx_type);  // "string", "complex64", ..., "99"

/// Takes the data out of the message: a tensor's bytes are never held twice. `item` is the quoted name for messages.
Tensor take_tensor(onnx::TensorProto& proto, const std::string& item, ExternalData& external);
/// Raw little-endian bytes.
void put_tensor(const Tensor& tensor, onnx::TensorProto& proto);

/// A file that holds one TensorProto (ONNX's backend tests). `name`: that of the tensor, if wanted.
Tensor read_tensor_proto(const std::string& path, std::string* name = nullptr);

}  // namespace ridgeline
