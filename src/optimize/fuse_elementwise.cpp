// Elementwise work is taken into the step that produces its operand: into a contraction, norm or reduction as an
// epilogue, into another elementwise step as a longer Program. One algorithm, three passes that differ in who may take
// and what.
#include <algorithm>

#include "optimize/passes.h"

namespace ridgeline {
namespace {

// Regions in real graphs have at most 8 nodes; a longer chain is taken in several bites.
constexpr size_t kMostRegionNodes = 16;

struct Rule {
  bool (*takes)(const Node&);  // producers that may absorb
  bool other_operands;         // may the absorbed work read activations beside the producer's result (residuals)?
};

bool takes_epilogue(const Node& node) {
  return node.op->kind == OpKind::kContraction || node.op->kind == OpKind::kReduction;
}
bool is_elementwise(const Node& node) { return node.op->is_elementwise(); }

/// A quantized type, as it stands in memory between two steps.
bool is_narrow(DType t) { return !is_float(t) && t != DType::kBool && info(t).bits < 32; }

// A region of elementwise nodes that starts at `from` and ends in one node: every use of `from` and of what is between
// lies inside, so that only the last value need exist. In topological order.
struct Region {
  std::vector<NodeId> nodes;
};

class Absorber {
 public:
  Absorber(Graph& graph, Decisions& decisions, Rule rule) : graph_(graph), decisions_(decisions), rule_(rule) {}

  void run() {
    const std::vector<NodeId> order = graph_.order();
    measure_levels(order);
    for (NodeId id : order) {
      if (!graph_.node(id).alive || !rule_.takes(graph_.node(id)) || graph_.node(id).outputs.empty() ||
          graph_.node(id).output() == kNoValue)
        continue;
      while (graph_.node(id).alive && absorb_once(graph_.node(id))) {
      }
    }
    graph_.remove_dead();
  }

 private:
  // The longest way from an input to each node. A step that takes others in gets the level of the last of them, so that
  // what depends on it stays above it.
  void measure_levels(const std::vector<NodeId>& order) {
    level_.assign(size_t(graph_.node_capacity()), 0);
    stamp_.assign(level_.size(), 0);
    for (const NodeId id : order) {
      for (const ValueId v : graph_.node(id).inputs) {
        if (const Node* from = graph_.producer(v))
          level_[size_t(id)] = std::max(level_[size_t(id)], level_[size_t(from->id)] + 1);
      }
    }
  }

  // Does the value depend on the node? Only what lies above it is searched: walking back to the inputs took most of the
  // time of a model of 4,000 blocks. `far`: given up.
  bool depends_on(ValueId value, const Node& node, bool& far) {
    constexpr int64_t kMostVisited = int64_t(1) << 27;  // in all, a second or so; what comes after is searched nearby
    constexpr int kNear = 64;
    std::vector<ValueId> stack = {value};
    ++round_;
    for (int visited = 0; !stack.empty(); ++visited) {
      far = visited_ > kMostVisited && visited > kNear;
      if (far) return true;
      const Node* producer = graph_.producer(stack.back());
      stack.pop_back();
      if (!producer) continue;
      if (producer->id == node.id) return true;
      const size_t at = size_t(producer->id);
      if (level_[at] <= level_[size_t(node.id)] || stamp_[at] == round_) continue;
      stamp_[at] = round_;
      ++visited_;
      for (const ValueId i : producer->inputs)
        if (i != kNoValue) stack.push_back(i);
    }
    return false;
  }

