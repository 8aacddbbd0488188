// Recurrent cells over a sequence. Source: ONNX LSTM-22, GRU-22, RNN-22 (their versions 7 and 14 differ in `layout` and
// in types alone).
#include "ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

// ---- inference

bool same(const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; }

void require_shape(Infer& i, int input, const Shape& wanted) {
  if (!i.has(input)) return;
  const Shape& shape = i.shape(input);
  bool fits = shape.size() == wanted.size();
  for (size_t a = 0; fits && a < wanted.size(); ++a) fits = same(shape[a], wanted[a]);
  i.require(fits, [&] {
    return fmt::format("input '{}' is {}; {} is wanted, by X {}, R {} and direction '{}'", i.op().inputs[input].name,
                       describe(i, input), text(wanted), describe(i, kRecurrentX), describe(i, kRecurrentR),
                       i.string("direction"));
  });
}

void infer_recurrent(Infer& i) {
  const RecurrentForm form = recurrent_form(i.op(), i.attributes());
  i.require(form.refusal.empty(), form.refusal);
  for (const int input : {kRecurrentX, kRecurrentW, kRecurrentR})
    i.require(i.rank(input) == 3, [&] {
      return fmt::format("input '{}' is {}: three axes are wanted", i.op().inputs[input].name, describe(i, input));
    });
  const Dim steps = i.dim(kRecurrentX, form.batch_first ? 1 : 0), batch = i.dim(kRecurrentX, form.batch_first ? 0 : 1);
  Dim hidden = i.dim(kRecurrentR, 2);
  if (i.attributes().has("hidden_size")) {
    const int64_t given = i.integer("hidden_size");
    i.require(given > 0, fmt::format("hidden_size = {}: it must be positive", given));
    i.require(same(hidden, given), [&] {
      return fmt::format("hidden_size = {}, but R is {}: its last extent must be that", given,
                         describe(i, kRecurrentR));
    });
    hidden = given;
  }
  const Dim directions = form.directions, rows = hidden * Dim(form.gates);
  require_shape(i, kRecurrentW, {directions, rows, i.dim(kRecurrentX, 2)});
  require_shape(i, kRecurrentR, {directions, rows, hidden});
  require_shape(i, kRecurrentB, {directions, rows * Dim(2)});
  require_shape(i, kRecurrentLengths, {batch});
  const Shape state = form.batch_first ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
  require_shape(i, kRecurrentH, state);
  if (form.kind == CellKind::kLstm) {
    require_shape(i, kRecurrentC, state);
    require_shape(i, kRecurrentP, {directions, hidden * Dim(3)});
  }
  const DType dtype = i.dtype(kRecurrentX);
  i.output(0, dtype,
           form.batch_first ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden});
  if (i.wants(1)) i.output(1, dtype, state);
  if (i.wants(2)) i.output(2, dtype, state);
}

// ---- reference

