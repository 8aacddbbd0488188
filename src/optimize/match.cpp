#include "optimize/match.h"

#include <algorithm>
#include <cmath>

#include "ir/builder.h"
#include "ir/problem.h"
#include "ops/catalogue.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// Constants that exporters write with six to nine digits.
constexpr double kSnap = 2e-6;

bool nearly_equal(double a, double b) { return std::fabs(a - b) <= kSnap * std::max(std::fabs(a), std::fabs(b)); }

bool commutes(const Node& node) { return node.is("Add") || node.is("Mul") || node.is("Max") || node.is("Min"); }
bool reduces(const Node& node) { return node.op->name.starts_with("Reduce"); }

bool counts_axis_from_end(const Pattern& pattern) {
  return std::any_of(pattern.op->attributes.begin(), pattern.op->attributes.end(),
                     [](const AttributeSpec& a) { return a.name == "axis"; }) &&
         schema_integer(*pattern.op, pattern.attributes, "axis") < 0;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> out(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) out[size_t(perm[i])] = int64_t(i);
  return out;
}

// Axes counted from the end, so that rank has no say.
std::optional<std::vector<int64_t>> reduced_axes(const Graph& graph, const Node& node) {
  const int rank = graph.value(node.input(0)).rank();
  std::vector<int64_t> axes;
  if (node.input(1) == kNoValue) {
    for (int a = -rank; a < 0; ++a) axes.push_back(a);
    return axes;
  }
  const ValueInfo& info = graph.value(node.input(1)).info;
  if (info.constant)
    axes = info.constant.to_i64();
  else
    return std::nullopt;
  for (int64_t& a : axes)
    if (a >= 0) a -= rank;
  std::sort(axes.begin(), axes.end());
  return axes;
}

class Matcher {
 public:
  Matcher(const Pattern& pattern, const Graph& graph) : pattern_(pattern), p_(pattern.graph), g_(graph) {}

  bool value(ValueId pv, ValueId gv, Match& m) const {
    if (gv == kNoValue) return false;
    const Value& pattern_value = p_.value(pv);
    if (pattern_value.is_input) {
      const auto [it, fresh] = m.holes.emplace(pv, BoundHole{gv, {}});
      return fresh ? fits(pv, gv) : it->second.value == gv && it->second.perm.empty();
    }
    if (pattern_value.is_constant()) return constant(pv, gv, m);
    return node(*p_.producer(pv), pv, gv, m);
  }

 private:
  // Dtype and rank are part of the meaning; extents are holes. An operator that counts its axis from the end means the
  // same at every rank, and an optional operand broadcasts: there the schema decides (a scale of [rows, 1] is refused).
  bool fits(ValueId pv, ValueId gv) const {
    const ValueInfo &a = p_.value(pv).info, &b = g_.value(gv).info;
    if (!b.shape || a.dtype != b.dtype) return false;
    const auto at = std::find(p_.inputs.begin(), p_.inputs.end(), pv) - p_.inputs.begin();
    const bool any_rank = counts_axis_from_end(pattern_) || pattern_.op->inputs[pattern_.holes[size_t(at)]].optional;
    return any_rank || a.shape->size() == b.shape->size();
  }

  bool constant(ValueId pv, ValueId gv, Match& m) const {
    const Tensor* c = g_.constant(gv);
    const Value& hole = p_.value(pv);
    if (!c || !is_float(c->dtype()) || c->elements() != 1 || c->rank() > 1) return false;
    const double x = c->f64(0);
    if (hole.name.starts_with("@")) {
      const std::string attribute = hole.name.substr(1, hole.name.find('.') - 1);
      const auto [it, fresh] = m.numbers.emplace(attribute, x);
      return fresh || it->second == x;
    }
    return nearly_equal(x, hole.info.constant.f64(0));
  }

