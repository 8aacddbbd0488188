// ridgeline replay decoder: the ladder of the text on matrix multiplication.
#include "session/replay.h"

#include <algorithm>

#include "cli/common.h"
#include "core/words.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  std::string model, weights = "f16";
  ReplayOptions replay;
  std::vector<std::string> without;
  int64_t context = 1024, prompt = -1;
  double bandwidth = 0;
};

// The text's own machine took so long for a token; its floor is the layers' weights at its bandwidth.
constexpr double kTextMs = 90;

Json latency_json(const Samples& s) {
  return {{"median", s.median() / 1e6},
          {"p10", s.p10() / 1e6},
          {"p90", s.p90() / 1e6},
          {"p99", s.p99() / 1e6},
          {"samples", s.count()}};
}

Json at_bandwidth(const ReplayStage& s, double gb_s) {
  const auto ms = [&](int64_t bytes) { return double(bytes) / gb_s / 1e6; };
  return {{"gb_s", gb_s},
          {"layers_ms", ms(s.layer_bytes)},
          {"head_ms", ms(s.head_bytes)},
          {"cache_ms", ms(s.cache_bytes)},
          {"total_ms", ms(s.compulsory_bytes())},
          {"text_share", ms(s.layer_bytes) / kTextMs}};
}

Json stage_json(const ReplayStage& s, double bandwidth) {
  const double ms = s.samples.median() / 1e6;
  Json ledger = Json::array();
  for (const LedgerEntry& e : s.ledger)
    ledger.push_back({{"tensor", e.tensor}, {"dtype", e.dtype}, {"bytes", e.bytes}});
  Json j = {{"name", s.name},
            {"weights", std::string(name(s.weights))},
            {"fusions", std::vector<std::string>(s.fusions.begin(), s.fusions.end())},
            {"latency_ms", latency_json(s.samples)},
            {"items_per_s", ms > 0 ? 1e3 / ms : 0},
            {"peak_bytes", s.peak_bytes},
            {"kernels", s.launches},
            {"launches", s.launches},
            {"host_steps", s.host_steps},
            {"products", s.products},
            {"bytes_moved", s.bytes_moved},
            {"flops", s.flops},
            {"executed_flops", s.executed_flops},
            {"max_error", s.max_error},
            {"tolerance", s.tolerance},
            {"floor_ms", s.floor_ms},
            {"roof_share", ms > 0 ? s.floor_ms / ms : 0},
            {"layer_bytes", s.layer_bytes},
            {"head_bytes", s.head_bytes},
            {"cache_bytes", s.cache_bytes},
            {"ledger", ledger},
            {"families", s.families},
            {"times_us", s.times_us},
            {"kernel_counts", s.kernels},
            {"gain",
             {{"total_ms", s.gain_ms},
              {"bytes_ms", s.bytes_gain_ms},
              {"launches_ms", s.launches_gain_ms},
              {"rest_ms", s.gain_ms - s.bytes_gain_ms - s.launches_gain_ms}}}};
  if (bandwidth > 0) j["at_bandwidth"] = at_bandwidth(s, bandwidth);
  return j;
}

Json prefill_json(const ReplayPrefill& p) {
  const double ms = p.samples.median() / 1e6;
  return {{"tokens", p.tokens},
          {"latency_ms", latency_json(p.samples)},
          {"tokens_per_s", ms > 0 ? double(p.tokens) * 1e3 / ms : 0},
          {"tflop_s", ms > 0 ? double(p.flops) / ms / 1e9 : 0},
          {"kernels", p.launches},
          {"host_steps", p.host_steps},
          {"products_a_layer", p.products_a_layer},
          {"products_a_token", p.products},
          {"products_after_merge", p.products_merged},
          {"flops", p.flops},
          {"peak_bytes", p.peak_bytes},
          {"floor_ms", p.floor_ms},
          {"roof_share", ms > 0 ? p.floor_ms / ms : 0},
          {"families", p.families},
          {"times_us", p.times_us},
          {"kernel_counts", p.kernels}};
}

