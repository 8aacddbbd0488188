#include "session/replay.h"

#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "plan/state.h"
#include "session/session.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {
namespace {

constexpr int64_t kGenericRows = 128;  // the generic stage runs what a product of so many rows takes
constexpr int kLeastSamples = 11, kProfiledRuns = 5;

// "layers.3/up" is "up", "head" itself.
std::string kind_of(const std::string& node) {
  return node.substr(node.rfind('/') == std::string::npos ? 0 : node.rfind('/') + 1);
}

// Buffers of a decoder's plan: a cache's is both input and output.
class DecoderRunner {
 public:
  DecoderRunner(std::shared_ptr<const Plan> plan, const Feeds& feeds, DecoderNumbers& numbers)
      : plan_(plan), executor_(plan) {
    for (const PlanTensor& t : plan->inputs) {
      const auto given = feeds.find(t.name);
      const Tensor tensor = given != feeds.end() ? given->second : numbers.normal(t.name, t.dtype, t.shape);
      tensors_.push_back(tensor);
      in_.push_back(tensor.data());
    }
    const std::vector<StatePair> state = state_pairs(*plan);
    for (size_t o = 0; o < plan->outputs.size(); ++o) {
      const PlanTensor& t = plan->outputs[o];
      const auto pair =
          std::find_if(state.begin(), state.end(), [&](const StatePair& p) { return p.output == int(o); });
      if (pair != state.end()) {
        out_.push_back(tensors_[size_t(pair->input)].data());
        state_bytes_ += bytes_of(t.dtype, element_count(t.shape));
        continue;
      }
      tensors_.push_back(Tensor::zeros(t.dtype, t.shape));
      if (o == 0) logits_ = tensors_.back();
      out_.push_back(tensors_.back().data());
    }
  }
  void run() { executor_.run(in_, out_); }
  Samples measure(double seconds) {
    TimingOptions timing;
    timing.min_seconds = seconds;
    timing.min_samples = kLeastSamples;
    return measure_self_timed({[&] { return executor_.timed_ns(in_, out_); }}, timing)[0];
  }
  /// Shares of the time by operator family, and sums by step.
  void profile(std::map<std::string, double>& families, std::map<std::string, double>& times_us) {
    std::vector<Executor::StepTime> stamps(plan_->steps.size());
    std::vector<Samples> times(plan_->steps.size());
    for (int r = 0; r < kProfiledRuns; ++r) {
      executor_.run_profiled(in_, out_, stamps);
      for (size_t s = 0; s < stamps.size(); ++s) times[s].add(double(stamps[s].end_ns - stamps[s].start_ns));
    }
    double total = 0;
    for (const Samples& t : times) total += t.median();
    for (size_t s = 0; s < times.size(); ++s) {
      const Step& step = plan_->steps[s];
      families[std::string(step.call.problem.op->family)] += total > 0 ? times[s].median() / total : 0;
      times_us[kind_of(step.name)] += times[s].median() / 1e3;
    }
  }
  const Tensor& logits() const { return logits_; }
  int64_t peak_bytes() const { return plan_->peak_bytes() - state_bytes_; }

