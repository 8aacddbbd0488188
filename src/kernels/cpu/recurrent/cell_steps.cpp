#include "kernels/cpu/recurrent/cell_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrent/cell_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// Any activation, with the clip before it.
HWY_NOINLINE VF activate_any(const GateActivation& a, float clip, VF x) {
  const VF zero = hn::Zero(F32()), alpha = splat(a.alpha), beta = splat(a.beta), one = splat(1.0f);
  if (clip > 0) x = at_least(splat(-clip), at_most(splat(clip), x));
  switch (a.function) {
    case GateFunction::kSigmoid:
      return sigmoid_f32(x);
    case GateFunction::kTanh:
      return tanh_f32(x);
    case GateFunction::kRelu:
      return at_least(zero, x);
    case GateFunction::kAffine:
      return hn::MulAdd(alpha, x, beta);
    case GateFunction::kLeakyRelu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, x), x);
    case GateFunction::kThresholdedRelu:
      return hn::IfThenElse(hn::Lt(x, alpha), zero, x);
    case GateFunction::kScaledTanh:
      return hn::Mul(alpha, tanh_f32(hn::Mul(beta, x)));
    case GateFunction::kHardSigmoid:
      return at_least(zero, at_most(one, hn::MulAdd(alpha, x, beta)));
    case GateFunction::kElu:
      return hn::IfThenElse(hn::Lt(x, zero), hn::Mul(alpha, expm1_f32(at_most(zero, x))), x);
    case GateFunction::kSoftsign:
      return hn::Div(x, hn::Add(one, hn::Abs(x)));
    case GateFunction::kSoftplus:
      return softplus_f32(x);
  }
  return x;
}

enum Role { kGate, kInner };  // sigmoid, tanh where all is usual

template <bool kUsual, Role kRole>
HWY_INLINE VF activate(const CellStep& s, int function, VF x) {
  if constexpr (!kUsual) return activate_any(s.activation[function], s.clip, x);
  if constexpr (kRole == kGate) return sigmoid_f32(x);
  return tanh_f32(x);
}

HWY_INLINE void store_y(const CellStep& s, int64_t row, int64_t unit, VF h) {
  if (!s.y) return;
  const F32 d;
  float* y = s.y + row * s.y_row + unit;
  const int64_t left = s.hidden - unit;
  if (left >= int64_t(hn::Lanes(d)))
    hn::StoreU(h, d, y);
  else
    hn::BlendedStore(h, hn::FirstN(d, size_t(left)), d, y);
}

HWY_INLINE void keep(const CellStep& s, int64_t row, int64_t unit, VF h) {
  hn::StoreU(h, F32(), s.next + row * s.state_row + unit);
  store_y(s, row, unit, h);
}

/// A row that has ended.
void pass_over(const CellStep& s, int64_t row) {
  const F32 d;
  const int64_t n = int64_t(hn::Lanes(d));
  for (int64_t unit = s.first * n; unit < (s.first + s.blocks) * n; unit += n) {
    hn::StoreU(hn::LoadU(d, s.h + row * s.state_row + unit), d, s.next + row * s.state_row + unit);
    store_y(s, row, unit, hn::Zero(d));
  }
}

struct Gates {
  const float *sums, *x;
  HWY_INLINE VF product(int g) const { return hn::LoadU(F32(), sums + g * int64_t(hn::Lanes(F32()))); }
  HWY_INLINE VF of_x(int g) const { return hn::LoadU(F32(), x + g * int64_t(hn::Lanes(F32()))); }
  HWY_INLINE VF operator()(int g) const { return hn::Add(product(g), of_x(g)); }
};

/// body(row, unit, gate): `gate(g)` is the sum of gate g with its part of x, `gate.product(g)` without.
template <int kGates, typename Body>
HWY_INLINE void for_units(const CellStep& s, bool ended_too, const Body& body) {
  const F32 d;
  const int64_t n = int64_t(hn::Lanes(d));
  for (int64_t row = 0; row < s.rows; ++row) {
    if (!ended_too && !s.active(row)) {
      pass_over(s, row);
      continue;
    }
    for (int64_t block = 0; block < s.blocks; ++block) {
      const int64_t at = block * kGates * n;
      body(row, (s.first + block) * n, Gates{s.sums + row * s.sums_row + at, s.x + row * s.x_row + at});
    }
  }
}

