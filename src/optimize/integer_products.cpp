// Convolutions and products of dequantized operands sum integers instead: exactly, in 32 bits, where the exported
// graph rounds each product and each partial sum. What follows is one elementwise step: the sum times the product of
// the scales, plus the bias; the quantization behind it joins it (fuse_epilogues), so that bytes are read and written.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "ir/infer.h"
#include "ir/reference.h"
#include "optimize/passes.h"
#include "optimize/quantization.h"

namespace ridgeline {
namespace {

struct Quantized {
  ValueId bytes = kNoValue;
  ValueId zero = kNoValue;  // kNoValue: 0
  Scaling scaling;
  const Tensor* constant = nullptr;  // of the bytes
  Tensor made;                       // a constant that is not in the graph yet: transposed, or quantized here
};

Tensor transposed(const Tensor& t) {
  Tensor out(t.dtype(), {t.shape()[1], t.shape()[0]});
  for (int64_t r = 0; r < t.shape()[0]; ++r)
    for (int64_t c = 0; c < t.shape()[1]; ++c)
      static_cast<uint8_t*>(out.data())[c * t.shape()[0] + r] =
          static_cast<const uint8_t*>(t.data())[r * t.shape()[1] + c];
  return out;
}

Tensor bytes_of_zero(const Scaling& s) {
  Tensor t(s.type, s.single() ? Extents{} : Extents{int64_t(s.zero.size())});
  for (int64_t k = 0; k < t.elements(); ++k) store_i64(s.type, t.data(), k, s.zero[size_t(k)]);
  return t;
}

bool all_constant(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId v) { return v == kNoValue || graph.constant(v); });
}

/// The value as bytes with their scale: it is dequantized, or (weights) a transposition of what is. nullopt: neither,
/// `why` then says what is in the way of one that is dequantized.
std::optional<Quantized> quantized(const Graph& graph, ValueId value, std::string& why) {
  const Node* dq = graph.producer(value);
  bool turned = false;
  if (dq && dq->is("Transpose") && !dq->program && graph.value(value).rank() == 2) {
    turned = permutation_of(graph, *dq) == std::vector<int64_t>{1, 0};
    dq = turned ? graph.producer(dq->input(0)) : nullptr;
  }
  if (!dq || !is_dequantize(*dq)) return std::nullopt;
  const std::optional<Scaling> scaling = scaling_of(graph, *dq, why);
  if (!scaling) {
    why = fmt::format("'{}': {}", dq->name, why);
    return std::nullopt;
  }
  Quantized q;
  q.scaling = *scaling;
  q.bytes = dq->input(0);
  q.constant = graph.constant(q.bytes);
  if (const Node* made = graph.producer(q.bytes);
      !q.constant && made && is_quantize(*made) && all_constant(graph, *made)) {
    std::vector<Tensor> in;
    for (ValueId v : made->inputs) in.push_back(v == kNoValue ? Tensor() : *graph.constant(v));
    q.made = run_reference(*made->op, made->attributes, in, 1)[0];
  }
  if (turned) {
    if (!q.made && !q.constant) return std::nullopt;  // of an activation: it is moved as bytes by itself
    q.made = transposed(q.made ? q.made : *q.constant);
    if (!q.scaling.single()) q.scaling.axis = 1 - q.scaling.axis;
  }
  if (q.made) q.constant = nullptr;
  return q;
}

const Tensor& content(const Quantized& q) { return q.made ? q.made : *q.constant; }
bool has_content(const Quantized& q) { return q.made || q.constant; }

int64_t reach(const Scaling& s) {  // largest |q - zero|
  const int64_t least = s.type == DType::kI8 ? -128 : 0, most = least + 255;
  int64_t largest = 0;
  for (int32_t z : s.zero) largest = std::max({largest, most - z, z - least});
  return largest;
}

