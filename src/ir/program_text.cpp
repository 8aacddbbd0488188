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

  Program parse() {
    const Node root = comparison();
    if (peek()) fault("something follows the expression");
    // Constants get their numbers first, then instructions: emit in two rounds.
    program_.outputs.push_back(emit(root));
    return std::move(program_);
  }

 private:
  // An expression tree: a leaf is an operand-to-be, so that constants can all be numbered before instructions.
  struct Node {
    enum Kind { kInput, kConstant, kCall } kind = kInput;
    int input = -1;
    ProgramConstant constant{};
    ScalarOp op{};
    DType dtype{};
    std::vector<Node> arguments{};
  };

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
  Node call(ScalarOp op, std::vector<Node> arguments, DType dtype) const {
    Node node;
    node.kind = Node::kCall;
    node.op = op;
    node.dtype = dtype;
    node.arguments = std::move(arguments);
    return node;
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
        left = call(ScalarOp::kAdd, {left, product()}, dtype_);
      else if (take("-"))
        left = call(ScalarOp::kSub, {left, product()}, dtype_);
      else
        return left;
    }
  }
  Node product() {
    Node left = factor();
    while (true) {
      if (take("*"))
        left = call(ScalarOp::kMul, {left, factor()}, dtype_);
      else if (take("/"))
        left = call(ScalarOp::kDiv, {left, factor()}, dtype_);
      else
        return left;
    }
  }
  Node number(double value) const {
    Node node;
    node.kind = Node::kConstant;
    node.constant = is_float(dtype_) ? ProgramConstant{dtype_, value, 0} : ProgramConstant{dtype_, 0, int64_t(value)};
    return node;
  }
  Node factor() {
    const char c = peek();
    if (c == '-') {
      ++at_;
      Node inner = factor();
      if (inner.kind == Node::kConstant) {
        inner.constant.f = -inner.constant.f;
        inner.constant.i = -inner.constant.i;
        return inner;
      }
      return call(ScalarOp::kNeg, {inner}, dtype_);
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
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (peek() == '(') return function(word);
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (program_.inputs[i].name == word) {
        Node node;
        node.kind = Node::kInput;
        node.input = int(i);
        return node;
      }
    }
    if (constant_) {
      if (const std::optional<double> value = constant_(word)) return number(*value);
    }
    if (word == "inf") return number(INFINITY);
    if (word == "pi") return number(M_PI);
    at_ = begin;
    fault("this name is neither an input nor an attribute");
  }
  Node function(std::string_view word) {
    ++at_;  // (
    std::vector<Node> arguments;
    do arguments.push_back(comparison());
    while (take(","));
    if (!take(")")) fault("a ')' is missing");
    DType dtype = dtype_;
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
    if (node.kind == Node::kConstant &&
        std::find(program_.constants.begin(), program_.constants.end(), node.constant) == program_.constants.end()) {
      program_.constants.push_back(node.constant);
    }
    for (const Node& argument : node.arguments) number_constants(argument);
  }
  int emit(const Node& root) {
    number_constants(root);
    return emit_code(root);
  }
  int emit_code(const Node& node) {
    if (node.kind == Node::kInput) return node.input;
    if (node.kind == Node::kConstant) {
      const auto it = std::find(program_.constants.begin(), program_.constants.end(), node.constant);
      return program_.first_constant() + int(it - program_.constants.begin());
    }
    Instruction in{node.op, node.dtype};
    int16_t* slots[] = {&in.a, &in.b, &in.c};
    for (size_t k = 0; k < node.arguments.size(); ++k) *slots[k] = int16_t(emit_code(node.arguments[k]));
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

std::string Program::text() const { return Printer(*this).print(); }

}  // namespace ridgeline
