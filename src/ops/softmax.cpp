// Softmax and its relatives, along one axis. Source: ONNX Softmax-13, LogSoftmax-13, Hardmax-13. The older forms, which
// flatten to two dimensions first, are rewritten when a model is imported.
#include <cmath>

#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

void infer_softmax(Infer& i) {
  i.axis(i.integer("axis"), i.rank(0));
  i.same_as(0, 0);
}

/// One lane: `extent` numbers, `inner` apart.
struct Lane {
  const double* x;
  double* y;
  int64_t extent, stride;
};

template <void (*kLane)(const Lane&)>
void along_axis(Reference& c) {
  const RefArray& x = c.in[0];
  const AxisSpan span = span_of(x.shape, positive_axis(c.integer("axis"), x.rank()));
  if (span.extent == 0) return;
  c.parallel_for(span.outer * span.inner, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k / span.inner * span.extent * span.inner + k % span.inner;
      kLane({x.f.data() + first, c.out[0].f.data() + first, span.extent, span.inner});
    }
  });
}

/// NaN if one of them is.
double largest(const Lane& l) {
  double best = l.x[0];
  for (int64_t k = 1; k < l.extent; ++k)
    if (const double v = l.x[k * l.stride]; v > best || std::isnan(v)) best = v;
  return best;
}

double sum_of_exponentials(const Lane& l, double around) {
  double sum = 0;
  for (int64_t k = 0; k < l.extent; ++k) sum += std::exp(l.x[k * l.stride] - around);
  return sum;
}

void softmax_lane(const Lane& l) {
  const double best = largest(l), sum = sum_of_exponentials(l, best);
  for (int64_t k = 0; k < l.extent; ++k) l.y[k * l.stride] = std::exp(l.x[k * l.stride] - best) / sum;
}

void log_softmax_lane(const Lane& l) {
  const double best = largest(l), log_sum = std::log(sum_of_exponentials(l, best));
  for (int64_t k = 0; k < l.extent; ++k) l.y[k * l.stride] = l.x[k * l.stride] - best - log_sum;
}

void hardmax_lane(const Lane& l) {
  int64_t best = 0;
  for (int64_t k = 1; k < l.extent; ++k)
    if (l.x[k * l.stride] > l.x[best * l.stride]) best = k;
  for (int64_t k = 0; k < l.extent; ++k) l.y[k * l.stride] = k == best;
}

constexpr StaticList<std::string_view, 24> kSamples = {
    "x=f32[3,5,127]",
    "x=f32[5,33] axis=0",
    "x=f32[2,7,5,3] axis=1",
    "x=f32[4,1000] axis=-1",
    "x=f32[0,64]",
    "x=f32[3,0] axis=-1",
    "x=f32[7,1]",
    "x=f64[3,17] axis=-2",
    "x=f16[5,129]",
    "x=bf16[2,3,65] axis=2",
    "x=f32[1,1,12,128,128]",
};

constexpr OpSchema softmax_like(std::string_view name, std::string_view doc) {
  OpSchema schema;
  schema.name = name;
  schema.family = "normalize";
  schema.kind = OpKind::kReduction;
  schema.doc = doc;
  schema.since = 13;
  schema.versions = {1, 11, 13};
  schema.inputs = {{"x", kFloats}};
  schema.outputs = {{"y"}};
  schema.attributes = {{"axis", -1}};
  schema.infer = infer_softmax;
  schema.samples = kSamples;
  schema.tolerance = Tolerance::reduction();
  return schema;
}

/// max, subtract, exp, sum, and one more; `special` counts the exponentials and what `last` says is special.
Cost softmax_cost(const Problem& p) {
  const int64_t n = p.input(0).elements();
  return {.flops = 5 * n, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes(), .special = 2 * n};
}

Cost log_softmax_cost(const Problem& p) {
  const int64_t n = p.input(0).elements();
  const int64_t extent = p.input(0).shape()[size_t(positive_axis(p.integer("axis"), p.input(0).layout.rank()))];
  const int64_t lanes = extent ? n / extent : 0;
  return {.flops = 5 * n + lanes, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes(), .special = n + lanes};
}

V exponentials(Builder& b, V x, std::vector<int64_t> axis, bool around_largest) {
  return b.exp(around_largest ? x - b.reduce("ReduceMax", x, axis) : x);
}

}  // namespace

constinit const OpSchema kSoftmax = [] {
  OpSchema schema = softmax_like("Softmax", "exp(x - max) / sum(exp(x - max)) along `axis`. Source: ONNX Softmax-13.");
  schema.cost = softmax_cost;
  schema.reference = along_axis<softmax_lane>;
  schema.decompose = {[](Builder& b) {
                        V e = exponentials(b, b.input(0), {b.integer("axis")}, true);
                        b.result(e / b.reduce("ReduceSum", e, {b.integer("axis")}));
                      },
                      [](Builder& b) {  // written without the maximum
                        V e = exponentials(b, b.input(0), {b.integer("axis")}, false);
                        b.result(e / b.reduce("ReduceSum", e, {b.integer("axis")}));
                      }};
  schema.gradient = [](Gradient& g) {
    V y = g.output(), dy = g.gradient();
    g.input_gradient(0, y * (dy - g.reduce("ReduceSum", y * dy, {g.integer("axis")})));
  };
  return schema;
}();

constinit const OpSchema kLogSoftmax = [] {
  OpSchema schema =
      softmax_like("LogSoftmax", "x - max - log(sum(exp(x - max))) along `axis`. Source: ONNX LogSoftmax-13.");
  schema.cost = log_softmax_cost;
  schema.reference = along_axis<log_softmax_lane>;
  schema.decompose = {[](Builder& b) {
                        V shifted = b.input(0) - b.reduce("ReduceMax", b.input(0), {b.integer("axis")});
                        b.result(shifted - b.op("Log", {b.reduce("ReduceSum", b.exp(shifted), {b.integer("axis")})}));
                      },
                      [](Builder& b) { b.result(b.op("Log", {b.softmax(b.input(0), b.integer("axis"))})); }};
  schema.gradient = [](Gradient& g) {
    V dy = g.gradient();
    g.input_gradient(0, dy - g.exp(g.output()) * g.reduce("ReduceSum", dy, {g.integer("axis")}));
  };
  return schema;
}();

constinit const OpSchema kHardmax = [] {
  OpSchema schema = softmax_like(
      "Hardmax", "1 at the first of the largest elements along `axis`, 0 elsewhere. Source: ONNX Hardmax-13.");
  schema.reference = along_axis<hardmax_lane>;
  schema.no_gradient = kNoGradientZero;
  schema.tolerance = Tolerance::exact();
  return schema;
}();

std::span<const OpSchema* const> softmax_ops() {
  static constexpr const OpSchema* kOps[] = {&kSoftmax, &kLogSoftmax, &kHardmax};
  return kOps;
}

}  // namespace ridgeline