double apply(const GateActivation& a, double clip, double x) {
  if (clip > 0) x = x < -clip ? -clip : x > clip ? clip : x;
  switch (a.function) {
    case GateFunction::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case GateFunction::kTanh:
      return std::tanh(x);
    case GateFunction::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case GateFunction::kAffine:
      return double(a.alpha) * x + double(a.beta);
    case GateFunction::kLeakyRelu:
      return x < 0 ? double(a.alpha) * x : x;
    case GateFunction::kThresholdedRelu:
      return x < double(a.alpha) ? 0 : x;
    case GateFunction::kScaledTanh:
      return double(a.alpha) * std::tanh(double(a.beta) * x);
    case GateFunction::kHardSigmoid: {
      const double y = double(a.alpha) * x + double(a.beta);
      return y < 0 ? 0 : y > 1 ? 1 : y;
    }
    case GateFunction::kElu:
      return x < 0 ? double(a.alpha) * std::expm1(x) : x;
    case GateFunction::kSoftsign:
      return x / (1 + std::fabs(x));
    case GateFunction::kSoftplus:
      return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return x;
}

// One row of the batch in one direction.
class RowReference {
 public:
  RowReference(Reference& c, const RecurrentForm& form, int direction, int64_t row)
      : c_(c), form_(form), direction_(direction), row_(row) {
    const RefArray& x = c.in[kRecurrentX];
    steps_ = x.dim(form.batch_first ? 1 : 0), batch_ = x.dim(form.batch_first ? 0 : 1), input_ = x.dim(2);
    hidden_ = c.in[kRecurrentR].dim(2);
    h_ = state(kRecurrentH);
    cell_ = state(kRecurrentC);
    gates_.resize(size_t(form.gates * hidden_));
  }

  void run() {
    const int64_t length = c_.has(kRecurrentLengths) ? c_.in[kRecurrentLengths].integer(row_) : steps_;
    for (int64_t s = 0; s < length; ++s) {  // what lies beyond is zero already
      const int64_t t = form_.is_backward(direction_) ? length - 1 - s : s;
      step(t);
      for (int64_t j = 0; j < hidden_; ++j) {
        const int64_t at = form_.batch_first ? (row_ * steps_ + t) * form_.directions + direction_
                                             : (t * form_.directions + direction_) * batch_ + row_;
        c_.out[0].f[size_t(at * hidden_ + j)] = h_[size_t(j)];
      }
    }
    for (int64_t j = 0; j < hidden_; ++j) {
      if (c_.wants(1)) c_.out[1].f[size_t(state_at(j))] = h_[size_t(j)];
      if (c_.wants(2)) c_.out[2].f[size_t(state_at(j))] = cell_[size_t(j)];
    }
  }

 private:
  int64_t state_at(int64_t j) const {
    return (form_.batch_first ? row_ * form_.directions + direction_ : direction_ * batch_ + row_) * hidden_ + j;
  }
  std::vector<double> state(int input) const {
    std::vector<double> s(size_t(hidden_), 0.0);
    if (c_.has(input))
      for (int64_t j = 0; j < hidden_; ++j) s[size_t(j)] = c_.in[size_t(input)].f[size_t(state_at(j))];
    return s;
  }
  double bias(int64_t k) const {  // k < 2 * gates * hidden
    return c_.has(kRecurrentB) ? c_.in[kRecurrentB].f[size_t(direction_ * 2 * form_.gates * hidden_ + k)] : 0;
  }
  double peephole(int64_t gate, int64_t j) const {
    return c_.has(kRecurrentP) ? c_.in[kRecurrentP].f[size_t((direction_ * 3 + gate) * hidden_ + j)] : 0;
  }
  double x_part(int64_t k, int64_t t) const {  // row k of W, with its bias
    const int64_t at = form_.batch_first ? row_ * steps_ + t : t * batch_ + row_;
    const double *w = c_.in[kRecurrentW].f.data() + (direction_ * form_.gates * hidden_ + k) * input_,
                 *x = c_.in[kRecurrentX].f.data() + at * input_;
    double sum = bias(k);
    for (int64_t m = 0; m < input_; ++m) sum += w[m] * x[m];
    return sum;
  }
  double h_part(int64_t k, const std::vector<double>& h) const {
    const double* r = c_.in[kRecurrentR].f.data() + (direction_ * form_.gates * hidden_ + k) * hidden_;
    double sum = bias(form_.gates * hidden_ + k);
    for (int64_t m = 0; m < hidden_; ++m) sum += r[m] * h[size_t(m)];
    return sum;
  }
  double act(int f, double x) const { return apply(form_.activations_of(direction_)[f], form_.clip, x); }

  void step(int64_t t) {
    const int64_t n = hidden_, sums = form_.kind == CellKind::kGru ? 2 * n : form_.gates * n;
    for (int64_t k = 0; k < sums; ++k) gates_[size_t(k)] = x_part(k, t) + h_part(k, h_);
    if (form_.kind == CellKind::kRnn) {
      for (int64_t j = 0; j < n; ++j) h_[size_t(j)] = act(0, gates_[size_t(j)]);
    } else if (form_.kind == CellKind::kLstm) {
      lstm();
    } else {
      gru(t);
    }
  }

  void lstm() {
    const int64_t n = hidden_;
    for (int64_t j = 0; j < n; ++j) {
      double& cell = cell_[size_t(j)];
      const double in = act(0, gates_[size_t(j)] + peephole(0, j) * cell);
      const double forget = form_.input_forget ? 1 - in : act(0, gates_[size_t(2 * n + j)] + peephole(2, j) * cell);
      cell = forget * cell + in * act(1, gates_[size_t(3 * n + j)]);
      const double out = act(0, gates_[size_t(n + j)] + peephole(1, j) * cell);
      h_[size_t(j)] = out * act(2, cell);
    }
  }

  void gru(int64_t t) {
    const int64_t n = hidden_;
    std::vector<double> reset = h_;
    for (int64_t j = 0; j < n; ++j) {
      gates_[size_t(j)] = act(0, gates_[size_t(j)]);
      gates_[size_t(n + j)] = act(0, gates_[size_t(n + j)]);
      reset[size_t(j)] *= gates_[size_t(n + j)];
    }
    for (int64_t j = 0; j < n; ++j) {
      const int64_t k = 2 * n + j;
      const double part = form_.linear_before_reset ? gates_[size_t(n + j)] * h_part(k, h_) : h_part(k, reset);
      gates_[size_t(k)] = act(1, x_part(k, t) + part);
    }
    for (int64_t j = 0; j < n; ++j) {
      const double update = gates_[size_t(j)];
      h_[size_t(j)] = (1 - update) * gates_[size_t(2 * n + j)] + update * h_[size_t(j)];
    }
  }

  Reference& c_;
  const RecurrentForm& form_;
  const int direction_;
  const int64_t row_;
  int64_t steps_ = 0, batch_ = 0, input_ = 0, hidden_ = 0;
  std::vector<double> h_, cell_, gates_;
};

void recurrent_reference(Reference& c) {
  const RecurrentForm form = recurrent_form(*c.op, *c.attributes);
  if (!form.refusal.empty()) fail(ErrorCode::kBadModel, "{}: {}", c.op->name, form.refusal);
  const RefArray& x = c.in[kRecurrentX];
  const int64_t steps = x.dim(form.batch_first ? 1 : 0), batch = x.dim(form.batch_first ? 0 : 1);
  for (int64_t b = 0; c.has(kRecurrentLengths) && b < batch; ++b) {
    const int64_t length = c.in[kRecurrentLengths].integer(b);
    if (length < 0 || length > steps)
      fail(ErrorCode::kBadInput, "{}: sequence_lens[{}] is {}; allowed: 0 to {}", c.op->name, b, length, steps);
  }
  c.parallel_for(batch * form.directions, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task)
      RowReference(c, form, int(task % form.directions), task / form.directions).run();
  });
}

