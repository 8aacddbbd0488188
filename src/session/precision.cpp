#include "session/precision.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "verify/compare.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kFormat = "ridgeline precision 1";

std::string pass_of(std::string_view precision) { return "lower_to_" + std::string(precision); }

class Search {
 public:
  Search(Model& model, const std::vector<Feeds>& sets, const PrecisionSearch& options)
      : model_(model), sets_(sets), options_(options) {
    if (sets.empty()) fail(ErrorCode::kUsage, "no calibration inputs were given");
    plain_ = compile_with({});
    for (const Feeds& feeds : sets_) {
      right_.push_back(outputs_of(plain_, feeds));
      require_comparable(right_.back(), right_.size());
    }
  }

  PrecisionPlan run() {
    PrecisionPlan plan;
    plan.max_error = options_.max_error;
    if (options_.int8) find_layers(plan, "int8");
    if (options_.bf16) find_layers(plan, "bf16");
    plan = within(plan);
    std::stable_sort(plan.layers.begin(), plan.layers.end(), [](const PrecisionLayer& a, const PrecisionLayer& b) {
      return std::max(a.int8_error, a.bf16_error) < std::max(b.int8_error, b.bf16_error);
    });
    return plan;
  }

 private:
  void say(const std::string& line) const {
    if (options_.progress) options_.progress(line);
  }

  Compiled compile_with(const PrecisionPlan& plan) {
    CompileOptions compile_options = options_.compile;
    apply_precision(plan, compile_options.pipeline);
    // A store of its own: what passes make anew (merged weights) would pile up in a common one.
    ConstantStore store;
    return compile(model_, compile_options, store);
  }

  static double predicted_ns(const Compiled& compiled, const std::string& root) {
    double ns = 0;
    for (const Step& step : compiled.plan->steps)
      if (step.name == root) ns += step.predicted_ns;
    return ns;
  }

  // What is no float stays the same or is no result at all: an index that is another is not nearly right.
  static double error_between(const Tensor& got, const Tensor& right) {
    if (is_float(right.dtype())) return max_error(got, right);
    return std::memcmp(got.data(), right.data(), size_t(right.bytes())) == 0 ? 0
                                                                             : std::numeric_limits<double>::infinity();
  }

  // An error is relative to the largest value: there must be one.
  void require_comparable(const std::vector<Tensor>& outputs, size_t set) const {
    double largest = 0;
    for (const Tensor& t : outputs) {
      for (int64_t i = 0; i < t.elements(); ++i) {
        const double v = is_float(t.dtype()) ? t.f64(i) : 1;
        if (!std::isfinite(v))
          fail(ErrorCode::kBadInput,
               "calibration set {} gives outputs that are not finite: nothing can be compared with them", set);
        largest = std::max(largest, std::fabs(v));
      }
    }
    if (largest == 0)
      fail(ErrorCode::kBadInput, "calibration set {} gives outputs that are all zero: no error is relative to them",
           set);
  }

  static std::vector<Tensor> outputs_of(const Compiled& compiled, const Feeds& feeds) {
    Runner runner(compiled.plan, feeds);
    runner.run();
    return runner.outputs();
  }

  // `root`, `ns`: also the predicted time of this step in the plan.
  double error_of(const PrecisionPlan& plan, const std::string* root = nullptr, double* ns = nullptr) {
    const Compiled compiled = compile_with(plan);
    if (root) *ns = predicted_ns(compiled, *root);
    double worst = 0;
    for (size_t s = 0; s < sets_.size(); ++s) {
      const std::vector<Tensor> got = outputs_of(compiled, sets_[s]);
      for (size_t o = 0; o < got.size(); ++o) {
        const double error = error_between(got[o], right_[s][o]);
        worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
      }
    }
    return worst;
  }