 private:
  std::shared_ptr<const Plan> plan_;
  Executor executor_;
  std::vector<Tensor> tensors_;
  std::vector<const void*> in_;
  std::vector<void*> out_;
  Tensor logits_;
  int64_t state_bytes_ = 0;
};

bool is_product(const Problem& p) { return p.op->name == "MatMul" || p.op->name == "LowBitMatMul"; }

void add_ledger(ReplayStage& stage, const Plan& plan) {
  std::map<std::pair<std::string, std::string>, int64_t> sums;
  std::vector<std::pair<std::string, std::string>> order;
  const auto add = [&](const std::string& tensor, DType dtype, int64_t bytes) {
    const std::pair key(tensor, std::string(name(dtype)));
    if (!sums.count(key)) order.push_back(key);
    sums[key] += bytes;
  };
  for (const Step& step : plan.steps) {
    const Problem& p = step.call.problem;
    int64_t rest = step.cost.bytes();
    const auto take = [&](const std::string& tensor, const Operand& o, int64_t& total) {
      add(tensor, o.dtype, o.bytes());
      total += o.bytes();
      rest -= o.bytes();
    };
    const std::string kind = kind_of(step.name);
    if (is_product(p)) {
      int64_t& total = kind == "head" ? stage.head_bytes : stage.layer_bytes;
      for (int i = 1; i < p.op_inputs; ++i)
        if (p.has(i)) take(i == 1 ? kind : kind + " scales", p.input(i), total);
    } else if (p.op->name == "Attention") {
      take("key cache", p.input(1), stage.cache_bytes);
      take("value cache", p.input(2), stage.cache_bytes);
    } else if (p.op->name == "Gather" && kind == "embedding") {
      add("embedding row", p.input(0).dtype, p.output().bytes());
      rest = p.input(1).bytes() + p.output().bytes();  // not the whole table
    }
    if (!p.outputs.empty()) add("activations", p.output().dtype, std::max<int64_t>(0, rest));
  }
  for (const auto& key : order) {
    stage.ledger.push_back({key.first, key.second, sums[key]});
    stage.bytes_moved += sums[key];
  }
}

std::map<std::string, int> kernels_of_plan(const Plan& plan) {
  std::map<std::string, int> counts;
  for (const Step& step : plan.steps) ++counts[std::string(step.call.kernel->name)];
  return counts;
}

int64_t flops_of(const Plan& plan, bool executed) {
  int64_t sum = 0;
  for (const Step& s : plan.steps)
    sum = saturated_sum(sum, executed && s.cost.executed_flops >= 0 ? s.cost.executed_flops : s.cost.flops);
  return sum;
}

class Replayer {
 public:
  explicit Replayer(const ReplayOptions& options) : o_(options), numbers_(options.seed) {}

  Replay run() {
    if (o_.prompt > 0) prefill();
    DecoderFusions fusions = decoder_fusions();
    std::erase_if(fusions, [&](const std::string& f) { return o_.without.count(f) > 0; });
    const bool with_i8 = o_.weights != DecoderWeights::kF16 && !o_.without.count("i8");
    DecoderWeights now = DecoderWeights::kF16;
    stage("generic kernels", now, {}, true);
    if (!o_.without.count("m1")) stage("M = 1 kernels", now, {}, false);
    const bool generic = o_.without.count("m1") > 0;
    if (with_i8) stage("int8 weights", now = DecoderWeights::kI8, {}, generic);
    DecoderFusions fused;
    if (!o_.without.count("fusions") && !fusions.empty()) stage("fusions", now, fused = fusions, generic);
    if (o_.weights == DecoderWeights::kI4 && !o_.without.count("i4"))
      stage("int4 weights", now = DecoderWeights::kI4, fused, generic);
    fit_line();
    return std::move(result_);
  }

 private:
  void say(const std::string& line) const {
    if (o_.progress) o_.progress(line);
  }
  // Of the level that holds weights and caches: for a small decoder a cache.
  double bandwidth_gb_s(int64_t bytes) const {
    return o_.ceilings->read_gb_s[size_t(o_.ceilings->level_of(bytes, threads()))].at(threads(), o_.ceilings->cores);
  }
  double launch_ns() const { return o_.ceilings->launch_ns.at(threads(), o_.ceilings->cores); }
  int threads() const { return o_.device == DeviceKind::kCuda ? 1 : ThreadPool(o_.threads).threads(); }

  DecoderSpec spec_of(DecoderWeights weights, int64_t tokens, const DecoderFusions& fusions) const {
    return {o_.size, weights, tokens, fusions, o_.device};
  }

  PlanOptions plan_options(const DecoderFusions& fusions) const {
    PlanOptions options;
    options.device = o_.device;
    options.threads = o_.threads;
    options.ceilings = o_.ceilings;
    options.views = !fusions.empty();
    return options;
  }