template <bool kUsual>
void lstm(const CellStep& s) {
  const F32 d;
  for_units<4>(s, false, [&](int64_t row, int64_t unit, const auto& gate) HWY_ATTR {
    float* cell = s.cell + row * s.state_row + unit;
    const VF before = hn::LoadU(d, cell);
    VF in = gate(0), out = gate(1), forget = gate(2);
    const float* p = s.peephole + (s.peephole ? unit : 0);
    if (s.peephole) {
      in = hn::MulAdd(hn::LoadU(d, p), before, in);
      forget = hn::MulAdd(hn::LoadU(d, p + 2 * s.peephole_step), before, forget);
    }
    in = activate<kUsual, kGate>(s, 0, in);
    forget = s.input_forget ? hn::Sub(splat(1.0f), in) : activate<kUsual, kGate>(s, 0, forget);
    const VF c = hn::MulAdd(forget, before, hn::Mul(in, activate<kUsual, kInner>(s, 1, gate(3))));
    hn::StoreU(c, d, cell);
    if (s.peephole) out = hn::MulAdd(hn::LoadU(d, p + s.peephole_step), c, out);
    out = activate<kUsual, kGate>(s, 0, out);
    keep(s, row, unit, hn::Mul(out, activate<kUsual, kInner>(s, 2, c)));
  });
}

template <bool kUsual>
void rnn(const CellStep& s) {
  for_units<1>(s, false, [&](int64_t row, int64_t unit, const auto& gate) HWY_ATTR {
    keep(s, row, unit, activate<kUsual, kInner>(s, 0, gate(0)));
  });
}

/// (1 - z) n + z h
HWY_INLINE VF blend(VF update, VF candidate, VF h) {
  return hn::MulAdd(update, h, hn::NegMulAdd(update, candidate, candidate));
}

template <bool kUsual>
void gru(const CellStep& s) {
  const F32 d;
  for_units<3>(s, false, [&](int64_t row, int64_t unit, const auto& gate) HWY_ATTR {
    const VF update = activate<kUsual, kGate>(s, 0, gate(0)), reset = activate<kUsual, kGate>(s, 0, gate(1));
    const VF product = hn::Add(gate.product(2), hn::LoadU(d, s.bias + unit));
    const VF candidate = activate<kUsual, kInner>(s, 1, hn::MulAdd(reset, product, gate.of_x(2)));
    keep(s, row, unit, blend(update, candidate, hn::LoadU(d, s.h + row * s.state_row + unit)));
  });
}

template <bool kUsual>
void gru_two(const CellStep& s) {
  const F32 d;
  for_units<2>(s, true, [&](int64_t row, int64_t unit, const auto& gate) HWY_ATTR {
    const int64_t at = row * s.state_row + unit;
    hn::StoreU(activate<kUsual, kGate>(s, 0, gate(0)), d, s.cell + at);
    hn::StoreU(hn::Mul(activate<kUsual, kGate>(s, 0, gate(1)), hn::LoadU(d, s.h + at)), d, s.reset + at);
  });
}

template <bool kUsual>
void gru_third(const CellStep& s) {
  const F32 d;
  for_units<1>(s, false, [&](int64_t row, int64_t unit, const auto& gate) HWY_ATTR {
    const int64_t at = row * s.state_row + unit;
    const VF candidate = activate<kUsual, kInner>(s, 1, gate(0));
    keep(s, row, unit, blend(hn::LoadU(d, s.cell + at), candidate, hn::LoadU(d, s.h + at)));
  });
}

void run_lstm(const CellStep& s) { s.usual ? lstm<true>(s) : lstm<false>(s); }
void run_rnn(const CellStep& s) { s.usual ? rnn<true>(s) : rnn<false>(s); }
void run_gru(const CellStep& s) { s.usual ? gru<true>(s) : gru<false>(s); }
void run_gates(const CellStep& s) { s.usual ? gru_two<true>(s) : gru_two<false>(s); }
void run_candidate(const CellStep& s) { s.usual ? gru_third<true>(s) : gru_third<false>(s); }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(run_lstm);
HWY_EXPORT(run_rnn);
HWY_EXPORT(run_gru);
HWY_EXPORT(run_gates);
HWY_EXPORT(run_candidate);
}  // namespace

void lstm_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_lstm)(step); }
void rnn_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_rnn)(step); }
void gru_step(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_gru)(step); }
void gru_gates(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_gates)(step); }
void gru_candidate(const CellStep& step) { HWY_DYNAMIC_DISPATCH(run_candidate)(step); }

}  // namespace ridgeline::cpu
#endif