  // What the pass would lower, each alone.
  void find_layers(PrecisionPlan& plan, std::string_view precision) {
    Graph graph = model_.graph;
    PipelineOptions pipeline = options_.compile.pipeline;
    pipeline.lossy.insert(pass_of(precision));
    Decisions decisions;
    run_passes(graph, pipeline, decisions);
    for (const Decision& d : decisions.all) {
      if (d.pass != pass_of(precision) || d.action != Action::kApplied) continue;
      auto at = std::find_if(plan.layers.begin(), plan.layers.end(),
                             [&](const PrecisionLayer& layer) { return layer.root == d.root; });
      if (at == plan.layers.end()) {
        plan.layers.push_back({});
        at = plan.layers.end() - 1;
        at->root = d.root;
        at->nodes = d.nodes;
        at->f32_ns = predicted_ns(plain_, d.root);
      }
      (precision == "int8" ? at->int8_error : at->bf16_error) = 0;
    }
    int done = 0;
    for (PrecisionLayer& layer : plan.layers) {
      double& error = precision == "int8" ? layer.int8_error : layer.bf16_error;
      if (error < 0) continue;
      PrecisionPlan alone;
      alone.layers = {layer};
      alone.layers[0].precision = precision;
      error = error_of(alone, &layer.root, precision == "int8" ? &layer.int8_ns : &layer.bf16_ns);
      if (!std::isfinite(error)) error = -1;  // not possible
      if (++done % 10 == 0) say(fmt::format("{}: {} of {} products tried alone", precision, done, plan.layers.size()));
    }
  }

  // Each layer takes the precision of the least time + price * error^2: errors of many layers add up about as the root
  // of their squares do, so this is Lagrange's rule for the least time within a limit. The price is bisected, and what
  // is kept was measured as a whole. (8-bit integers first, by rising error, bf16 for the rest, left 40 of BERT's 48
  // products in f32 at 0.02, where bf16 alone takes all of them at 0.012.)
  static PrecisionPlan at_price(PrecisionPlan plan, double price) {
    for (PrecisionLayer& layer : plan.layers) {
      double least = layer.f32_ns;
      layer.precision = "f32";
      const auto consider = [&](const char* precision, double error, double ns) {
        if (error < 0 || ns + price * error * error >= least) return;  // (all in f32 is not asked of a price)
        least = ns + price * error * error;
        layer.precision = precision;
      };
      consider("bf16", layer.bf16_error, layer.bf16_ns);
      consider("int8", layer.int8_error, layer.int8_ns);
    }
    return plan;
  }

  PrecisionPlan within(const PrecisionPlan& layers) {
    std::map<std::string, double> errors;  // by assignment: many prices give the same one
    const auto tried = [&](PrecisionPlan plan) {
      std::string assignment;
      for (const PrecisionLayer& layer : plan.layers) assignment += layer.precision[0];
      const auto [at, fresh] = errors.emplace(assignment, 0);
      if (fresh) {
        at->second = error_of(plan);
        say(fmt::format("{} products in int8, {} in bf16, {} in f32: error {:.2g}", plan.count("int8"),
                        plan.count("bf16"), plan.count("f32"), at->second));
      }
      plan.error = at->second;
      return plan;
    };
    PrecisionPlan best = tried(at_price(layers, 0));
    if (best.error <= options_.max_error) return best;
    double total_ns = 0;
    for (const PrecisionLayer& layer : layers.layers) total_ns += layer.f32_ns;
    const double middle = total_ns / (options_.max_error * options_.max_error);
    double low = middle * 1e-6, high = middle * 1e6;
    best = layers;  // all in f32, where nothing else stays inside
    for (PrecisionLayer& layer : best.layers) layer.precision = "f32";
    best = tried(best);
    for (int round = 0; round < 24; ++round) {
      const double price = std::sqrt(low * high);
      const PrecisionPlan next = tried(at_price(layers, price));
      const bool inside = next.error <= options_.max_error;
      (inside ? high : low) = price;
      if (inside) best = next;
    }
    return best;
  }

  Model& model_;
  const std::vector<Feeds>& sets_;
  const PrecisionSearch& options_;
  Compiled plain_;  // in f32
  std::vector<std::vector<Tensor>> right_;
};

}  // namespace