// ---- cost

Cost recurrent_cost(const Problem& p) {
  const RecurrentForm form = recurrent_form(*p.op, p.attributes);
  const RecurrentExtents e = recurrent_extents(p, form);
  const int64_t cells = saturated_product({e.steps, e.batch, e.hidden, form.directions});
  const int64_t functions = form.kind == CellKind::kLstm ? 5 - form.input_forget : form.kind == CellKind::kGru ? 3 : 1;
  const int64_t peepholes = form.kind == CellKind::kLstm && p.has(kRecurrentP) ? 6 : 0;
  const int64_t around = (form.kind == CellKind::kLstm ? 4 : form.kind == CellKind::kGru ? 5 : 0) + peepholes;
  const int64_t sums = saturated_product({2 * form.gates, e.input + e.hidden + 1});
  return {.flops = saturated_product({cells, saturated_sum(sums, functions + around)}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = saturated_product({cells, functions})};
}

constexpr TypeSet kInt32 = type_bit(DType::kI32);
constexpr std::string_view kNoGradient =
    "a loop over time, whose gradient is a loop back over states that the operator does not keep";

constexpr OpSchema recurrent(std::string_view name, std::string_view doc) {
  OpSchema op;
  op.name = name;
  op.family = "recurrent";
  op.kind = OpKind::kContraction;
  op.doc = doc;
  op.since = 7;
  op.versions = {7, 14, 22};
  op.infer = infer_recurrent;
  op.cost = recurrent_cost;
  op.reference = recurrent_reference;
  op.no_gradient = kNoGradient;
  op.tolerance = Tolerance::contraction();
  return op;
}

constexpr OpSchema with_lstm_parts(OpSchema op) {
  op.inputs = {{"X", kFloats},
               {"W", kFloats, "X"},
               {"R", kFloats, "X"},
               {"B", kFloats, "X", true},
               {"sequence_lens", kInt32, "", true},
               {"initial_h", kFloats, "X", true},
               {"initial_c", kFloats, "X", true},
               {"P", kFloats, "X", true}};
  op.outputs = {{"Y"}, {"Y_h", true}, {"Y_c", true}};
  op.attributes = {{"activation_alpha", AttributeType::kFloats},
                   {"activation_beta", AttributeType::kFloats},
                   {"activations", AttributeType::kStrings},
                   {"clip", AttributeType::kFloat},
                   {"direction", "forward"},
                   {"hidden_size", AttributeType::kInt},
                   {"input_forget", 0},
                   {"layout", 0}};
  op.samples = {"X=f32[5,2,7] W=f32[1,48,7] R=f32[1,48,12] B=f32[1,96] outputs=3",
                "X=f32[1,1,128] W=f32[1,512,128] R=f32[1,512,128] B=f32[1,1024] initial_h=f32[1,1,128] "
                "initial_c=f32[1,1,128] hidden_size=128 outputs=3",
                "X=f32[4,3,5] W=f32[2,24,5] R=f32[2,24,6] B=f32[2,48] sequence_lens=i32{4,0,2} initial_h=f32[2,3,6] "
                "initial_c=f32[2,3,6] direction=bidirectional outputs=3",
                "X=f32[3,6,5] W=f32[2,68,5] R=f32[2,68,17] P=f32[2,51] direction=bidirectional layout=1 outputs=3",
                "X=f32[4,3,5] W=f32[1,4,5] R=f32[1,4,1] initial_c=f32[1,3,1] direction=reverse",
                "X=f32[4,1,1] W=f32[1,12,1] R=f32[1,12,3] B=f32[1,24] P=f32[1,9] clip=0.75 input_forget=1 outputs=2",
                "X=f32[6,2,3] W=f32[2,20,3] R=f32[2,20,5] direction=bidirectional "
                "activations=HardSigmoid,Softsign,ScaledTanh,Sigmoid,LeakyRelu,Softplus "
                "activation_alpha=0.25,0.5,0.125 activation_beta=0.375,2 outputs=3",
                "X=f32[0,2,3] W=f32[1,16,3] R=f32[1,16,4] initial_h=f32[1,2,4] outputs=3",
                "X=f32[3,0,3] W=f32[1,16,3] R=f32[1,16,4] outputs=3",
                "X=f16[4,2,6] W=f16[1,36,6] R=f16[1,36,9] B=f16[1,72] sequence_lens=i32[2] layout=0 outputs=3",
                "X=bf16[2,5,6] W=bf16[1,36,6] R=bf16[1,36,9] P=bf16[1,27] layout=1 outputs=3",
                "X=f32[3,20,4] W=f32[1,160,4] R=f32[1,160,40] sequence_lens=i32[20] direction=reverse outputs=3",
                // Large enough that two threads share each step.
                "X=f32[3,3,2] W=f32[1,1200,2]! R=f32[1,1200,300]! initial_h=f32[1,3,300] outputs=3"};
  return op;
}

constexpr OpSchema with_parts(OpSchema op, bool gru) {
  op.inputs = {{"X", kFloats},
               {"W", kFloats, "X"},
               {"R", kFloats, "X"},
               {"B", kFloats, "X", true},
               {"sequence_lens", kInt32, "", true},
               {"initial_h", kFloats, "X", true}};
  op.outputs = {{"Y"}, {"Y_h", true}};
  if (gru)
    op.attributes = {{"activation_alpha", AttributeType::kFloats},
                     {"activation_beta", AttributeType::kFloats},
                     {"activations", AttributeType::kStrings},
                     {"clip", AttributeType::kFloat},
                     {"direction", "forward"},
                     {"hidden_size", AttributeType::kInt},
                     {"layout", 0},
                     {"linear_before_reset", 0}};
  else
    op.attributes = {{"activation_alpha", AttributeType::kFloats},
                     {"activation_beta", AttributeType::kFloats},
                     {"activations", AttributeType::kStrings},
                     {"clip", AttributeType::kFloat},
                     {"direction", "forward"},
                     {"hidden_size", AttributeType::kInt},
                     {"layout", 0}};
  return op;
}

constexpr OpSchema with_gru_samples(OpSchema op) {
  op.samples = {
      "X=f32[5,2,7] W=f32[1,36,7] R=f32[1,36,12] B=f32[1,72] outputs=2",
      "X=f32[5,2,7] W=f32[1,36,7] R=f32[1,36,12] B=f32[1,72] linear_before_reset=1 outputs=2",
      "X=f32[4,3,5] W=f32[2,18,5] R=f32[2,18,6] B=f32[2,36] sequence_lens=i32{4,0,2} initial_h=f32[2,3,6] "
      "direction=bidirectional linear_before_reset=1 outputs=2",
      "X=f32[3,6,5] W=f32[2,51,5] R=f32[2,51,17] direction=bidirectional layout=1 outputs=2",
      "X=f32[4,1,5] W=f32[1,3,5] R=f32[1,3,1] initial_h=f32[1,1,1] direction=reverse",
      "X=f32[4,2,3] W=f32[1,15,3] R=f32[1,15,5] clip=0.5 activations=HardSigmoid,Elu activation_alpha=0.25,0.5 "
      "activation_beta=0.375 outputs=2",
      "X=f32[0,2,3] W=f32[1,12,3] R=f32[1,12,4] initial_h=f32[1,2,4] outputs=2",
      "X=f32[3,3,2] W=f32[1,1050,2]! R=f32[1,1050,350]! initial_h=f32[1,3,350] outputs=2",
      "X=f16[4,2,6] W=f16[1,27,6] R=f16[1,27,9] B=f16[1,54] sequence_lens=i32[2] outputs=2",
      "X=bf16[2,5,6] W=bf16[1,27,6] R=bf16[1,27,9] B=bf16[1,54] layout=1 linear_before_reset=1 outputs=2",
      "X=f32[3,20,4] W=f32[1,120,4] R=f32[1,120,40] B=f32[1,240] sequence_lens=i32[20] direction=reverse "
      "outputs=2"};
  return op;
}

constexpr OpSchema with_rnn_samples(OpSchema op) {
  op.samples = {"X=f32[5,2,7] W=f32[1,12,7] R=f32[1,12,12] B=f32[1,24] outputs=2",
                "X=f32[4,3,5] W=f32[2,6,5] R=f32[2,6,6] B=f32[2,12] sequence_lens=i32{4,0,2} initial_h=f32[2,3,6] "
                "direction=bidirectional outputs=2",
                "X=f32[3,6,5] W=f32[2,17,5] R=f32[2,17,17] direction=bidirectional layout=1 "
                "activations=ThresholdedRelu,Affine activation_alpha=0.25,0.5 activation_beta=0.125 outputs=2",
                "X=f32[4,1,5] W=f32[1,1,5] R=f32[1,1,1] initial_h=f32[1,1,1] direction=reverse activations=Relu clip=2",
                "X=f32[0,2,3] W=f32[1,4,3] R=f32[1,4,4] initial_h=f32[1,2,4] outputs=2",
                "X=f16[4,2,6] W=f16[1,9,6] R=f16[1,9,9] B=f16[1,18] sequence_lens=i32[2] outputs=2",
                "X=f32[3,20,4] W=f32[1,40,4] R=f32[1,40,40] B=f32[1,80] sequence_lens=i32[20] direction=reverse "
                "activations=Tanh outputs=2"};
  return op;
}

constexpr OpSchema kLstm = with_lstm_parts(recurrent(
    "LSTM",
    "long short-term memory cells over a sequence, one or both directions, peepholes, lengths by row (a row of "
    "length 0 keeps its initial state). Source: ONNX LSTM-22; Hochreiter and Schmidhuber, 1997."));
constexpr OpSchema kGru = with_gru_samples(
    with_parts(recurrent("GRU",
                         "gated recurrent units over a sequence, one or both directions, the reset before or after the "
                         "product. Source: ONNX GRU-22; Cho et al., 2014."),
               true));
constexpr OpSchema kRnn = with_rnn_samples(with_parts(
    recurrent("RNN", "h = f(x W^T + h R^T + b) over a sequence, one or both directions. Source: ONNX RNN-22."), false));

}  // namespace

std::span<const OpSchema* const> recurrent_ops() {
  static constexpr const OpSchema* kOps[] = {&kLstm, &kGru, &kRnn};
  return kOps;
}

}  // namespace ridgeline
