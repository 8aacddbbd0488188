#include "session/problem_words.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>

#include "ir/graph.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

constexpr int64_t kMostExtent = int64_t(1) << 46;  // what element_count allows

using Keys = std::map<std::string, std::string>;

std::string lower_without_underscores(std::string_view name) {
  std::string out;
  for (char c : name)
    if (c != '_') out += char(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

class Words {
 public:
  Words(std::string op, const std::vector<std::string>& words) : op_(std::move(op)) {
    for (const std::string& word : words) {
      const size_t eq = word.find('=');
      if (eq == std::string::npos) fail(ErrorCode::kUsage, "{}: '{}' is not KEY=VALUE", op_, word);
      if (!keys_.emplace(word.substr(0, eq), word.substr(eq + 1)).second)
        fail(ErrorCode::kUsage, "{}: the key '{}' is given twice", op_, word.substr(0, eq));
    }
  }
  bool has(const std::string& key) const { return keys_.count(key) > 0; }
  std::string take(const std::string& key, const std::string& fallback) {
    known_.push_back(key);
    const auto it = keys_.find(key);
    if (it == keys_.end()) return fallback;
    std::string value = it->second;
    keys_.erase(it);
    return value;
  }
  int64_t number(const std::string& key, int64_t fallback) { return number(key, fallback, 0, kMostExtent); }
  int64_t number(const std::string& key, int64_t fallback, int64_t least, int64_t most) {
    if (!has(key)) {
      known_.push_back(key);
      return fallback;
    }
    const std::string word = take(key, "");
    int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || value < least || value > most)
      fail(ErrorCode::kUsage, "{}: {}={} is not a whole number from {} to {}", op_, key, word, least, most);
    return value;
  }
  bool flag(const std::string& key, bool fallback) { return number(key, fallback, 0, 1) != 0; }
  /// As text, for parse_problem.
  std::string real(const std::string& key, const std::string& fallback) {
    const std::string word = take(key, fallback);
    check_real(key, word);
    return word;
  }
  void check_real(const std::string& key, const std::string& word) const {
    char* end = nullptr;
    std::strtod(word.c_str(), &end);
    if (word.empty() || *end) fail(ErrorCode::kUsage, "{}: {}={} is not a number", op_, key, word);
  }
  // A missing one counts as 1 until all keys are known: `done` names it beside them.
  int64_t need(const std::string& key) {
    if (!has(key)) missing_.push_back(key + "=");
    return number(key, 1);
  }
  void done() const {
    if (!missing_.empty())
      fail(ErrorCode::kUsage, "{}: {} {} missing; its keys are: {}", op_, fmt::join(missing_, " "),
           missing_.size() == 1 ? "is" : "are", fmt::join(known_, " "));
    if (keys_.empty()) return;
    fail(ErrorCode::kUsage, "{}: there is no key '{}'; its keys are: {}", op_, keys_.begin()->first,
         fmt::join(known_, " "));
  }
  const Keys& rest() const { return keys_; }

 private:
  std::string op_;
  Keys keys_;
  std::vector<std::string> known_, missing_;
};

// "bias+gelu" over an output whose last (or channel) axis has n columns: expression and operand texts.
std::string epilogue_text(const std::string& names, const std::string& row, const std::string& whole) {
  if (names.empty() || names == "none") return "";
  std::string expression = "v", operands;
  int count = 0;
  for (size_t at = 0; at <= names.size();) {
    const size_t plus = std::min(names.find('+', at), names.size());
    const std::string name = names.substr(at, plus - at);
    at = plus + 1;
    if (name == "bias" || name == "add" || name == "residual" || name == "mul") {
      ++count;
      expression = fmt::format("({} {} e{})", expression, name == "mul" ? "*" : "+", count);
      operands += fmt::format(" e{}={}", count, name == "bias" ? row + "!" : whole);
    } else if (name == "relu" || name == "sigmoid" || name == "tanh") {
      expression = fmt::format("{}({})", name, expression);
    } else if (name == "gelu") {
      expression = fmt::format("{0} * 0.5 * erfc(-{0} * 0.70710678118654752)", expression);
    } else if (name == "silu") {
      expression = fmt::format("{0} * sigmoid({0})", expression);
    } else if (name == "hardswish") {
      expression = fmt::format("{0} * clamp({0} / 6 + 0.5, 0, 1)", expression);
    } else {
      fail(ErrorCode::kUsage,
           "epilogue={}: there are none, bias, add, mul, relu, gelu, silu, hardswish, sigmoid, tanh, joined by +",
           name);
    }
  }
  return operands + " epilogue='" + expression + "'";
}

std::string x_list(std::string shape) {
  std::replace(shape.begin(), shape.end(), 'x', ',');
  return shape;
}

struct Parsed {
  const OpSchema* op;
  std::string text;
};

const OpSchema& need_op(std::string_view name) {
  const OpSchema* op = find_op(name);
  if (!op) op = find_op(name, "ridgeline");
  if (!op) op = find_op(name, "com.microsoft");
  if (!op) fail(ErrorCode::kUsage, "unsupported: there is no operator '{}'; `ridgeline op list` shows all", name);
  return *op;
}

/// dtype=u8s8 or s8s8: MatMulInteger.
Parsed integer_matmul(Words& w, const std::string& dtype) {
  const int64_t m = w.need("m"), n = w.need("n"), k = w.need("k"), batch = w.number("batch", 1, 1, kMostExtent);
  const bool packed = w.flag("packed", true);
  const std::string lead = batch > 1 ? fmt::format("{},", batch) : "";
  return {&need_op("MatMulInteger"), fmt::format("a={}[{}{},{}] b=i8[{}{},{}]{}", dtype == "u8s8" ? "u8" : "i8", lead,
                                                 m, k, packed ? "" : lead, k, n, packed ? "!" : "")};
}

/// weights=: LowBitMatMul with the arrays of the format.
Parsed low_bit_matmul(Words& w, const std::string& dtype, const std::string& weights, const std::string& act,
                      DeviceKind device) {
  const int64_t m = w.need("m"), n = w.need("n"), k = w.need("k");
  const std::string epilogue = w.take("epilogue", "none");
  const std::string tail =
      epilogue_text(epilogue, fmt::format("{}[{}]", dtype, n), fmt::format("{}[{},{}]", dtype, m, n));
  const auto divides = [&](int64_t group) {
    if (k % group) fail(ErrorCode::kUsage, "matmul: k={} is no multiple of {}, as weights={} wants", k, group, weights);
    return k / group;
  };
  std::string arrays;
  int64_t block = 0;
  if (weights == "bf16" || weights == "f16") {
    arrays = fmt::format("q={}[{},{}]! bits=16", weights, n, k);
  } else if (weights == "i8") {
    arrays = fmt::format("q=i8[{0},{1}]! scale=f32[{0},1]!", n, k);
  } else if (weights == "q8_0") {
    arrays = fmt::format("q=i8[{0},{1}]! scale=f16[{0},{2}]!", n, k, divides(block = 32));
  } else if (weights == "q4_k") {
    arrays = fmt::format(
        "q=u8[{0},{1}]! scale=u8[{0},{2}]! min=u8[{0},{2}]! super_scale=f16[{0},{3}]! "
        "super_min=f16[{0},{3}]! bits=4",
        n, k / 2, divides(block = 32), divides(256));
  } else if (weights == "q4_0" || weights == "i4:g32" || weights == "i4:g64" || weights == "i4:g128") {
    if (weights == "q4_0") block = 32;
    const int64_t group = weights == "i4:g64" ? 64 : weights == "i4:g128" ? 128 : 32;
    arrays = fmt::format("q=u8[{0},{1}]! scale=f16[{0},{2}]! bits=4", n, k / 2, divides(group));
  } else {
    fail(ErrorCode::kUsage, "weights={}: there are f32, bf16, f16, i8, i4:g32, i4:g64, i4:g128, q8_0, q4_0, q4_k",
         weights);
  }
  const bool halves = weights == "bf16" || weights == "f16";
  // On a GPU the products of such weights are in the activations' own type, unless asked for otherwise.
  const std::string kind = act.empty() ? (halves || device == DeviceKind::kCuda ? dtype : "i8") : act;
  if (kind != dtype && (kind != "i8" || halves))
    fail(ErrorCode::kUsage, "act={}: with weights={} there are {}{}", kind, weights, dtype, halves ? "" : " and i8");
  return {&need_op("LowBitMatMul"), fmt::format("a={}[{},{}] {} act={} act_block={}{}", dtype, m, k, arrays,
                                                kind == "i8" ? "i8" : "f32", kind == "i8" ? block : 0, tail)};
}

Parsed matmul(Words& w, const std::string& dtype, DeviceKind device) {
  const std::string weights = w.take("weights", dtype), act = w.take("act", "");
  if (weights != dtype) return low_bit_matmul(w, dtype, weights, act, device);
  if (!act.empty() && act != dtype)
    fail(ErrorCode::kUsage, "act={}: activations are quantized for weights of 4 and 8 bits alone", act);
  const int64_t m = w.need("m"), n = w.need("n"), k = w.need("k"), batch = w.number("batch", 1, 1, kMostExtent);
  const bool ta = w.flag("trans_a", false), tb = w.flag("trans_b", false), packed = w.flag("packed", true);
  const std::string alpha = w.real("alpha", "1"), beta = w.real("beta", "0"), epilogue = w.take("epilogue", "none");
  const std::string lead = batch > 1 ? fmt::format("{},", batch) : "";
  const std::string a = fmt::format("{}[{}{},{}]", dtype, lead, ta ? k : m, ta ? m : k);
  const std::string b =
      fmt::format("{}[{}{},{}]{}", dtype, packed ? "" : lead, tb ? n : k, tb ? k : n, packed ? "!" : "");
  const std::string tail =
      epilogue_text(epilogue, fmt::format("{}[{}]", dtype, n), fmt::format("{}[{}{},{}]", dtype, lead, m, n));
  if (beta != "0") {
    return {&need_op("Gemm"), fmt::format("a={} b={} c={}[{},{}] alpha={} beta={} transA={} transB={}{}", a, b, dtype,
                                          m, n, alpha, beta, int(ta), int(tb), tail)};
  }
  if (ta || tb || alpha != "1")
    return {&need_op("FusedMatMul"),
            fmt::format("a={} b={} alpha={} transA={} transB={}{}", a, b, alpha, int(ta), int(tb), tail)};
  return {&need_op("MatMul"), fmt::format("a={} b={}{}", a, b, tail)};
}

/// The words that any convolution takes.
struct ConvWords {
  int64_t n, c, h, w, oc, kh, kw, stride, pad, dilation, group;
  explicit ConvWords(Words& words)
      : n(words.number("n", 1)),
        c(words.need("c")),
        h(words.need("h")),
        w(words.number("w", h)),
        oc(words.need("oc")),
        kh(words.number("kh", 1, 1, INT32_MAX)),
        kw(words.number("kw", kh, 1, INT32_MAX)),
        stride(words.number("stride", 1, 1, INT32_MAX)),
        pad(words.number("pad", 0, 0, INT32_MAX)),
        dilation(words.number("dilation", 1, 1, INT32_MAX)),
        group(words.number("group", 1, 1, INT32_MAX)) {
    if (c % group) fail(ErrorCode::kUsage, "conv: c={} is no multiple of group={}", c, group);
  }
  int64_t out(int64_t extent, int64_t kernel) const {
    return (extent + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
  }
  std::string attributes() const {
    return fmt::format(" strides={0},{0} pads={1},{1},{1},{1} dilations={2},{2} group={3}", stride, pad, dilation,
                       group);
  }
};

Parsed conv(Words& w, const std::string& dtype) {
  const ConvWords c(w);
  // The bias is the operator's own input; the rest is the epilogue.
  std::string rest = w.take("epilogue", "bias");
  const bool bias = rest.starts_with("bias");
  if (bias) rest = rest.size() > 5 ? rest.substr(5) : "none";
  return {
      &need_op("Conv"),
      fmt::format("x={}[{},{},{},{}] w={}[{},{},{},{}]!{}{}{}", dtype, c.n, c.c, c.h, c.w, dtype, c.oc, c.c / c.group,
                  c.kh, c.kw, bias ? fmt::format(" b={}[{}]!", dtype, c.oc) : "", c.attributes(),
                  epilogue_text(rest, fmt::format("{}[{},1,1]", dtype, c.oc),
                                fmt::format("{}[{},{},{},{}]", dtype, c.n, c.oc, c.out(c.h, c.kh), c.out(c.w, c.kw))))};
}

/// dtype=u8s8 or s8s8: ConvInteger, whose 32-bit sums neither bias nor epilogue follow.
Parsed integer_conv(Words& w, const std::string& dtype) {
  if (w.has("epilogue") && w.take("epilogue", "none") != "none")
    fail(ErrorCode::kUsage, "conv: dtype={} is ConvInteger, which ends with 32-bit sums: epilogue=none alone", dtype);
  const ConvWords c(w);
  return {&need_op("ConvInteger"), fmt::format("x={}[{},{},{},{}] w=i8[{},{},{},{}]!{}", dtype == "u8s8" ? "u8" : "i8",
                                               c.n, c.c, c.h, c.w, c.oc, c.c / c.group, c.kh, c.kw, c.attributes())};
}

Parsed attention(Words& w, const std::string& dtype) {
  const int64_t batch = w.number("batch", 1), heads = w.need("heads"), kv_heads = w.number("kv_heads", heads),
                q = w.need("q_len"), kv = w.number("kv_len", q), d = w.need("head_dim");
  const bool causal = w.flag("causal", false);
  if (kv_heads == 0 || heads % kv_heads)
    fail(ErrorCode::kUsage, "attention: kv_heads={} does not divide heads={}", kv_heads, heads);
  return {
      &need_op("ScaledDotProductAttention"),
      fmt::format("q={0}[{1},{2},{3},{4}] k={0}[{1},{8},{5},{4}] v={0}[{1},{8},{5},{4}] scale={6:.9g} causal={7}",
                  dtype, batch, heads, q, d, kv, d > 0 ? 1 / __builtin_sqrt(double(d)) : 1.0, int(causal), kv_heads)};
}

Parsed rows_cols(Words& w, const std::string& dtype, const char* name, bool scale, bool bias) {
  const int64_t rows = w.need("rows"), cols = w.need("cols");
  std::string text = fmt::format("x={}[{},{}]", dtype, rows, cols);
  if (name == std::string_view("Softmax")) text += " axis=-1";
  const OpSchema& op = need_op(name);
  if (scale) text += fmt::format(" {}={}[{}]!", op.inputs[1].name, dtype, cols);
  if (bias) text += fmt::format(" {}={}[{}]!", op.inputs[2].name, dtype, cols);
  if (op.inputs[0].name != "x") text.replace(0, 1, std::string(op.inputs[0].name));
  return {&op, text};
}

// Any other operator: by shape=, or by the schema's own keys.
Parsed generic(const std::string& name, Words& w, const std::string& dtype) {
  const OpSchema* op = nullptr;
  for (const OpSchema* candidate : catalogue()) {
    if (lower_without_underscores(candidate->name) == lower_without_underscores(name)) {
      op = candidate;
      break;
    }
  }
  if (!op) op = name == "Elementwise" ? &elementwise_op() : &need_op(name);
  std::string text;
  if (w.has("shape")) {
    const std::string shape = x_list(w.take("shape", ""));
    const int required =
        int(std::count_if(op->inputs.begin(), op->inputs.end(), [](const InputSpec& i) { return !i.optional; }));
    const bool one_tensor = op->kind != OpKind::kElementwise;
    for (int i = 0; i < (one_tensor ? 1 : std::max(required, 1)); ++i) {
      const bool is_bool = op->inputs[i].types == kBools;
      const std::string key =
          op->inputs[i].variadic ? fmt::format("{}0", op->inputs[i].name) : std::string(op->inputs[i].name);
      text += fmt::format(" {}={}[{}]", key, is_bool ? "bool" : dtype, shape);
    }
  }
  const auto given = [&](const auto& entry) { return entry.first.starts_with(op->inputs[0].name); };
  if (text.empty() && !op->inputs.empty() && !op->inputs[0].optional &&
      std::none_of(w.rest().begin(), w.rest().end(), given)) {
    fail(ErrorCode::kUsage,
         "{0}: give its shape (shape=64x1024) or its inputs ({1}=f32[64,1024]); `ridgeline op show {2}` has examples",
         name, op->inputs[0].name, op->name);
  }
  if (w.has("axes") && op->inputs.size() > 1 && op->inputs[1].name == "axes")
    text += " axes=i64{" + x_list(w.take("axes", "")) + "}";
  for (const auto& [key, value] : w.rest()) {
    for (const AttributeSpec& spec : op->attributes)
      if (spec.name == key && spec.type == AttributeSpec::Type::kFloat) w.check_real(key, value);
    text += value.find(' ') == std::string::npos ? fmt::format(" {}={}", key, key == "perm" ? x_list(value) : value)
                                                 : fmt::format(" {}='{}'", key, value);
  }
  return {op, text};
}

}  // namespace

BenchProblem parse_bench_problem(const std::string& op, const std::vector<std::string>& keys, int threads,
                                 DeviceKind device) {
  BenchProblem out;
  out.words = op;
  for (const std::string& key : keys) out.words += " " + key;
  Words w(op, keys);
  const std::string dtype = w.take("dtype", "f32"), result = w.take("out", "");
  const bool words_of_conv = op == "conv" && !w.has("x");
  const bool pair = dtype == "u8s8" || dtype == "s8s8", integers = pair && (op == "matmul" || words_of_conv);
  if (pair && !integers)
    fail(ErrorCode::kUsage, "dtype={}: two types, of the operands of matmul and conv; {} takes one", dtype, op);
  if (!integers && dtype_named(dtype) == DType::kNone)
    fail(ErrorCode::kUsage, "dtype={}: there is no such type", dtype);
  out.warm = w.flag("warm", false);
  out.forced = w.take("kernel", "");
  if (const std::string tile = w.take("tile", ""); !tile.empty()) out.tile = parse_kernel_tile(tile);
  Parsed parsed{};
  bool closed = true;
  if (integers)
    parsed = words_of_conv ? integer_conv(w, dtype) : integer_matmul(w, dtype);
  else if (op == "matmul")
    parsed = matmul(w, dtype, device);
  else if (words_of_conv)
    parsed = conv(w, dtype);
  else if (op == "attention")
    parsed = attention(w, dtype);
  else if (op == "softmax" && w.has("rows"))
    parsed = rows_cols(w, dtype, "Softmax", false, false);
  else if (op == "layer_norm")
    parsed = rows_cols(w, dtype, "LayerNormalization", true, true);
  else if (op == "rms_norm")
    parsed = rows_cols(w, dtype, "RMSNormalization", true, false);
  else {
    parsed = generic(op, w, dtype);
    closed = false;
  }
  if (closed) w.done();
  if (result.starts_with("~")) parsed.text += " out=" + result;
  out.problem = parse_problem(*parsed.op, parsed.text);
  out.problem.threads = threads;
  out.problem.device = device;
  if (!result.empty() && !result.starts_with("~")) {
    if (dtype_named(result) == DType::kNone) fail(ErrorCode::kUsage, "out={}: there is no such type", result);
    out.problem.outputs[0].dtype = dtype_named(result);
  }
  return out;
}

std::string problem_words(const Problem& p) {
  const auto plain = [](const Operand& o) { return o.layout.is_row_major() && o.dtype == DType::kF32; };
  if (p.op->name == "MatMul" && !p.has_epilogue() && p.op_inputs == 2 && p.input(0).layout.rank() == 2 &&
      p.input(1).layout.rank() == 2 && plain(p.input(0)) && plain(p.input(1)) && plain(p.output())) {
    return fmt::format("matmul m={} n={} k={}{}", p.input(0).shape()[0], p.input(1).shape()[1], p.input(0).shape()[1],
                       p.input(1).is_constant ? "" : " packed=0");
  }
  return p.text();
}

}  // namespace ridgeline
