#include "formats/onnx/node_order.h"

#include <functional>
#include <queue>
#include <unordered_map>

#include "formats/onnx/model_file.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

class Order {
 public:
  Order(const std::string& file, const std::vector<SourceNode>& nodes, const std::unordered_set<std::string>& given,
        const std::function<bool(const std::string&)>& around)
      : file_(file), nodes_(nodes), given_(given), around_(around), captured_(nodes.size()) {}

  std::vector<int> sorted() {
    for (int i = 0; i < count(); ++i) {
      declare(i);
      captured_[size_t(i)] = captured_names(proto(i));
    }
    for (int i = 0; i < count(); ++i) {
      for (const onnx::AttributeProto& attribute : proto(i).attribute()) check_subgraphs(attribute, i);
    }
    std::vector<int> waiting(nodes_.size(), 0);
    std::vector<std::vector<int>> readers(nodes_.size());
    for (int i = 0; i < count(); ++i) {
      for (int k = 0; k < reads(i); ++k) {
        const int producer = producer_of(i, k);
        if (producer < 0) continue;
        ++waiting[size_t(i)];
        readers[size_t(producer)].push_back(i);
      }
    }
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (int i = 0; i < count(); ++i) {
      if (waiting[size_t(i)] == 0) ready.push(i);
    }
    std::vector<int> order;
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      order.push_back(node);
      for (const int reader : readers[size_t(node)]) {
        if (--waiting[size_t(reader)] == 0) ready.push(reader);
      }
    }
    if (order.size() < nodes_.size()) refuse_cycle(waiting);
    return order;
  }

 private:
  int count() const { return int(nodes_.size()); }
  const onnx::NodeProto& proto(int node) const { return *nodes_[size_t(node)].proto; }

  void declare(int node) {
    bool any = false;
    for (const std::string& name : proto(node).output()) {
      if (name.empty()) continue;
      any = true;
      if (!is_utf8(name))
        fail(ErrorCode::kBadModel, "{}: {}: the output name {} is no UTF-8", file_, describe(nodes_[size_t(node)]),
             quote(name));
      if (given_.count(name)) {
        fail(ErrorCode::kBadModel, "{}: {}: output {} has the name of an input or initializer of the graph", file_,
             describe(nodes_[size_t(node)]), quote(name));
      }
      const auto [entry, fresh] = producers_.emplace(name, node);
      if (!fresh) {
        fail(ErrorCode::kBadModel, "{}: value {} is written twice, by {} and {}", file_, quote(name),
             describe(nodes_[size_t(entry->second)]), describe(nodes_[size_t(node)]));
      }
    }
    if (!any) fail(ErrorCode::kBadModel, "{}: {} has no output", file_, describe(nodes_[size_t(node)]));
  }

  /// Names that a node reads: its inputs, then what its subgraphs capture.
  int reads(int node) const { return proto(node).input_size() + int(captured_[size_t(node)].size()); }
  /// -1: an input, an initializer, of a graph around this one, or omitted.
  int producer_of(int node, int read) const {
    const int captured = read - proto(node).input_size();
    const std::string& name = captured < 0 ? proto(node).input(read) : captured_[size_t(node)][size_t(captured)];
    if (name.empty() || given_.count(name)) return -1;
    const auto found = producers_.find(name);
    if (found != producers_.end()) return found->second;
    if (around_(name)) return -1;
    if (captured >= 0) {
      fail(ErrorCode::kBadModel, "{}: {}: its subgraph reads {}, which no node, input or initializer defines", file_,
           describe(nodes_[size_t(node)]), quote(name));
    }
    fail(ErrorCode::kBadModel, "{}: {}: input {} is {}, which no node, input or initializer defines", file_,
         describe(nodes_[size_t(node)]), read, quote(name));
  }

  // Names of a subgraph may not hide those around it, but for the outputs of the node that holds it. The depth is
  // bounded by the parser.
  void check_subgraphs(const onnx::AttributeProto& attribute, int node) {
    if (attribute.has_g()) check_subgraph(attribute.g(), node);
    for (const onnx::GraphProto& graph : attribute.graphs()) check_subgraph(graph, node);
  }
  void check_subgraph(const onnx::GraphProto& graph, int node) {
    const auto check = [&](const std::string& name) {
      if (name.empty()) return;
      const auto found = producers_.find(name);
      if (!given_.count(name) && (found == producers_.end() || found->second == node)) return;
      fail(ErrorCode::kBadModel, "{}: {}: a subgraph defines {} again, a name of the graph around it", file_,
           describe(nodes_[size_t(node)]), quote(name));
    };
    for (const auto& input : graph.input()) check(input.name());
    for (const auto& initializer : graph.initializer()) check(initializer.name());
    for (const onnx::NodeProto& inner : graph.node()) {
      for (const std::string& output : inner.output()) check(output);
      for (const onnx::AttributeProto& attribute : inner.attribute()) check_subgraphs(attribute, node);
    }
  }

  // From any node left over, inputs that are left over lead around the cycle.
  [[noreturn]] void refuse_cycle(const std::vector<int>& waiting) const {
    int node = 0;
    while (waiting[size_t(node)] == 0) ++node;
    std::vector<int> path;
    std::vector<char> seen(nodes_.size(), 0);
    while (!seen[size_t(node)]) {
      seen[size_t(node)] = 1;
      path.push_back(node);
      for (int k = 0; k < reads(node); ++k) {
        const int producer = producer_of(node, k);
        if (producer >= 0 && waiting[size_t(producer)] > 0) {
          node = producer;
          break;
        }
      }
    }
    std::string names;
    size_t start = 0;
    while (path[start] != node) ++start;
    for (size_t i = path.size(); i-- > start;) {
      if (path.size() - i > 8) {
        names += ", ...";
        break;
      }
      names += (names.empty() ? "" : ", ") + describe(nodes_[size_t(path[i])]);
    }
    fail(ErrorCode::kBadModel, "{}: the graph has a cycle: {}", file_, names);
  }

  const std::string& file_;
  const std::vector<SourceNode>& nodes_;
  const std::unordered_set<std::string>& given_;
  const std::function<bool(const std::string&)>& around_;
  std::unordered_map<std::string, int> producers_;
  std::vector<std::vector<std::string>> captured_;  // by node
};

}  // namespace

std::string describe(const SourceNode& node) {
  return fmt::format("node {} ({})", quote(node.name), escaped(node.proto->op_type()));
}

std::vector<int> node_order(const std::string& file, const std::vector<SourceNode>& nodes,
                            const std::unordered_set<std::string>& given,
                            const std::function<bool(const std::string&)>& around) {
  return Order(file, nodes, given, around).sorted();
}

}  // namespace ridgeline
