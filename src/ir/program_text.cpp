// Program: read from and printed as an expression.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "ir/program.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

class Parser {
 public:
  Parser(std::string_view text, std::span<const std::string_view> inputs, DType dtype,
         const std::function<std::optional<double>(std::string_view)>& constant)
      : text_(text), dtype_(dtype), constant_(constant) {
    for (std::string_view input : inputs) program_.inputs.push_back({std::string(input), dtype});
  }
  Parser(std::string_view text, std::span<const ProgramInput> inputs, DType dtype)
      : text_(text), dtype_(dtype), constant_(kNoNames) {
    program_.inputs.assign(inputs.begin(), inputs.end());
  }

  Program parse() {
    while (temporary()) {
    }
    Node root = comparison();
    if (peek()) fault("something follows the expression");
    if (root.is_number()) root = typed(std::move(root), dtype_);
    // Constants get their numbers first, then instructions: emit in two rounds.
    for (const auto& [name, node] : temporaries_) number_constants(node);
    number_constants(root);
    for (const auto& [name, node] : temporaries_) emitted_.push_back(emit(node));
    program_.outputs.push_back(emit(root));
    return std::move(program_);
  }

 private:
  // An expression tree: a leaf is an operand-to-be, so that constants can all be numbered before instructions.
  struct Node {
    enum Kind { kInput, kTemporary, kConstant, kCall } kind = kInput;
    int number = -1;  // of the input or the temporary
    double value = 0;
    ScalarOp op{};
    DType dtype{};  // kNone: a number that takes the type of what it meets
    std::vector<Node> arguments{};
    bool is_number() const { return kind == kConstant; }
    ProgramConstant constant() const {
      return is_float(dtype) ? ProgramConstant{dtype, value, 0} : ProgramConstant{dtype, 0, int64_t(value)};
    }
  };
  static inline const std::function<std::optional<double>(std::string_view)> kNoNames = nullptr;

  static Node typed(Node number, DType dtype) {
    number.dtype = dtype;
    return number;
  }

