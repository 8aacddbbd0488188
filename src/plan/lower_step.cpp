// Lowering one node to a step: which layouts, which kernel, which memory.
#include <algorithm>
#include <cassert>
#include <climits>
#include <limits>

#include "ir/control.h"
#include "kernels/reference/reference.h"
#include "plan/lower.h"
#include "tune/known.h"

namespace ridgeline {
namespace {

const OpSchema& copy_op() {
  static const OpSchema* const op = find_op("Copy", "ridgeline");
  assert(op);
  return *op;
}

std::string_view forced_kernel(const PlanOptions& options, const Node& node) {
  if (const auto it = options.forced.find(node.name); it != options.forced.end()) return it->second;
  return options.reference_only ? kReferenceKernel : "";
}

// Constants as this kernel stores them, and its workspace.
int64_t bytes_of_call(const Problem& problem, const Candidate& candidate) {
  const Kernel& kernel = *candidate.kernel;
  int64_t bytes = kernel.workspace ? kernel.workspace(problem, candidate.tile) : 0;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (!problem.inputs[i].is_constant) continue;
    const Packing packing = kernel.packing ? kernel.packing(problem, candidate.tile, int(i)) : Packing{};
    bytes += packing.key.empty() ? problem.inputs[i].bytes() : packing.bytes;
  }
  return bytes;
}

bool was_measured(const Choice& choice) { return choice.chosen_by == "tuned" || choice.chosen_by == "table"; }

// Where a measurement overruled the model, the model's own best: layouts are compared by one measure, and what was
// found to be faster than that is not worse.
double estimate_of(const Choice& choice) {
  double least = choice.winner().estimate_ns;
  if (!was_measured(choice)) return least;
  for (const Candidate& c : choice.candidates)
    if (c.support.ok && !is_reference(*c.kernel)) least = std::min(least, c.estimate_ns);
  return least;
}

}  // namespace

// The layouts the output may get, preferred first.
std::vector<Layout> Lowering::output_layouts(const Node& node, const Problem& problem, int output) {
  const ValueId v = node.outputs[size_t(output)];
  const Layout row_major(problem.output(output).shape());
  if (v == kNoValue || output > 0) return {row_major};
  const Value& value = graph_.value(v);
  std::vector<Layout> layouts;
  if (value.is_output) layouts.push_back(row_major);
  if (options_.views) {
    if (const std::optional<Ref> slice = concat_slice(v)) layouts.push_back(slice->layout);
    if (const std::optional<Layout> transposed = layout_for_transposed_reader(v)) layouts.push_back(*transposed);
  }
  if (stored_last_[size_t(v)]) layouts.push_back(Layout::channels_last(problem.output().shape()));
  if (problem.op->is_elementwise()) {
    // Elementwise work walks memory as its largest operand lies.
    for (const Operand& input : problem.inputs) {
      if (!input.is_constant && input.shape() == problem.output().shape() && input.layout.is_dense()) {
        layouts.push_back(input.layout);
        break;
      }
    }
  }
  layouts.push_back(row_major);
  std::vector<Layout> unique;
  for (Layout& l : layouts)
    if (std::find(unique.begin(), unique.end(), l) == unique.end()) unique.push_back(std::move(l));
  return unique;
}

std::optional<Lowering::Ref> Lowering::concat_slice(ValueId v) {
  if (graph_.uses(v) != 1 || graph_.value(v).is_output) return std::nullopt;
  const Node& concat = graph_.node(graph_.users(v)[0]);
  if (!concat.is("Concat") || !needed_node_[size_t(concat.id)]) return std::nullopt;
  const Value& out = graph_.value(concat.output());
  if (out.is_output || info(out.dtype()).bits < 8) return std::nullopt;
  if (std::count(concat.inputs.begin(), concat.inputs.end(), v) != 1) return std::nullopt;
  const Extents& shape = shapes_[size_t(concat.output())];
  const Layout whole = stored_last_[size_t(concat.output())] ? Layout::channels_last(shape) : Layout(shape);
  const int64_t given = schema_integer(*concat.op, concat.attributes, "axis");
  const size_t axis = size_t(given < 0 ? given + whole.rank() : given);
  int64_t offset = 0;
  for (ValueId input : concat.inputs) {
    if (input == v) break;
    offset += shapes_[size_t(input)][axis];
  }
  Ref ref;
  ref.buffer = concat_buffer_[size_t(concat.id)];
  ref.layout = Layout(shapes_[size_t(v)], whole.strides);
  ref.offset_bytes = bytes_of(out.dtype(), offset * whole.strides[axis]);
  ref.ready = true;
  return ref;
}