std::string shares(const std::map<std::string, double>& families) {
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [family, share] : families) sorted.push_back({-share, family});
  std::sort(sorted.begin(), sorted.end());
  std::string text;
  for (const auto& [share, family] : sorted)
    if (share < -0.005) text += fmt::format("{}{} {:.0f} %", text.empty() ? "" : ", ", family, -share * 100);
  return text;
}

std::string replay_text(const Replay& replay, const DecoderSize& z, double bandwidth) {
  std::string out =
      fmt::format("decoder: {} layers, hidden {}, {} heads of {}, FFN {}, vocabulary {}; {} tokens in the caches\n",
                  z.layers, z.hidden, z.heads, z.depth(), z.inner, z.vocabulary, z.capacity);
  if (const ReplayPrefill& p = replay.prefill; p.tokens > 0) {
    const double ms = p.samples.median() / 1e6;
    out += fmt::format(
        "prefill of {} tokens, f16: {:.2f} ms, {:.0f} tokens/s, {:.1f} TFLOP/s, {:.0f} % of the steps' floors; {}\n"
        "products: {} a layer, {} a token with the head, {} after Q, K and V are one\n",
        p.tokens, ms, double(p.tokens) * 1e3 / ms, double(p.flops) / ms / 1e9, 100 * p.floor_ms / ms,
        shares(p.families), p.products_a_layer, p.products, p.products_merged);
  }
  out += fmt::format("\n{:<16} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>6} {:>9} {:>9} | {:>8} {:>8} {:>8} {:>8}\n",
                     "stage", "median ms", "p10", "p90", "launches", "MB", "floor ms", "share", "error", "tolerance",
                     "gain ms", "bytes", "launches", "rest");
  for (const ReplayStage& s : replay.stages) {
    const double ms = s.samples.median() / 1e6;
    out += fmt::format(
        "{:<16} {:>9.3f} {:>9.3f} {:>9.3f} {:>8} {:>8.1f} {:>8.3f} {:>5.0f}% {:>9.1e} {:>9.1e} | {:>8.3f} {:>8.3f} "
        "{:>8.3f} "
        "{:>8.3f}\n",
        s.name, ms, s.samples.p10() / 1e6, s.samples.p90() / 1e6, s.launches, double(s.bytes_moved) / 1e6, s.floor_ms,
        100 * s.floor_ms / ms, s.max_error, s.tolerance, s.gain_ms, s.bytes_gain_ms, s.launches_gain_ms,
        s.gain_ms - s.bytes_gain_ms - s.launches_gain_ms);
    if (s.host_steps)
      out += fmt::format("  {} steps run on the host: no kernel of the device takes them\n", s.host_steps);
    if (s.floor_ms < 0.5 * ms) out += "  not done: under half of its floor\n";
    out += "  " + shares(s.families) + "\n";
    if (bandwidth > 0) {
      const Json b = at_bandwidth(s, bandwidth);
      out += fmt::format(
          "  at {:g} GB/s: {:.2f} ms for the layers' {:.2f} GB ({:.0f} % of the text's {:g} ms), head {:.2f}, caches "
          "{:.2f}\n",
          bandwidth, b["layers_ms"].get<double>(), double(s.layer_bytes) / 1e9, 100 * b["text_share"].get<double>(),
          kTextMs, b["head_ms"].get<double>(), b["cache_ms"].get<double>());
    }
  }
  if (!replay.stages.empty()) {
    out += "\nbytes of the last stage:";
    for (const LedgerEntry& e : replay.stages.back().ledger)
      out += fmt::format("  {} {} {:.3f} MB", e.tensor, e.dtype, double(e.bytes) / 1e6);
    out += "\n";
  }
  if (replay.line_r2 > 0)
    out += fmt::format("time over bytes, all stages but the first: {:.1f} GB/s and {:.3f} ms, R^2 {:.4f}\n",
                       replay.line_gb_s, replay.line_intercept_ms, replay.line_r2);
  out +=
      "floor: the weights' and caches' bytes at the measured bandwidth, and the launches of the fused step. error: "
      "against "
      "the first stage.\n";
  return out;
}

