#include "verify/check.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "ir/graph.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernel.h"
#include "kernels/reference/reference.h"
#include "ops/catalogue.h"
#include "verify/check_cuda.h"
#include "verify/check_parts.h"
#include "verify/guarded.h"

namespace ridgeline {

namespace {

// One problem with its inputs and what the reference makes of them.
struct Case {
  std::string line;
  Problem problem;
  uint64_t seed = 0;
  std::string kernel;  // only this one; "": all
  std::vector<Tensor> inputs;
  std::unique_ptr<Judge> judge;
};

// As lowering does it: a program's operands are the present inputs.
void drop_absent(Problem& p) {
  if (!p.op->is_elementwise()) return;
  std::erase_if(p.inputs, [](const Operand& operand) { return !operand.present(); });
  p.inputs.resize(std::min(p.inputs.size(), p.program->inputs.size()));
  p.op_inputs = int(p.inputs.size());
}

// Values of a broadcast axis (stride 0) are one element.
void fold_broadcast(const Operand& operand, Tensor& t) {
  const Layout& layout = operand.layout;
  for (size_t a = 0; a < layout.shape.size(); ++a) {
    if (layout.strides[a] != 0 || layout.shape[a] <= 1 || info(t.dtype()).bits < 8) continue;
    const std::vector<int64_t> strides = row_major_strides(layout.shape);
    const int64_t width = bytes_of(t.dtype(), 1);
    for (Index at(layout.shape); at.more(); ++at) {
      if (at[int(a)] == 0) continue;
      uint8_t* data = t.as<uint8_t>();
      std::memcpy(data + at.flat() * width, data + (at.flat() - at[int(a)] * strides[a]) * width, size_t(width));
    }
  }
}

// The part of a line that is ours: seed=, kernel=.
std::string take_word(std::string& line, std::string_view key) {
  const size_t at = line.find(" " + std::string(key) + "=");
  if (at == std::string::npos) return {};
  const size_t begin = at + key.size() + 2, end = std::min(line.find(' ', begin), line.size());
  const std::string value = line.substr(begin, end - begin);
  line.erase(at, end - at);
  return value;
}

// On the heap: the judge points into it.
std::unique_ptr<Case> make_case(std::string line, uint64_t seed, const CheckOptions& options) {
  const int threads = options.threads;
  auto made = std::make_unique<Case>();
  Case& c = *made;
  if (const std::string given = take_word(line, "seed"); !given.empty())
    seed = std::strtoull(given.c_str(), nullptr, 10);
  c.kernel = take_word(line, "kernel");
  const std::string name = line.substr(0, line.find(' '));
  const OpSchema* op = find_op_in_any_domain(name);
  if (!op) fail(ErrorCode::kUsage, "there is no operator '{}'", name);
  c.problem = parse_problem(*op, line);
  c.problem.threads = threads;
  c.problem.device = options.device;
  drop_absent(c.problem);
  c.seed = seed;
  c.line = fmt::format("{} seed={}", line, seed);
  c.inputs = fill_inputs(c.problem, seed);
  std::vector<TensorView> views, outputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    Operand& operand = c.problem.inputs[i];
    if (!operand.present()) {
      views.push_back({});
      continue;
    }
    fold_broadcast(operand, c.inputs[i]);
    if (operand.is_constant) operand.constant = c.inputs[i];
    views.push_back(c.inputs[i].view());
  }
  std::vector<RefArray> exact;
  run_reference_on_views(c.problem, views, outputs, &exact, threads);
  const bool epilogue = c.problem.has_epilogue();
  const RefArray accumulators = epilogue ? exact.back() : RefArray{};
  if (epilogue) exact.pop_back();
  c.judge = std::make_unique<Judge>(c.problem, c.inputs, std::move(exact), epilogue ? &accumulators : nullptr);
  return made;
}

std::string compare(const Case& c, const Candidate& candidate, const std::vector<Guarded>& outputs) {
  const auto amplification = [&](size_t o, int64_t k) {
    return o == 0 && candidate.kernel->amplification ? candidate.kernel->amplification(c.problem, candidate.tile, k)
                                                     : 1.0;
  };
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!c.problem.output(int(o)).present()) continue;
    const TensorView view = outputs[o].view();
    for (Index at(view.shape()); at.more(); ++at) {
      int64_t offset = 0;
      for (size_t a = 0; a < view.shape().size(); ++a) offset += at[int(a)] * view.layout.strides[a];
      std::string why =
          is_float(view.dtype)
              ? c.judge->reject(int(o), at.flat(), load_f64(view.dtype, view.data, offset), amplification(o, at.flat()))
              : c.judge->reject(int(o), at.flat(), load_i64(view.dtype, view.data, offset));
      if (!why.empty()) return why;
    }
  }
  return {};
}

