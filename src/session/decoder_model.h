// The decoder of `replay`: its graph for a prefill or for one decode step, with weights of three kinds and the fusions
// that the replay switches. The caches are state: inputs that are outputs too, one buffer each.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

enum class DecoderWeights : uint8_t { kF16, kI8, kI4 };
std::string_view name(DecoderWeights weights);  // "f16", "i8", "i4:g128", as the command line writes them

/// The one of the text on matrix multiplication.
struct DecoderSize {
  int64_t layers = 12, hidden = 4096, heads = 32, inner = 16384, vocabulary = 32000;
  int64_t capacity = 1024;  // of the caches
  int64_t depth() const { return hidden / heads; }
};

/// "qkv", "add_norm", "activation", "rotary": each may be left out.
using DecoderFusions = std::set<std::string, std::less<>>;
const DecoderFusions& decoder_fusions();

struct DecoderSpec {
  DecoderSize size;
  DecoderWeights weights = DecoderWeights::kF16;
  int64_t tokens = 1;
  DecoderFusions fusions;
  DeviceKind device = DeviceKind::kCpu;  // GPUs hold activations and caches in f16, CPUs in f32
  DType activations() const { return device == DeviceKind::kCuda ? DType::kF16 : DType::kF32; }
};

/// Seeded weights, the same numbers in each form. Rows are cut out of one block of normal numbers at places that a hash
/// chooses: making 5 GB takes seconds. Matrices of one kind are the same in all layers, each with memory of its own
/// once packed.
class DecoderNumbers {
 public:
  explicit DecoderNumbers(uint64_t seed) : seed_(seed) {}
  /// Rows [n, k] of the matrices named (one above the other), standard deviation 1 / sqrt(k), as [n, k] or [k, n].
  Tensor f16(const std::vector<std::string>& names, int64_t n, int64_t k, bool transposed);
  /// Levels and scales: i8 a row, i4 a group of 128.
  Tensor quantized(const std::vector<std::string>& names, int64_t n, int64_t k, DecoderWeights to, Tensor& scale);
  Tensor normal(const std::string& name, DType dtype, const Extents& shape, double deviation = 1);

 private:
  const std::vector<float>& block(int64_t k);
  const float* row(const std::vector<std::string>& names, int64_t n, int64_t k, int64_t at);
  uint64_t seed_;
  std::map<int64_t, std::vector<float>> blocks_;  // by k, rounded to f16
  std::map<std::string, Tensor> made_, scales_;
};

/// Inputs: input_ids, write_indices, lengths, and "k_cache.0", "v_cache.0" ...; outputs: logits of the last token and
/// the caches, named "k_present.0" ....
Graph decoder_graph(const DecoderSpec& spec, DecoderNumbers& numbers);

/// Products: with weights, and two an attention.
int count_products(const Graph& graph);

}  // namespace ridgeline
