#include "plan/control.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

namespace ridgeline {
namespace {

constexpr int64_t kAlignment = 64;
// Steps that iterations may run, loops in loops together: a second or two of the smallest kernels. Files come from
// strangers: a loop without an end is an error.
constexpr int64_t kMostSteps = int64_t(1) << 23;

struct Work {
  int depth = 0;
  int64_t steps = 0;
};
thread_local Work work;

struct WorkScope {
  WorkScope() {
    if (work.depth++ == 0) work.steps = 0;
  }
  ~WorkScope() { --work.depth; }
  WorkScope(const WorkScope&) = delete;
  WorkScope& operator=(const WorkScope&) = delete;
};

std::atomic<int> profilers{0};

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t bytes_of_tensor(const PlanTensor& t) { return bytes_of(t.dtype, element_count(t.shape)); }

/// Addresses of a plan's steps, filled anew for each run.
class BodyRun {
 public:
  BodyRun(const Plan& plan, BodyTimes& times)
      : plan_(plan), times_(times), inputs_(plan.steps.size()), outputs_(plan.steps.size()) {
    for (size_t s = 0; s < plan.steps.size(); ++s) {
      inputs_[s].resize(plan.steps[s].inputs.size(), nullptr);
      outputs_[s].resize(plan.steps[s].outputs.size(), nullptr);
    }
  }

  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs, char* arena,
           const ThreadPool& pool) {
    const auto address = [&](const Place& p) -> void* {
      switch (p.kind) {
        case Place::Kind::kArena:
          return arena + plan_.slots[size_t(p.index)].offset_bytes + p.offset_bytes;
        case Place::Kind::kConstant:
          return static_cast<char*>(plan_.constants[size_t(p.index)].data()) + p.offset_bytes;
        case Place::Kind::kInput:
          return const_cast<char*>(static_cast<const char*>(inputs[size_t(p.index)])) + p.offset_bytes;
        case Place::Kind::kOutput:
          return static_cast<char*>(outputs[size_t(p.index)]) + p.offset_bytes;
        default:
          return nullptr;
      }
    };
    const bool timed = profilers.load(std::memory_order_relaxed) > 0;
    if (timed) ++times_.runs;
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      const Step& step = plan_.steps[s];
      const int64_t start = timed ? now_ns() : 0;
      for (size_t i = 0; i < step.inputs.size(); ++i) inputs_[s][i] = address(step.inputs[i]);
      for (size_t o = 0; o < step.outputs.size(); ++o) outputs_[s][o] = address(step.outputs[o]);
      void* const workspace =
          step.workspace_slot < 0 ? nullptr : arena + plan_.slots[size_t(step.workspace_slot)].offset_bytes;
      try {
        step.call.kernel->run(step.call, {inputs_[s].data(), outputs_[s].data(), workspace}, pool);
      } catch (const Error& error) {
        throw Error(error.code(),
                    fmt::format("node '{}' ({}): {}", step.name, step.call.problem.op->name, error.what()));
      }
      if (timed) times_.ns[s] += now_ns() - start;
    }
    for (const Plan::PassThrough& p : plan_.pass_through) {
      void* const to = outputs[size_t(p.output)];
      const void* const from = address(p.from);
      const int64_t bytes = bytes_of_tensor(plan_.outputs[size_t(p.output)]);
      if (bytes > 0 && from != to) std::memmove(to, from, size_t(bytes));
    }
  }

 private:
  const Plan& plan_;
  BodyTimes& times_;
  std::vector<std::vector<void*>> inputs_, outputs_;
};

/// Where the slices of one operand of a loop lie: `outer` runs of `inner` bytes, `extent` of them side by side.
struct Slices {
  int64_t outer = 1, inner = 0, extent = 0;
  bool backwards = false;
  bool in_place() const { return outer == 1; }
  int64_t bytes() const { return outer * inner; }
  int64_t at(int64_t trip) const { return (backwards ? extent - 1 - trip : trip) * inner; }
};