// Empty if the kernel does what the reference does. `shared`: the input whose buffer output 0 takes, or -1.
std::string run_kernel(const Case& c, const Candidate& candidate, int shared, Random& random) {
  const Problem& p = c.problem;
  const KernelCall call = bind_kernel(p, candidate);
  std::vector<Guarded> inputs, outputs;
  std::vector<Tensor> constants;
  std::vector<void*> in, out;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const Operand& operand = p.inputs[i];
    // Slices begin anywhere: a quarter of the buffers is not aligned.
    inputs.emplace_back(operand.present() ? operand : Operand{DType::kU8, Layout({0})},
                        random.chance(0.25) ? 1 + random.below(15) : 0);
    if (!operand.present()) {
      in.push_back(nullptr);
    } else if (operand.is_constant) {
      constants.push_back(packed_constant(call, int(i), operand.constant));
      in.push_back(constants.back().data());
    } else {
      copy_elements(c.inputs[i].view(), inputs.back().view());
      in.push_back(inputs.back().data());
    }
  }
  for (size_t o = 0; o < p.outputs.size(); ++o) {
    const Operand& operand = p.outputs[o];
    if (o == 0 && shared >= 0) {
      outputs.push_back(inputs[size_t(shared)]);
    } else {
      outputs.emplace_back(operand.present() ? operand : Operand{DType::kU8, Layout({0})},
                           random.chance(0.25) ? 1 + random.below(15) : 0);
    }
    out.push_back(operand.present() ? outputs.back().data() : nullptr);
  }
  for (Guarded& input : inputs) input.keep();
  const std::shared_ptr<void> workspace = allocate(call.workspace_bytes + kGuardBytes);
  const bool mirrored = p.device == DeviceKind::kCuda;
  std::memset(workspace.get(), kPoison, size_t(call.workspace_bytes + kGuardBytes));
  if (mirrored) {
    std::vector<MirroredBuffer> buffers;
    std::vector<int> ins, outs;
    size_t next_constant = 0;
    for (size_t i = 0; i < p.inputs.size(); ++i) {
      ins.push_back(p.inputs[i].present() ? int(buffers.size()) : -1);
      if (!p.inputs[i].present()) continue;
      if (p.inputs[i].is_constant) {
        Tensor& constant = constants[next_constant++];
        buffers.push_back({constant.data(), constant.bytes(), 0});
      } else {
        buffers.push_back(inputs[i].mirrored());
      }
    }
    for (size_t o = 0; o < p.outputs.size(); ++o) {
      const bool own = p.outputs[o].present() && !(o == 0 && shared >= 0);
      outs.push_back(own ? int(buffers.size()) : o == 0 && shared >= 0 ? ins[size_t(shared)] : -1);
      if (own) buffers.push_back(outputs[o].mirrored());
    }
    buffers.push_back({workspace.get(), call.workspace_bytes + kGuardBytes, 0});
    run_mirrored(call, buffers, ins, outs, int(buffers.size()) - 1);
  } else {
    candidate.kernel->run(call, {in.data(), out.data(), workspace.get()}, ThreadPool(p.threads));
  }
  for (int64_t k = 0; k < kGuardBytes; ++k) {
    if (static_cast<uint8_t*>(workspace.get())[call.workspace_bytes + k] != kPoison)
      return fmt::format("writes beyond its workspace of {} bytes", call.workspace_bytes);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (int(i) != shared && inputs[i].changed()) return fmt::format("writes to input {} or beside it", i);
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].spoiled()) return fmt::format("writes beside output {}", o);
  }
  return compare(c, candidate, outputs);
}

