#include "formats/ridge/graph_record.h"

#include <limits>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace ridgeline {
namespace {

using Json = nlohmann::json;

constexpr int kMostNesting = 16;  // graphs in attributes of nodes of graphs

[[noreturn]] void broken(const std::string& what) { fail(ErrorCode::kBadModel, "the saved graph is broken: {}", what); }

// ---- writing

int tensor_number(const Tensor& tensor, std::vector<Tensor>& tensors) {
  for (size_t i = tensors.size(); i-- > 0;) {  // what is shared was mostly added just before
    const Tensor& t = tensors[i];
    if (t.data() == tensor.data() && t.dtype() == tensor.dtype() && t.shape() == tensor.shape()) return int(i);
  }
  tensors.push_back(tensor);
  return int(tensors.size()) - 1;
}

Json dim_record(const Dim& dim) {
  if (dim.known()) return dim.value();
  std::vector<std::string> symbols;
  dim.collect_symbols(symbols);
  if (symbols.size() != 1 || !(dim == Dim::symbol(symbols[0])))
    fail(ErrorCode::kUnsupported, "unsupported: an input has the extent {}: a saved plan keeps numbers and symbols",
         dim.text());
  return symbols[0];
}

Json program_record(const Program& program) {
  Json inputs = Json::array(), constants = Json::array(), code = Json::array();
  for (const ProgramInput& in : program.inputs) inputs.push_back({in.name, name(in.dtype)});
  for (const ProgramConstant& c : program.constants) constants.push_back({name(c.dtype), c.f, c.i});
  for (const Instruction& in : program.code) code.push_back({int(in.op), name(in.dtype), in.a, in.b, in.c});
  return {{"inputs", inputs}, {"constants", constants}, {"code", code}, {"outputs", program.outputs}};
}

struct AttributeWriter {
  std::vector<Tensor>& tensors;
  Json operator()(int64_t v) const { return {"i", v}; }
  Json operator()(double v) const { return {"f", v}; }
  Json operator()(const std::string& v) const { return {"s", Json::binary({v.begin(), v.end()})}; }
  Json operator()(const std::vector<int64_t>& v) const { return {"is", v}; }
  Json operator()(const std::vector<double>& v) const { return {"fs", v}; }
  Json operator()(const std::vector<std::string>& v) const {
    Json list = Json::array();
    for (const std::string& s : v) list.push_back(Json::binary({s.begin(), s.end()}));
    return {"ss", list};
  }
  Json operator()(const Tensor& v) const { return {"t", tensor_number(v, tensors)}; }
  Json operator()(const std::shared_ptr<const Graph>& v) const { return {"g", graph_record(*v, tensors)}; }
};

// ---- reading

const Json& member(const Json& record, const char* key) {
  const auto it = record.is_object() ? record.find(key) : record.end();
  if (!record.is_object() || it == record.end()) broken(fmt::format("'{}' is missing", key));
  return *it;
}

const Json& list(const Json& record, size_t least = 0) {
  if (!record.is_array() || record.size() < least) broken("a list is expected");
  return record;
}

int64_t whole(const Json& record, int64_t least, int64_t most) {
  if (!record.is_number_integer()) broken("a whole number is expected");
  if (record.is_number_unsigned() && record.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max()))
    broken("a number is too large");
  const auto value = record.get<int64_t>();
  if (value < least || value > most) broken(fmt::format("{} is not from {} to {}", value, least, most));
  return value;
}