// If the value is only read through a Transpose, it is stored so that the transposed value is row-major ("head merge as
// strides").
std::optional<Layout> Lowering::layout_for_transposed_reader(ValueId v) {
  if (graph_.uses(v) != 1 || graph_.value(v).is_output) return std::nullopt;
  const Node& reader = graph_.node(graph_.users(v)[0]);
  if (!reader.is("Transpose")) return std::nullopt;
  std::vector<int64_t> perm = reader.attributes.integers("perm");
  const int rank = int(shapes_[size_t(v)].size());
  if (perm.empty())
    for (int a = rank; a-- > 0;) perm.push_back(a);
  std::vector<int> order(perm.begin(), perm.end());
  // The last axis stays innermost: kernels write rows.
  if (order.empty() || order.back() != rank - 1) return std::nullopt;
  return Layout::ordered(shapes_[size_t(v)], order);
}

// Are all constants of the step in the store as this kernel wants them?
bool Lowering::stands_packed(const Node& node, const Problem& problem, const Candidate& candidate) const {
  for (size_t i = 0; i < node.inputs.size() && i < problem.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue || !problem.inputs[i].is_constant) continue;
    const Value& value = graph_.value(node.inputs[i]);
    if (value.constant_id == 0) continue;
    const Packing packing =
        candidate.kernel->packing ? candidate.kernel->packing(problem, candidate.tile, int(i)) : Packing{};
    if (!packing.key.empty() && !store_.find({value.constant_id, packing.key})) return false;
  }
  return true;
}

void Lowering::prefer_packed(const Node& node, const Problem& problem, Choice& choice) const {
  if (choice.chosen < 0 || stands_packed(node, problem, choice.winner())) return;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    Candidate candidate = choice.candidates[i];
    const Kernel& kernel = *candidate.kernel;
    if (!candidate.support.ok || is_reference(kernel)) continue;
    // Tiles may be packed differently: Winograd's 4x2 and 4x4.
    for (const Tile& tile : kernel.tiles ? kernel.tiles(problem) : std::vector<Tile>{candidate.tile}) {
      candidate.tile = tile;
      if (!stands_packed(node, problem, candidate)) continue;
      candidate.estimate_ns = kernel.estimate(problem, tile, choosing_);
      if (candidate.estimate_ns >= least) continue;
      least = candidate.estimate_ns;
      choice.candidates[i] = candidate;
      choice.chosen = int(i);
    }
  }
}

// Where memory has a price: the kernel and tile of the least estimate + price * (weights as it stores them +
// workspace). Of a plan's workspaces only the largest counts in the end; here each does, which is an upper bound.
void Lowering::prefer_small(const Problem& problem, Choice& choice) const {
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < choice.candidates.size(); ++i) {
    Candidate candidate = choice.candidates[i];
    const Kernel& kernel = *candidate.kernel;
    if (!candidate.support.ok || (is_reference(kernel) && !is_reference(*choice.winner().kernel))) continue;
    for (const Tile& tile : kernel.tiles ? kernel.tiles(problem) : std::vector<Tile>{candidate.tile}) {
      candidate.tile = tile;
      candidate.estimate_ns = kernel.estimate(problem, tile, choosing_);
      const double cost = candidate.estimate_ns + options_.ns_per_byte * double(bytes_of_call(problem, candidate));
      if (cost >= least) continue;
      least = cost;
      choice.candidates[i] = candidate;
      choice.chosen = int(i);
    }
  }
}

// Between layouts: a transposing copy of 1.2 MB takes 110 to 200 us in a model, of 37 KB 5: both at DRAM's speed,
// though they would fit a cache.
double Lowering::copy_ns(const Operand& operand) const {
  return 1.4 * choosing_.stream_ns(operand.bytes(), operand.bytes(), lanes_, MemoryLevel::kDram) + 500;
}