  [[noreturn]] void fault(std::string_view what) const {
    fail(ErrorCode::kUsage, "in the expression '{}' at character {}: {}", text_, at_ + 1, what);
  }
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view token) {
    peek();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  // The type is that of the first operand that has one, the condition of `select` apart; numbers take it over.
  Node call(ScalarOp op, std::vector<Node> arguments, std::optional<DType> result = {}) const {
    DType of_operands = DType::kNone;
    for (size_t k = op == ScalarOp::kSelect ? 1 : 0; k < arguments.size() && of_operands == DType::kNone; ++k)
      if (!arguments[k].is_number()) of_operands = arguments[k].dtype;
    if (of_operands == DType::kNone) of_operands = dtype_;
    for (Node& argument : arguments)
      if (argument.is_number()) argument.dtype = of_operands;
    Node node;
    node.kind = Node::kCall;
    node.op = op;
    node.dtype = result.value_or(of_operands);
    node.arguments = std::move(arguments);
    return node;
  }

  std::string_view word() {
    peek();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  // `t0 = ...;`, as print() writes what is used twice.
  bool temporary() {
    const size_t begin = at_;
    const std::string_view name = word();
    if (name.empty() || peek() != '=' || text_.substr(at_, 2) == "==") {
      at_ = begin;
      return false;
    }
    ++at_;
    Node node = comparison();
    if (!take(";")) fault("a ';' is missing");
    if (node.is_number()) node = typed(std::move(node), dtype_);
    temporaries_.emplace_back(name, std::move(node));
    return true;
  }

  Node comparison() {
    Node left = sum();
    const std::pair<std::string_view, ScalarOp> operators[] = {{"<=", ScalarOp::kLessOrEqual},
                                                               {">=", ScalarOp::kGreaterOrEqual},
                                                               {"==", ScalarOp::kEqual},
                                                               {"<", ScalarOp::kLess},
                                                               {">", ScalarOp::kGreater}};
    for (const auto& [token, op] : operators) {
      if (take(token)) return call(op, {left, sum()}, DType::kBool);
    }
    return left;
  }
  Node sum() {
    Node left = product();
    while (true) {
      if (take("+"))
        left = call(ScalarOp::kAdd, {left, product()});
      else if (take("-"))
        left = call(ScalarOp::kSub, {left, product()});
      else
        return left;
    }
  }
  Node product() {
    Node left = factor();
    while (true) {
      if (take("*"))
        left = call(ScalarOp::kMul, {left, factor()});
      else if (take("/"))
        left = call(ScalarOp::kDiv, {left, factor()});
      else
        return left;
    }
  }
  Node number(double value) const {
    Node node;
    node.kind = Node::kConstant;
    node.value = value;
    return node;
  }
  Node factor() {
    const char c = peek();
    if (c == '-') {
      ++at_;
      Node inner = factor();
      if (inner.is_number()) {
        inner.value = -inner.value;
        return inner;
      }
      return call(ScalarOp::kNeg, {inner});
    }
    if (c == '(') {
      ++at_;
      Node inner = comparison();
      if (!take(")")) fault("a ')' is missing");
      return inner;
    }
    if (std::isdigit(static_cast<unsigned char>(c)) || c == '.') {
      char* end = nullptr;
      const std::string rest(text_.substr(at_));
      const double value = std::strtod(rest.c_str(), &end);
      at_ += size_t(end - rest.c_str());
      return number(value);
    }
    if (!std::isalpha(static_cast<unsigned char>(c)) && c != '_') fault("an operand is missing");
    const size_t begin = at_;
    const std::string_view name = word();
    if (peek() == '(') return function(name);
    Node node;
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].name != name) continue;
      node.number = int(i);
      node.dtype = program_.inputs[i].dtype;
      return node;
    }
    for (size_t t = 0; t < temporaries_.size(); ++t) {
      if (temporaries_[t].first != name) continue;
      node.kind = Node::kTemporary;
      node.number = int(t);
      node.dtype = temporaries_[t].second.dtype;
      return node;
    }
    if (constant_) {
      if (const std::optional<double> value = constant_(name)) return number(*value);
    }
    if (name == "inf") return number(INFINITY);
    if (name == "pi") return number(M_PI);
    at_ = begin;
    fault("this name is neither an input nor an attribute");
  }
  Node function(std::string_view word) {
    ++at_;  // (
    std::vector<Node> arguments;
    do arguments.push_back(comparison());
    while (take(","));
    if (!take(")")) fault("a ')' is missing");
    std::optional<DType> dtype;
    ScalarOp op{};
    if (word.starts_with("cast_")) {
      dtype = dtype_named(word.substr(5));
      op = ScalarOp::kCast;
      if (dtype == DType::kNone) fault("there is no such dtype");
    } else {
      int found = -1;
      for (int i = 0; i < kScalarOpCount; ++i)
        if (info(ScalarOp(i)).name == word) found = i;
      if (found < 0) fault(fmt::format("there is no function '{}'", word));
      op = ScalarOp(found);
      if (op >= ScalarOp::kEqual && op <= ScalarOp::kIsInf) dtype = DType::kBool;
    }
    if (int(arguments.size()) != info(op).arity) fault(fmt::format("'{}' takes {} operands", word, info(op).arity));
    return call(op, std::move(arguments), dtype);
  }

  void number_constants(const Node& node) {
    if (node.is_number() &&
        std::find(program_.constants.begin(), program_.constants.end(), node.constant()) == program_.constants.end()) {
      program_.constants.push_back(node.constant());
    }
    for (const Node& argument : node.arguments) number_constants(argument);
  }
  int emit(const Node& node) {
    if (node.kind == Node::kInput) return node.number;
    if (node.kind == Node::kTemporary) return emitted_[size_t(node.number)];
    if (node.is_number()) {
      const auto it = std::find(program_.constants.begin(), program_.constants.end(), node.constant());
      return program_.first_constant() + int(it - program_.constants.begin());
    }
    Instruction in{node.op, node.dtype};
    int16_t* slots[] = {&in.a, &in.b, &in.c};
    for (size_t k = 0; k < node.arguments.size(); ++k) *slots[k] = int16_t(emit(node.arguments[k]));
    const auto it = std::find(program_.code.begin(), program_.code.end(), in);
    if (it != program_.code.end()) return program_.first_result() + int(it - program_.code.begin());
    program_.code.push_back(in);
    return program_.operands() - 1;
  }

  std::string_view text_;
  size_t at_ = 0;
  DType dtype_;
  const std::function<std::optional<double>(std::string_view)>& constant_;
  Program program_;
  std::vector<std::pair<std::string_view, Node>> temporaries_;
  std::vector<int> emitted_;  // operand numbers of the temporaries
};

