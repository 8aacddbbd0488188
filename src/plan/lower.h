// Lowering: from a graph, bound to shapes, to steps. One object a plan; its methods are the parts of the work.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/views.h"

namespace ridgeline {

class LayoutSearch;

class Lowering {
 public:
  Lowering(Graph& graph, const PlanOptions& options, const Ceilings& ceilings, ConstantStore& store, bool consume);
  Plan build();

 private:
  friend class LayoutSearch;

  // A piece of memory that steps share: becomes a slot, or is a caller's buffer.
  struct Buffer {
    Place::Kind kind = Place::Kind::kArena;
    int index = -1;  // input or output number for those kinds
    int64_t bytes = 0;
    int first_step = -1, last_step = -1;
    int last_reader = -1;  // position in order_ of the last node that may read it; INT_MAX: a graph output
    int slot = -1;
  };
  // A value while lowering: where it is and how it is walked.
  struct Ref {
    int buffer = -1;  // -1: a constant, or not there yet
    int64_t offset_bytes = 0;
    Layout layout;
    bool ready = false;
  };

  void find_needed();
  void find_last_readers();
  Tensor known_constant(ValueId value);
  Operand operand_of(ValueId value);
  Problem problem_of(const Node& node);
  void check_bound(const Node& node) const;

  void lower(const Node& node, int position);
  bool lower_as_view(const Node& node, const Problem& problem);
  bool lower_concat_in_place(const Node& node, const Problem& problem);
  /// If, Loop, Scan as plans of their bodies; false: the node has to be interpreted (lower_control.cpp).
  bool lower_control(const Node& node, const Problem& problem, int position);
  void lower_as_step(const Node& node, Problem problem, int position);

  struct Variant {  // one way to run a node: with these layouts, after these copies
    Problem problem;
    std::vector<std::pair<int, Layout>> copies;  // input -> layout it is copied to first
    Choice choice;
    double cost_ns = 0;
    bool reference = true;
  };
  Variant best_variant(const Node& node, const Problem& problem);
  void bind(Step& step, const Problem& problem);
  void consider(std::optional<Variant>& best, const Node& node, Problem problem,
                std::vector<std::pair<int, Layout>> copies);
  /// As its operands lie, and after copies of them into the layout that the output has.
  void consider_with_copies(std::optional<Variant>& best, const Node& node, const Problem& problem);
  double copy_ns(const Operand& operand) const;
  void choose_layouts();
  double layout_cost_ns(const Node& node, const Problem& problem, const std::function<bool(ValueId)>& is_last);
  bool stands_packed(const Node& node, const Problem& problem, const Candidate& candidate) const;
  void prefer_packed(const Node& node, const Problem& problem, Choice& choice) const;
  void prefer_small(const Problem& problem, Choice& choice) const;
  std::vector<Layout> output_layouts(const Node& node, const Problem& problem, int output);
  /// The slice of a Concat's buffer that this value may be written into, if its only reader is one.
  std::optional<Ref> concat_slice(ValueId value);
  std::optional<Layout> layout_for_transposed_reader(ValueId value);

  int new_buffer(int64_t bytes, int last_reader);
  Ref allocate_output(const Node& node, int output, const Problem& problem, const KernelCall& call, int position);
  void emit(Step step, const std::vector<Ref>& inputs, const std::vector<ValueId>& input_values,
            const std::vector<Ref>& outputs);
  Ref emit_copy(const std::string& name, const std::vector<std::string>& origin, const Ref& from, DType dtype,
                const Layout& to, std::optional<Ref> target = std::nullopt);
  int64_t weights_in_graph() const;
  int constant_place(ValueId value, const KernelCall& call, int input);
  void release_constant(ValueId value);
  void finish_outputs();
  void finish_slots();

  Graph& graph_;
  const PlanOptions& options_;
  const Ceilings& ceilings_;  // for floors
  const Ceilings choosing_;   // for kernels
  ConstantStore& store_;
  const bool consume_;
  int64_t weight_bytes_ = 0;  // alive now: in the graph or packed
  int threads_;
  int lanes_;  // what kernels are told as threads
  Bindings bindings_;
  Plan plan_;
  std::vector<NodeId> order_;
  std::vector<char> needed_node_;
  std::vector<int> last_reader_;       // by value
  std::vector<int> constant_readers_;  // by value: needed nodes still to be lowered
  std::vector<Extents> shapes_;        // by value, evaluated
  std::vector<Tensor> known_;          // by value: content known from shape arithmetic
  std::vector<char> stored_last_;      // by value: an image that is stored with its channels innermost
  std::vector<Ref> refs_;              // by value
  std::vector<Buffer> buffers_;
  std::vector<int> concat_buffer_;  // by node: the buffer of a Concat whose inputs are written in place; -1: none
};

}  // namespace ridgeline