int64_t any_whole(const Json& record) {
  return whole(record, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

double number(const Json& record) {
  if (!record.is_number()) broken("a number is expected");
  return record.get<double>();
}

std::string words(const Json& record) {
  if (!record.is_string()) broken("a name is expected");
  return record.get<std::string>();
}

std::string bytes(const Json& record) {
  if (!record.is_binary()) broken("a string is expected");
  const auto& b = record.get_binary();
  return {b.begin(), b.end()};
}

DType dtype(const Json& record) {
  const DType type = dtype_named(words(record));
  if (type == DType::kNone) broken(fmt::format("there is no type '{}'", words(record)));
  return type;
}

const Tensor& tensor(const Json& record, std::span<const Tensor> tensors) {
  return tensors[size_t(whole(record, 0, int64_t(tensors.size()) - 1))];
}

std::shared_ptr<const Program> program_of_record(const Json& record) {
  auto program = std::make_shared<Program>();
  for (const Json& in : list(member(record, "inputs"))) {
    list(in, 2);
    program->inputs.push_back({words(in[0]), dtype(in[1])});
  }
  for (const Json& c : list(member(record, "constants"))) {
    list(c, 3);
    program->constants.push_back({dtype(c[0]), number(c[1]), any_whole(c[2])});
  }
  const Json& code = list(member(record, "code"));
  if (code.size() > size_t(Program::kMostInstructions)) broken("a program has too many instructions");
  for (const Json& in : code) {
    list(in, 5);
    Instruction instruction{ScalarOp(whole(in[0], 0, kScalarOpCount - 1)), dtype(in[1])};
    const int arity = info(instruction.op).arity;
    const int64_t ready = program->operands() - 1;  // earlier results alone
    instruction.a = int16_t(whole(in[2], arity > 0 ? 0 : -1, ready));
    instruction.b = int16_t(whole(in[3], arity > 1 ? 0 : -1, ready));
    instruction.c = int16_t(whole(in[4], arity > 2 ? 0 : -1, ready));
    program->code.push_back(instruction);
  }
  for (const Json& out : list(member(record, "outputs"), 1))
    program->outputs.push_back(int(whole(out, 0, program->operands() - 1)));
  return program;
}

class Reader {
 public:
  Reader(const Json& record, std::span<const Tensor> tensors, std::map<uint64_t, uint64_t>& ids, int depth)
      : record_(record), tensors_(tensors), ids_(ids), depth_(depth) {
    if (depth > kMostNesting) broken("graphs are nested too deeply");
  }

  Graph read() {
    graph_.name = words(member(record_, "name"));
    for (const Json& in : list(member(record_, "inputs"))) add_input(in);
    for (const Json& c : list(member(record_, "constants"))) {
      list(c, 4);
      const ValueId v = graph_.add_constant(words(c[1]), tensor(c[2], tensors_));
      declare(c[0], v);
      ids_[uint64_t(any_whole(c[3]))] = graph_.value(v).constant_id;
    }
    for (const Json& node : list(member(record_, "nodes"))) add_node(node);
    for (const Json& out : list(member(record_, "outputs"))) graph_.mark_output(value(out));
    for (const Json& v : list(member(record_, "channels_last"))) graph_.value(value(v)).channels_last = true;
    if (const std::vector<std::string> faults = graph_.verify(); !faults.empty()) broken(faults[0]);
    return std::move(graph_);
  }

 private:
  void declare(const Json& number, ValueId v) {
    if (!values_.emplace(any_whole(number), v).second) broken("a value is declared twice");
  }

  ValueId value(const Json& number) const {
    const auto it = values_.find(any_whole(number));
    if (it == values_.end()) broken("a value is read before it is there");
    return it->second;
  }

  void add_input(const Json& in) {
    list(in, 4);
    std::optional<Shape> shape;
    if (!in[3].is_null()) {
      shape.emplace();
      for (const Json& d : list(in[3]))
        shape->push_back(d.is_string() ? Dim::symbol(words(d)) : Dim(whole(d, 0, int64_t(1) << 46)));
    }
    declare(in[0], graph_.add_input(words(in[1]), dtype(in[2]), std::move(shape)));
  }

  Attributes attributes(const Json& record) {
    Attributes attributes;
    for (const auto& [key, value] : record.items()) {
      const Json& v = list(value, 2)[1];
      const std::string kind = words(value[0]);
      if (kind == "i") {
        attributes.set(key, any_whole(v));
      } else if (kind == "f") {
        attributes.set(key, number(v));
      } else if (kind == "s") {
        attributes.set(key, bytes(v));
      } else if (kind == "is") {
        std::vector<int64_t> all;
        for (const Json& one : list(v)) all.push_back(any_whole(one));
        attributes.set(key, std::move(all));
      } else if (kind == "fs") {
        std::vector<double> all;
        for (const Json& one : list(v)) all.push_back(number(one));
        attributes.set(key, std::move(all));
      } else if (kind == "ss") {
        std::vector<std::string> all;
        for (const Json& one : list(v)) all.push_back(bytes(one));
        attributes.set(key, std::move(all));
      } else if (kind == "t") {
        attributes.set(key, tensor(v, tensors_));
      } else if (kind == "g") {
        attributes.set(key, std::make_shared<const Graph>(Reader(v, tensors_, ids_, depth_ + 1).read()));
      } else {
        broken(fmt::format("an attribute of the kind '{}'", kind));
      }
    }
    return attributes;
  }

  void add_node(const Json& record) {
    const std::string op_name = words(member(record, "op"));
    const OpSchema* op = find_op(op_name, words(member(record, "domain")));
    if (!op) broken(fmt::format("there is no operator '{}'", op_name));
    std::vector<ValueId> inputs;
    for (const Json& v : list(member(record, "inputs"))) inputs.push_back(v == -1 ? kNoValue : value(v));
    const auto own = size_t(whole(member(record, "op_inputs"), 0, int64_t(inputs.size())));
    std::shared_ptr<const Program> program;
    if (record.contains("program")) program = program_of_record(record["program"]);
    check_arity(*op, own, inputs.size(), program.get());
    std::vector<std::string> names;
    const Json& outputs = list(member(record, "outputs"), 1);
    for (const Json& out : outputs) names.push_back(words(list(out, 2)[1]));
    NodeId id = kNoNode;
    if (op == &elementwise_op()) {
      if (program->outputs.size() != outputs.size()) broken("a program with another number of results");
      id = graph_.add_program(*program, inputs, names[0]);
    } else {
      id = graph_.add_node(*op, {inputs.begin(), inputs.begin() + std::ptrdiff_t(own)},
                           attributes(member(record, "attributes")), int(outputs.size()), names);
    }
    Node& node = graph_.node(id);
    node.name = words(member(record, "name"));
    for (const Json& origin : list(member(record, "origin"))) node.origin.push_back(words(origin));
    if (op != &elementwise_op()) {
      graph_.set_inputs(node, inputs, int(own));
      node.program = program;
      if (program) graph_.infer(node);
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue) continue;
      if (graph_.value(node.outputs[o]).name != names[o]) {
        if (names[o].empty() || graph_.find_value(names[o]) != kNoValue) broken("two values have one name");
        graph_.rename(node.outputs[o], names[o]);
      }
      declare(outputs[o][0], node.outputs[o]);
    }
  }

  static void check_arity(const OpSchema& op, size_t own, size_t all, const Program* program) {
    if (op.is_elementwise() || op.name == "Elementwise") {
      if (&op == &elementwise_op() && (!program || program->inputs.size() != all || own != all))
        broken("a program with another number of operands");
      return;
    }
    const bool variadic = op.inputs.count > 0 && op.inputs[op.inputs.count - 1].variadic;
    if (own > size_t(op.inputs.count) && !variadic) broken(fmt::format("{} with {} inputs", op.name, own));
    // An epilogue reads the operator's result first, then the operands behind the operator's own.
    if (program ? program->inputs.size() != all - own + 1 : all != own)
      broken(fmt::format("{} with {} operands behind its own", op.name, all - own));
  }

  const Json& record_;
  std::span<const Tensor> tensors_;
  std::map<uint64_t, uint64_t>& ids_;
  const int depth_;
  Graph graph_;
  std::unordered_map<int64_t, ValueId> values_;
};

}  // namespace