void Lowering::consider(std::optional<Variant>& best, const Node& node, Problem problem,
                        std::vector<std::pair<int, Layout>> copies) {
  Variant variant;
  const std::string_view forced = forced_kernel(options_, node);
  for (const auto& [input, layout] : copies) {
    const Operand& operand = problem.inputs[size_t(input)];
    variant.cost_ns += copy_ns(operand);
    problem.inputs[size_t(input)].layout = layout;
  }
  // A kernel that was asked for by name may want other layouts than these: another variant has them.
  for (const Kernel* kernel : kernels_of(problem.op->name, problem.device))
    if (kernel->name == forced && !kernel->supports(problem).ok) return;
  // What was measured depends on the machine and the threads: not where bits are to be the same on all.
  variant.choice =
      options_.deterministic ? choose_kernel(problem, choosing_, forced) : choose(problem, choosing_, forced);
  const Kernel* const known = variant.choice.winner().kernel;
  const Tile known_tile = variant.choice.winner().tile;
  if (options_.keep_packings && forced.empty()) prefer_packed(node, problem, variant.choice);
  if (options_.ns_per_byte > 0 && forced.empty()) {
    prefer_small(problem, variant.choice);
    variant.cost_ns += options_.ns_per_byte * double(bytes_of_call(problem, variant.choice.winner()));
  }
  if (was_measured(variant.choice) &&
      (variant.choice.winner().kernel != known || variant.choice.winner().tile != known_tile))
    variant.choice.chosen_by = "model";  // packed weights or memory counted for more
  variant.cost_ns += estimate_of(variant.choice);
  // What only the host runs is a last resort, as the reference is.
  variant.reference =
      is_reference(*variant.choice.winner().kernel) || on_host(problem, *variant.choice.winner().kernel);
  variant.problem = std::move(problem);
  variant.copies = std::move(copies);
  if (!best || (best->reference && !variant.reference) ||
      (best->reference == variant.reference && variant.cost_ns < best->cost_ns))
    best = std::move(variant);
}

void Lowering::consider_with_copies(std::optional<Variant>& best, const Node& node, const Problem& p) {
  consider(best, node, p, {});
  const Layout& layout = p.outputs[0].layout;
  std::vector<std::pair<int, Layout>> to_row_major, to_channels_last;
  const bool channels_last = layout.is_channels_last() && !layout.is_row_major();
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const Operand& input = p.inputs[i];
    if (!input.present() || input.is_constant || info(input.dtype).bits < 8) continue;
    if (!input.layout.is_row_major()) to_row_major.push_back({int(i), Layout(input.shape())});
    if (channels_last && input.layout.rank() == layout.rank() && !input.layout.is_channels_last()) {
      to_channels_last.push_back({int(i), Layout::channels_last(input.shape())});
    }
  }
  if (!to_row_major.empty() && !channels_last) consider(best, node, p, to_row_major);
  if (!to_channels_last.empty()) consider(best, node, p, to_channels_last);
}

Lowering::Variant Lowering::best_variant(const Node& node, const Problem& problem) {
  std::optional<Variant> best;
  for (const Layout& layout : output_layouts(node, problem, 0)) {
    Problem p = problem;
    p.outputs[0].layout = layout;
    consider_with_copies(best, node, p);
    if (best && !best->reference) return std::move(*best);
  }
  if (!best) choose(problem, choosing_, forced_kernel(options_, node));  // which says why not
  assert(best);
  return std::move(*best);
}

Lowering::Ref Lowering::allocate_output(const Node& node, int output, const Problem& problem, const KernelCall& call,
                                        int position) {
  const ValueId v = node.outputs[size_t(output)];
  const Operand& operand = problem.output(output);
  Ref ref{-1, 0, operand.layout, true};
  const Value& value = graph_.value(v);
  if (value.is_output && operand.layout.is_row_major()) {
    const int index = int(std::find(graph_.outputs.begin(), graph_.outputs.end(), v) - graph_.outputs.begin());
    Buffer buffer;
    buffer.kind = Place::Kind::kOutput;
    buffer.index = index;
    buffer.bytes = operand.bytes();
    buffer.last_reader = INT_MAX;
    buffers_.push_back(buffer);
    ref.buffer = int(buffers_.size()) - 1;
    return ref;
  }
  if (options_.views && output == 0) {
    if (std::optional<Ref> slice = concat_slice(v); slice && slice->layout == operand.layout) {
      const Node& concat = graph_.node(graph_.users(v)[0]);
      int& buffer = concat_buffer_[size_t(concat.id)];
      if (buffer < 0) {
        const ValueId whole = concat.output();
        buffer = new_buffer(bytes_of(graph_.value(whole).dtype(), element_count(shapes_[size_t(whole)])),
                            last_reader_[size_t(whole)]);
      }
      slice->buffer = buffer;
      return *slice;
    }
    for (size_t i = 0; i < problem.inputs.size() && call.kernel->in_place; ++i) {
      if (int(i) >= int(node.inputs.size()) || !call.kernel->in_place(call.problem, int(i))) continue;
      if (problem.op->is_elementwise() && problem.inputs.size() != node.inputs.size()) continue;
      const ValueId in = node.inputs[i];
      if (in == kNoValue || !refs_[size_t(in)].ready) continue;
      const Ref& source = refs_[size_t(in)];
      const Buffer& buffer = buffers_[size_t(source.buffer)];
      if (buffer.kind != Place::Kind::kArena || buffer.last_reader > position || source.offset_bytes != 0) continue;
      if (problem.inputs[i].layout != operand.layout || source.layout != operand.layout) continue;
      if (buffer.bytes != operand.bytes() || problem.inputs[i].bytes() != operand.bytes()) continue;
      const auto shares = [&](ValueId other) {
        return other != kNoValue && refs_[size_t(other)].ready && refs_[size_t(other)].buffer == source.buffer;
      };
      if (std::count_if(node.inputs.begin(), node.inputs.end(), shares) != 1) continue;
      ref.buffer = source.buffer;
      buffers_[size_t(source.buffer)].last_reader = last_reader_[size_t(v)];
      return ref;
    }
  }
  ref.buffer = new_buffer(bytes_of(operand.dtype, operand.layout.span()), last_reader_[size_t(v)]);
  return ref;
}

