// Writes ridgeline/ops.h, the typed calls, from the declarations: generate_ops FILE. Run by the build.
//
// One function an operator. Required inputs are its first arguments; optional inputs and attributes are the fields of
// an options struct; outputs that are not optional are returned (the others: op.h).
#include <cctype>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ops/catalogue.h"

namespace ridgeline {
namespace {

using Type = AttributeSpec::Type;

// Optional in the standard's nodes, but what a caller of the operator wants.
bool is_result(const OpSchema& op, const OutputSpec& output) { return !output.optional || op.name == "TopK"; }

// Names that the rule below would cut in the wrong place, and those of C++.
const std::map<std::string_view, std::string_view> kNames = {{"IsNaN", "is_nan"}, {"SiLU", "silu"}, {"PRelu", "prelu"},
                                                             {"And", "and_"},     {"Or", "or_"},    {"Not", "not_"},
                                                             {"Xor", "xor_"},     {"LRN", "lrn"}};

std::string replaced(std::string s, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size()) s.replace(at, from.size(), to);
  return s;
}

// "ConvTranspose" -> "conv_transpose", "transB" -> "trans_b", "ReduceL1" -> "reduce_l1", "RMSNormalization" ->
// "rms_normalization".
std::string snake(std::string_view given) {
  if (const auto it = kNames.find(given); it != kNames.end()) return std::string(it->second);
  const std::string name = replaced(std::string(given), "MatMul", "Matmul");
  auto upper = [&](size_t i) { return i < name.size() && std::isupper(static_cast<unsigned char>(name[i])); };
  auto lower = [&](size_t i) { return i < name.size() && std::islower(static_cast<unsigned char>(name[i])); };
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool starts_word = upper(i) && i > 0 && name[i - 1] != '_' && (!upper(i - 1) || lower(i + 1));
    if (starts_word) out += '_';
    out += char(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return out;
}

std::string camel(std::string_view op) { return replaced(std::string(op), "MatMul", "Matmul"); }

bool is_dtype(const AttributeSpec& a) { return a.name == "to" || a.name == "dtype"; }

// The field of an attribute, and the statement that passes it on if it is set.
struct Field {
  std::string declaration, pass;
};
Field field_of(const AttributeSpec& a, const std::string& field) {
  const bool has_default = a.presence == AttributeSpec::Presence::kDefault;
  const std::string set = fmt::format("all_attributes.emplace_back(\"{}\", ", a.name);
  const std::string given = "options." + field;
  switch (a.type) {
    case Type::kInt:
      if (is_dtype(a)) {
        return {
            fmt::format("DType {} = DType::kNone;", field),
            fmt::format("if ({0} != DType::kNone) {1}OpAttribute::Value(int64_t(info({0}).onnx_id)));", given, set)};
      }
      if (!has_default) {
        return {fmt::format("std::optional<int64_t> {};", field),
                fmt::format("if ({0}) {1}OpAttribute::Value(*{0}));", given, set)};
      }
      // Switches of the standard are integers: with 0 or 1 as the default they take true and false, too.
      return {fmt::format("int64_t {} = {};", field, a.integer),
              fmt::format("if ({0} != {2}) {1}OpAttribute::Value({0}));", given, set, a.integer)};
    case Type::kFloat:
      if (!has_default) {
        return {fmt::format("std::optional<double> {};", field),
                fmt::format("if ({0}) {1}OpAttribute::Value(*{0}));", given, set)};
      }
      return {fmt::format("double {} = {};", field, a.number),
              fmt::format("if ({0} != {2}) {1}OpAttribute::Value({0}));", given, set, a.number)};
    case Type::kString:
      return {fmt::format("std::string {} = \"{}\";", field, a.string),
              fmt::format("if ({0} != \"{2}\") {1}OpAttribute::Value({0}));", given, set, a.string)};
    case Type::kInts:
      return {fmt::format("std::vector<int64_t> {};", field),
              fmt::format("if (!{0}.empty()) {1}OpAttribute::Value({0}));", given, set)};
    case Type::kFloats:
      return {fmt::format("std::vector<double> {};", field),
              fmt::format("if (!{0}.empty()) {1}OpAttribute::Value({0}));", given, set)};
    case Type::kStrings:
      return {fmt::format("std::vector<std::string> {};", field),
              fmt::format("if (!{0}.empty()) {1}OpAttribute::Value({0}));", given, set)};
    case Type::kTensor:
      return {fmt::format("Tensor {};", field), fmt::format("if ({0}) {1}OpAttribute::Value({0}));", given, set)};
    case Type::kGraph:
      break;
  }
  return {};
}

bool takes_graphs(const OpSchema& op) {
  for (const AttributeSpec& a : op.attributes) {
    if (a.type == Type::kGraph) return true;
  }
  return false;
}

std::string doc_of(const OpSchema& op) {
  std::string out = fmt::format("/// {}: {}\n", op.name, replaced(std::string(op.doc), "\n", " "));
  for (const InputSpec& i : op.inputs) {
    out += fmt::format("/// {}{}: {}\n", snake(i.name), i.optional ? " (optional)" : "",
                       i.same_as.empty() || i.same_as == i.name ? text(i.types) : fmt::format("as {}", i.same_as));
  }
  return out;
}

std::string function_of(const OpSchema& op) {
  // One matrix product takes transposes: the plain operator where no option is set, since it has more types.
  const bool is_matmul = op.name == "FusedMatMul";
  const std::string function = is_matmul ? "matmul" : snake(op.name);
  const std::string type = is_matmul ? "MatmulOptions" : camel(op.name) + "Options";
  std::string fields, passes, parameters, list, tail;
  std::set<std::string> used;
  bool variadic = false;
  for (const InputSpec& i : op.inputs) {
    const std::string name = snake(i.name);
    if (i.variadic) {
      parameters += fmt::format("const std::vector<Tensor>& {}, ", name);
      tail += fmt::format("  all_inputs.insert(all_inputs.end(), {0}.begin(), {0}.end());\n", name);
      variadic = true;
    } else if (i.optional) {
      fields += fmt::format("  Tensor {};\n", name);
      used.insert(name);
      list += fmt::format("{}options.{}", list.empty() ? "" : ", ", name);
    } else {
      parameters += fmt::format("const Tensor& {}, ", name);
      list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    }
  }
  for (const AttributeSpec& a : op.attributes) {
    const std::string name = snake(a.name);
    const Field field = field_of(a, used.count(name) ? name + "_attribute" : name);
    used.insert(name);
    fields += "  " + field.declaration + "\n";
    passes += "  " + field.pass + "\n";
  }
  int results = 0;
  bool many = false;
  std::string members, taken;
  for (const OutputSpec& o : op.outputs) {
    if (!is_result(op, o)) continue;
    many = many || o.variadic;
    members += fmt::format("{}{}", members.empty() ? "" : ", ", snake(o.name));
    taken += fmt::format("{}all_outputs[{}]", taken.empty() ? "" : ", ", results++);
  }
  std::string result = "Tensor", give = "all_outputs[0]";
  std::string out = "\n";
  if (many) {
    result = "std::vector<Tensor>";
    give = "all_outputs";
    parameters += "int outputs, ";
  } else if (results > 1) {
    result = camel(op.name) + "Result";
    give = "{" + taken + "}";
    out += fmt::format("struct {} {{\n  Tensor {};\n}};\n", result, members);
  }
  if (!fields.empty()) {
    out += fmt::format("struct {} {{\n{}}};\n", type, fields);
    parameters += fmt::format("const {}& options = {{}}, ", type);
  }
  const std::string spelling =
      is_matmul ? "all_attributes.empty() ? \"MatMul\" : \"FusedMatMul\"" : fmt::format("\"{}\"", op.name);
  out += doc_of(op);
  out += fmt::format("inline {} {}({}Context& context = thread_context()) {{\n", result, function, parameters);
  out += fmt::format("  {}std::vector<Tensor> all_inputs = {{{}}};\n", variadic ? "" : "const ", list);
  out += tail;
  out += fmt::format("  {}OpAttributes all_attributes;\n{}", passes.empty() ? "const " : "", passes);
  out += fmt::format(
      "  {}std::vector<Tensor> all_outputs = call_op({}, all_inputs, all_attributes, {}, context);\n  return {};\n}}\n",
      many ? "" : "const ", spelling, many ? "outputs" : std::to_string(results), give);
  return out;
}

int generate(const std::string& path) {
  std::string out =
      "// Typed calls, one for each operator. Generated from the declarations by the build; do not edit.\n"
      "//\n"
      "// Required inputs come first, optional ones are fields of the options, as attributes are; an empty list counts "
      "as absent.\n"
      "// Tensors are row-major; results are new tensors. Throws Error as Op does (ridgeline/op.h), through which they "
      "run, planned\n"
      "// once for each set of dtypes, shapes and options and kept in the context.\n"
      "#pragma once\n\n#include <optional>\n#include <string>\n#include <vector>\n\n#include \"ridgeline/op.h\"\n\n"
      "namespace ridgeline::ops {\n";
  std::set<std::string> functions;
  for (const OpSchema* op : catalogue()) {
    if (op->inputs.empty() || op->name == "Elementwise" || op->name == "MatMul" || takes_graphs(*op)) continue;
    if (functions.insert(snake(op->name)).second) out += function_of(*op);
  }
  out += "\n}  // namespace ridgeline::ops\n";
  // A header that says the same keeps its time, so that what includes it is not compiled again.
  std::ifstream before(path);
  if (before && std::string(std::istreambuf_iterator<char>(before), {}) == out) return 0;
  std::ofstream file(path);
  file << out;
  file.close();
  if (file) return 0;
  std::fprintf(stderr, "generate_ops: '%s' could not be written\n", path.c_str());
  return 1;
}

}  // namespace
}  // namespace ridgeline

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: generate_ops FILE\n");
    return 2;
  }
  return ridgeline::generate(arguments[1]);
}
