// The session drives everything: load a model, bind its dimensions, make its inputs, optimize, plan, run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "optimize/pipeline.h"
#include "plan/plan.h"
#include "tune/timing.h"

namespace ridgeline {

using Feeds = std::map<std::string, Tensor>;  // by input name

struct LoadOptions {
  Bindings dims;  // --dim NAME=N
  Feeds inputs;   // given ones; shapes bind symbols
  uint64_t seed = 0;
  bool make_inputs = true;  // fill in what is not given
  int64_t batch = 0;        // > 0: dim 0 of every input becomes this (the reference on fewer items of a batch)
};

struct SavedPlan;  // session/saved_plan.h

/// A model as imported, with its symbols bound and every input at hand.
struct Model {
  std::string path;
  Graph graph;  // symbolic dims stay; `bindings` has their extents
  Bindings bindings;
  Feeds feeds;
  std::vector<std::string> value_inputs;  // inputs on whose content shapes depend: constants in `graph` now
  std::vector<std::string> input_names, output_names;  // as the file lists them
  double load_ms = 0;
  std::shared_ptr<const SavedPlan> saved;  // null: from a model file
};

/// Throws Error that names the file, and the input or dimension that does not fit.
Model load_model(const std::string& path, const LoadOptions& options);
/// The same for a graph that is at hand.
Model bind_model(Graph graph, const LoadOptions& options);

struct CompileOptions {
  PipelineOptions pipeline;
  PlanOptions plan;      // bindings and ceilings are filled in
  bool consume = false;  // release the model's weights while packing: for one plan that stays
  /// Most bytes that the plan may take, packing included (Plan::peak_bytes_with_packing of a consuming plan); 0: no
  /// limit, below 0: nothing fits. The fastest plan within it is made, by raising the price of memory; Error{kResource}
  /// with the smallest feasible number if there is none.
  int64_t memory_budget = 0;
  /// For that message, which speaks of the process: what it takes beside the plan, and by what predictions are
  /// enlarged.
  int64_t process_bytes = 0;
  std::function<int64_t()> most_resident;  // of the process so far: what loading and the passes took
  double memory_margin = 1;
};

struct Compiled {
  Graph graph;  // optimized
  std::shared_ptr<const Plan> plan;
  Decisions decisions;
  std::vector<PassTime> pass_times;
  double optimize_ms = 0, plan_ms = 0;
  std::vector<std::string> notes;  // on a saved plan: what did not fit, what was written
};

/// Optimizes a copy of the model's graph (or, consuming, the graph itself) and lowers it.
Compiled compile(Model& model, const CompileOptions& options, ConstantStore& store);

/// Prices of a byte of memory in ns, rising from 0, at which plans are tried where memory counts (memory.cpp).
std::span<const double> memory_prices();
/// What a plan of this graph would take at this price, its weights consumed: nothing is packed.
Plan dry_plan(Graph& graph, PlanOptions options, double ns_per_byte);
/// The lowest of the prices at which the plan fits; throws as CompileOptions::memory_budget says.
double price_within(Graph& graph, const PlanOptions& plan, const CompileOptions& options);

/// The same for a model: its graph stays as it is.
double price_within(const Model& model, const CompileOptions& options);

/// "all", "none" or names separated by commas, with single passes switched off. Throws Error{kUsage} that lists the
/// names.
PipelineOptions parse_pipeline(const std::string& passes, const std::vector<std::string>& disabled);

/// Adds what --precision asks for: "f32" nothing, else its lossy pass. Throws Error{kUsage} where single passes were
/// named.
void ask_precision(PipelineOptions& options, const std::string& precision);

/// The machine's ceilings if they were measured before; nullptr otherwise (plans then use neutral figures). Never
/// measures.
const Ceilings* cached_ceilings();

/// Plan options for a stage: views and in-place memory belong to the whole graph.
PlanOptions plan_options_for(const PipelineOptions& pipeline, const PlanOptions& base);

/// A plan with buffers of its own for inputs and outputs.
class Runner {
 public:
  Runner(std::shared_ptr<const Plan> plan, const Feeds& feeds);
  void run() { executor_.run(in_, out_); }
  double timed_ns() { return executor_.timed_ns(in_, out_); }
  void run_profiled(std::vector<Executor::StepTime>& times) { executor_.run_profiled(in_, out_, times); }
  void run_observed(const std::function<void(int, int, const TensorView&)>& observe) {
    executor_.run_observed(in_, out_, observe);
  }
  const std::vector<Tensor>& outputs() const { return outputs_; }
  Executor& executor() { return executor_; }

 private:
  Executor executor_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
};

/// Runs of each in turn, interleaved: on a CPU timed by the clock, on a GPU by the device (transfers apart).
std::vector<Samples> measure_runners(const std::vector<Runner*>& runners, const TimingOptions& options);

/// The reference: every node of the graph by its naive reference, in double. `observe` sees each value as it is
/// computed.
std::vector<Tensor> run_reference_graph(const Graph& graph, const Feeds& feeds, int threads,
                                        const std::function<void(ValueId, const Tensor&)>& observe = nullptr);

/// The reference's outputs for this model and these inputs, from the cache folder if they were computed before. On at
/// most two items of a batch where the model allows it: `items` says of how many (0: all).
struct ReferenceResult {
  std::vector<Tensor> outputs;
  int64_t items = 0;
};
ReferenceResult reference_outputs(const Model& model, int threads);

/// Seeded inputs, by the rules of the command line's documentation: floats N(0,1); masks ones; token types zeros; other
/// integers 0 to 999, clipped to the rows of the tensor that they index.
Tensor make_input(const Graph& graph, ValueId input, const Extents& shape, uint64_t seed);

}  // namespace ridgeline
