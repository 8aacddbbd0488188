#include "ir/problem.h"

#include <algorithm>
#include <cctype>

#include "ir/control.h"
#include "ir/graph.h"
#include "ir/infer.h"

namespace ridgeline {
namespace {

// An input that is read by extent alone or kept as numbers: printed with its content.
bool prints_content(const Operand& operand) {
  return operand.constant && (is_integer(operand.dtype) || operand.dtype == DType::kBool) &&
         operand.constant.rank() <= 1 && operand.constant.elements() <= 16;
}

std::string input_name(const OpSchema& op, int i) {
  if (i < op.inputs.size()) {
    const bool many = op.inputs[i].variadic;
    return many ? fmt::format("{}{}", op.inputs[i].name, i - op.inputs.size() + 1) : std::string(op.inputs[i].name);
  }
  return fmt::format("{}{}", op.inputs[op.inputs.size() - 1].name, i - op.inputs.size() + 1);
}

int required_outputs(const OpSchema& op) {
  int required = 0;
  for (const OutputSpec& o : op.outputs) required += o.optional ? 0 : 1;
  return std::max(required, 1);
}

std::string strides_text(const Layout& layout) {
  if (layout.is_row_major()) return "";
  if (layout.is_channels_last()) return "~cl";
  return "~" + fmt::format("{}", fmt::join(layout.strides, "x"));
}

[[noreturn]] void bad_key(const OpSchema& op, std::string_view what) {
  std::string keys;
  for (int i = 0; i < op.inputs.size(); ++i)
    keys += fmt::format(" {}=DTYPE[SHAPE]{}", input_name(op, i), op.inputs[i].optional ? "?" : "");
  for (const AttributeSpec& a : op.attributes) keys += fmt::format(" {}=", a.name);
  fail(ErrorCode::kUsage, "{}: {}. Its keys are:{}", op.name, what, keys);
}

std::vector<int64_t> integers_of(std::string_view list, char separator, const OpSchema& op) {
  std::vector<int64_t> out;
  size_t at = 0;
  while (at < list.size()) {
    const size_t end = std::min(list.find(separator, at), list.size());
    const std::string word(list.substr(at, end - at));
    char* stop = nullptr;
    const int64_t value = std::strtoll(word.c_str(), &stop, 10);
    if (word.empty() || *stop) bad_key(op, fmt::format("'{}' is not a list of integers", list));
    out.push_back(value);
    at = end + 1;
  }
  return out;
}

std::vector<double> numbers_of(std::string_view list, const OpSchema& op) {
  const std::string s(list);
  std::vector<double> out;
  for (const char* at = s.c_str(); *at;) {
    char* end = nullptr;
    out.push_back(std::strtod(at, &end));
    if (end == at) bad_key(op, fmt::format("'{}' is not a list of numbers", list));
    at = *end == ',' ? end + 1 : end;
  }
  return out;
}

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    out.emplace_back(list.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// "f32[3,5,127]", "[5]", "i64{0,2}", optionally "~cl" or "~1x5x25" (strides).
Operand parse_operand(std::string_view word, DType like, const OpSchema& op) {
  Operand operand;
  const size_t open = word.find_first_of("[{");
  if (open == std::string_view::npos) bad_key(op, fmt::format("'{}' is not DTYPE[SHAPE]", word));
  operand.dtype = open == 0 ? like : dtype_named(word.substr(0, open));
  if (operand.dtype == DType::kNone) bad_key(op, fmt::format("'{}' is not a dtype", word.substr(0, open)));
  const size_t close = word.find_first_of("]}", open);
  if (close == std::string_view::npos) bad_key(op, fmt::format("a bracket is missing in '{}'", word));
  const std::string_view list = word.substr(open + 1, close - open - 1);
  const bool floats = word[open] == '{' && is_float(operand.dtype);
  const std::vector<int64_t> numbers = floats ? std::vector<int64_t>() : integers_of(list, ',', op);
  if (word[open] == '{') {
    const std::vector<double> reals = floats ? numbers_of(list, op) : std::vector<double>();
    Tensor content(operand.dtype, {int64_t(floats ? reals.size() : numbers.size())});
    for (size_t i = 0; i < reals.size(); ++i) store_f64(operand.dtype, content.data(), int64_t(i), reals[i]);
    for (size_t i = 0; i < numbers.size(); ++i) store_i64(operand.dtype, content.data(), int64_t(i), numbers[i]);
    operand.layout = Layout(content.shape());
    operand.is_constant = true;
    operand.constant = content;
    return operand;
  }
  operand.layout = Layout(Extents(numbers));
  std::string_view rest = word.substr(close + 1);
  if (rest.ends_with("!")) {
    operand.is_constant = true;
    rest.remove_suffix(1);
  }
  if (rest == "~cl")
    operand.layout = Layout::channels_last(Extents(numbers));
  else if (rest.starts_with("~")) {
    const std::vector<int64_t> strides = integers_of(rest.substr(1), 'x', op);
    if (strides.size() != numbers.size()) bad_key(op, fmt::format("'{}' has {} strides", word, strides.size()));
    operand.layout = Layout(Extents(numbers), Extents(strides));
  } else if (!rest.empty()) {
    bad_key(op, fmt::format("'{}' follows the shape in '{}'", rest, word));
  }
  return operand;
}

AttributeValue parse_attribute(const AttributeSpec& spec, std::string_view word, const OpSchema& op) {
  const std::string s(word);
  switch (spec.type) {
    case AttributeSpec::Type::kInt: {
      if (spec.name == "to" && dtype_named(word) != DType::kNone) return int64_t(info(dtype_named(word)).onnx_id);
      return integers_of(word, ',', op).at(0);
    }
    case AttributeSpec::Type::kFloat:
      return std::strtod(s.c_str(), nullptr);
    case AttributeSpec::Type::kString:
      return s;
    case AttributeSpec::Type::kInts:
      return integers_of(word, ',', op);
    case AttributeSpec::Type::kFloats:
      return numbers_of(word, op);
    case AttributeSpec::Type::kStrings:
      return words_of(word);
    case AttributeSpec::Type::kGraph:
      if (std::shared_ptr<const Graph> body = sample_body(word)) return body;
      [[fallthrough]];
    default:
      bad_key(op, fmt::format("the attribute '{}' cannot be given in text", spec.name));
  }
}

std::vector<std::string> split_words(std::string_view keys) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (char c : keys) {
    if (c == '\'')
      quoted = !quoted;
    else if (std::isspace(static_cast<unsigned char>(c)) && !quoted) {
      if (!word.empty()) words.push_back(word);
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

}  // namespace

int64_t Problem::integer(std::string_view name) const { return schema_integer(*op, attributes, name); }
double Problem::number(std::string_view name) const { return schema_number(*op, attributes, name); }
std::string Problem::string(std::string_view name) const { return schema_string(*op, attributes, name); }
std::vector<int64_t> Problem::integers(std::string_view name, std::vector<int64_t> fallback) const {
  return attributes.integers(name, std::move(fallback));
}
std::vector<int64_t> Problem::values(int input) const {
  return has(input) && inputs[size_t(input)].constant ? inputs[size_t(input)].constant.to_i64()
                                                      : std::vector<int64_t>();
}

int64_t Problem::read_bytes() const {
  int64_t total = 0;
  for (const Operand& i : inputs)
    if (i.present()) total += i.bytes();
  return total;
}

int64_t Problem::write_bytes() const {
  int64_t total = 0;
  for (const Operand& o : outputs)
    if (o.present()) total += o.bytes();
  return total;
}

std::string Problem::text() const {
  std::string out(op->name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Operand& operand = inputs[i];
    if (!operand.present()) continue;
    const std::string key = int(i) < op_inputs ? input_name(*op, int(i)) : fmt::format("e{}", int(i) - op_inputs + 1);
    if (prints_content(operand))
      out += fmt::format(" {}={}{{{}}}", key, name(operand.dtype), fmt::join(operand.constant.to_i64(), ","));
    else
      out += fmt::format(" {}={}{}{}{}", key, name(operand.dtype), ridgeline::text(operand.shape()),
                         strides_text(operand.layout), operand.is_constant ? "!" : "");
  }
  if (!attributes.empty()) out += " " + attributes.text();
  if (int(outputs.size()) != required_outputs(*op)) out += fmt::format(" outputs={}", outputs.size());
  if (!outputs.empty() && !outputs[0].layout.is_row_major()) out += " out=" + strides_text(outputs[0].layout);
  if (program && (has_epilogue() || op == &elementwise_op()))
    out += fmt::format(" {}='{}'", has_epilogue() ? "epilogue" : "program", program->text());
  return out;
}

DType arithmetic_of(const Problem& p) {
  if (p.op->kind != OpKind::kContraction || p.op_inputs < 2) return DType::kF32;
  const DType a = p.input(0).dtype, b = p.input(1).dtype;
  for (const AttributeSpec& spec : p.op->attributes)
    if (spec.name == "act")
      return p.string("act") == "i8" ? DType::kI8 : p.string("act") == "bf16" ? DType::kBF16 : DType::kF32;
  const auto bytes = [](DType t) { return t == DType::kI8 || t == DType::kU8; };
  if (bytes(a) && bytes(b)) return DType::kI8;
  // f16 is computed in f32 on a CPU (its sums need it); a GPU has products of it with sums in f32.
  if (a == DType::kF16 && b == DType::kF16 && p.device == DeviceKind::kCuda) return DType::kF16;
  return a == DType::kBF16 && b == DType::kBF16 ? DType::kBF16 : DType::kF32;
}

Cost cost_of(const Problem& problem) {
  Cost cost;
  const int64_t outputs = problem.outputs.empty() ? 0 : problem.output().elements();
  if (problem.op->is_elementwise()) {
    const int64_t flops =
        problem.program ? std::max(problem.program->flops(), problem.op == &elementwise_op() ? 0 : 1) : 1;
    cost.flops = flops * outputs;
    cost.special = problem.program ? problem.program->special_flops() * outputs : 0;
  } else if (problem.op->cost) {
    cost = problem.op->cost(problem);
  } else {
    cost.flops = problem.op->kind == OpKind::kMovement ? 0 : outputs;
  }
  // An operator that writes less than its outputs hold has state in place, of which some rows alone move.
  if (cost.write_bytes == 0 || cost.write_bytes >= problem.write_bytes()) {
    cost.read_bytes = problem.read_bytes();
    cost.write_bytes = problem.write_bytes();
  }
  if (problem.has_epilogue()) {
    cost.flops += problem.program->flops() * outputs;
    cost.special += problem.program->special_flops() * outputs;
    if (cost.executed_flops >= 0) cost.executed_flops += problem.program->flops() * outputs;
  }
  return cost;
}

Problem parse_problem(const OpSchema& op, std::string_view keys) {
  Problem problem;
  problem.op = &op;
  DType like = DType::kF32;
  std::string epilogue, out_strides;
  int outputs = 0;  // 0: those that are not optional
  std::vector<Operand> extras;
  for (const std::string& word : split_words(keys)) {
    const size_t eq = word.find('=');
    if (eq == std::string::npos) {
      if (word == op.name || word == "poison") continue;
      bad_key(op, fmt::format("'{}' is not KEY=VALUE", word));
    }
    const std::string key = word.substr(0, eq), value = word.substr(eq + 1);
    bool done = false;
    const int most =
        op.inputs.empty() || !op.inputs[op.inputs.size() - 1].variadic ? op.inputs.size() : op.inputs.size() + 63;
    for (int i = 0; i < most && !done; ++i) {
      const bool bare = i < op.inputs.size() && op.inputs[i].variadic && op.inputs[i].name == key;
      if (input_name(op, i) != key && !bare) continue;
      if (int(problem.inputs.size()) <= i) problem.inputs.resize(size_t(i) + 1);
      problem.inputs[size_t(i)] = parse_operand(value, like, op);
      if (i == 0) like = problem.inputs[0].dtype;
      done = true;
    }
    for (const AttributeSpec& spec : op.attributes) {
      if (done || spec.name != key) continue;
      problem.attributes.set(key, parse_attribute(spec, value, op));
      done = true;
    }
    if (done) continue;
    if (key == "epilogue" || key == "program")
      epilogue = value;
    else if (key == "out")
      out_strides = value;
    else if (key == "outputs")
      outputs = int(integers_of(value, ',', op).at(0));
    else if (key.size() > 1 && key[0] == 'e' && std::isdigit(static_cast<unsigned char>(key[1])))
      extras.push_back(parse_operand(value, like, op));
    else
      bad_key(op, fmt::format("there is no key '{}'", key));
  }
  problem.op_inputs = int(problem.inputs.size());
  std::vector<ValueInfo> infos(problem.inputs.size());
  std::vector<const ValueInfo*> pointers;
  for (size_t i = 0; i < infos.size(); ++i) {
    const Operand& operand = problem.inputs[i];
    if (operand.present()) infos[i] = {operand.dtype, to_shape(operand.shape()), std::nullopt, operand.constant};
    pointers.push_back(operand.present() ? &infos[i] : nullptr);
  }
  std::vector<ValueInfo> results;
  if (&op == &elementwise_op()) {
    Infer infer(op, problem.attributes, "problem", pointers, 1);
    std::vector<int> all;
    for (int i = 0; i < problem.op_inputs; ++i) all.push_back(i);
    results = {{like, infer.broadcast_shape(all), std::nullopt, {}}};
  } else {
    results = infer_node(op, problem.attributes, "problem", pointers, outputs > 0 ? outputs : required_outputs(op));
  }
  for (const ValueInfo& r : results) {
    Operand operand;
    operand.dtype = r.dtype;
    if (r.shape) operand.layout = Layout(extents(*r.shape));
    problem.outputs.push_back(operand);
  }
  if (out_strides == "~cl")
    problem.outputs[0].layout = Layout::channels_last(problem.output().shape());
  else if (out_strides.starts_with("~"))
    problem.outputs[0].layout.strides = integers_of(std::string_view(out_strides).substr(1), 'x', op);
  std::vector<DType> dtypes;
  if (op.is_elementwise() && &op != &elementwise_op()) {
    for (const Operand& operand : problem.inputs) dtypes.push_back(operand.dtype);
    problem.program = std::make_shared<const Program>(program_of(op, problem.attributes, dtypes));
  } else if (&op == &elementwise_op() && epilogue.empty()) {
    bad_key(op, "program='...' is missing: an expression of x0, x1, ...");
  } else if (!epilogue.empty()) {
    for (Operand& e : extras) problem.inputs.push_back(std::move(e));
    std::vector<ProgramInput> operands;
    if (&op == &elementwise_op()) {
      for (size_t i = 0; i < problem.inputs.size(); ++i)
        operands.push_back({fmt::format("x{}", i), problem.inputs[i].dtype});
    } else {
      operands.push_back({"v", problem.output().dtype});
      for (size_t i = 0; i < extras.size(); ++i)
        operands.push_back({fmt::format("e{}", i + 1), problem.inputs[size_t(problem.op_inputs) + i].dtype});
    }
    problem.program = std::make_shared<const Program>(Program::parse(epilogue, operands, problem.output().dtype));
    problem.outputs[0].dtype = problem.program->output_dtype();
  }
  return problem;
}

}  // namespace ridgeline