  // Any node of the region may be refused for its own reason; the first one met is the one reported.
  bool joins(const Node& producer, const Node& user, const std::vector<NodeId>& inside, ValueId from, std::string& code,
             std::string& why) {
    if (!user.op->is_elementwise() || user.outputs.size() != 1 || user.output() == kNoValue) return false;
    if (!graph_.value(user.output()).info.shape || !graph_.value(from).info.shape) return false;
    if (graph_.value(user.output()).shape() != graph_.value(from).shape()) {
      code = "broadcasts_up";
      why = fmt::format("its result {} is larger than the {} it reads: another operand broadcasts it",
                        text(graph_.value(user.output()).shape()), text(graph_.value(from).shape()));
      return false;
    }
    for (ValueId v : user.inputs) {
      if (v == kNoValue) continue;
      const bool internal = v == from || std::any_of(inside.begin(), inside.end(),
                                                     [&](NodeId n) { return graph_.node(n).output() == v; });
      if (internal || graph_.constant(v)) continue;
      if (!rule_.other_operands) {
        code = "other_operand";
        why = fmt::format("it also reads '{}', which is no constant (a residual joins in a later stage)",
                          graph_.value(v).name);
        return false;
      }
      bool far = false;
      if (depends_on(v, producer, far)) {
        code = far ? "too_far" : "depends_on_itself";
        why = fmt::format("its other operand '{}' is computed from the value itself{}", graph_.value(v).name,
                          far ? ", or is too far from it to tell" : "");
        return false;
      }
    }
    return true;
  }

  // Will a later step take this value in with what it computes?
  bool may_narrow(ValueId v) const {
    return std::any_of(graph_.users(v).begin(), graph_.users(v).end(),
                       [&](NodeId u) { return is_elementwise(graph_.node(u)); });
  }

  std::optional<Region> region_from(const Node& producer, ValueId from) {
    std::vector<NodeId> inside;
    std::string code, why;
    const Node* refused = nullptr;
    // A node joins once all its operands have: the order of joining is topological.
    std::vector<ValueId> values = {from};
    auto next_to_join = [&]() -> NodeId {
      for (ValueId v : values) {
        for (NodeId user : graph_.users(v)) {
          if (std::find(inside.begin(), inside.end(), user) != inside.end() || reads_shape_only(graph_.node(user)))
            continue;
          if (joins(producer, graph_.node(user), inside, from, code, why)) return user;
          if (!refused && !code.empty()) refused = &graph_.node(user);
        }
      }
      return kNoNode;
    };
    while (inside.size() < kMostRegionNodes) {
      const NodeId node = next_to_join();
      if (node == kNoNode) break;
      inside.push_back(node);
      values.push_back(graph_.node(node).output());
    }
    // The shortest prefix whose last value is the only one seen outside. What is quantized stays so in memory where its
    // reader can take it so: a prefix that would end wider before an elementwise step is none.
    bool widens = false;
    for (size_t n = 1; n <= inside.size(); ++n) {
      const std::vector<NodeId> prefix(inside.begin(), inside.begin() + long(n));
      const ValueId last = graph_.node(prefix.back()).output();
      auto contained = [&](ValueId v) {
        if (graph_.value(v).is_output) return false;
        return std::all_of(graph_.users(v).begin(), graph_.users(v).end(), [&](NodeId u) {
          return reads_shape_only(graph_.node(u)) || std::find(prefix.begin(), prefix.end(), u) != prefix.end();
        });
      };
      bool closed = contained(from);
      for (NodeId p : prefix)
        closed = closed && (graph_.node(p).output() == last || contained(graph_.node(p).output()));
      if (closed && is_narrow(graph_.value(from).dtype()) &&
          info(graph_.value(last).dtype()).bits > info(graph_.value(from).dtype()).bits && may_narrow(last)) {
        widens = true;
        continue;
      }
      if (closed) return Region{prefix};
    }
    if (refused)
      decisions_.refuse(*refused, code, why);
    else if (widens)
      decisions_.refuse(graph_.node(inside[0]), "widens",
                        fmt::format("'{}' is {}: it would be written wider, and what narrows it again is not in reach",
                                    graph_.value(from).name, name(graph_.value(from).dtype())));
    else if (!inside.empty()) {
      const bool output = graph_.value(from).is_output;
      decisions_.refuse(graph_.node(inside[0]), output ? "graph_output" : "other_user",
                        fmt::format("'{}' {}, so it must exist by itself", graph_.value(from).name,
                                    output ? "is an output of the graph" : "has another user"));
    }
    return std::nullopt;
  }