Slices slices_of(const Operand& operand, const ScanAxis& scan) {
  const Extents& shape = operand.shape();
  const auto axis = size_t(scan.axis < 0 ? scan.axis + int64_t(shape.size()) : scan.axis);
  Slices s;
  s.backwards = scan.backwards;
  s.extent = shape[axis];
  s.inner = info(operand.dtype).bits / 8;
  for (size_t a = 0; a < axis; ++a) s.outer *= shape[a];
  for (size_t a = axis + 1; a < shape.size(); ++a) s.inner *= shape[a];
  return s;
}

void copy_slices(const Slices& s, const char* from, int64_t from_step, char* to, int64_t to_step) {
  for (int64_t o = 0; o < s.outer && s.inner > 0; ++o)
    std::memcpy(to + o * to_step, from + o * from_step, size_t(s.inner));
}

}  // namespace

// Runs of one step may overlap (two executors of one plan): each takes tables of its own and gives them back.
class ControlState {
 public:
  std::vector<PlannedBody> bodies;
  LoopForm form;
  int64_t arena_bytes = 0;
  int64_t counters = 0, conditions[2] = {0, 0};         // in the workspace
  std::vector<int64_t> carried[2], scanned, collected;  // the same; -1: used where it lies
  std::vector<Slices> scanned_slices, collected_slices;

  struct Tables {
    std::vector<std::unique_ptr<BodyRun>> bodies;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };
  std::unique_ptr<Tables> take() const {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Tables> tables = std::move(free_.back());
        free_.pop_back();
        return tables;
      }
    }
    auto tables = std::make_unique<Tables>();
    for (const PlannedBody& body : bodies)
      tables->bodies.push_back(body.plan ? std::make_unique<BodyRun>(*body.plan, *body.times) : nullptr);
    return tables;
  }
  void give_back(std::unique_ptr<Tables> tables) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(tables));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Tables>> free_;
};

namespace {

struct Lease {
  explicit Lease(const ControlState& state_) : state(state_), tables(state_.take()) {}
  ~Lease() { state.give_back(std::move(tables)); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  const ControlState& state;
  std::unique_ptr<ControlState::Tables> tables;
};

void run_branch(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const auto& state = call.state_as<ControlState>();
  const Operand& condition = call.problem.input(0);
  const bool taken = load_i64(condition.dtype, buffers.inputs[0], 0) != 0;
  const PlannedBody& body = state.bodies[taken ? 0 : 1];
  if (!body.plan)
    fail(ErrorCode::kBadInput, "its {} branch is taken, which does not fit: {}", body.label, body.why_not);
  Lease lease(state);
  ControlState::Tables& t = *lease.tables;
  t.inputs.assign(buffers.inputs + 1, buffers.inputs + call.problem.inputs.size());
  t.outputs.assign(buffers.outputs, buffers.outputs + call.problem.outputs.size());
  t.bodies[taken ? 0 : 1]->run(t.inputs, t.outputs, static_cast<char*>(buffers.workspace), pool);
}

class LoopRun {
 public:
  LoopRun(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool)
      : state_(call.state_as<ControlState>()),
        form_(state_.form),
        plan_(*state_.bodies[0].plan),
        problem_(call.problem),
        buffers_(buffers),
        pool_(pool),
        workspace_(static_cast<char*>(buffers.workspace)),
        lease_(state_) {}

  void run() {
    int64_t trips = INT64_MAX;
    bool keep = true;
    if (form_.conditions > 0) {
      if (problem_.input(0).present()) trips = load_i64(problem_.input(0).dtype, buffers_.inputs[0], 0);
      if (problem_.input(1).present()) keep = load_i64(problem_.input(1).dtype, buffers_.inputs[1], 0) != 0;
    } else {
      trips = state_.scanned_slices[0].extent;
    }
    ControlState::Tables& t = *lease_.tables;
    t.inputs.assign(buffers_.inputs, buffers_.inputs + problem_.inputs.size());
    t.outputs.assign(plan_.outputs.size(), nullptr);
    const WorkScope scope;
    int64_t trip = 0;
    for (; keep && trip < trips; ++trip) {
      work.steps += 1 + plan_.kernel_count();
      if (work.steps > kMostSteps)
        fail(ErrorCode::kResource, "its iterations run more than {} steps, the limit of loops", kMostSteps);
      place_inputs(trip);
      place_outputs(trip);
      t.bodies[0]->run(t.inputs, t.outputs, workspace_, pool_);
      keep = after(trip);
    }
    for (int k = 0; k < form_.carried; ++k) {
      const auto at = size_t(form_.conditions + k);
      const int64_t bytes = problem_.inputs[at].bytes();
      if (buffers_.outputs[k] && bytes > 0) std::memcpy(buffers_.outputs[k], t.inputs[at], size_t(bytes));
    }
  }