  Feeds feeds(int64_t tokens) const {
    const int64_t first = tokens == 1 ? o_.size.capacity - 1 : 0;
    Tensor ids(DType::kI64, {1, tokens});
    for (int64_t i = 0; i < tokens; ++i) ids.as<int64_t>()[i] = (17 + 31 * i) % o_.size.vocabulary;
    Feeds f;
    f["input_ids"] = ids;
    f["write_indices"] = Tensor::from<int64_t>({1}, std::vector<int64_t>{first});
    f["lengths"] = Tensor::from<int64_t>({1}, std::vector<int64_t>{first + tokens});
    return f;
  }

  // What a product of many rows takes, where it can run one row.
  void force_generic(const Graph& graph, PlanOptions& options) const {
    std::map<std::string, std::string> known;
    for (NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      if (!node.is("MatMul") && !node.is("LowBitMatMul")) continue;
      const Tensor& w = *graph.constant(node.input(1));
      const bool low = node.is("LowBitMatMul");
      const auto problem = [&](int64_t rows) {
        const int64_t k = graph.value(node.input(0)).shape()[2].value();
        std::string keys = fmt::format("a={}[{},{}] {}={}{}!", name(graph.value(node.input(0)).dtype()), rows, k,
                                       low ? "q" : "b", name(w.dtype()), text(w.shape()));
        if (low) {
          if (const Tensor* scale = graph.constant(node.input(2)))
            keys += fmt::format(" scale={}{}!", name(scale->dtype()), text(scale->shape()));
          keys += fmt::format(" bits={} act={}", schema_integer(*node.op, node.attributes, "bits"),
                              schema_string(*node.op, node.attributes, "act"));
        }
        std::string tight;  // "f16[1, 2]" is one word there
        for (size_t c = 0; c < keys.size(); ++c)
          if (keys[c] != ' ' || c == 0 || keys[c - 1] != ',') tight += keys[c];
        Problem p = parse_problem(*node.op, tight);
        p.device = o_.device;
        p.threads = threads();
        return p;
      };
      std::string& kernel = known[problem(1).text()];
      if (kernel.empty()) {
        kernel = choose_kernel(problem(kGenericRows), *o_.ceilings).winner().kernel->name;
        const auto kernels = kernels_of(node.op->name, o_.device);
        const auto at =
            std::find_if(kernels.begin(), kernels.end(), [&](const Kernel* k) { return k->name == kernel; });
        if (at == kernels.end() || !(*at)->supports(problem(1)).ok) kernel = "-";
      }
      if (kernel != "-") options.forced[node.name] = kernel;
    }
  }

  void stage(const std::string& name, DecoderWeights weights, const DecoderFusions& fusions, bool generic) {
    say(fmt::format("stage '{}': making and packing {} weights, measuring", name, ridgeline::name(weights)));
    ReplayStage s;
    s.name = name, s.weights = weights, s.fusions = fusions;
    Graph graph = decoder_graph(spec_of(weights, 1, fusions), numbers_);
    s.products = count_products(graph);
    PlanOptions options = plan_options(fusions);
    if (generic) force_generic(graph, options);
    ConstantStore store;
    const std::shared_ptr<const Plan> plan = plan_decoder(graph, options, store);
    const Feeds inputs = feeds(1);
    DecoderRunner runner(plan, inputs, numbers_);
    runner.run();
    s.samples = runner.measure(o_.seconds);
    runner.profile(s.families, s.times_us);
    s.kernels = kernels_of_plan(*plan);
    s.launches = plan->kernel_count(), s.host_steps = plan->host_steps();
    s.peak_bytes = runner.peak_bytes();
    s.flops = flops_of(*plan, false), s.executed_flops = flops_of(*plan, true);
    if (!first_) first_ = runner.logits();
    s.max_error = max_error(runner.logits(), first_);
    // Half a step of a row's or group's largest number is what the weights are rounded by; two runs may differ by the
    // tolerance of both.
    const double step = weights == DecoderWeights::kI8 ? 1.0 / 254 : weights == DecoderWeights::kI4 ? 1.0 / 14 : 0;
    s.tolerance = 2 * graph_tolerance(graph, {}, {step, false});
    add_ledger(s, *plan);
    // Two products and norms, the merged projection, rotary, attention and its product a layer; embedding, norm, head.
    const double launches = 8.0 * double(o_.size.layers) + 3;
    s.floor_ms =
        double(s.compulsory_bytes()) / bandwidth_gb_s(s.compulsory_bytes()) / 1e6 + launches * launch_ns() / 1e6;
    if (!result_.stages.empty()) {
      const ReplayStage& before = result_.stages.back();
      s.gain_ms = (before.samples.median() - s.samples.median()) / 1e6;
      s.bytes_gain_ms = double(before.bytes_moved - s.bytes_moved) / bandwidth_gb_s(before.bytes_moved) / 1e6;
      s.launches_gain_ms = double(before.launches - s.launches) * launch_ns() / 1e6;
    }
    result_.stages.push_back(std::move(s));
  }