bool infix(ScalarOp op) {
  return (op >= ScalarOp::kAdd && op <= ScalarOp::kDiv) || (op >= ScalarOp::kEqual && op <= ScalarOp::kGreaterOrEqual);
}
int precedence(ScalarOp op) {
  return op == ScalarOp::kMul || op == ScalarOp::kDiv ? 3 : op == ScalarOp::kAdd || op == ScalarOp::kSub ? 2 : 1;
}

class Printer {
 public:
  explicit Printer(const Program& program)
      : p_(program), uses_(size_t(program.operands()), 0), name_(size_t(program.operands())) {
    for (const Instruction& in : p_.code) {
      for (int o : {int(in.a), int(in.b), int(in.c)})
        if (o >= 0) ++uses_[size_t(o)];
    }
    for (int o : p_.outputs) ++uses_[size_t(o)];
  }
  std::string print() {
    std::string out;
    int temporaries = 0;
    for (int o = p_.first_result(); o < p_.operands(); ++o) {
      if (uses_[size_t(o)] < 2) continue;
      const std::string body = expression(o, 0);
      name_[size_t(o)] = fmt::format("t{}", temporaries++);
      out += name_[size_t(o)] + " = " + body + "; ";
    }
    for (size_t i = 0; i < p_.outputs.size(); ++i) out += (i ? ", " : "") + expression(p_.outputs[i], 0);
    return out;
  }

 private:
  std::string expression(int o, int outer) {
    if (o < p_.first_constant()) return p_.inputs[size_t(o)].name;
    if (o < p_.first_result()) {
      const ProgramConstant& c = p_.constants[size_t(o - p_.first_constant())];
      return is_float(c.dtype) ? fmt::format("{:.9g}", c.f) : fmt::format("{}", c.i);
    }
    if (!name_[size_t(o)].empty()) return name_[size_t(o)];
    const Instruction& in = p_.code[size_t(o - p_.first_result())];
    if (infix(in.op)) {
      const int level = precedence(in.op);
      const std::string text =
          expression(in.a, level) + " " + std::string(info(in.op).name) + " " + expression(in.b, level + 1);
      return level < outer ? "(" + text + ")" : text;
    }
    std::string text =
        in.op == ScalarOp::kCast ? fmt::format("cast_{}(", name(in.dtype)) : std::string(info(in.op).name) + "(";
    text += expression(in.a, 0);
    if (in.b >= 0) text += ", " + expression(in.b, 0);
    if (in.c >= 0) text += ", " + expression(in.c, 0);
    return text + ")";
  }
  const Program& p_;
  std::vector<int> uses_;
  std::vector<std::string> name_;
};

}  // namespace

Program Program::parse(std::string_view expression, std::span<const std::string_view> input_names, DType dtype,
                       const std::function<std::optional<double>(std::string_view)>& constant) {
  return Parser(expression, input_names, dtype, constant).parse();
}

Program Program::parse(std::string_view expression, std::span<const ProgramInput> inputs, DType dtype) {
  return Parser(expression, inputs, dtype).parse();
}

std::string Program::text() const { return Printer(*this).print(); }

}  // namespace ridgeline