 private:
  void place_inputs(int64_t trip) {
    ControlState::Tables& t = *lease_.tables;
    if (form_.conditions > 0) {
      store_i64(DType::kI64, workspace_ + state_.counters, 0, trip);
      store_i64(DType::kBool, workspace_ + state_.conditions[0], 0, 1);
      t.inputs[0] = workspace_ + state_.counters;
      t.inputs[1] = workspace_ + state_.conditions[0];
    }
    for (int k = 0; k < form_.scanned; ++k) {
      const Slices& s = state_.scanned_slices[size_t(k)];
      const auto at = size_t(form_.conditions + form_.carried + k);
      const char* const from = static_cast<const char*>(buffers_.inputs[at]) + s.at(trip);
      if (s.in_place()) {
        t.inputs[at] = from;
        continue;
      }
      char* const to = workspace_ + state_.scanned[size_t(k)];
      copy_slices(s, from, s.extent * s.inner, to, s.inner);
      t.inputs[at] = to;
    }
  }

  void place_outputs(int64_t trip) {
    ControlState::Tables& t = *lease_.tables;
    if (form_.conditions > 0) t.outputs[0] = workspace_ + state_.conditions[1];
    for (int k = 0; k < form_.carried; ++k)
      t.outputs[size_t(form_.first_result() + k)] = workspace_ + state_.carried[trip & 1][size_t(k)];
    for (int k = 0; k < form_.collected; ++k) {
      const Slices& s = state_.collected_slices[size_t(k)];
      char* const whole = static_cast<char*>(buffers_.outputs[form_.carried + k]);
      t.outputs[size_t(form_.first_result() + form_.carried + k)] =
          s.in_place() && whole ? whole + s.at(trip) : workspace_ + state_.collected[size_t(k)];
    }
  }

  /// What an iteration leaves for the next; does it go on?
  bool after(int64_t trip) {
    ControlState::Tables& t = *lease_.tables;
    for (int k = 0; k < form_.carried; ++k)
      t.inputs[size_t(form_.conditions + k)] = t.outputs[size_t(form_.first_result() + k)];
    for (int k = 0; k < form_.collected; ++k) {
      const Slices& s = state_.collected_slices[size_t(k)];
      char* const whole = static_cast<char*>(buffers_.outputs[form_.carried + k]);
      if (s.in_place() || !whole) continue;
      copy_slices(s, workspace_ + state_.collected[size_t(k)], s.inner, whole + s.at(trip), s.extent * s.inner);
    }
    return form_.conditions == 0 || load_i64(DType::kBool, t.outputs[0], 0) != 0;
  }