  void prefill() {
    say(fmt::format("prefill of {} tokens", o_.prompt));
    ReplayPrefill& p = result_.prefill;
    p.tokens = o_.prompt;
    DecoderSpec one = spec_of(DecoderWeights::kF16, 1, {});
    {
      one.size.vocabulary = 128;  // counted, not run
      const Graph apart = decoder_graph(one, numbers_);
      one.fusions = {"qkv"};
      const Graph merged = decoder_graph(one, numbers_);
      p.products = count_products(apart), p.products_merged = count_products(merged);
      p.products_a_layer = int((p.products - 1) / std::max<int64_t>(1, o_.size.layers));
    }
    Graph graph = decoder_graph(spec_of(DecoderWeights::kF16, o_.prompt, decoder_fusions()), numbers_);
    ConstantStore store;
    const std::shared_ptr<const Plan> plan = plan_decoder(graph, plan_options(decoder_fusions()), store);
    DecoderRunner runner(plan, feeds(o_.prompt), numbers_);
    runner.run();
    p.samples = runner.measure(o_.seconds);
    runner.profile(p.families, p.times_us);
    p.kernels = kernels_of_plan(*plan);
    p.launches = plan->kernel_count(), p.host_steps = plan->host_steps();
    p.flops = flops_of(*plan, false), p.peak_bytes = runner.peak_bytes();
    for (const Step& step : plan->steps) p.floor_ms += step.floor_ns / 1e6;
  }

  void fit_line() {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    for (size_t s = 1; s < result_.stages.size(); ++s) {
      const double bytes = double(result_.stages[s].bytes_moved), ms = result_.stages[s].samples.median() / 1e6;
      n += 1, x += bytes, y += ms, xx += bytes * bytes, xy += bytes * ms, yy += ms * ms;
    }
    const double spread = n * xx - x * x, tall = n * yy - y * y;
    if (n < 3 || spread <= 0 || tall <= 0) return;
    const double slope = (n * xy - x * y) / spread;  // ms a byte
    result_.line_gb_s = slope > 0 ? 1e-6 / slope : 0;
    result_.line_intercept_ms = (y - slope * x) / n;
    result_.line_r2 = (n * xy - x * y) * (n * xy - x * y) / (spread * tall);
  }

  const ReplayOptions& o_;
  DecoderNumbers numbers_;
  Replay result_;
  Tensor first_;
};

}  // namespace

const std::vector<std::string>& replay_steps() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names = {"m1", "i8", "fusions", "i4"};
    names.insert(names.end(), decoder_fusions().begin(), decoder_fusions().end());
    return names;
  }();
  return all;
}

Replay replay_decoder(const ReplayOptions& options) { return Replayer(options).run(); }

}  // namespace ridgeline
