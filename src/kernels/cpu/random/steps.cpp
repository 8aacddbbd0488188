#include "kernels/cpu/random/steps.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random/steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/vector_periodic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using U32 = hn::ScalableTag<uint32_t>;
using VU = hn::Vec<U32>;

/// The upper halves of the products.
HWY_INLINE VU high_product(VU a, VU b) {
  const U32 d;
  const hn::Repartition<uint64_t, U32> wide;
  const VU even = hn::BitCast(d, hn::ShiftRight<32>(hn::MulEven(a, b)));
  const VU odd = hn::BitCast(d, hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))),
                                            hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, b)))));
  return hn::OddEven(odd, even);
}

/// core/philox.h for the blocks first, first + 1, ...; the counter's upper word is the same for all.
HWY_INLINE void rounds(PhiloxKey key, uint64_t first, VU (&c)[4]) {
  const U32 d;
  c[0] = hn::Add(hn::Set(d, uint32_t(first)), hn::Iota(d, 0));
  c[1] = hn::Set(d, uint32_t(first >> 32));
  c[2] = c[3] = hn::Zero(d);
  const VU m0 = hn::Set(d, kPhiloxMultiplier0), m1 = hn::Set(d, kPhiloxMultiplier1);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const VU high0 = high_product(c[0], m0), low0 = hn::Mul(c[0], m0);
    const VU high1 = high_product(c[2], m1), low1 = hn::Mul(c[2], m1);
    c[0] = hn::Xor(hn::Xor(high1, c[1]), hn::Set(d, key.low));
    c[1] = low1;
    c[2] = hn::Xor(hn::Xor(high0, c[3]), hn::Set(d, key.high));
    c[3] = low0;
    key.low += kPhiloxWeyl0;
    key.high += kPhiloxWeyl1;
  }
}

HWY_INLINE VF unit(VU bits) {
  return hn::Mul(hn::ConvertTo(F32(), hn::BitCast(I32(), hn::ShiftRight<8>(bits))), splat(0x1p-24f));
}

/// Two normal numbers of two uniform ones.
HWY_INLINE void normal_pair(VF a, VF b, VF mean, VF scale, VF& first, VF& second) {
  const F32 d;
  const VF radius = hn::Mul(scale, hn::Sqrt(hn::Mul(splat(-2.0f), log_f32(hn::Sub(splat(1.0f), a)))));
  // A turn in quarters: b has 24 bits, so that the quarter and the rest are exact.
  const VF quarters = hn::Mul(b, splat(4.0f)), n = hn::Round(quarters);
  const auto q = hn::ConvertTo(I32(), n);
  const VF r = hn::Mul(hn::Sub(quarters, n), splat(1.57079632679489661923f)), r2 = hn::Mul(r, r);
  const VF sine = hn::MulAdd(hn::Mul(r, r2), polynomial(r2, kSinTail), r);
  const VF cosine = hn::MulAdd(hn::Mul(r2, r2), polynomial(r2, kCosTail), hn::NegMulAdd(r2, splat(0.5f), splat(1.0f)));
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(q, hn::Set(I32(), 1)), hn::Set(I32(), 1)));
  const auto upper = hn::RebindMask(d, hn::Eq(hn::And(q, hn::Set(I32(), 2)), hn::Set(I32(), 2)));
  VF c = hn::IfThenElse(odd, hn::Neg(sine), cosine), s = hn::IfThenElse(odd, cosine, sine);
  c = hn::IfThenElse(upper, hn::Neg(c), c);
  s = hn::IfThenElse(upper, hn::Neg(s), s);
  first = hn::MulAdd(radius, c, mean);
  second = hn::MulAdd(radius, s, mean);
}

/// make(words, out): four vectors of results of four of random words.
template <class Make>
HWY_INLINE void for_blocks(PhiloxKey key, uint64_t begin, uint64_t end, float* y, Make make) {
  const F32 d;
  const uint64_t lanes = hn::Lanes(d);
  HWY_ALIGN float rest[4 * HWY_MAX_BYTES / sizeof(float)];
  for (uint64_t block = begin; block < end;) {
    VU words[4];
    VF out[4];
    rounds(key, block, words);
    make(words, out);
    // Up to where the lower word of the counter wraps, and no further than the end.
    const uint64_t some = std::min({lanes, end - block, (uint64_t(1) << 32) - (block & 0xffffffffu)});
    float* to = y + (block - begin) * 4;
    hn::StoreInterleaved4(out[0], out[1], out[2], out[3], d, some == lanes ? to : rest);
    if (some < lanes) std::copy_n(rest, some * 4, to);
    block += some;
  }
}

bool uniform(PhiloxKey key, uint64_t begin, uint64_t end, float low, float range, float* y) {
  for_blocks(key, begin, end, y, [&](const VU(&words)[4], VF(&out)[4]) HWY_ATTR {
    for (int k = 0; k < 4; ++k) out[k] = hn::MulAdd(unit(words[k]), splat(range), splat(low));
  });
  return true;
}

bool normal(PhiloxKey key, uint64_t begin, uint64_t end, float mean, float scale, float* y) {
  for_blocks(key, begin, end, y, [&](const VU(&words)[4], VF(&out)[4]) HWY_ATTR {
    for (int k = 0; k < 4; k += 2)
      normal_pair(unit(words[k]), unit(words[k + 1]), splat(mean), splat(scale), out[k], out[k + 1]);
  });
  return true;
}

#else

bool uniform(PhiloxKey, uint64_t, uint64_t, float, float, float*) { return false; }
bool normal(PhiloxKey, uint64_t, uint64_t, float, float, float*) { return false; }

#endif

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(uniform);
HWY_EXPORT(normal);
}  // namespace

bool fill_uniform(PhiloxKey key, uint64_t begin, uint64_t end, float low, float range, float* y) {
  return HWY_DYNAMIC_DISPATCH(uniform)(key, begin, end, low, range, y);
}
bool fill_normal(PhiloxKey key, uint64_t begin, uint64_t end, float mean, float scale, float* y) {
  return HWY_DYNAMIC_DISPATCH(normal)(key, begin, end, mean, scale, y);
}

}  // namespace ridgeline::cpu
#endif