  bool node(const Node& pn, ValueId pv, ValueId gv, Match& m) const {
    const Node* gn = g_.producer(gv);
    // A Transpose of a hole fits anything: the hole is the value seen through the inverse permutation.
    if (pn.is("Transpose") && p_.value(pn.input(0)).is_input) {
      const std::vector<int64_t> perm = pn.attributes.integers("perm");
      if (!g_.value(gv).info.shape || g_.value(gv).rank() != int(perm.size()) ||
          g_.value(gv).dtype() != p_.value(pv).dtype())
        return false;
      return m.holes.emplace(pn.input(0), BoundHole{gv, inverse(perm)}).second;
    }
    if (!gn || gn->op != pn.op || gn->program || gn->outputs.size() < pn.outputs.size() || !gn->alive) return false;
    const auto at = std::find(pn.outputs.begin(), pn.outputs.end(), pv) - pn.outputs.begin();
    if (gn->output(int(at)) != gv) return false;
    if (!same_attributes(pn, *gn)) return false;
    const bool known = std::find(m.nodes.begin(), m.nodes.end(), gn->id) != m.nodes.end();
    const Match before = m;
    if (!known) m.nodes.push_back(gn->id);
    if (reduces(pn)) {
      const auto pa = reduced_axes(p_, pn), ga = reduced_axes(g_, *gn);
      if (pa && ga && *pa == *ga && value(pn.input(0), gn->input(0), m)) return true;
      m = before;
      return false;
    }
    if (inputs(pn, *gn, false, m)) return true;
    m = before;
    if (!commutes(pn) || pn.inputs.size() != 2) return false;
    if (!known) m.nodes.push_back(gn->id);
    if (inputs(pn, *gn, true, m)) return true;
    m = before;
    return false;
  }

  bool inputs(const Node& pn, const Node& gn, bool swapped, Match& m) const {
    if (pn.inputs.size() != gn.inputs.size()) return false;
    const size_t n = pn.inputs.size();
    for (size_t i = 0; i < n; ++i) {
      const ValueId pv = pn.inputs[i], gv = gn.inputs[swapped ? n - 1 - i : i];
      if ((pv == kNoValue) != (gv == kNoValue)) return false;
      if (pv != kNoValue && !value(pv, gv, m)) return false;
    }
    return true;
  }

  bool same_attributes(const Node& pn, const Node& gn) const {
    for (const AttributeSpec& spec : pn.op->attributes) {
      switch (spec.type) {
        case AttributeSpec::Type::kInt: {
          int64_t a = schema_integer(*pn.op, pn.attributes, spec.name),
                  b = schema_integer(*gn.op, gn.attributes, spec.name);
          if (spec.name == "axis") {
            if (a >= 0) a -= p_.value(pn.input(0)).rank();
            if (b >= 0) b -= g_.value(gn.input(0)).rank();
          }
          if (a != b) return false;
          break;
        }
        case AttributeSpec::Type::kFloat:
          if (!nearly_equal(schema_number(*pn.op, pn.attributes, spec.name),
                            schema_number(*gn.op, gn.attributes, spec.name)))
            return false;
          break;
        case AttributeSpec::Type::kString:
          if (schema_string(*pn.op, pn.attributes, spec.name) != schema_string(*gn.op, gn.attributes, spec.name))
            return false;
          break;
        default:
          if (pn.attributes.has(spec.name) != gn.attributes.has(spec.name)) return false;
          if (pn.attributes.has(spec.name) &&
              attribute_text(*pn.attributes.find(spec.name)) != attribute_text(*gn.attributes.find(spec.name)))
            return false;
      }
    }
    return true;
  }

  const Pattern& pattern_;
  const Graph& p_;
  const Graph& g_;
};

