// The ladder of the text on matrix multiplication: a decoder's step, measured from generic kernels to 4-bit weights,
// each stage with its bytes, launches, floor and where its gain comes from; and its prefill.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "machine/ceilings.h"
#include "plan/plan.h"
#include "session/decoder_model.h"
#include "tune/timing.h"

namespace ridgeline {

struct ReplayOptions {
  DecoderSize size;
  DecoderWeights weights = DecoderWeights::kF16;  // of the last stage
  int64_t prompt = 1024;                          // tokens of the prefill; 0: none
  std::set<std::string, std::less<>> without;     // of replay_steps()
  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;
  uint64_t seed = 0;
  double seconds = 1;  // measured a stage
  const Ceilings* ceilings = nullptr;
  std::function<void(const std::string&)> progress;
};

/// What may be left out: "m1", "i8", "fusions", "i4", and single fusions.
const std::vector<std::string>& replay_steps();

struct LedgerEntry {
  std::string tensor, dtype;
  int64_t bytes = 0;
};

struct ReplayStage {
  std::string name;
  DecoderWeights weights = DecoderWeights::kF16;
  DecoderFusions fusions;
  Samples samples;
  int launches = 0, host_steps = 0, products = 0;
  int64_t peak_bytes = 0, bytes_moved = 0, flops = 0, executed_flops = 0;
  double max_error = 0, tolerance = 0;  // against the first stage
  std::vector<LedgerEntry> ledger;      // its sum is bytes_moved
  int64_t layer_bytes = 0, head_bytes = 0, cache_bytes = 0;
  double floor_ms = 0;  // compulsory bytes at the measured bandwidth, and the launches of the fused step
  std::map<std::string, double> families, times_us;  // shares by operator family; sums by step: "qkv", "attention"
  std::map<std::string, int> kernels;
  /// Gained over the stage before, and how much of it the bytes and launches that are gone account for.
  double gain_ms = 0, bytes_gain_ms = 0, launches_gain_ms = 0;
  int64_t compulsory_bytes() const { return layer_bytes + head_bytes + cache_bytes; }
};

struct ReplayPrefill {
  int64_t tokens = 0;
  Samples samples;
  int launches = 0, host_steps = 0;
  int products_a_layer = 0, products = 0, products_merged = 0;  // of the whole, before and after Q, K, V are one
  int64_t flops = 0, peak_bytes = 0;
  double floor_ms = 0;
  std::map<std::string, double> families, times_us;
  std::map<std::string, int> kernels;
};

struct Replay {
  std::vector<ReplayStage> stages;
  ReplayPrefill prefill;
  /// Time over bytes of the stages after the first, as a straight line.
  double line_gb_s = 0, line_intercept_ms = 0, line_r2 = 0;
};

Replay replay_decoder(const ReplayOptions& options);

/// The graph's plan with its weights packed once for all layers: those of one kind are the same numbers.
std::shared_ptr<const Plan> plan_decoder(Graph& graph, PlanOptions options, ConstantStore& store);

}  // namespace ridgeline