Json graph_record(const Graph& graph, std::vector<Tensor>& tensors) {
  Json inputs = Json::array(), constants = Json::array(), nodes = Json::array(), last = Json::array();
  for (const ValueId v : graph.inputs) {
    const Value& value = graph.value(v);
    Json shape;
    if (value.info.shape) {
      shape = Json::array();
      for (const Dim& d : value.shape()) shape.push_back(dim_record(d));
    }
    inputs.push_back({v, value.name, name(value.dtype()), shape});
  }
  for (ValueId v = 0; v < graph.value_count(); ++v) {
    const Value& value = graph.value(v);
    if (value.channels_last && value.producer != kNoNode) last.push_back(v);
    if (value.is_constant() && graph.uses(v) > 0)
      constants.push_back({v, value.name, tensor_number(value.info.constant, tensors), value.constant_id});
  }
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    Json attributes = Json::object(), outputs = Json::array();
    for (const auto& [key, value] : node.attributes) attributes[key] = std::visit(AttributeWriter{tensors}, value);
    for (const ValueId v : node.outputs) outputs.push_back({v, v == kNoValue ? "" : graph.value(v).name});
    nodes.push_back({{"op", node.op->name},
                     {"domain", node.op->domain},
                     {"name", node.name},
                     {"origin", node.origin},
                     {"inputs", node.inputs},
                     {"op_inputs", node.op_inputs},
                     {"outputs", outputs},
                     {"attributes", attributes}});
    if (node.program) nodes.back()["program"] = program_record(*node.program);
  }
  return {{"name", graph.name}, {"inputs", inputs},         {"constants", constants},
          {"nodes", nodes},     {"outputs", graph.outputs}, {"channels_last", last}};
}

Graph graph_of_record(const Json& record, std::span<const Tensor> tensors, std::map<uint64_t, uint64_t>& constant_ids) {
  try {
    return Reader(record, tensors, constant_ids, 0).read();
  } catch (const NeedsValues& error) {
    broken(error.what());
  }
}

}  // namespace ridgeline
