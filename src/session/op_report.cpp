#include "session/op_report.h"

#include <fmt/format.h>

#include "ir/graph.h"
#include "kernels/kernel.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

std::string_view type_name(AttributeSpec::Type type) {
  constexpr std::string_view kNames[] = {"int", "float", "string", "ints", "floats", "strings", "tensor", "graph"};
  return kNames[size_t(type)];
}

std::vector<std::string> kernel_names(const OpSchema& op) {
  std::vector<std::string> names;
  for (const Kernel* k : kernels_of(op.name)) names.push_back(std::string(k->name));
  return names;
}

std::string gradient_of(const OpSchema& op) {
  if (op.gradient) return "own";
  if (!op.no_gradient.empty()) return "none: " + std::string(op.no_gradient);
  if (!op.decompose.empty() || !op.expressions.empty()) return "decomposition";
  return op.is_elementwise() ? "decomposition" : "none: not written yet";
}

std::string domain_of(const OpSchema& op) { return op.domain.empty() ? "ai.onnx" : std::string(op.domain); }

std::vector<std::string> dtypes_of(const OpSchema& op) {
  TypeSet all = 0;
  for (const InputSpec& i : op.inputs) all |= i.types;
  std::vector<std::string> names;
  for (int d = 1; d < kDTypeCount; ++d)
    if (contains(all, DType(d))) names.push_back(std::string(name(DType(d))));
  return names;
}

}  // namespace

Json op_json(const OpSchema& op) {
  Json inputs = Json::array(), outputs = Json::array(), attributes = Json::array(), expressions = Json::array(),
       samples = Json::array();
  for (const InputSpec& i : op.inputs)
    inputs.push_back({{"name", std::string(i.name)},
                      {"dtypes", text(i.types)},
                      {"same_as", std::string(i.same_as)},
                      {"optional", i.optional},
                      {"variadic", i.variadic}});
  for (const OutputSpec& o : op.outputs)
    outputs.push_back({{"name", std::string(o.name)}, {"optional", o.optional}, {"variadic", o.variadic}});
  for (const AttributeSpec& a : op.attributes) {
    Json row = {{"name", std::string(a.name)},
                {"type", std::string(type_name(a.type))},
                {"required", a.presence == AttributeSpec::Presence::kRequired}};
    if (a.presence == AttributeSpec::Presence::kDefault) {
      if (a.type == AttributeSpec::Type::kInt) row["default"] = a.integer;
      if (a.type == AttributeSpec::Type::kFloat) row["default"] = a.number;
      if (a.type == AttributeSpec::Type::kString) row["default"] = std::string(a.string);
    }
    attributes.push_back(row);
  }
  for (const Expression& e : op.expressions)
    expressions.push_back(
        {{"text", std::string(e.text)}, {"attribute", std::string(e.attribute)}, {"value", std::string(e.value)}});
  for (std::string_view s : op.samples) samples.push_back(std::string(s));
  std::vector<int> since(op.versions.begin(), op.versions.end());
  constexpr std::string_view kTolerances[] = {"exact", "elementwise", "reduction", "contraction"};
  return {{"name", std::string(op.name)},
          {"family", std::string(op.family)},
          {"domain", domain_of(op)},
          {"since", since},
          {"kind", std::string(name(op.kind))},
          {"doc", std::string(op.doc)},
          {"inputs", inputs},
          {"outputs", outputs},
          {"attributes", attributes},
          {"dtypes", dtypes_of(op)},
          {"result", std::string(name(op.result))},
          {"expressions", expressions},
          {"reference", op.reference != nullptr},
          {"decompositions", op.decompose.size()},
          {"gradient", gradient_of(op)},
          {"samples", samples},
          {"tolerance", {{"kind", std::string(kTolerances[size_t(op.tolerance.kind)])}, {"ulps", op.tolerance.ulps}}},
          {"kernels", kernel_names(op)}};
}

std::string op_table() {
  std::string out = fmt::format("{:<28} {:<12} {:<14} {:<12} {}\n", "operator", "family", "domain", "kind", "kernels");
  for (const OpSchema* op : catalogue())
    out += fmt::format("{:<28} {:<12} {:<14} {:<12} {}\n", op->name, op->family, domain_of(*op), name(op->kind),
                       fmt::join(kernel_names(*op), " "));
  return out;
}

std::string op_page(const OpSchema& op) {
  std::string out = fmt::format("{} ({}, {})\n{}\n\ninterface\n", op.name, domain_of(op), op.family, op.doc);
  for (const InputSpec& i : op.inputs)
    out += fmt::format("  input   {:<16} {}{}{}\n", i.name,
                       i.same_as.empty() ? text(i.types) : "as " + std::string(i.same_as),
                       i.optional ? ", optional" : "", i.variadic ? ", any number" : "");
  for (const OutputSpec& o : op.outputs)
    out += fmt::format("  output  {:<16}{}\n", o.name, o.optional ? " optional" : "");
  for (const AttributeSpec& a : op.attributes)
    out += fmt::format("  attribute {:<14} {}{}\n", a.name, type_name(a.type),
                       a.presence == AttributeSpec::Presence::kRequired ? ", required" : "");
  for (const Expression& e : op.expressions)
    out += fmt::format("  means   {}{}\n", e.text,
                       e.attribute.empty() ? "" : fmt::format("   if {} = {}", e.attribute, e.value));
  out += "\nshapes\n";
  for (std::string_view s : op.samples) out += fmt::format("  {}\n", s);
  out +=
      "\ntiling\n  chosen by each kernel for the problem: `ridgeline explain MODEL` shows the "
      "candidates\n\nscheduling\n  static partitions over the shared pool; inner loops never synchronise\n\nkernels, "
      "best first\n";
  for (const std::string& k : kernel_names(op)) out += fmt::format("  {}\n", k);
  out += fmt::format("\ngradient: {}\n", gradient_of(op));
  return out;
}

namespace {

// A bar would end the table's cell.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

std::string op_markdown() {
  std::string out =
      "# Operators\n\nGenerated by `ridgeline op list --markdown` from the declarations in `src/ops`; do not edit.\n\n";
  out += fmt::format(
      "{} operators.\n\n| operator | domain | family | kind | opsets | dtypes | gradient | kernels | what |\n| --- | "
      "--- | --- | --- | --- | --- | --- | --- | --- |\n",
      catalogue().size());
  for (const OpSchema* op : catalogue()) {
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", op->name, domain_of(*op), op->family,
                       name(op->kind), fmt::join(op->versions, ", "), fmt::join(dtypes_of(*op), " "), gradient_of(*op),
                       fmt::join(kernel_names(*op), ", "), cell(op->doc));
  }
  return out;
}

}  // namespace ridgeline