void replay(const Common& common, Arguments& a) {
  if (a.model != "decoder") fail(ErrorCode::kUsage, "replay {}: there is decoder", a.model);
  ReplayOptions& o = a.replay;
  for (const DecoderWeights w : {DecoderWeights::kF16, DecoderWeights::kI8, DecoderWeights::kI4})
    if (a.weights == name(w)) o.weights = w;
  for (const std::string& step : a.without) {
    if (std::find(replay_steps().begin(), replay_steps().end(), step) == replay_steps().end())
      fail(ErrorCode::kUsage, "--without {}: there are {}", step, fmt::join(replay_steps(), ", "));
    o.without.insert(step);
  }
  DecoderSize& z = o.size;
  if (z.hidden % z.heads || z.depth() % 2)
    fail(ErrorCode::kUsage, "--hidden {} --heads {}: heads of an even number are wanted", z.hidden, z.heads);
  z.inner = 4 * z.hidden;
  if (o.weights == DecoderWeights::kI4 && z.hidden % 128)
    fail(ErrorCode::kUsage, "--hidden {}: groups of 128 want a multiple", z.hidden);
  z.capacity = a.context;
  o.prompt = a.prompt < 0 ? a.context : a.prompt;
  if (o.prompt == 1 || o.prompt > a.context)
    fail(ErrorCode::kUsage, "--prompt {}: 0 (none), or 2 to --context ({})", o.prompt, a.context);
  o.device = device_kind(common);
  o.threads = common.threads;
  o.seed = common.seed;
  o.progress = [&](const std::string& line) { common.progress("ridgeline: " + line); };
  const Ceilings ceilings = device_ceilings(common);
  o.ceilings = &ceilings;
  const Replay result = replay_decoder(o);
  Json document;
  document["model"] = {{"layers", z.layers},     {"hidden", z.hidden}, {"heads", z.heads},
                       {"head_size", z.depth()}, {"inner", z.inner},   {"vocabulary", z.vocabulary},
                       {"context", z.capacity}};
  Json stages = Json::array();
  for (const ReplayStage& s : result.stages) stages.push_back(stage_json(s, a.bandwidth));
  document["stages"] = stages;
  if (result.prefill.tokens > 0) document["prefill"] = prefill_json(result.prefill);
  document["line"] = {{"gb_s", result.line_gb_s}, {"intercept_ms", result.line_intercept_ms}, {"r2", result.line_r2}};
  common.show(document, replay_text(result, z, a.bandwidth));
}

}  // namespace

void add_replay(CLI::App& app, Common& common) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = add_command(app, common, "replay",
                                  "The decoder of the text on matrix multiplication: one token's time, step by step "
                                  "from generic kernels to few bits",
                                  [&common, a] { replay(common, *a); });
  command->add_option("model", a->model, "decoder")->required();
  command->add_option("--weights", a->weights, "Of the last stage (default f16)")
      ->check(CLI::IsMember({"f16", "i8", "i4:g128"}));
  command->add_option("--context", a->context, "Tokens in the caches, which hold no more (default 1024)")
      ->check(whole_number(2, 1 << 20));
  command->add_option("--prompt", a->prompt, "Tokens of the prefill (default: the context); 0: none")
      ->check(whole_number(0, 1 << 20));
  command->add_option("--bandwidth", a->bandwidth, "GB/s of another machine: each stage's floor there")
      ->check(CLI::Range(1e-3, 1e6));
  command->add_option("--without", a->without,
                      "Leave a step out (may be repeated): m1, i8, fusions, i4, or one fusion: qkv, add_norm, "
                      "activation, rotary");
  command->add_option("--time", a->replay.seconds, "Seconds of measurement a stage (default 1)")
      ->check(seconds_to_measure());
  // Smaller ones, for tests and small machines.
  DecoderSize& z = a->replay.size;
  command->add_option("--layers", z.layers, "Layers (default 12)")->check(whole_number(1, 1000));
  command->add_option("--hidden", z.hidden, "Width (default 4096)")->check(whole_number(2, 1 << 16));
  command->add_option("--heads", z.heads, "Heads (default 32)")->check(whole_number(1, 1 << 12));
  command->add_option("--vocabulary", z.vocabulary, "Rows of embedding and head (default 32000)")
      ->check(whole_number(2, 1 << 20));
}

}  // namespace ridgeline::cli