void fail_case(CheckResult& result, const Case& c, const Kernel& kernel, const Tile& tile, const std::string& isa,
               const std::string& why) {
  result.failures.push_back(
      {fmt::format("{} kernel={}", c.line, kernel.name),
       fmt::format("{}{} (tile {})", isa.empty() ? "" : isa + ": ", why, fmt::join(tile.size, ","))});
}

using Runs = std::map<const Kernel*, int64_t>;

// After a few refusals a kernel is left alone: each is a compilation in vain.
bool beyond_emulation(const CheckResult& result, const Kernel& kernel) {
  constexpr int64_t kAttempts = 3;
  const auto at = result.not_emulated.find(std::string(kernel.name));
  return at != result.not_emulated.end() && at->second >= kAttempts;
}

// `budget`: null: whatever must be compiled is.
void run_case(const Case& c, const std::string& isa, CheckResult& result, Runs& runs,
              CompilationBudget* budget = nullptr) {
  ++result.cases;
  bool ok = true, others = false, ran = false;
  Random random(c.seed ^ 0x5bd1e995);
  const auto kernels = kernels_of(c.problem.op->name, c.problem.device);
  for (const Kernel* kernel : kernels) {
    const bool reference = is_reference(*kernel);
    if (!c.kernel.empty() && kernel->name != c.kernel) continue;
    if (reference && others && c.kernel.empty()) continue;  // it ran already, on row-major tensors
    Candidate candidate{kernel, {}, 0, kernel->supports(c.problem)};
    if (!candidate.support.ok) continue;
    others = others || !reference;
    const std::vector<Tile> tiles = kernel->tiles ? kernel->tiles(c.problem) : std::vector<Tile>{Tile{}};
    std::vector<Tile> tried = {tiles.at(0)};
    if (tiles.size() > 1) tried.push_back(tiles[size_t(1 + random.below(int64_t(tiles.size()) - 1))]);
    for (const Tile& tile : tried) {
      if (budget && !budget->allows(c.problem, *kernel, tile)) continue;
      if (beyond_emulation(result, *kernel)) continue;
      if (budget) budget->spend(c.problem, *kernel, tile);
      candidate.tile = tile;
      candidate.estimate_ns = kernel->estimate(c.problem, tile, Ceilings{});
      ++result.runs[std::string(kernel->name)];
      ++runs[kernel];
      std::string why;
      try {
        why = run_kernel(c, candidate, -1, random);
        for (int i = 0; why.empty() && kernel->in_place && i < int(c.problem.inputs.size()); ++i) {
          const Operand &from = c.problem.inputs[size_t(i)], &to = c.problem.output();
          if (!from.present() || from.is_constant || !(from.layout == to.layout) ||
              bytes_of(from.dtype, 1) != bytes_of(to.dtype, 1) || from.dtype != to.dtype)
            continue;
          if (!kernel->in_place(c.problem, i)) continue;
          why = run_kernel(c, candidate, i, random);
          if (!why.empty()) why = fmt::format("in the place of input {}: {}", i, why);
        }
      } catch (const std::exception& error) {
        if (std::string_view(error.what()).find("not emulated") != std::string_view::npos) {
          ++result.not_emulated[std::string(kernel->name)];
          --result.runs[std::string(kernel->name)];
          --runs[kernel];
          continue;
        }
        why = fmt::format("throws: {}", error.what());
      }
      ran = true;
      if (why.empty()) continue;
      ok = false;
      fail_case(result, c, *kernel, tile, isa, why);
      break;
    }
  }
  if (others && !ran) {  // nothing was affordable: no case
    --result.cases;
    return;
  }
  ++(ok ? result.passed : result.failed);
  if (!others) ++result.reference_only;
}

std::vector<std::string> lines_of_file(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.find('#'), line.size()));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

std::vector<const OpSchema*> operators_of(const std::string& family) {
  std::vector<const OpSchema*> list;
  std::string families;
  for (const OpSchema* op : catalogue()) {
    if (family.empty() || op->family == family) list.push_back(op);
    if (families.find(op->family) == std::string::npos)
      families += (families.empty() ? "" : ", ") + std::string(op->family);
  }
  if (list.empty()) fail(ErrorCode::kUsage, "there is no family '{}'; there are: {}", family, families);
  return list;
}

