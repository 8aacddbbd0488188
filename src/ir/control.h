// Nodes with subgraphs (If, Loop, Scan): what their operands mean, and their run over any way to run a subgraph.
//
// A subgraph is an attribute. What it reads from around it stands among its inputs and the node's, last ("captures"),
// so that a node reads all that it depends on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// Attribute of Loop and Scan: how many of the last inputs are captures. Ours alone; no file has it.
inline constexpr std::string_view kCaptures = "captures";

/// Does the operator have attributes that are graphs?
bool has_bodies(const OpSchema& op);
/// The names of those attributes: "then_branch" and "else_branch", or "body".
std::vector<std::string_view> bodies_of(const OpSchema& op);
/// Throws Error{kBadModel} if the attribute is missing.
const Graph& body_of(const Attributes& attributes, std::string_view attribute);
/// "then", "else" or "body": what stands in paths of names.
std::string body_label(std::string_view attribute);

/// Operands of a Loop or Scan. Inputs: conditions (Loop: count and condition), carried, scanned, captures; a body's are
/// the same (iteration number, condition, ...). A body's outputs: its condition (Loop), carried, collected; the node's
/// are these without the condition.
struct LoopForm {
  int conditions = 0;  // 2: Loop, 0: Scan
  int carried = 0, scanned = 0, captures = 0, collected = 0;
  int first_result() const { return conditions / 2; }  // of a body's outputs
  int inputs() const { return conditions + carried + scanned + captures; }
};
/// Throws Error{kBadModel} with the bare reason where body, attributes and the number of inputs do not fit.
LoopForm loop_form(const OpSchema& op, const Attributes& attributes, int inputs);
/// Per scanned input (or collected output): axis as given, and whether it runs backwards. Loop: 0, forwards.
struct ScanAxis {
  int64_t axis = 0;
  bool backwards = false;
};
std::vector<ScanAxis> scan_axes(const Attributes& attributes, bool outputs, int count);

/// A small subgraph for problems in text ("twice", "doubling", ...); null: there is none of that name.
std::shared_ptr<const Graph> sample_body(std::string_view name);

/// `reference` of such a schema: run_reference runs bodies itself, for their results' shapes are their own.
void control_reference(Reference& r);

/// What one run may do, counted over loops in loops. Files come from strangers: a loop without an end is an error.
struct LoopLimits {
  static constexpr int64_t kNodes = int64_t(1) << 19;     // nodes run in bodies
  static constexpr int64_t kElements = int64_t(1) << 25;  // of one value inside of a body, and of all collected ones
};

/// A budget of nodes run in bodies that all runs in this thread share while it lives: for folding at load.
class LoopBudget {
 public:
  explicit LoopBudget(int64_t nodes);
  ~LoopBudget();
  LoopBudget(const LoopBudget&) = delete;
  LoopBudget& operator=(const LoopBudget&) = delete;

 private:
  int64_t outer_;
};

/// A copy of the node's body whose inputs have types and shapes as the node gives them, inferred. None, and `why`,
/// where they do not fit, or where a value's shape is open or changes from one iteration to the next.
std::optional<Graph> bound_body(const Graph& around, const Node& node, std::string_view attribute, std::string& why);

/// A body on tensors; `which` is 1 for the else branch.
using RunBody = std::function<std::vector<Tensor>(const Graph& body, int which, const std::vector<Tensor>& inputs)>;

/// The node's outputs for these inputs (empty tensors: omitted). Shapes may change from one iteration to the next.
std::vector<Tensor> run_control(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
                                const RunBody& run_body);

/// The number a condition or count holds. Throws Error{kBadInput} unless it is one element.
int64_t single_integer(const Tensor& tensor, std::string_view what);
/// The part of a tensor at `index` of `axis`, without that axis; shares memory where it can.
Tensor slice_at(const Tensor& tensor, int axis, int64_t index);
/// Equal tensors along a new axis; the last first if `backwards`. Empty: of shape `shape` with 0 there.
Tensor stacked(const std::vector<Tensor>& parts, int64_t axis, bool backwards);

}  // namespace ridgeline
