// com.microsoft's normalizations that stand in no other family's file. Source: ONNX Runtime's ContribOperators.md.
#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

constexpr TypeSet kReal = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr TypeSet kInt32 = type_bit(DType::kI32);

/// Of one sum: the result, and its statistics by a node of their own, which nobody computes where nobody wants them.
void decompose_skip_norm(Builder& b, std::string_view op, std::string_view alone, int bias, std::vector<V> parameters) {
  V sum = b.input(0) + b.input(1);
  if (b.has(bias)) sum = sum + b.input(bias);
  parameters.insert(parameters.begin(), sum);
  const Attributes attributes = with({{"epsilon", b.number("epsilon")}});
  b.result(b.op(alone, parameters, attributes));
  const std::vector<V> all = b.ops(op, parameters, op == alone ? 3 : 2, attributes);
  b.result(op == alone ? all[1] : all[1] * b.constant(0, all[1]));  // an RMS normalization has no mean: 0
  b.result(all.back());
  b.result(sum);
}

// ---- EmbedLayerNormalization

enum Input { kWords, kSegments, kWordTable, kPlaceTable, kSegmentTable, kGamma, kBeta, kMask, kPlaces };

void infer_embedding(Infer& i) {
  require_rank(i, kWords, 2, "[batch, length]");
  const Shape& ids = i.shape(kWords);
  const auto table = [&](int input) {
    if (!i.has(input)) return;
    require_rank(i, input, 2, "[rows, width]");
    i.require(same(i.dim(input, 1), i.dim(kWordTable, 1)), [&] {
      return fmt::format("input '{}' is {}, word_embedding {}: one width is wanted", i.op().inputs[input].name,
                         describe(i, input), describe(i, kWordTable));
    });
  };
  for (int input : {int(kWordTable), int(kPlaceTable), int(kSegmentTable)}) table(input);
  for (int input : {int(kGamma), int(kBeta)})
    i.require(i.rank(input) == 1 && same(i.dim(input, 0), i.dim(kWordTable, 1)), [&] {
      return fmt::format("input '{}' is {}: [{}] is wanted", i.op().inputs[input].name, describe(i, input),
                         i.dim(kWordTable, 1).text());
    });
  for (int input : {int(kSegments), int(kMask), int(kPlaces)}) {
    if (!i.has(input)) continue;
    const Shape& s = i.shape(input);
    const bool fits = s.size() == 2 && same(s[1], ids[1]) && (same(s[0], ids[0]) || (input == kPlaces && s[0].is(1)));
    i.require(fits, [&] {
      return fmt::format("input '{}' is {}, input_ids {}", i.op().inputs[input].name, describe(i, input),
                         describe(i, kWords));
    });
  }
  i.require(i.has(kSegments) == i.has(kSegmentTable), "segment_ids and segment_embedding go together");
  i.require(i.has(kPlaces) || !ids[1].known() || !i.dim(kPlaceTable, 0).known() ||
                ids[1].value() <= i.dim(kPlaceTable, 0).value(),
            [&] { return fmt::format("{} positions in a table {}", ids[1].text(), describe(i, kPlaceTable)); });
  const Shape out = {ids[0], ids[1], i.dim(kWordTable, 1)};
  i.output(0, i.dtype(kWordTable), out);
  if (i.wants(1)) i.output(1, DType::kI32, {ids[0]});
  if (i.wants(2)) i.output(2, i.dtype(kWordTable), out);
}

void decompose_embedding(Builder& b) {
  const auto rows = [&](int table, int ids) { return b.op("Gather", {b.input(table), b.input(ids)}); };
  V words = b.input(kWords);
  V places = b.has(kPlaces) ? rows(kPlaceTable, kPlaces)
                            : b.op("Slice", {b.input(kPlaceTable), b.integers_constant({0}), extent(b, words, 1),
                                             b.integers_constant({0})});
  V sum = rows(kWordTable, kWords) + places;
  if (b.has(kSegments)) sum = sum + rows(kSegmentTable, kSegments);
  b.result(
      b.op("LayerNormalization", {sum, b.input(kGamma), b.input(kBeta)}, with({{"epsilon", b.number("epsilon")}})));
  if (b.has(kMask)) {
    // In f32, which has a kernel for sums and is exact up to rows of 2^24.
    b.result(b.cast(b.reduce("ReduceSum", b.cast(b.input(kMask), DType::kF32), {1}, false), DType::kI32));
  } else {
    V none{&b, b.graph().add_constant({}, Tensor::scalar_of(DType::kI32, 0))};
    b.result(b.op("Expand", {none, extent(b, words, 0)}));
  }
  b.result(sum);
}

}  // namespace