// Does a kernel other than the reference run the problem? If there is none at all, every problem will do.
bool reaches_a_kernel(const OpSchema& op, const std::string& line, DeviceKind device, const CompilationBudget& budget) {
  Problem p = parse_problem(op, line);
  p.device = device;
  drop_absent(p);
  const auto kernels = kernels_of(op.name, device);
  return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
    return !is_reference(*kernel) && kernel->supports(p).ok &&
           budget.allows(p, *kernel, kernel->tiles ? kernel->tiles(p).at(0) : Tile{});
  });
}

bool has_kernels(const OpSchema& op, DeviceKind device) {
  const auto kernels = kernels_of(op.name, device);
  return std::any_of(kernels.begin(), kernels.end(), [](const Kernel* kernel) { return !is_reference(*kernel); });
}

// An operator that has only the reference is compared with itself: a quarter of the others' share.
int64_t weight(const OpSchema& op, DeviceKind device) {
  if (has_kernels(op, device)) return 4;
  return device == DeviceKind::kCpu ? 1 : 0;  // on a GPU nothing of ours would run
}

class Sweep {
 public:
  Sweep(const CheckOptions& options, const std::string& isa, CheckResult& result)
      : options_(options), isa_(isa), result_(result), operators_(operators_of(options.family)) {}

  void run() {
    run_case_files();
    int64_t weights = 0, done = 0;
    for (const OpSchema* op : operators_) weights += weight(*op, options_.device);
    if (weights == 0)
      fail(ErrorCode::kUsage, "--family {}: no kernel of the GPU runs any of its operators", options_.family);
    for (int64_t sum = 0; const OpSchema* op : operators_) {
      const int64_t end = options_.cases * (sum += weight(*op, options_.device)) / weights;
      run_random(*op, end - done);
      done = end;
    }
    for (const OpSchema* op : operators_) {
      for (const Kernel* kernel : kernels_of(op->name, options_.device)) run_rare(*op, *kernel);
    }
  }

 private:
  bool run_line(const std::string& line, uint64_t seed) {
    std::unique_ptr<Case> c;
    try {
      c = make_case(line, seed, options_);
    } catch (const Error&) {
      return false;  // the reference rejects the data (an index out of range): no problem
    }
    run_case(*c, isa_, result_, runs_, &budget_);
    return true;
  }

  void run_case_files() {
    if (std::error_code error;
        !options_.case_directory.empty() && !std::filesystem::is_directory(options_.case_directory, error))
      fail(ErrorCode::kUsage, "{}: there is no such folder of cases", options_.case_directory);
    std::string family;
    for (const OpSchema* op : operators_) {
      if (options_.case_directory.empty() || op->family == family) continue;
      family = op->family;
      uint64_t seed = options_.seed;
      for (const std::string& line : lines_of_file(fmt::format("{}/{}.txt", options_.case_directory, family)))
        run_case(*make_case(line, ++seed, options_), isa_, result_, runs_);
    }
  }

  void run_random(const OpSchema& op, int64_t share) {
    constexpr double kReferenceToo = 0.15;  // of the problems that no other kernel takes: its strides, casts, epilogues
    Random random(options_.seed * 1000003 + std::hash<std::string_view>{}(op.name));
    const bool any = has_kernels(op, options_.device), on_cpu = options_.device == DeviceKind::kCpu;
    const int64_t vain = on_cpu ? 8 : 40;  // draws; on a GPU most are new specialisations
    for (int64_t n = 0, refused = 0; n < share && refused < 20 + vain * share;) {
      const std::string keys = random_problem(op, random);
      const uint64_t seed = random.next() % 1'000'000'007;
      const std::string line = std::string(op.name) + " " + keys;
      const bool wanted = !keys.empty() && (!any || (on_cpu && random.chance(kReferenceToo)) ||
                                            reaches_a_kernel(op, line, options_.device, budget_));
      if (wanted && run_line(line, seed))
        ++n;
      else
        ++refused;
    }
  }