  // The producer's program (or the identity) extended by one node; `operands` are the program's inputs after the first.
  bool extend(Program& program, std::vector<ValueId>& operands, std::vector<ValueId>& results, const Node& node) {
    // Each input of the node is a result already in the program, or an operand of it.
    const Program own = program_of(graph_, node);
    std::vector<ValueId> values;
    for (ValueId v : node.inputs)
      if (v != kNoValue) values.push_back(v);
    values.resize(std::min(values.size(), own.inputs.size()));
    // All values computed so far stay outputs while the region is built.
    Program joined = own;
    std::vector<ValueId> inputs = values;
    // Feed results one by one.
    Program base = program;
    std::vector<ValueId> base_operands = operands;
    std::vector<int> position(results.size());
    bool fed = false;
    for (size_t i = 0; i < inputs.size();) {
      const auto it = std::find(results.begin(), results.end(), inputs[i]);
      if (it == results.end()) {
        ++i;
        continue;
      }
      const int output = int(it - results.begin());
      if (!fed) {
        auto composed = Program::compose(base, output, joined, int(i), true);
        if (!composed) return false;
        joined = std::move(*composed);
        std::vector<ValueId> next = base_operands;
        for (size_t k = 0; k < inputs.size(); ++k)
          if (k != i) next.push_back(inputs[k]);
        inputs = std::move(next);
        fed = true;
        i = base_operands.size();
      } else {
        // A second use of a result: bind the input to the operand number that the first composition kept as an output.
        const int operand = joined.outputs[1 + size_t(output)];
        for (Instruction& in : joined.code)
          for (int16_t* o : {&in.a, &in.b, &in.c})
            if (*o == int(i)) *o = int16_t(operand);
        for (int& o : joined.outputs)
          if (o == int(i)) o = operand;
        // The unused input goes.
        for (Instruction& in : joined.code)
          for (int16_t* o : {&in.a, &in.b, &in.c})
            if (*o > int(i)) --*o;
        for (int& o : joined.outputs)
          if (o > int(i)) --o;
        joined.inputs.erase(joined.inputs.begin() + long(i));
        inputs.erase(inputs.begin() + long(i));
      }
    }
    if (!fed) return false;
    program = std::move(joined);
    operands = std::move(inputs);
    results.insert(results.begin(), node.output());
    return true;
  }

