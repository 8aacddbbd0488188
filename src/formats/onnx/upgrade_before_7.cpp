// The forms of operator sets 1 to 6, brought up to 7. Source of every rule: the change log of the ONNX operators
// (docs/Changelog.md there). All operators of these sets exist since version 1.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "formats/onnx/upgrade_before_7.h"
#include "onnx.pb.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

// All of them, a blank around each.
constexpr std::string_view kFirst =
    " Abs Add And ArgMax ArgMin AveragePool BatchNormalization Cast Ceil Clip Concat Constant Conv"
    " ConvTranspose DepthToSpace Div Dropout Elu Equal Exp Flatten Floor GRU Gather Gemm GlobalAveragePool"
    " GlobalLpPool GlobalMaxPool Greater HardSigmoid Hardmax Identity If InstanceNormalization LRN LSTM"
    " LeakyRelu Less Log LogSoftmax Loop LpNormalization LpPool MatMul Max MaxPool MaxRoiPool Mean Min Mul"
    " Neg Not Or PRelu Pad Pow RNN RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
    " Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd"
    " ReduceSum ReduceSumSquare Relu Reshape Selu Shape Sigmoid Size Slice Softmax Softplus Softsign"
    " SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Tile TopK Transpose Unsqueeze Upsample Xor"
    " ";

int rank_of(const NodeForm& form, int input) {
  if (!form.has(input)) fail(ErrorCode::kBadModel, "input {} is missing", input);
  const std::optional<Shape>& shape = form.graph.value(form.inputs[size_t(input)]).info.shape;
  if (!shape) {
    fail(ErrorCode::kUnsupported, "form of opset {} where the rank of input {} is unknown; opset 7 has no need of it",
         form.opset, input);
  }
  return int(shape->size());
}

bool is_single(const NodeForm& form, int input) {
  const Shape& shape = form.graph.value(form.inputs[size_t(input)]).shape();
  return std::all_of(shape.begin(), shape.end(), [](const Dim& d) { return d.is(1); });
}

// `count` axes of length one behind those that the input has.
void append_axes(NodeForm& form, int input, int count) {
  if (count < 1) return;
  const int rank = rank_of(form, input);
  std::vector<int64_t> axes;
  for (int i = 0; i < count; ++i) axes.push_back(rank + i);
  form.inputs[size_t(input)] =
      form.before("Unsqueeze", {form.inputs[size_t(input)], form.integers("trailing_axes", axes)});
}

// The second operand's axes are those of the first from `axis` on; without it the last ones, as broadcasting has it
// since. Where broadcast is 0 both shapes are equal, and the new form means the same.
void binary(NodeForm& form) {
  const bool broadcast = form.attributes.integer("broadcast", 0) != 0;
  const bool placed = broadcast && form.attributes.has("axis");
  if (placed) {
    const int left = rank_of(form, 0), right = rank_of(form, 1);
    int64_t axis = form.attributes.integer("axis", 0);
    if (axis < 0) axis += left;  // not in the text, but -1 was written for the last one
    if (!is_single(form, 1)) {
      if (axis < 0 || axis + right > left) {
        fail(ErrorCode::kBadModel, "axis {}: the {} axes of the second input do not fit into {}",
             form.attributes.integer("axis", 0), right, left);
      }
      append_axes(form, 1, left - right - int(axis));
    }
  }
  form.attributes.erase("broadcast");
  form.attributes.erase("axis");
}

void gemm(NodeForm& form) { form.attributes.erase("broadcast"); }

// The slope is one number, or one a channel: axis 1.
void prelu(NodeForm& form) {
  const int rank = rank_of(form, 0), slope = rank_of(form, 1);
  if (slope == 1 && rank > 2 && !is_single(form, 1)) append_axes(form, 1, rank - 2);
}

void inference_only(NodeForm& form) {
  if (form.attributes.integer("is_test", 0) == 0) {
    fail(ErrorCode::kUnsupported,
         "training (is_test = 0, the default before opset 7); supported: is_test = 1, or opset 7 and newer");
  }
  form.attributes.erase("is_test");
}

void cast(NodeForm& form) {
  if (form.opset > 5) return;
  const std::string to = form.attributes.string("to", "");
  onnx::TensorProto_DataType type = onnx::TensorProto_DataType_UNDEFINED;
  std::string upper = to;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  if (!onnx::TensorProto_DataType_Parse(upper, &type) || type == onnx::TensorProto_DataType_UNDEFINED)
    fail(ErrorCode::kBadModel, "attribute 'to' names no element type of a tensor, as FLOAT is one");
  form.attributes.set("to", int64_t(type));
}