  // Further problems for a kernel that the random ones hardly reached: drawn until it supports them. One that nothing
  // reaches is dead code, or the sweep is blind to it: an error either way.
  void run_rare(const OpSchema& op, const Kernel& kernel) {
    if (is_reference(kernel) || options_.least_runs <= 0) return;
    result_.runs.try_emplace(std::string(kernel.name), 0);
    Random random(options_.seed * 7000003 + std::hash<std::string_view>{}(kernel.name));
    // The scalar level is a baseline: kernels for vectors alone may refuse it, as those for x86's dot products refuse
    // NEON. Then all draws would be in vain; `runs` shows the 0.
    const bool baseline = options_.device == DeviceKind::kCpu &&
                          (cpu::active_isa() == cpu::Isa::kScalar || cpu::active_isa() == cpu::Isa::kNeon);
    constexpr int kDrawsInVain = 400;
    bool by_level = false;
    for (int draw = 0; draw < options_.most_draws && runs_[&kernel] < options_.least_runs; ++draw) {
      const bool lower = baseline || options_.device == DeviceKind::kCuda;
      if (lower && by_level && draw >= kDrawsInVain && runs_[&kernel] == 0) return;
      const std::string keys = random_problem(op, random, draw % 4 != 0);
      const uint64_t seed = random.next() % 1'000'000'007;
      if (keys.empty()) continue;
      const std::string line = std::string(op.name) + " " + keys;
      Problem p = parse_problem(op, line);
      drop_absent(p);
      p.threads = options_.threads;
      p.device = options_.device;
      if (beyond_emulation(result_, kernel)) return;
      const Support support = kernel.supports(p);
      by_level = by_level || support.reason.find("instruction set") != std::string::npos ||
                 (options_.device == DeviceKind::kCuda && support.reason.find("this is sm_") != std::string::npos);
      const bool affordable = support.ok && budget_.allows(p, kernel, kernel.tiles ? kernel.tiles(p).at(0) : Tile{});
      if (affordable) run_line(line, seed);
    }
    if (runs_[&kernel] > 0 || baseline) return;
    ++result_.cases;
    ++result_.failed;
    result_.failures.push_back({fmt::format("{} kernel={}", op.name, kernel.name),
                                fmt::format("{}none of {} random problems reached the kernel: it has not been checked",
                                            isa_.empty() ? "" : isa_ + ": ", options_.most_draws)});
  }

  const CheckOptions& options_;
  const std::string isa_;
  CheckResult& result_;
  const std::vector<const OpSchema*> operators_;
  Runs runs_;  // at this level
  CompilationBudget budget_;
};

template <typename Run>
CheckResult at_levels(const std::string& isa, Run run) {
  CheckResult result;
  if (isa.empty()) {
    run("", result);
    return result;
  }
  const std::vector<std::string> levels = isa == "all"
                                              ? std::vector<std::string>{"scalar", "avx2", "avx512", "vnni", "neon"}
                                              : std::vector<std::string>{isa};
  for (const std::string& level : levels) {
    cpu::limit_isa(level);
    const bool reached = level == "vnni" ? cpu::has_feature("avx512_vnni") : cpu::name(cpu::active_isa()) == level;
    if (isa == "all" && !reached) continue;  // the machine lacks it
    run(level, result);
  }
  cpu::limit_isa("native");
  return result;
}

}  // namespace

CheckResult check(const CheckOptions& options) {
  return at_levels(options.isa,
                   [&](const std::string& level, CheckResult& result) { Sweep(options, level, result).run(); });
}

CheckResult check_line(std::string_view line, const CheckOptions& options) {
  return at_levels(options.isa, [&](const std::string& level, CheckResult& result) {
    Runs runs;
    const std::unique_ptr<Case> c = make_case(std::string(line), options.seed, options);
    run_case(*c, level, result, runs);
    const bool ran = std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.second > 0; });
    if (ran) return;
    result.cases = result.failed = 1;
    result.passed = 0;
    std::string reasons;
    for (const Kernel* kernel : kernels_of(c->problem.op->name, c->problem.device))
      if (c->kernel.empty() || kernel->name == c->kernel)
        reasons += fmt::format("; {}: {}", kernel->name, kernel->supports(c->problem).reason);
    result.failures.push_back(
        {c->line, fmt::format("no kernel{} ran it{}", c->kernel.empty() ? "" : " of this name", reasons)});
  });
}

}  // namespace ridgeline