// A call as bind_kernel makes it, but for machine code of a GPU: that is loaded where the plan runs.
void Lowering::bind(Step& step, const Problem& problem) {
  const Candidate& winner = step.choice.winner();
  KernelCall& call = step.call;
  call.kernel = winner.kernel;
  call.tile = winner.tile;
  call.problem = problem;
  Problem asked = problem;
  if (on_host(problem, *winner.kernel)) asked.device = DeviceKind::kCpu;
  if (winner.kernel->workspace) call.workspace_bytes = winner.kernel->workspace(asked, winner.tile);
  if (winner.kernel->prepare) call.state = winner.kernel->prepare(asked, winner.tile);
}

Lowering::Ref Lowering::emit_copy(const std::string& name, const std::vector<std::string>& origin, const Ref& from,
                                  DType dtype, const Layout& to, std::optional<Ref> target) {
  Problem p;
  p.op = &copy_op();
  p.threads = lanes_;
  p.device = options_.device;
  p.op_inputs = 1;
  Operand in, out;
  in.dtype = out.dtype = dtype;
  in.layout = from.layout;
  out.layout = to;
  p.inputs = {in};
  p.outputs = {out};
  Step step;
  step.kind = Step::Kind::kCopy;
  step.name = name;
  step.origin = origin;
  step.choice = choose_kernel(p, choosing_, options_.reference_only ? kReferenceKernel : "");
  bind(step, p);
  step.predicted_ns = step.choice.winner().estimate_ns;
  Ref ref = target ? *target : Ref{new_buffer(bytes_of(dtype, to.span()), -1), 0, to, true};
  emit(std::move(step), {from}, {}, {ref});
  return ref;
}

void Lowering::lower_as_step(const Node& node, Problem problem, int position) {
  const bool empty = std::all_of(problem.outputs.begin(), problem.outputs.end(),
                                 [](const Operand& o) { return !o.present() || o.elements() == 0; });
  if (empty) {  // nothing to compute: the values exist, without a step
    for (ValueId v : node.outputs)
      if (v != kNoValue)
        refs_[size_t(v)] = {new_buffer(0, last_reader_[size_t(v)]), 0, Layout(shapes_[size_t(v)]), true};
    return;
  }
  if (has_bodies(*node.op) && lower_control(node, problem, position)) return;
  Variant variant = best_variant(node, problem);
  Step step;
  step.name = node.name;
  step.origin = node.origin;
  step.choice = std::move(variant.choice);
  step.predicted_ns = step.choice.winner().estimate_ns;
  bind(step, variant.problem);

  // Elementwise problems leave omitted operands out; inputs follow the problem's order.
  std::vector<ValueId> values;
  for (ValueId v : node.inputs)
    if (!node.op->is_elementwise() || v != kNoValue) values.push_back(v);
  values.resize(std::min(values.size(), variant.problem.inputs.size()));
  std::vector<Ref> inputs, outputs;
  for (ValueId v : values) inputs.push_back(v == kNoValue || !refs_[size_t(v)].ready ? Ref{} : refs_[size_t(v)]);
  for (const auto& [input, layout] : variant.copies) {
    inputs[size_t(input)] =
        emit_copy(node.name, node.origin, inputs[size_t(input)], variant.problem.inputs[size_t(input)].dtype, layout);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    const ValueId v = node.outputs[o];
    outputs.push_back(v == kNoValue ? Ref{} : allocate_output(node, int(o), variant.problem, step.call, position));
  }
  emit(std::move(step), inputs, values, outputs);
  for (size_t o = 0; o < node.outputs.size(); ++o)
    if (node.outputs[o] != kNoValue) refs_[size_t(node.outputs[o])] = outputs[o];
}

}  // namespace ridgeline