// A pattern's inputs with symbols for extents, after a sample's ranks and dtypes.
std::optional<Pattern> trace(const OpSchema& op, const Problem& sample, int spelling) {
  Pattern pattern;
  pattern.op = &op;
  Attributes traced = sample.attributes;
  if (const AttributeValue* axis = traced.find("axis"); axis && std::get<int64_t>(*axis) >= 0)
    traced.set("axis", std::get<int64_t>(*axis) - sample.input(0).layout.rank());
  // Numbers are what a match finds. Where a spelling has no place for one (attention without a scale), it is the
  // schema's default, not the sample's.
  for (const auto& [name, value] : traced)
    if (!std::holds_alternative<double>(value)) pattern.attributes.set(name, value);
  pattern.inputs = sample.op_inputs;
  std::vector<ValueInfo> infos(size_t(sample.op_inputs));
  for (int i = 0; i < sample.op_inputs; ++i) {
    if (!sample.input(i).present()) continue;
    if (sample.input(i).dtype != DType::kF32) return std::nullopt;
    infos[size_t(i)].dtype = DType::kF32;
    infos[size_t(i)].shape = to_shape(sample.input(i).shape());
    pattern.holes.push_back(i);
  }
  try {
    pattern.graph = decompose(op, traced, infos, 1, spelling);
    Decisions ignored;
    canonicalize(pattern.graph, ignored);
  } catch (const Error&) {
    return std::nullopt;  // this spelling is not for these inputs (a mask that is absent, say)
  }
  if (pattern.graph.outputs.size() != 1 || pattern.graph.live_nodes() < 2) return std::nullopt;
  // Every present input must be read, or the pattern cannot bind it.
  for (ValueId v : pattern.graph.inputs)
    if (pattern.graph.users(v).empty()) return std::nullopt;
  return pattern;
}

bool is_composite(const OpSchema& op) {
  return !op.decompose.empty() && (op.family == "normalize" || op.family == "attention") &&
         op.name != "AddLayerNormalization" && op.name != "AddRMSNormalization" && op.domain != "com.microsoft";
}

}  // namespace

std::optional<Match> match(const Pattern& pattern, const Graph& graph, ValueId root, Mismatch& mismatch) {
  Match m;
  if (!Matcher(pattern, graph).value(pattern.graph.outputs[0], root, m)) return std::nullopt;
  for (NodeId id : m.nodes) {
    for (ValueId v : graph.node(id).outputs) {
      if (v == kNoValue || v == root) continue;
      if (graph.value(v).is_output) {
        mismatch = {
            "graph_output",
            fmt::format("'{}' is inside the pattern and an output of the graph; without that output it would fuse",
                        graph.value(v).name)};
        return std::nullopt;
      }
      for (NodeId user : graph.users(v)) {
        if (std::find(m.nodes.begin(), m.nodes.end(), user) != m.nodes.end()) continue;
        mismatch = {"other_user", fmt::format("'{}' is inside the pattern and also read by '{}'", graph.value(v).name,
                                              graph.node(user).name)};
        return std::nullopt;
      }
    }
  }
  return m;
}

const std::vector<Pattern>& composite_patterns() {
  static const std::vector<Pattern> patterns = [] {
    std::vector<Pattern> list;
    std::vector<std::string> seen;
    for (const OpSchema* op : catalogue()) {
      if (!is_composite(*op)) continue;
      for (std::string_view sample_text : op->samples) {
        Problem sample;
        try {
          sample = parse_problem(*op, sample_text);
        } catch (const Error&) {
          continue;
        }
        // Structure only: ranks, presence, integer attributes. Numbers are holes.
        std::string key(op->name);
        for (int i = 0; i < sample.op_inputs; ++i)
          key += fmt::format(" {}", sample.input(i).present() ? sample.input(i).layout.rank() : -1);
        for (const auto& [name, value] : sample.attributes)
          if (!std::holds_alternative<double>(value)) key += " " + name + "=" + attribute_text(value);
        if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
        seen.push_back(key);
        for (int spelling = 0; spelling < op->decompose.size(); ++spelling) {
          if (std::optional<Pattern> p = trace(*op, sample, spelling)) list.push_back(std::move(*p));
        }
      }
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Pattern& a, const Pattern& b) { return a.graph.live_nodes() > b.graph.live_nodes(); });
    return list;
  }();
  return patterns;
}

}  // namespace ridgeline