  bool absorb_once(Node& producer) {
    const ValueId from = producer.output();
    const DType dtype = graph_.value(from).dtype();
    // A contraction in f16 or bf16 accumulates in f32; its epilogue would see the unrounded sum. Integer sums are
    // exact, and a program that ends in a quantized type rounds to it itself.
    const bool exact = dtype == DType::kI32 || (producer.program && is_narrow(dtype));
    if (dtype != DType::kF32 && dtype != DType::kF64 && !exact && !producer.op->is_elementwise()) {
      for (NodeId user : graph_.users(from)) {
        if (!graph_.node(user).op->is_elementwise()) continue;
        decisions_.refuse(graph_.node(user), "rounded_result",
                          fmt::format("'{}' is rounded to {} before it is read; a fused step would not round it",
                                      graph_.value(from).name, name(dtype)));
      }
      return false;
    }
    const std::optional<Region> region = region_from(producer, from);
    if (!region) return false;
    const Node& last = graph_.node(region->nodes.back());
    if (!decisions_.allowed(last)) return false;
    if (!one_step(graph_, producer, region->nodes)) {
      decisions_.refuse(last, "too_many_nodes", "the fused step would stand for more than 256 nodes");
      return false;
    }

    Program program;
    std::vector<ValueId> operands, results = {from};
    if (producer.op->is_elementwise()) {
      program = program_of(graph_, producer);
      for (ValueId v : producer.inputs)
        if (v != kNoValue) operands.push_back(v);
      operands.resize(std::min(operands.size(), program.inputs.size()));
    } else if (producer.program) {
      program = *producer.program;
      operands = {from};  // stands for the accumulator
      operands.insert(operands.end(), producer.inputs.begin() + producer.op_inputs, producer.inputs.end());
    } else {
      program.inputs = {{"v", graph_.value(from).dtype()}};
      program.outputs = {0};
      operands = {from};
    }
    for (NodeId id : region->nodes) {
      if (!extend(program, operands, results, graph_.node(id))) {
        decisions_.refuse(last, "program_too_long",
                          fmt::format("the program would exceed {} instructions", Program::kMostInstructions));
        return false;
      }
    }
    program.outputs.resize(1);
    const int first = producer.op->is_elementwise() ? 0 : 1;
    const std::vector<NodeId> widened = pull_narrow_operands(*region, program, operands, first);
    for (int i = first; i < int(operands.size()); ++i) {
      for (int j = int(operands.size()) - 1; j > i; --j) {
        if (operands[size_t(i)] != operands[size_t(j)]) continue;
        program.merge_inputs(i, j);
        operands.erase(operands.begin() + j);
      }
    }
    // Scalars known now are numbers in the program, not operands.
    for (int i = int(operands.size()) - 1; i >= first; --i) {
      const Tensor* c = graph_.constant(operands[size_t(i)]);
      if (!c || c->elements() != 1 || operands.size() == 1) continue;
      program.bind_input(i, {c->dtype(), is_float(c->dtype()) ? c->f64(0) : 0.0, is_float(c->dtype()) ? 0 : c->i64(0)});
      operands.erase(operands.begin() + i);
    }
    program.simplify();
    for (size_t i = 0; i < program.inputs.size(); ++i)
      program.inputs[i].name = first ? (i == 0 ? "v" : fmt::format("e{}", i)) : fmt::format("x{}", i);

    std::vector<ValueId> inputs(producer.inputs.begin(), producer.inputs.begin() + (first ? producer.op_inputs : 0));
    inputs.insert(inputs.end(), operands.begin() + first, operands.end());
    const int op_inputs = first ? producer.op_inputs : int(inputs.size());
    const auto shared = std::make_shared<const Program>(program);
    Node probe = producer;
    probe.outputs = {last.output()};
    if (const std::string why = why_no_kernel(graph_, first ? probe : [&] { Node e = probe; e.op = &elementwise_op(); return e; }(), shared, inputs, op_inputs); !why.empty()) {
      const DType result = graph_.value(last.output()).dtype();
      if (result != dtype)
        decisions_.refuse(last, "dtype_differs",
                          fmt::format("it turns {} into {}, which no kernel does as it stores its result, so the cast "
                                      "stays: {}",
                                      ridgeline::name(dtype), ridgeline::name(result), why));
      else
        decisions_.refuse(last, "no_kernel", "only the reference would run the fused step: " + why);
      return false;
    }
    int& level = level_[size_t(producer.id)];
    for (const NodeId id : region->nodes) level = std::max(level, level_[size_t(id)]);
    commit(producer, *region, widened, shared, std::move(inputs), op_inputs);
    return true;
  }

  // An operand that only this region reads and that is computed from one narrower tensor (dequantized) is computed
  // here: it is read as bytes, and never written as f32.
  std::vector<NodeId> pull_narrow_operands(const Region& region, Program& program, std::vector<ValueId>& operands,
                                           int first) {
    std::vector<NodeId> pulled;
    for (int i = first; i < int(operands.size()); ++i) {
      const ValueId v = operands[size_t(i)];
      const Node* from = graph_.producer(v);
      if (graph_.constant(v) || !from || !is_elementwise(*from) || from->outputs.size() != 1 ||
          graph_.value(v).is_output)
        continue;
      const Program own = program_of(graph_, *from);
      if (own.inputs.size() != from->inputs.size() || !is_narrow(own.inputs[0].dtype) ||
          info(own.output_dtype()).bits <= info(own.inputs[0].dtype).bits)
        continue;
      if (!std::all_of(from->inputs.begin() + 1, from->inputs.end(), [&](ValueId o) { return graph_.constant(o); }) ||
          graph_.value(from->input(0)).shape() != graph_.value(v).shape())
        continue;
      if (!std::all_of(graph_.users(v).begin(), graph_.users(v).end(), [&](NodeId u) {
            return std::find(region.nodes.begin(), region.nodes.end(), u) != region.nodes.end();
          }))
        continue;
      auto joined = Program::compose(own, 0, program, i);
      if (!joined) continue;
      // Its operands came to the front: they go to the end, the accumulator stays the first.
      const int moved = int(own.inputs.size()), all = int(joined->inputs.size());
      const auto renumbered = [&](int o) { return o >= all ? o : o < moved ? o + all - moved : o - moved; };
      for (Instruction& in : joined->code)
        for (int16_t* o : {&in.a, &in.b, &in.c})
          if (*o >= 0) *o = int16_t(renumbered(*o));
      for (int& o : joined->outputs) o = renumbered(o);
      std::rotate(joined->inputs.begin(), joined->inputs.begin() + moved, joined->inputs.end());
      program = std::move(*joined);
      operands.erase(operands.begin() + i);
      operands.insert(operands.end(), from->inputs.begin(), from->inputs.end());
      pulled.push_back(from->id);
      --i;
    }
    return pulled;
  }