void concat(NodeForm& form) {
  if (form.opset < 4 && !form.attributes.has("axis")) form.attributes.set("axis", int64_t(1));
}

void reshape(NodeForm& form) {
  if (form.opset > 4) return;
  if (!form.attributes.has("shape")) fail(ErrorCode::kBadModel, "attribute 'shape' is required");
  form.set_input(1, form.integers("shape", form.attributes.integers("shape")));
  form.attributes.erase("shape");
}

void pad(NodeForm& form) {
  if (form.opset > 1 || !form.attributes.has("paddings")) return;
  form.attributes.set("pads", form.attributes.integers("paddings"));
  form.attributes.erase("paddings");
}

void lp_pool(NodeForm& form) {
  if (form.opset > 1) return;
  const double p = form.attributes.number("p", 2);
  if (!(p >= 1 && p <= 64 && p == std::floor(p)))
    fail(ErrorCode::kUnsupported, "p = {} (opset 1 allows any number); supported: a whole number", p);
  form.attributes.set("p", int64_t(p));
}

int64_t whole_constant(const NodeForm& form, int input, const char* what) {
  const Tensor* t = form.has(input) ? form.graph.constant(form.inputs[size_t(input)]) : nullptr;
  if (!t || t->elements() != 1)
    fail(ErrorCode::kUnsupported, "{} that is not one constant number (opset before 6)", what);
  const double value = is_float(t->dtype()) ? t->f64(0) : double(t->i64(0));
  if (!(std::abs(value) < double(int64_t(1) << 46)) || value != std::floor(value))
    fail(ErrorCode::kBadModel, "{} is {}", what, value);
  return int64_t(value);
}

// Tiles and an axis, both numbers; since opset 6 one count an axis.
void tile(NodeForm& form) {
  if (form.opset > 5) return;
  const int rank = rank_of(form, 0);
  const int64_t tiles = whole_constant(form, 1, "the number of tiles"), axis = whole_constant(form, 2, "the axis");
  if (axis < 0 || axis >= rank) fail(ErrorCode::kBadModel, "axis {} is out of range for rank {}", axis, rank);
  std::vector<int64_t> repeats(size_t(rank), 1);
  repeats[size_t(axis)] = tiles;
  form.inputs = {form.inputs[0], form.integers("repeats", repeats)};
}

void upsample(NodeForm& form) {
  if (!form.attributes.has("height_scale") || !form.attributes.has("width_scale"))
    fail(ErrorCode::kBadModel, "attributes 'height_scale' and 'width_scale' are required");
  form.attributes.set("scales", std::vector<double>{1, 1, form.attributes.number("height_scale", 1),
                                                    form.attributes.number("width_scale", 1)});
  form.attributes.erase("height_scale");
  form.attributes.erase("width_scale");
}

// Up to opset 5 the constants had four decimals; 6 has those of a float.
void selu(NodeForm& form) {
  if (form.opset > 5) return;
  if (!form.attributes.has("alpha")) form.attributes.set("alpha", double(1.6732F));
  if (!form.attributes.has("gamma")) form.attributes.set("gamma", double(1.0507F));
}

// The outputs that are wanted are those that have a name.
void recurrent(NodeForm& form) {
  form.attributes.erase("output_sequence");
  if (form.attributes.string("direction", "") == "foward") form.attributes.set("direction", std::string("forward"));
}

struct Rule {
  std::string_view op;
  void (*apply)(NodeForm&);
};
constexpr Rule kRules[] = {
    {"Add", binary},
    {"And", binary},
    {"BatchNormalization", inference_only},
    {"Cast", cast},
    {"Concat", concat},
    {"Div", binary},
    {"Dropout", inference_only},
    {"Equal", binary},
    {"GRU", recurrent},
    {"Gemm", gemm},
    {"GlobalLpPool", lp_pool},
    {"Greater", binary},
    {"LSTM", recurrent},
    {"Less", binary},
    {"LpPool", lp_pool},
    {"Mul", binary},
    {"Or", binary},
    {"PRelu", prelu},
    {"Pad", pad},
    {"Pow", binary},
    {"RNN", recurrent},
    {"Reshape", reshape},
    {"Selu", selu},
    {"Sub", binary},
    {"Tile", tile},
    {"Upsample", upsample},
    {"Xor", binary},
};

}  // namespace

bool in_first_opset(const std::string& op) { return kFirst.find(" " + op + " ") != std::string_view::npos; }

void upgrade_to_7(NodeForm& form) {
  if (form.opset < 6) form.attributes.erase("consumed_inputs");  // which inputs may be overwritten: no matter here
  for (const Rule& rule : kRules)
    if (form.op == rule.op) rule.apply(form);
}

}  // namespace ridgeline
