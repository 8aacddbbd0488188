#include "session/decoder_model.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "formats/make/weights.h"

namespace ridgeline {
namespace {

constexpr int64_t kGroup = 128;             // of 4-bit weights
constexpr size_t kBlock = size_t(1) << 20;  // numbers that rows are cut from
constexpr int64_t kPackRows = 16;           // rows that are transposed at a time

uint64_t mixed(uint64_t a, uint64_t b) { return make::Random(a ^ (b * 0x9e3779b97f4a7c15u)).next(); }

uint64_t hash_of(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

std::string_view name(DecoderWeights weights) {
  constexpr std::string_view kNames[] = {"f16", "i8", "i4:g128"};
  return kNames[size_t(weights)];
}

const DecoderFusions& decoder_fusions() {
  static const DecoderFusions all = {"activation", "add_norm", "qkv", "rotary"};
  return all;
}

// ---- numbers

const std::vector<float>& DecoderNumbers::block(int64_t k) {
  std::vector<float>& b = blocks_[k];
  if (!b.empty()) return b;
  b.resize(kBlock + size_t(k));
  make::Random random(mixed(seed_, uint64_t(k)));
  const float deviation = 1 / std::sqrt(float(k));
  for (float& x : b) x = f16_to_f32(f32_to_f16(random.normal() * deviation));
  return b;
}

const float* DecoderNumbers::row(const std::vector<std::string>& names, int64_t n, int64_t k, int64_t at) {
  const int64_t each = n / int64_t(names.size());
  const uint64_t start = mixed(hash_of(names[size_t(at / each)]), uint64_t(at % each)) % kBlock;
  return block(k).data() + start;
}

Tensor DecoderNumbers::f16(const std::vector<std::string>& names, int64_t n, int64_t k, bool transposed) {
  const std::string key = fmt::format("{} {} {} f16 {}", fmt::join(names, "+"), n, k, transposed);
  if (Tensor& known = made_[key]; known) return known;
  Tensor w(DType::kF16, transposed ? Extents{k, n} : Extents{n, k});
  uint16_t* const to = static_cast<uint16_t*>(w.data());
  std::vector<uint16_t> narrow(block(k).size());
  for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = f32_to_f16(block(k)[i]);
  const auto source = [&](int64_t at) { return narrow.data() + (row(names, n, k, at) - block(k).data()); };
  for (int64_t first = 0; first < n; first += kPackRows) {
    const int64_t rows = std::min(kPackRows, n - first);
    const uint16_t* from[kPackRows] = {};
    for (int64_t r = 0; r < rows; ++r) from[r] = source(first + r);
    if (!transposed) {
      for (int64_t r = 0; r < rows; ++r) std::copy_n(from[r], k, to + (first + r) * k);
      continue;
    }
    for (int64_t i = 0; i < k; ++i)
      for (int64_t r = 0; r < rows; ++r) to[i * n + first + r] = from[r][i];
  }
  return made_[key] = w;
}

Tensor DecoderNumbers::quantized(const std::vector<std::string>& names, int64_t n, int64_t k, DecoderWeights to,
                                 Tensor& scale) {
  const bool bytes = to == DecoderWeights::kI8;
  const std::string key = fmt::format("{} {} {} {}", fmt::join(names, "+"), n, k, name(to));
  if (Tensor& known = made_[key]; known) {
    scale = scales_[key];
    return known;
  }
  const int64_t group = bytes ? k : kGroup, groups = k / group;
  Tensor q(bytes ? DType::kI8 : DType::kU8, {n, bytes ? k : k / 2});
  scale = Tensor(bytes ? DType::kF32 : DType::kF16, {n, groups});
  for (int64_t at = 0; at < n; ++at) {
    const float* const from = row(names, n, k, at);
    for (int64_t g = 0; g < groups; ++g) {
      float largest = 0;
      for (int64_t i = g * group; i < (g + 1) * group; ++i) largest = std::max(largest, std::fabs(from[i]));
      float step = largest / (bytes ? 127.0F : 7.0F);
      if (!bytes) step = f16_to_f32(f32_to_f16(step));
      store_f64(scale.dtype(), scale.data(), at * groups + g, step);
      const float inverse = step > 0 ? 1 / step : 0;
      if (bytes) {
        int8_t* const line = static_cast<int8_t*>(q.data()) + at * k;
        for (int64_t i = 0; i < k; ++i) line[i] = int8_t(std::nearbyintf(from[i] * inverse));
        continue;
      }
      uint8_t* const line = static_cast<uint8_t*>(q.data()) + at * (k / 2);
      for (int64_t i = g * group; i < (g + 1) * group; i += 2) {  // low half first, 8 is zero
        const auto level = [&](int64_t e) {
          return uint8_t(std::clamp(std::nearbyintf(from[e] * inverse), -8.0F, 7.0F) + 8);
        };
        line[i / 2] = uint8_t(level(i) | level(i + 1) << 4);
      }
    }
  }
  scales_[key] = scale;
  return made_[key] = q;
}

Tensor DecoderNumbers::normal(const std::string& name, DType dtype, const Extents& shape, double deviation) {
  Tensor t(dtype, shape);
  make::Random random(mixed(seed_, hash_of(name)));
  for (int64_t i = 0; i < t.elements(); ++i) {
    const float x = random.normal() * float(deviation);
    if (dtype == DType::kF16)
      static_cast<uint16_t*>(t.data())[i] = f32_to_f16(x);
    else
      t.as<float>()[i] = x;
  }
  return t;
}

// ---- the graph

namespace {

class DecoderBuilder {
 public:
  DecoderBuilder(const DecoderSpec& spec, DecoderNumbers& numbers) : s_(spec), numbers_(numbers) {}

  Graph build() {
    const DecoderSize& z = s_.size;
    g_.name = "decoder";
    g_.target = s_.device;
    const ValueId ids = g_.add_input("input_ids", DType::kI64, Shape{1, s_.tokens});
    write_ = g_.add_input("write_indices", DType::kI64, Shape{1});
    lengths_ = g_.add_input("lengths", DType::kI64, Shape{1});
    std::vector<ValueId> before, after;
    for (int64_t l = 0; l < z.layers; ++l)
      for (const char* which : {"k", "v"})
        before.push_back(g_.add_input(fmt::format("{}_cache.{}", which, l), s_.activations(),
                                      Shape{1, z.heads, z.capacity, z.depth()}));
    tables();
    ValueId x = op("Gather", "embedding", {g_.add_constant("embedding", embedding()), ids});
    if (s_.activations() != DType::kF16) x = cast(x, "embedding/cast");
    Sum sum{x, kNoValue};
    for (int64_t l = 0; l < z.layers; ++l) {
      const std::string at = fmt::format("layers.{}", l);
      const ValueId y = norm(sum, at + "/norm1");
      sum.update = attention(y, at, before[size_t(2 * l)], before[size_t(2 * l + 1)], after);
      const ValueId u = norm(sum, at + "/norm2");
      sum.update = product(activation(product(u, at + "/up", {"up"}, z.inner, z.hidden, true), at), at + "/down",
                           {"down"}, z.hidden, z.inner);
    }
    ValueId last = norm(sum, "norm");
    if (s_.tokens > 1) {  // the last token's alone
      const ValueId row = g_.add_constant("last", Tensor::from<int64_t>({1}, std::vector<int64_t>{s_.tokens - 1}));
      last = op("Gather", "last", {last, row}, {{"axis", int64_t(1)}});
    }
    const ValueId logits = product(last, "head", {"head"}, z.vocabulary, z.hidden);
    g_.mark_output(logits);
    for (ValueId v : after) g_.mark_output(v);
    return std::move(g_);
  }

 private:
  using List = std::vector<std::pair<std::string, AttributeValue>>;
  struct Sum {  // the residual stream, and what is to be added to it
    ValueId x, update;
  };

  bool fused(std::string_view what) const { return s_.fusions.count(what) > 0; }

  NodeId node(std::string_view name, const std::string& at, std::vector<ValueId> inputs, const List& list = {},
              int outputs = 1, std::string_view domain = "") {
    Attributes attributes;
    for (const auto& [key, value] : list) attributes.set(key, value);
    const NodeId id = g_.add_node(*find_op(name, domain), std::move(inputs), std::move(attributes), outputs, {}, at);
    g_.node(id).origin = {at};
    return id;
  }
  ValueId op(std::string_view name, const std::string& at, std::vector<ValueId> inputs, const List& list = {}) {
    return g_.node(node(name, at, std::move(inputs), list)).output();
  }
  ValueId cast(ValueId x, const std::string& at) {
    return op("Cast", at, {x}, {{"to", int64_t(info(s_.activations()).onnx_id)}});
  }
  ValueId reshape(ValueId x, const std::string& at, std::vector<int64_t> shape) {
    const int64_t rank = int64_t(shape.size());
    return op("Reshape", at, {x, g_.add_constant(at + ".shape", Tensor::from<int64_t>({rank}, shape))});
  }

  Tensor embedding() { return numbers_.f16({"embedding"}, s_.size.vocabulary, s_.size.hidden, false); }

  void tables() {
    const int64_t rows = s_.size.capacity, pairs = s_.size.depth() / 2;
    Tensor cos(DType::kF32, {rows, pairs}), sin(DType::kF32, {rows, pairs});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < pairs; ++p) {
        const double angle = double(r) * std::pow(10000.0, -double(p) / double(pairs));
        cos.as<float>()[r * pairs + p] = float(std::cos(angle));
        sin.as<float>()[r * pairs + p] = float(std::sin(angle));
      }
    cos_ = g_.add_constant("rotary.cos", cos), sin_ = g_.add_constant("rotary.sin", sin);
    if (fused("rotary")) return;
    // Rows of this step, of the activations' type: once for all layers.
    for (ValueId* table : {&cos_, &sin_}) {
      const std::string at = table == &cos_ ? "rotary.cos" : "rotary.sin";
      const ValueId rows_of = s_.tokens == 1 ? write_ : kNoValue;
      if (rows_of == kNoValue) fail(ErrorCode::kUsage, "more than one token wants the fusion 'rotary'");
      ValueId row = op("Gather", at + "/row", {*table, rows_of});
      if (s_.activations() != DType::kF32) row = cast(row, at + "/cast");
      *table = reshape(row, at + "/rows", {1, 1, pairs});
    }
  }

  Tensor scale_of(const std::string& at) {
    Tensor t(s_.activations(), {s_.size.hidden});
    make::Random random(hash_of(at));
    for (int64_t i = 0; i < t.elements(); ++i) store_f64(t.dtype(), t.data(), i, 0.5 + double(random.uniform()));
    return t;
  }

  ValueId norm(Sum& sum, const std::string& at) {
    const ValueId scale = g_.add_constant(at + ".scale", scale_of(at));
    if (sum.update != kNoValue && fused("add_norm")) {
      const NodeId id = node("AddRMSNormalization", at, {sum.update, sum.x, scale}, {}, 2, "ridgeline");
      sum.x = g_.node(id).output(1);
      return g_.node(id).output();
    }
    if (sum.update != kNoValue) sum.x = op("Add", at + "/add", {sum.update, sum.x});
    return op("RMSNormalization", at, {sum.x, scale});
  }

  /// x times the matrices' rows. `gelu`: what the product becomes before it is written.
  ValueId product(ValueId x, const std::string& at, const std::vector<std::string>& names, int64_t n, int64_t k,
                  bool gelu = false) {
    NodeId id = kNoNode;
    if (s_.weights == DecoderWeights::kF16 && s_.device == DeviceKind::kCuda) {
      id = node("MatMul", at, {x, g_.add_constant(at + ".weight", numbers_.f16(names, n, k, true))});
    } else if (s_.weights == DecoderWeights::kF16) {
      id = node("LowBitMatMul", at, {x, g_.add_constant(at + ".weight", numbers_.f16(names, n, k, false))},
                {{"bits", int64_t(16)}}, 1, "ridgeline");
    } else {
      Tensor scale;
      const Tensor q = numbers_.quantized(names, n, k, s_.weights, scale);
      // A CPU multiplies bytes; a GPU's products of few rows are bound by reading the weights.
      id = node("LowBitMatMul", at, {x, g_.add_constant(at + ".weight", q), g_.add_constant(at + ".scale", scale)},
                {{"bits", int64_t(s_.weights == DecoderWeights::kI8 ? 8 : 4)},
                 {"act", std::string(s_.device == DeviceKind::kCuda ? "f32" : "i8")}},
                1, "ridgeline");
    }
    if (gelu && fused("activation")) {
      const DType types[] = {DType::kF32};
      Program p = program_of(*find_op("Gelu"), {}, types);
      if (s_.activations() != DType::kF32) {
        p.code.push_back({ScalarOp::kCast, s_.activations(), int16_t(p.outputs[0])});
        p.outputs[0] = p.operands() - 1;
      }
      g_.node(id).program = std::make_shared<const Program>(std::move(p));
      g_.infer(g_.node(id));
    }
    return g_.node(id).output();
  }

  ValueId activation(ValueId x, const std::string& at) {
    return fused("activation") ? x : op("Gelu", at + "/gelu", {x});
  }

  ValueId attention(ValueId x, const std::string& at, ValueId k_cache, ValueId v_cache, std::vector<ValueId>& after) {
    const DecoderSize& z = s_.size;
    ValueId qkv = kNoValue;
    std::vector<ValueId> parts;
    if (fused("qkv")) {
      qkv = product(x, at + "/qkv", {"q", "k", "v"}, 3 * z.hidden, z.hidden);
    } else {
      for (const char* which : {"q", "k", "v"})
        parts.push_back(product(x, fmt::format("{}/{}", at, which), {which}, z.hidden, z.hidden));
    }
    ValueId q = kNoValue, keys = kNoValue, values = kNoValue;
    if (fused("rotary")) {
      if (qkv == kNoValue) qkv = op("Concat", at + "/concat", parts, {{"axis", int64_t(2)}});
      const NodeId id = node("RotaryAppend", at + "/rotary", {qkv, cos_, sin_, k_cache, v_cache, write_},
                             {{"num_heads", z.heads}, {"kv_num_heads", z.heads}}, 3, "ridgeline");
      q = g_.node(id).output(0), keys = g_.node(id).output(1), values = g_.node(id).output(2);
    } else {
      if (qkv != kNoValue) {
        const NodeId id = node("Split", at + "/split", {qkv}, {{"axis", int64_t(2)}, {"num_outputs", int64_t(3)}}, 3);
        parts = g_.node(id).outputs;
      }
      // One token: [1, 1, hidden] is [1, heads, 1, depth] as it lies.
      const auto headed = [&](ValueId v, const char* which) {
        return reshape(v, fmt::format("{}/{}_heads", at, which), {1, z.heads, 1, z.depth()});
      };
      q = op("RotaryEmbedding", at + "/q_rotary", {headed(parts[0], "q"), cos_, sin_});
      keys = op("RotaryEmbedding", at + "/k_rotary", {headed(parts[1], "k"), cos_, sin_});
      keys = op("TensorScatter", at + "/k_append", {k_cache, keys, write_});
      values = op("TensorScatter", at + "/v_append", {v_cache, headed(parts[2], "v"), write_});
    }
    after.push_back(keys), after.push_back(values);
    // A prefill that fills the caches sees all of them: no lengths, which kernels of many queries do not take.
    std::vector<ValueId> operands = {q, keys, values};
    if (s_.tokens < z.capacity) operands.insert(operands.end(), {kNoValue, kNoValue, kNoValue, lengths_});
    const int64_t causal = s_.tokens > 1;
    const ValueId y = op("Attention", at + "/attention", operands, {{"is_causal", causal}});
    ValueId rows = y;
    if (s_.tokens > 1) rows = op("Transpose", at + "/heads", {y}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return product(reshape(rows, at + "/rows", {1, s_.tokens, z.hidden}), at + "/o", {"o"}, z.hidden, z.hidden);
  }

  const DecoderSpec& s_;
  DecoderNumbers& numbers_;
  Graph g_;
  ValueId write_ = kNoValue, lengths_ = kNoValue, cos_ = kNoValue, sin_ = kNoValue;
};

}  // namespace

Graph decoder_graph(const DecoderSpec& spec, DecoderNumbers& numbers) { return DecoderBuilder(spec, numbers).build(); }

int count_products(const Graph& graph) {
  int count = 0;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    count += node.is("MatMul") || node.is("LowBitMatMul") ? 1 : node.is("Attention") ? 2 : 0;
  }
  return count;
}

}  // namespace ridgeline