  void commit(Node& producer, const Region& region, const std::vector<NodeId>& pulled,
              std::shared_ptr<const Program> program, std::vector<ValueId> inputs, int op_inputs) {
    const ValueId from = producer.output();
    const ValueId result = graph_.node(region.nodes.back()).output();
    std::vector<std::string> names = origins({&producer});
    int64_t bytes = 0;
    double before_bytes = double(value_bytes(graph_, from)), flops = double(node_flops(graph_, producer));
    for (ValueId v : producer.inputs) before_bytes += double(value_bytes(graph_, v));
    double after_bytes = before_bytes;
    for (NodeId id : region.nodes) {
      const Node& node = graph_.node(id);
      for (const std::string& n : origins({&node}))
        if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
      flops += double(node_flops(graph_, node));
      bytes += 2 * value_bytes(graph_, node.output());  // written once less, read once less
      before_bytes += double(value_bytes(graph_, node.output()));
      for (ValueId v : node.inputs)
        if (v != kNoValue) before_bytes += double(value_bytes(graph_, v));
    }
    for (NodeId id : pulled) {
      for (const std::string& n : origins({&graph_.node(id)}))
        if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
      bytes += 2 * value_bytes(graph_, graph_.node(id).output());
    }
    if (producer.op->is_elementwise()) producer.op = &elementwise_op();
    if (producer.op == &elementwise_op()) producer.attributes = {};
    producer.program = std::move(program);
    graph_.set_inputs(producer, std::move(inputs), op_inputs);
    producer.origin = names;
    graph_.value(from).info.dtype = graph_.value(result).dtype();
    graph_.value(from).info.values = graph_.value(result).info.values;  // its own are those before the region
    // All values of the region have one shape: who asks for that of an inner one gets it from the result.
    for (NodeId id : region.nodes) graph_.replace_uses(graph_.node(id).output(), from);
    for (auto it = region.nodes.rbegin(); it != region.nodes.rend(); ++it) graph_.remove(graph_.node(*it));
    after_bytes = 0;
    for (ValueId v : producer.inputs) after_bytes += double(value_bytes(graph_, v));
    after_bytes += double(value_bytes(graph_, from));
    for (NodeId id : pulled) graph_.remove(graph_.node(id));
    decisions_.apply(names, bytes, int(region.nodes.size() + pulled.size()),
                     before_bytes > 0 ? flops / before_bytes : 0, after_bytes > 0 ? flops / after_bytes : 0);
  }

  Graph& graph_;
  Decisions& decisions_;
  Rule rule_;
  std::vector<int> level_, stamp_;  // of each node; the search that saw it last
  int round_ = 0;
  int64_t visited_ = 0;
};

}  // namespace

void fuse_epilogues(Graph& graph, Decisions& decisions) { Absorber(graph, decisions, {takes_epilogue, false}).run(); }
void fuse_residuals(Graph& graph, Decisions& decisions) {
  Absorber(graph, decisions, {[](const Node& n) { return n.op->kind == OpKind::kContraction; }, true}).run();
}
void fuse_elementwise(Graph& graph, Decisions& decisions) {
  Absorber(graph, decisions, {is_elementwise, true}).run();
  Absorber(graph, decisions, {takes_epilogue, true}).run();
}

}  // namespace ridgeline
