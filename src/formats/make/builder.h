// Builds an ONNX model: nodes with the names that exporters give, weights that exist only while the file is written.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "onnx.pb.h"

#include "formats/make/make.h"
#include "formats/make/weights.h"

namespace ridgeline::make {

using Ints = std::vector<int64_t>;
using Attribute = std::pair<const char*, std::variant<int64_t, float, Ints, std::string>>;
using Attributes = std::initializer_list<Attribute>;
using Names = std::vector<std::string>;  // of values

class Builder {
 public:
  Builder(std::string_view name, const MakeOptions& options);

  const MakeOptions& options() const { return options_; }
  int opset() const { return options_.opset; }

  /// A graph input or output. A dimension is a number or a symbol.
  std::string input(const std::string& name, onnx::TensorProto::DataType type, const std::vector<MakeDim>& dims);
  void output(const std::string& name, const std::string& value, const std::vector<MakeDim>& dims);

  /// Appends a node `scope/Op` (made unique by a number) and returns the name of its only output.
  std::string node(const char* op, const std::string& scope, const Names& inputs, Attributes attributes = {});

  std::string normal(const std::string& name, Ints dims, float deviation, float mean = 0);
  std::string uniform(const std::string& name, Ints dims, float low, float high);
  std::string floats(const std::string& name, Ints dims, std::vector<float> values);
  std::string ints(const std::string& name, Ints values);  // [n]
  std::string index(int64_t value);                        // a scalar i64, as Gather takes it; one for each value
  std::string number(float value);                         // a scalar f32; one for each value
  std::string list(const Ints& values);                    // [n] i64; one for each list of values

  /// The weight of that name, made above; for those who need its values (WeightStream) while the model is built.
  const Weight& weight(const std::string& name) const;

  /// The name a checkpoint would have: "/encoder/layer.0/dense" and "weight" give "encoder.layer.0.dense.weight".
  static std::string parameter(const std::string& scope, const char* leaf);

  // What opsets spell differently.
  std::string unsqueeze(const std::string& scope, const std::string& x, int64_t axis);
  std::string reduce_mean(const std::string& scope, const std::string& x, int64_t axis);
  std::string slice(const std::string& scope, const std::string& x, int64_t axis, const std::string& from,
                    const std::string& to);
  std::string layer_norm(const std::string& scope, const std::string& x, int64_t size, float epsilon);
  std::string hard_swish(const std::string& scope, const std::string& x);
  std::string gelu(const std::string& scope, const std::string& x);  // by erf: Div, Erf, Add, Mul, Mul
  std::string linear(const std::string& scope, const std::string& x, int64_t from, int64_t to,
                     float gain = 1);  // MatMul, Add
  /// Extent of axis `axis` of x as a scalar: Shape, Gather; and as a list of one.
  std::string extent(const std::string& scope, const std::string& x, int64_t axis);
  std::string extent_list(const std::string& scope, const std::string& x, int64_t axis);
  /// Reshape to `dims`; a symbolic one is read from the axis of `x` of that position, by the chain of Shape, Gather,
  /// Unsqueeze and Concat that exporters write.
  std::string reshape(const std::string& scope, const std::string& x, const std::vector<MakeDim>& dims);

  /// Writes the file; throws Error{kResource}.
  void write(const std::string& path) const;

 private:
  std::string add_weight(Weight weight);

  MakeOptions options_;
  onnx::ModelProto model_;  // its graph holds no weights
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> weight_at_;
  std::unordered_map<std::string, int> uses_of_name_;
};

// The models. Each fills the builder that make_model made.
void resnet50(Builder& b);
void mobilenet_v3(Builder& b);
void bert(Builder& b);
void vit(Builder& b);
void decoder(Builder& b);
void mlp(Builder& b);

}  // namespace ridgeline::make
