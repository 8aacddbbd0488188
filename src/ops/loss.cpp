// Losses over classes. Source: the ONNX operator standard, NegativeLogLikelihoodLoss-13 and SoftmaxCrossEntropyLoss-13.
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {

namespace {

// Input 0 is [N, C, d...], 1 the classes [N, d...], 2 optionally a weight of each class [C].
void infer_loss(Infer& i) {
  const Shape& x = i.shape(0);
  i.require(x.size() >= 2, fmt::format("'{}' is {}; allowed: [N, C] or [N, C, d...]", i.op().inputs[0].name, text(x)));
  Shape classes = x;
  classes.erase(classes.begin() + 1);
  const Shape& target = i.shape(1);
  bool fits = target.size() == classes.size();
  for (size_t a = 0; fits && a < target.size(); ++a)
    fits = !target[a].known() || !classes[a].known() || target[a] == classes[a];
  i.require(fits, fmt::format("'{}' is {}; allowed: {}", i.op().inputs[1].name, text(target), text(classes)));
  if (i.has(2)) {
    const bool one_a_class = i.rank(2) == 1 && (!i.dim(2, 0).known() || !x[1].known() || i.dim(2, 0) == x[1]);
    i.require(one_a_class,
              fmt::format("'{}' is {}; allowed: [{}]", i.op().inputs[2].name, text(i.shape(2)), x[1].text()));
  }
  const std::string reduction = i.string("reduction");
  i.require(reduction == "none" || reduction == "sum" || reduction == "mean",
            fmt::format("reduction = '{}'; allowed: none, sum, mean", reduction));
  i.output(0, i.dtype(0), reduction == "none" ? classes : Shape());
  if (i.wants(1)) i.output(1, i.dtype(0), x);
}

std::vector<int64_t> all_axes(int rank) {
  std::vector<int64_t> axes;
  for (int64_t a = 0; a < rank; ++a) axes.push_back(a);
  return axes;
}

// -weight[class] * log p[class] at each position; those of the ignored class count neither in the sum nor in the mean's
// weights.
V negative_log_likelihood(Builder& b, V log_p) {
  V target = b.cast(b.input(1), DType::kI64), counts;
  if (const std::vector<int64_t> ignored = b.integers("ignore_index"); !ignored.empty()) {
    counts = b.op("Not", {b.op("Equal", {target, b.integers_constant(ignored)})});
    target = b.op("Where", {counts, target, b.integers_constant({0})});
  }
  Attributes classes;
  classes.set("axis", int64_t(1));
  V second = b.integers_constant({1});
  V picked = b.op("Squeeze", {b.op("GatherElements", {log_p, b.op("Unsqueeze", {target, second})}, classes), second});
  V weight;
  if (b.has(2)) weight = b.op("Gather", {b.input(2), target});
  if (b.has(2) && counts) weight = b.op("Where", {counts, weight, b.constant(0, log_p)});
  if (!b.has(2) && counts) weight = b.cast(counts, b.dtype(log_p));
  V loss = weight ? b.neg(picked) * weight : b.neg(picked);
  const std::string reduction = b.string("reduction");
  if (reduction == "none") return loss;
  const std::vector<int64_t> axes = all_axes(b.rank(loss));
  if (reduction == "mean" && !weight) return b.reduce("ReduceMean", loss, axes, false);
  V sum = b.reduce("ReduceSum", loss, axes, false);
  return reduction == "sum" ? sum : sum / b.reduce("ReduceSum", weight, axes, false);
}

constexpr InputSpec optional_weight(std::string_view name, std::string_view like) {
  InputSpec spec{name, kFloats, like};
  spec.optional = true;
  return spec;
}

constexpr StaticList<AttributeSpec, 24> kLossAttributes = {{"ignore_index", AttributeType::kInt},
                                                           {"reduction", "mean"}};

}  // namespace

constinit const OpSchema kNegativeLogLikelihoodLoss = {
    .name = "NegativeLogLikelihoodLoss",
    .family = "loss",
    .kind = OpKind::kReduction,
    .doc = "-weight[target] * input[target] over the classes of axis 1: each, their sum, or their weighted mean",
    .since = 12,
    .versions = {12, 13, 22},
    .inputs = {{"input", kFloats}, {"target", kIndices}, optional_weight("weight", "input")},
    .outputs = {{"loss"}},
    .attributes = kLossAttributes,
    .infer = infer_loss,
    .decompose = {[](Builder& b) { b.result(negative_log_likelihood(b, b.input(0))); }},
    .samples = {"input=f32[3,5] target=i64{1,0,4}", "input=f32[2,3,4] target=i64[2,4] weight=f32[3] reduction=none",
                "input=f32[3,5] target=i32{1,2,0} ignore_index=2 reduction=sum",
                "input=f16[2,3,0] target=i64[2,0] reduction=none"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kSoftmaxCrossEntropyLoss = {
    .name = "SoftmaxCrossEntropyLoss",
    .family = "loss",
    .kind = OpKind::kReduction,
    .doc = "NegativeLogLikelihoodLoss of log softmax of the scores over axis 1, which is the second result",
    .since = 12,
    .versions = {12, 13},
    .inputs = {{"scores", kFloats}, {"labels", kIndices}, optional_weight("weights", "scores")},
    .outputs = {{"output"}, {"log_prob", true}},
    .attributes = kLossAttributes,
    .infer = infer_loss,
    .decompose = {[](Builder& b) {
      Attributes classes;
      classes.set("axis", int64_t(1));
      V log_p = b.op("LogSoftmax", {b.input(0)}, classes);
      b.result(negative_log_likelihood(b, log_p));
      b.result(log_p);
    }},
    .samples = {"scores=f32[3,5] labels=i64{1,0,4}",
                "scores=f32[2,3,4] labels=i64[2,4] weights=f32[3] reduction=none outputs=2",
                "scores=f32[3,5] labels=i32{1,2,0} ignore_index=2 reduction=sum"},
    .tolerance = Tolerance::reduction(),
};

std::span<const OpSchema* const> loss_ops() {
  static constexpr const OpSchema* kOps[] = {&kNegativeLogLikelihoodLoss, &kSoftmaxCrossEntropyLoss};
  return kOps;
}

}  // namespace ridgeline