/// Sum of |(byte ^ flip) - zero|, in runs of a known length, which GCC makes vectors of at -O2.
int64_t sum_of_distances(const uint8_t* bytes, int64_t count, int flip, int zero) {
  constexpr int64_t kRun = 64;
  int64_t sum = 0, k = 0;
  for (; k + kRun <= count; k += kRun) {
    int32_t part = 0;
    for (int64_t j = 0; j < kRun; ++j) {
      const int distance = (bytes[k + j] ^ flip) - zero;
      part += distance < 0 ? -distance : distance;
    }
    sum += part;
  }
  for (; k < count; ++k) sum += std::abs((bytes[k] ^ flip) - zero);
  return sum;
}

/// Largest sum of |w - zero| over the terms of one result; `axis` runs over results, nothing where w is not known.
int64_t largest_sum(const Quantized& w, size_t axis) {
  const Tensor& t = content(w);
  const int64_t slices = t.shape()[axis], elements = t.elements();
  int64_t inner = 1;
  for (size_t a = axis + 1; a < t.shape().size(); ++a) inner *= t.shape()[a];
  std::vector<int64_t> sums(size_t(slices), 0);
  // By bytes and runs: a network's weights, one at a time, took half of its planning.
  const uint8_t* bytes = static_cast<const uint8_t*>(t.data());
  const int flip = t.dtype() == DType::kI8 ? 0x80 : 0, lift = flip ? 128 : 0;  // an i8 plus 128 is its byte, flipped
  for (int64_t first = 0; first < elements; first += inner) {
    const size_t slice = size_t(first / inner % slices);
    const int zero = w.scaling.zero[w.scaling.single() ? 0 : slice] + lift;
    sums[slice] += sum_of_distances(bytes + first, inner, flip, zero);
  }
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

/// A bias as f32: a constant, or one that is dequantized from a constant. Empty: it is neither.
Tensor bias_of(const Graph& graph, ValueId value) {
  if (const Tensor* t = graph.constant(value)) return t->dtype() == DType::kF32 ? *t : Tensor();
  const Node* dq = graph.producer(value);
  if (!dq || !is_dequantize(*dq) || !all_constant(graph, *dq) || graph.value(value).dtype() != DType::kF32) return {};
  std::vector<Tensor> in;
  for (ValueId v : dq->inputs) in.push_back(v == kNoValue ? Tensor() : *graph.constant(v));
  return run_reference(*dq->op, dq->attributes, in, 1)[0];
}

Tensor scaled(const Tensor& t, double factor) {
  if (factor == 1) return t;
  Tensor out(t.dtype(), t.shape());
  for (int64_t k = 0; k < t.elements(); ++k) out.as<float>()[k] = float(double(t.as<float>()[k]) * factor);
  return out;
}

/// sum -> f32(sum) * scale + bias, the last two in one rounding.
Program dequantized_sum(const std::vector<float>& scales, int axis, int rank, const Tensor& bias,
                        std::vector<Tensor>& more) {
  Program p;
  p.inputs = {{"sum", DType::kI32}};
  int scale = -1, add = -1;
  if (axis < 0) {
    p.constants.push_back({DType::kF32, double(scales[0]), 0});
  } else {
    p.inputs.push_back({"scale", DType::kF32});
    more.push_back(along_axis(scales, axis, rank));
    scale = 1;
  }
  if (bias) {
    add = int(p.inputs.size());
    p.inputs.push_back({"bias", DType::kF32});
    more.push_back(bias);
  }
  if (axis < 0) scale = p.first_constant();
  const int sum = p.first_result();
  p.code.push_back({ScalarOp::kCast, DType::kF32, 0});
  if (bias)
    p.code.push_back({ScalarOp::kFma, DType::kF32, int16_t(sum), int16_t(scale), int16_t(add)});
  else
    p.code.push_back({ScalarOp::kMul, DType::kF32, int16_t(sum), int16_t(scale)});
  p.outputs = {p.operands() - 1};
  return p;
}

/// What becomes of a node: the integer operator with its attributes, and what follows.
struct Rewrite {
  const OpSchema* op = nullptr;
  Attributes attributes;
  Quantized x, w;
  size_t results_axis = 0;  // of w
  int channel_axis = 0;     // of y
  double alpha = 1;
  Tensor bias;
};

class IntegerProducts {
 public:
  IntegerProducts(Graph& graph, Decisions& decisions) : graph_(graph), decisions_(decisions) {}

  void run() {
    for (NodeId id : graph_.order()) {
      const Node& node = graph_.node(id);
      if (!node.alive || node.program || !(node.is("Conv") || node.is("MatMul") || node.is("Gemm"))) continue;
      Rewrite r;
      std::string code, why;
      if (read(node, r, code, why))
        apply(id, r);
      else if (!code.empty())
        decisions_.refuse(node, code, why);
    }
    graph_.remove_dead();
  }

 private:
  // False with an empty code: not a product of dequantized operands at all.
  bool read(const Node& node, Rewrite& r, std::string& code, std::string& why) {
    const auto no = [&](std::string_view c, std::string reason) {
      code = c;
      why = std::move(reason);
      return false;
    };
    std::string why_x, why_w;
    const std::optional<Quantized> x = quantized(graph_, node.input(0), why_x),
                                   w = quantized(graph_, node.input(1), why_w);
    if (!x && why_x.empty()) return false;
    if (!w && why_w.empty()) return no("weights_in_f32", "its other operand is not dequantized");
    if (!x || !w) return no("scale", x ? why_w : why_x);
    r.x = *x, r.w = *w;
    if (!r.x.scaling.single()) return no("per_axis", "its first operand has several scales, which a sum would mix");
    const bool conv = node.is("Conv"), gemm = node.is("Gemm");
    r.op = find_op(conv ? "ConvInteger" : "MatMulInteger");
    r.channel_axis = conv ? 1 : graph_.value(node.output()).rank() - 1;
    const int rank = graph_.value(node.input(1)).rank();
    r.results_axis = conv ? 0 : size_t(std::max(0, rank - 1));
    if (conv) r.attributes = node.attributes;
    if (!conv && (rank < 2 || graph_.value(node.input(0)).rank() < 2)) return no("shape", "an operand is a vector");
    if (gemm) {
      if (schema_integer(*node.op, node.attributes, "transA")) return no("transposed", "transA = 1");
      if (schema_integer(*node.op, node.attributes, "transB")) {
        if (!has_content(r.w)) return no("transposed", "transB = 1 and B is no constant");
        r.w.made = transposed(content(r.w));
        r.w.constant = nullptr;
        if (!r.w.scaling.single()) r.w.scaling.axis = 1 - r.w.scaling.axis;
      }
      r.alpha = schema_number(*node.op, node.attributes, "alpha");
    }
    if (!r.w.scaling.single() && r.w.scaling.axis != int(r.results_axis))
      return no("per_axis", fmt::format("its weights have a scale for each slice of axis {}, which a sum would mix",
                                        r.w.scaling.axis));
    if (!r.w.scaling.single() && rank != 2 && !conv) return no("per_axis", "batches with a scale a column");
    return bounded(node, r, code, why) && with_bias(node, r, code, why);
  }

  bool bounded(const Node& node, const Rewrite& r, std::string& code, std::string& why) {
    int64_t most = 0;
    if (has_content(r.w)) {
      most = largest_sum(r.w, r.results_axis);
    } else {
      const Dim& terms = graph_.value(node.input(0)).shape().back();
      most =
          terms.known() && node.is("MatMul") ? terms.value() * reach(r.w.scaling) : std::numeric_limits<int64_t>::max();
    }
    if (most <= std::numeric_limits<int32_t>::max() / reach(r.x.scaling)) return true;
    code = "too_long";
    why = "its sums may leave 32 bits";
    return false;
  }

  bool with_bias(const Node& node, Rewrite& r, std::string& code, std::string& why) {
    const ValueId bias = node.is("MatMul") ? kNoValue : node.input(2);
    const double beta = node.is("Gemm") ? schema_number(*node.op, node.attributes, "beta") : 1;
    if (bias == kNoValue || beta == 0) return true;
    r.bias = bias_of(graph_, bias);
    if (!r.bias) {
      code = "bias";
      why = fmt::format("its bias '{}' is no constant", graph_.value(bias).name);
      return false;
    }
    r.bias = scaled(r.bias, beta);
    if (node.is("Conv"))
      r.bias = along_axis({r.bias.as<float>(), r.bias.as<float>() + r.bias.elements()}, 1,
                          graph_.value(node.output()).rank());
    return true;
  }

  void apply(NodeId id, const Rewrite& r) {
    const auto constant = [&](const Quantized& q, std::string_view what) {
      return q.made ? graph_.add_constant(fmt::format("{}.{}", graph_.node(id).name, what), q.made) : q.bytes;
    };
    const auto zero = [&](const Quantized& q, std::string_view what) {
      const bool none = std::all_of(q.scaling.zero.begin(), q.scaling.zero.end(), [](int32_t z) { return z == 0; });
      return none
                 ? kNoValue
                 : graph_.add_constant(fmt::format("{}.{}_zero", graph_.node(id).name, what), bytes_of_zero(q.scaling));
    };
    std::vector<ValueId> inputs = {constant(r.x, "x"), constant(r.w, "w"), zero(r.x, "x"), zero(r.w, "w")};
    while (inputs.back() == kNoValue) inputs.pop_back();
    const NodeId sums = graph_.add_node(*r.op, inputs, r.attributes, 1, {}, graph_.node(id).name);
    const auto give_up = [&] {
      graph_.remove(graph_.node(sums));
      graph_.remove_dead();
    };
    Node& from = graph_.node(id);
    if (const std::string reason =
            why_no_kernel(graph_, graph_.node(sums), nullptr, graph_.node(sums).inputs, graph_.node(sums).op_inputs);
        !reason.empty()) {
      decisions_.refuse(from, "no_kernel", "only the reference would sum its integers: " + reason);
      return give_up();
    }
    if (!decisions_.allowed(from)) return give_up();
    const std::vector<std::string> names = names_of(from);
    const ValueId y = graph_.node(sums).output();
    std::vector<float> scales;
    for (float s : r.w.scaling.scale) scales.push_back(float(double(s) * double(r.x.scaling.scale[0]) * r.alpha));
    std::vector<Tensor> more;
    Program program =
        dequantized_sum(scales, r.w.scaling.single() ? -1 : r.channel_axis, graph_.value(y).rank(), r.bias, more);
    std::vector<ValueId> operands = {y};
    for (const Tensor& t : more)
      operands.push_back(graph_.add_constant(
          fmt::format("{}.{}", from.name, operands.size() == 1 && !r.w.scaling.single() ? "scale" : "bias"), t));
    const NodeId real = graph_.add_program(std::move(program), operands);
    graph_.node(real).name = from.name + "/dequantized";
    graph_.node(sums).origin = graph_.node(real).origin = names;
    const int64_t bytes = 3 * (value_bytes(graph_, inputs[0]) + value_bytes(graph_, inputs[1]));
    const ValueId out = from.output();
    graph_.replace_uses(out, graph_.node(real).output());
    graph_.remove(from);
    decisions_.apply(names, bytes, 0);
  }

  // The node with the dequantizations of its weights and bias; that of x may be shared.
  std::vector<std::string> names_of(const Node& node) const {
    std::vector<std::string> names = origins({&node});
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      const Node* from = graph_.producer(node.inputs[i]);
      for (; from && (is_dequantize(*from) || is_quantize(*from) || from->is("Transpose"));
           from = graph_.producer(from->input(0))) {
        if (graph_.uses(from->output()) > 1 || !all_from_constants(*from)) break;
        for (const std::string& n : origins({from})) names.push_back(n);
      }
    }
    return names;
  }
  bool all_from_constants(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
      const Node* from = graph_.producer(v);
      return v == kNoValue || graph_.constant(v) || (from && all_from_constants(*from) && !from->inputs.empty());
    });
  }

  Graph& graph_;
  Decisions& decisions_;
};

}  // namespace

void integer_products(Graph& graph, Decisions& decisions) { IntegerProducts(graph, decisions).run(); }

}  // namespace ridgeline