void contributed::decompose_skip_layer_norm(Builder& b) {
  std::vector<V> parameters = {b.input(2)};
  if (b.has(3)) parameters.push_back(b.input(3));
  decompose_skip_norm(b, "LayerNormalization", "LayerNormalization", 4, std::move(parameters));
}

void contributed::decompose_skip_rms_norm(Builder& b) {
  decompose_skip_norm(b, "SimplifiedLayerNormalization", "RMSNormalization", 3, {b.input(2)});
}

constinit const OpSchema kEmbedLayerNormalization = {
    .name = "EmbedLayerNormalization",
    .domain = "com.microsoft",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "LayerNormalization of the sum of embeddings of words, positions and segments; how long each row of the mask "
        "is; that sum. Source: ONNX Runtime EmbedLayerNormalization-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"input_ids", kInt32},
               optional("segment_ids", kInt32),
               {"word_embedding", kReal},
               {"position_embedding", kReal, "word_embedding"},
               optional("segment_embedding", kReal, "word_embedding"),
               {"gamma", kReal, "word_embedding"},
               {"beta", kReal, "word_embedding"},
               optional("mask", kInt32),
               optional("position_ids", kInt32)},
    .outputs = {{"output"}, {"mask_index", true}, {"embedding_sum", true}},
    .attributes = {{"epsilon", 1e-12}, {"mask_index_type", 0}},
    .infer = infer_embedding,
    .cost = decomposed_cost,
    .decompose = {decompose_embedding},
    .no_gradient = "inference only in its standard; write it as Gather, Add and LayerNormalization",
    .samples = {"input_ids=i32[2,3] segment_ids=i32[2,3] word_embedding=f32[16,9] position_embedding=f32[16,9] "
                "segment_embedding=f32[16,9] gamma=f32[9] beta=f32[9] mask=i32[2,3] outputs=3",
                "input_ids=i32[1,4] word_embedding=f32[16,8] position_embedding=f32[16,8] gamma=f32[8] beta=f32[8] "
                "position_ids=i32[1,4] epsilon=0.001",
                "input_ids=i32[0,4] word_embedding=f32[16,8] position_embedding=f32[16,8] gamma=f32[8] beta=f32[8]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kContributedSimplifiedLayerNormalization = {
    .name = "SimplifiedLayerNormalization",
    .domain = "com.microsoft",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "RMSNormalization, as ONNX Runtime also writes it in the standard's domain. Source: ONNX Runtime "
        "SimplifiedLayerNormalization-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}},
    .outputs = {{"y"}, {"inverse_deviation", true}},
    .attributes = {{"axis", -1}, {"epsilon", 1e-5}, {"stash_type", 1}},
    .infer = [](Infer& i) { find_op("SimplifiedLayerNormalization")->infer(i); },
    .cost = [](const Problem& p) { return find_op("SimplifiedLayerNormalization")->cost(p); },
    .decompose = {[](Builder& b) {
      const Attributes attributes = with(
          {{"axis", b.integer("axis")}, {"epsilon", b.number("epsilon")}, {"stash_type", b.integer("stash_type")}});
      b.result(b.op("SimplifiedLayerNormalization", {b.input(0), b.input(1)}, attributes));
      b.result(b.ops("SimplifiedLayerNormalization", {b.input(0), b.input(1)}, 2, attributes)[1]);
    }},
    .samples = {"x=f32[2,3,64] scale=f32[64]", "x=f32[3,5,127] scale=f32[127] epsilon=0.001", "x=f32[0,5] scale=f32[5]",
                "x=f32[2,3,4] scale=f32[3,4] axis=1"},
    .tolerance = Tolerance::reduction(),
};

std::span<const OpSchema* const> contributed_normalize_ops() {
  static constexpr const OpSchema* kOps[] = {&kEmbedLayerNormalization, &kContributedSimplifiedLayerNormalization};
  return kOps;
}

}  // namespace ridgeline