  const ControlState& state_;
  const LoopForm& form_;
  const Plan& plan_;
  const Problem& problem_;
  const Buffers& buffers_;
  const ThreadPool& pool_;
  char* const workspace_;
  Lease lease_;
};

void run_loop(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  LoopRun(call, buffers, pool).run();
}

constexpr Kernel kBranchKernel = {.name = "cpu.branch", .op = "If", .run = run_branch};
constexpr Kernel kLoopKernel = {.name = "cpu.loop", .op = "Loop", .run = run_loop};

double predicted(const Plan& plan) {
  double total = 0;
  for (const Step& step : plan.steps) total += step.predicted_ns;
  return total;
}

}  // namespace

BodyProfiling::BodyProfiling() { ++profilers; }
BodyProfiling::~BodyProfiling() { --profilers; }

const std::vector<PlannedBody>& planned_bodies(const Step& step) {
  static const std::vector<PlannedBody> none;
  if (step.kind != Step::Kind::kBranch && step.kind != Step::Kind::kLoop) return none;
  return step.call.state_as<ControlState>().bodies;
}

ControlCall bind_control(const Problem& problem, std::vector<PlannedBody> bodies) {
  auto state = std::make_shared<ControlState>();
  ControlCall out;
  out.call.problem = problem;
  state->bodies = std::move(bodies);
  for (PlannedBody& body : state->bodies) {
    if (!body.plan) continue;
    body.times = std::make_shared<BodyTimes>(body.plan->steps.size());
    state->arena_bytes = std::max(state->arena_bytes, aligned(body.plan->arena_bytes));
    out.estimate_ns = std::max(out.estimate_ns, predicted(*body.plan));
  }
  int64_t workspace = state->arena_bytes;
  const auto reserve = [&](int64_t bytes) {
    const int64_t at = workspace;
    workspace += aligned(bytes);
    return at;
  };
  if (problem.op->name == "If") {
    out.call.kernel = &kBranchKernel;
    out.call.workspace_bytes = workspace;
    out.call.state = state;
    return out;
  }
  LoopForm& form = state->form;
  form = loop_form(*problem.op, problem.attributes, int(problem.inputs.size()));
  const Plan& plan = *state->bodies[0].plan;
  int64_t trips = 1;
  if (form.conditions > 0) {
    state->counters = reserve(int64_t(sizeof(int64_t)));
    for (int64_t& condition : state->conditions) condition = reserve(1);
    if (problem.input(0).constant) trips = std::max<int64_t>(0, problem.input(0).constant.i64(0));
  }
  for (std::vector<int64_t>& half : state->carried)
    for (int k = 0; k < form.carried; ++k)
      half.push_back(reserve(bytes_of_tensor(plan.outputs[size_t(form.first_result() + k)])));
  const std::vector<ScanAxis> in = scan_axes(problem.attributes, false, form.scanned);
  const std::vector<ScanAxis> collect = scan_axes(problem.attributes, true, form.collected);
  for (int k = 0; k < form.scanned; ++k) {
    state->scanned_slices.push_back(slices_of(problem.input(form.conditions + form.carried + k), in[size_t(k)]));
    const Slices& s = state->scanned_slices.back();
    state->scanned.push_back(s.in_place() ? -1 : reserve(s.bytes()));
    trips = s.extent;
  }
  for (int k = 0; k < form.collected; ++k) {
    const int o = form.carried + k;
    const PlanTensor& part = plan.outputs[size_t(form.first_result() + o)];
    if (problem.output(o).present())
      state->collected_slices.push_back(slices_of(problem.output(o), collect[size_t(k)]));
    else
      state->collected_slices.emplace_back();
    state->collected.push_back(reserve(bytes_of_tensor(part)));
  }
  // Where something is collected, or scanned, the count is known: a run would only fail.
  for (const Slices& s : state->collected_slices) trips = std::max(trips, s.extent);
  if ((form.scanned > 0 || form.collected > 0) && trips > kMostSteps / (1 + plan.kernel_count())) {
    fail(ErrorCode::kResource, "{} iterations of {} steps are more than the {} that loops may run", trips,
         plan.kernel_count(), kMostSteps);
  }
  out.kind = Step::Kind::kLoop;
  out.estimate_ns *= double(std::min<int64_t>(trips, kMostSteps));
  out.call.kernel = &kLoopKernel;
  out.call.workspace_bytes = workspace;
  out.call.state = state;
  return out;
}

std::string bind_bodies(const Graph& graph, const Node& node, std::vector<std::shared_ptr<Graph>>& bodies,
                        std::vector<std::string>& why_not) {
  for (const std::string_view key : bodies_of(*node.op)) {
    std::string why;
    std::optional<Graph> body = bound_body(graph, node, key, why);
    if (!body && !node.is("If")) return why;
    bodies.push_back(body ? std::make_shared<Graph>(std::move(*body)) : nullptr);
    why_not.push_back(std::move(why));
  }
  const bool any = std::any_of(bodies.begin(), bodies.end(), [](const auto& body) { return body != nullptr; });
  return any ? "" : why_not.front();
}

}  // namespace ridgeline
