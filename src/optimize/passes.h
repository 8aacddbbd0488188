// The passes, one page each; src/optimize/pipeline.cpp gives each its place and its name.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "optimize/decision.h"

namespace ridgeline {

void inline_control(Graph& graph, Decisions& decisions);
void expand_quantized(Graph& graph, Decisions& decisions);
void move_quantization(Graph& graph, Decisions& decisions);
void integer_products(Graph& graph, Decisions& decisions);
void spell_quantization(Graph& graph, Decisions& decisions);
void fold_constants(Graph& graph, Decisions& decisions);
void eliminate_identities(Graph& graph, Decisions& decisions);
void canonicalize(Graph& graph, Decisions& decisions);
void simplify_movement(Graph& graph, Decisions& decisions);
void match_composites(Graph& graph, Decisions& decisions);
void fold_batch_normalization(Graph& graph, Decisions& decisions);
void fold_affine(Graph& graph, Decisions& decisions);
void lift_denormals(Graph& graph, Decisions& decisions);
void fuse_epilogues(Graph& graph, Decisions& decisions);
void fuse_residuals(Graph& graph, Decisions& decisions);
void fuse_add_normalization(Graph& graph, Decisions& decisions);
void merge_projections(Graph& graph, Decisions& decisions);
void fuse_elementwise(Graph& graph, Decisions& decisions);
void lower_to_f16(Graph& graph, Decisions& decisions);
void lower_to_bf16(Graph& graph, Decisions& decisions);
void lower_to_int8(Graph& graph, Decisions& decisions);
void channels_last(Graph& graph, Decisions& decisions);

// ---- what passes share

/// The origins of several nodes, in order, without repetition.
std::vector<std::string> origins(std::initializer_list<const Node*> nodes);
void add_origin(Node& node, const Node& from);
/// May these become one step? Not where it would stand for too many nodes: each rewrite lists them, and a chain of
/// 2,000 transposes took 14 s.
bool one_step(const Graph& graph, const Node& node, const std::vector<NodeId>& more);
/// Bytes of a value if its shape is known with open symbols at 1.
int64_t value_bytes(const Graph& graph, ValueId value);
/// FLOPs of a node with open symbols at 1.
int64_t node_flops(const Graph& graph, const Node& node);
/// Does this user read no more of its operand than the extents? No rewrite that keeps the shape takes anything from it.
bool reads_shape_only(const Node& user);
/// Users that read the content, and the graph's output.
int content_uses(const Graph& graph, ValueId value);
/// Gives a constant's memory back if nothing reads it any more: weights that a rewrite has replaced, at once and not at
/// the pass's end, when all the new ones stand beside all the old.
void release_unread(Graph& graph, ValueId constant);
/// A Transpose's permutation, the default one written out.
std::vector<int64_t> permutation_of(const Graph& graph, const Node& transpose);
/// All elements of a float constant equal: its number.
std::optional<double> uniform_constant(const Graph& graph, ValueId value);
/// Is there a kernel other than the reference for this node with its program, with images row-major or
/// channels last? Else the reason.
std::string why_no_kernel(const Graph& graph, const Node& node, const std::shared_ptr<const Program>& program,
                          const std::vector<ValueId>& inputs, int op_inputs);

}  // namespace ridgeline