int PrecisionPlan::count(std::string_view precision) const {
  return int(std::count_if(layers.begin(), layers.end(), [&](const auto& l) { return l.precision == precision; }));
}

void apply_precision(const PrecisionPlan& plan, PipelineOptions& pipeline) {
  for (const char* precision : {"int8", "bf16"}) {
    if (plan.count(precision) == 0) continue;
    pipeline.lossy.insert(pass_of(precision));
    pipeline.only_nodes[pass_of(precision)];  // nothing that is not named
  }
  for (const PrecisionLayer& layer : plan.layers)
    if (layer.precision != "f32") pipeline.only_nodes[pass_of(layer.precision)].insert(layer.root);
}

void require_lowered(const PrecisionPlan& plan, const Decisions& decisions, const std::string& file) {
  int named = 0, missing = 0;
  std::string first;
  for (const PrecisionLayer& layer : plan.layers) {
    if (layer.precision == "f32") continue;
    ++named;
    const bool done = std::any_of(decisions.all.begin(), decisions.all.end(), [&](const Decision& d) {
      return d.action == Action::kApplied && d.pass == pass_of(layer.precision) && d.root == layer.root;
    });
    if (done) continue;
    ++missing;
    if (first.empty()) first = layer.root;
  }
  if (missing > 0)
    fail(ErrorCode::kBadInput,
         "{}: {} of the {} products that it lowers are not lowered here, the first is '{}': the model has none of that "
         "name, or passes that lead to it are off",
         file, missing, named, first);
}

PrecisionPlan search_precision(Model& model, const std::vector<Feeds>& sets, const PrecisionSearch& options) {
  return Search(model, sets, options).run();
}

std::string PrecisionPlan::to_json() const {
  Json document = {{"format", kFormat},
                   {"model_sha256", model_sha256},
                   {"calibration", calibration},
                   {"max_error", max_error},
                   {"error", error}};
  Json list = Json::array();
  for (const PrecisionLayer& layer : layers) {
    Json entry = {{"root", layer.root}, {"nodes", layer.nodes}, {"precision", layer.precision}};
    if (layer.int8_error >= 0) entry["int8_error_alone"] = layer.int8_error;
    if (layer.bf16_error >= 0) entry["bf16_error_alone"] = layer.bf16_error;
    list.push_back(std::move(entry));
  }
  document["layers"] = std::move(list);
  return document.dump(1);
}

PrecisionPlan PrecisionPlan::from_json(std::string_view text, const std::string& file) {
  PrecisionPlan plan;
  std::set<std::string> roots;
  try {
    const Json document = Json::parse(text);
    if (document.at("format") != kFormat) fail(ErrorCode::kBadInput, "{}: its format is not '{}'", file, kFormat);
    plan.model_sha256 = document.at("model_sha256");
    plan.calibration = document.at("calibration");
    plan.max_error = document.at("max_error");
    plan.error = document.at("error");
    if (!document.at("layers").is_array()) fail(ErrorCode::kBadInput, "{}: its layers are no list", file);
    for (const Json& entry : document.at("layers")) {
      PrecisionLayer layer;
      layer.root = entry.at("root");
      if (!roots.insert(layer.root).second) fail(ErrorCode::kBadInput, "{}: '{}' stands in it twice", file, layer.root);
      layer.nodes = entry.at("nodes").get<std::vector<std::string>>();
      layer.precision = entry.at("precision");
      if (layer.precision != "f32" && layer.precision != "bf16" && layer.precision != "int8")
        fail(ErrorCode::kBadInput, "{}: '{}' is no precision: f32, bf16 and int8 are", file, layer.precision);
      layer.int8_error = entry.value("int8_error_alone", -1.0);
      layer.bf16_error = entry.value("bf16_error_alone", -1.0);
      plan.layers.push_back(std::move(layer));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::kBadInput, "{}: no precision file: {}", file, error.what());
  }
  return plan;
}

}  // namespace ridgeline
