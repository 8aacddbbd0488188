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
#include "verify/check_parts.h"

namespace ridgeline {

namespace {

constexpr int64_t kGuardBytes = 256;
constexpr uint8_t kPoison = 0xff;  // NaN in every float type, -1 in integers

// A buffer between canaries. Everything starts as poison: the canaries, gaps between strides, and outputs.
class Guarded {
 public:
  Guarded(const Operand& operand, int64_t skew) : dtype_(operand.dtype), layout_(operand.layout) {
    bytes_ = bytes_of(dtype_, layout_.span());
    skew_ = skew * bytes_of(dtype_, 1);
    memory_ = allocate(bytes_ + skew_ + 2 * kGuardBytes);
    std::memset(memory_.get(), kPoison, size_t(bytes_ + skew_ + 2 * kGuardBytes));
  }
  TensorView view() const { return {data(), dtype_, layout_}; }
  void* data() const { return static_cast<uint8_t*>(memory_.get()) + kGuardBytes + skew_; }
  void keep() { kept_.assign(begin(), begin() + size()); }
  bool changed() const { return std::memcmp(kept_.data(), begin(), size_t(size())) != 0; }
  /// Poison outside the elements: the canaries, and the gaps of the layout.
  bool spoiled() const {
    std::vector<uint8_t> element(static_cast<size_t>(size()), 0);
    const int64_t bits = info(dtype_).bits, first = kGuardBytes + skew_;
    for (Index at(layout_.shape); at.more(); ++at) {
      int64_t offset = 0;
      for (size_t a = 0; a < layout_.shape.size(); ++a) offset += at[int(a)] * layout_.strides[a];
      std::memset(element.data() + first + offset * bits / 8, 1, size_t(bytes_of(dtype_, 1)));
    }
    for (int64_t k = 0; k < size(); ++k) {
      if (!element[size_t(k)] && begin()[k] != kPoison) return true;
    }
    return false;
  }

 private:
  const uint8_t* begin() const { return static_cast<const uint8_t*>(memory_.get()); }
  int64_t size() const { return bytes_ + skew_ + 2 * kGuardBytes; }
  DType dtype_;
  Layout layout_;
  int64_t bytes_ = 0, skew_ = 0;
  std::shared_ptr<void> memory_;
  std::vector<uint8_t> kept_;
};

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
std::unique_ptr<Case> make_case(std::string line, uint64_t seed, int threads) {
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

std::string compare(const Case& c, const std::vector<Guarded>& outputs) {
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!c.problem.output(int(o)).present()) continue;
    const TensorView view = outputs[o].view();
    for (Index at(view.shape()); at.more(); ++at) {
      int64_t offset = 0;
      for (size_t a = 0; a < view.shape().size(); ++a) offset += at[int(a)] * view.layout.strides[a];
      std::string why = is_float(view.dtype)
                            ? c.judge->reject(int(o), at.flat(), load_f64(view.dtype, view.data, offset))
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
  std::memset(workspace.get(), kPoison, size_t(call.workspace_bytes + kGuardBytes));
  candidate.kernel->run(call, {in.data(), out.data(), workspace.get()}, ThreadPool(p.threads));
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
  return compare(c, outputs);
}

void fail_case(CheckResult& result, const Case& c, const Kernel& kernel, const Tile& tile, const std::string& isa,
               const std::string& why) {
  result.failures.push_back(
      {fmt::format("{} kernel={}", c.line, kernel.name),
       fmt::format("{}{} (tile {})", isa.empty() ? "" : isa + ": ", why, fmt::join(tile.size, ","))});
}

void run_case(const Case& c, const std::string& isa, CheckResult& result) {
  ++result.cases;
  bool ok = true, others = false;
  Random random(c.seed ^ 0x5bd1e995);
  const auto kernels = kernels_of(c.problem.op->name);
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
      candidate.tile = tile;
      candidate.estimate_ns = kernel->estimate(c.problem, tile, Ceilings{});
      ++result.runs[std::string(kernel->name)];
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
        why = fmt::format("throws: {}", error.what());
      }
      if (why.empty()) continue;
      ok = false;
      fail_case(result, c, *kernel, tile, isa, why);
      break;
    }
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

void sweep(const CheckOptions& options, const std::string& isa, CheckResult& result) {
  const std::vector<const OpSchema*> operators = operators_of(options.family);
  auto run_line = [&](const std::string& line, uint64_t seed) {
    std::unique_ptr<Case> c;
    try {
      c = make_case(line, seed, options.threads);
    } catch (const Error&) {
      return false;  // the reference rejects the data (an index out of range): no problem
    }
    run_case(*c, isa, result);
    return true;
  };
  std::string family;
  if (std::error_code error;
      !options.case_directory.empty() && !std::filesystem::is_directory(options.case_directory, error))
    fail(ErrorCode::kUsage, "{}: there is no such folder of cases", options.case_directory);
  for (const OpSchema* op : operators) {
    if (options.case_directory.empty() || op->family == family) continue;
    family = op->family;
    uint64_t seed = options.seed;
    for (const std::string& line : lines_of_file(fmt::format("{}/{}.txt", options.case_directory, family)))
      run_case(*make_case(line, ++seed, options.threads), isa, result);
  }
  for (size_t k = 0; k < operators.size(); ++k) {
    const OpSchema& op = *operators[k];
    const int64_t share =
        options.cases / int64_t(operators.size()) + (int64_t(k) < options.cases % int64_t(operators.size()) ? 1 : 0);
    Random random(options.seed * 1000003 + std::hash<std::string_view>{}(op.name));
    for (int64_t n = 0, refused = 0; n < share && refused < 20 + share;) {
      const std::string keys = random_problem(op, random);
      const uint64_t seed = random.next() % 1'000'000'007;
      if (!keys.empty() && run_line(std::string(op.name) + " " + keys, seed))
        ++n;
      else
        ++refused;
    }
  }
}

template <typename Run>
CheckResult at_levels(const std::string& isa, Run run) {
  CheckResult result;
  if (isa.empty()) {
    run("", result);
    return result;
  }
  const std::vector<std::string> levels =
      isa == "all" ? std::vector<std::string>{"scalar", "avx2", "avx512"} : std::vector<std::string>{isa};
  for (const std::string& level : levels) {
    cpu::limit_isa(level);
    if (isa == "all" && cpu::name(cpu::active_isa()) != level) continue;  // the machine lacks it
    run(level, result);
  }
  cpu::limit_isa("native");
  return result;
}

}  // namespace

CheckResult check(const CheckOptions& options) {
  return at_levels(options.isa, [&](const std::string& level, CheckResult& result) { sweep(options, level, result); });
}

CheckResult check_line(std::string_view line, const CheckOptions& options) {
  return at_levels(options.isa, [&](const std::string& level, CheckResult& result) {
    run_case(*make_case(std::string(line), options.seed, options.threads), level, result);
  });
}

}  // namespace ridgeline
