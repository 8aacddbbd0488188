// Attention as the kernels for GPUs see it, whichever operator asks (ridgeline's ScaledDotProductAttention, the
// standard's Attention), and the text that stands before each of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/compiler.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// `struct Attention` of common.cu, field by field.
struct AttentionArguments {
  struct Rows {
    int64_t batch = 0, head = 0, row = 0, column = 0;
  };
  uint64_t q_address = 0, k_address = 0, v_address = 0, y_address = 0;
  Rows q, k, v, y;
  double scale = 1, softcap = 0;
  int64_t first_place = 0;
  int batch = 0, heads = 1, kv_heads = 1, queries = 0, keys = 0, depth = 0, value_depth = 0, past = 0, mask_keys = 0,
      causal = 0;
  int splits = 1, plain = 0, has_lengths = 0, scores_mode = -1, wide_k = 0, wide_v = 0, aligned = 0, empty_is_zero = 0,
      y_in_words = 0, paired = 0;
  int64_t length_stride = 0, left = -1, right = -1, attention_blocks = 0;
  uint64_t mask_address = 0, past_k_address = 0, past_v_address = 0, lengths_address = 0, present_k_address = 0,
           present_v_address = 0, scores_address = 0;
  Rows mask, past_k, past_v, present_k, present_v, scores;
};

/// The problem's geometry with addresses, if `buffers` is given.
AttentionArguments attention_arguments(const Problem& problem, const Buffers* buffers = nullptr);

/// What no kernel of this family does.
Support attention_support(const Problem& problem);
/// More: f16 or bf16 alone, one type for Q, K and V, last axes contiguous, no scores wanted.
Support attention_half_support(const Problem& problem);

/// Types, the mask's type, the epilogue and common.cu.
std::string attention_text(const Problem& problem);
/// `struct Epilogue`: of each operand its address and strides (batch, head, row, column).
std::vector<uint64_t> attention_epilogue(const Problem& problem, void* const* inputs);

/// Blocks beside the attending ones that write present_key and present_value.
int64_t attention_copy_blocks(const AttentionArguments& a, int threads);

/// Launches attention_any (any.cu), which takes every problem that it is compiled for, misaligned ones too: other
/// kernels have it beside them, with kAttentionAnyRows rows, and its text. `kernel` may lack the bytes of shared
/// memory.
inline constexpr int kAttentionAnyTile = 128, kAttentionAnyRows = 8;
void attention_any_launch(const LoadedKernel& kernel, const Problem& problem, const Buffers& buffers, int rows,
                          StreamHandle* stream);
/// Text and definitions of it for a kernel of halves, and of warp.cu.
std::string attention_half_text(const Problem& problem);
std::vector<std::string> attention_half_defines();
int64_t attention_any_bytes(const AttentionArguments& a);

/// Are these a multiple of 8 elements apart, so that an aligned address makes whole words of 16 bytes?
bool attention_in_words(const AttentionArguments::Rows& rows);

/// How many scores are seen (nonpad_kv_seqlen: all), by the problem's own cost.
double attention_flops(const Problem& problem);

}  // namespace ridgeline::cuda
