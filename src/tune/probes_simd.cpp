// The probes' portable loops, compiled for every vector target.
#include "kernels/cpu/simd.h"
#include "tune/probes_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tune/probes_simd.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::probe {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: two units of four cycles' latency need eight; with two operands they still fit 16 registers. Each
// starts elsewhere, or the compiler would see that they are one.
template <class D>
int64_t fma_chains(D d) {
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  auto a0 = hn::Set(d, 1.0f), a1 = hn::Set(d, 1.1f), a2 = hn::Set(d, 1.2f), a3 = hn::Set(d, 1.3f);
  auto a4 = hn::Set(d, 1.4f), a5 = hn::Set(d, 1.5f), a6 = hn::Set(d, 1.6f), a7 = hn::Set(d, 1.7f);
  auto a8 = hn::Set(d, 1.8f), a9 = hn::Set(d, 1.9f), a10 = hn::Set(d, 2.0f), a11 = hn::Set(d, 2.1f);
  constexpr int64_t kTurns = 8192;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y), a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y), a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y), a10 = hn::MulAdd(a10, x, y), a11 = hn::MulAdd(a11, x, y);
  }
  auto sum = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)));
  sum = hn::Add(sum, hn::Add(hn::Add(a8, a9), hn::Add(a10, a11)));
  use(sum);
  return kTurns * 12 * 2 * int64_t(hn::Lanes(d));
}

int64_t FmaFull() { return fma_chains(hn::ScalableTag<float>()); }
// Some cores run 256-bit code at a higher clock, or have two units of 256 bits and one of 512.
int64_t FmaHalf() { return fma_chains(hn::CappedTag<float, 8>()); }

using Bytes = hn::ScalableTag<uint32_t>;

// Uses a loaded vector. Or-ing it into an accumulator costs: GCC 12 moves each accumulator twice a turn, and L1 gave
// 281 GB/s where 430 are there.
template <class V>
HWY_INLINE void consume(const V& v) {
#if HWY_TARGET == HWY_AVX3
  asm volatile("" : : "v"(v.raw));
#elif HWY_TARGET == HWY_AVX2
  asm volatile("" : : "x"(v.raw));
#else
  use(v);
#endif
}

// Streams 1, 2, 4: that many parts of the ring are walked side by side, eight vectors a turn in all.
template <int kStreams, int64_t kPrefetchBytes>
void read_ring(const Ring& ring) {
  const Bytes d;
  const int64_t vector = int64_t(hn::Lanes(d) * sizeof(uint32_t));
  constexpr int64_t kEach = 8 / kStreams;
  const int64_t part = ring.size / kStreams, mask = part - 1, step = kEach * vector;
  const auto load = [&](const uint8_t* p, int64_t k) HWY_ATTR {
    consume(hn::Load(d, reinterpret_cast<const uint32_t*>(p + (k / kEach) * part + (k % kEach) * vector)));
  };
  int64_t offset = (ring.begin / kStreams) & mask;
  for (int64_t done = 0; done < ring.bytes; done += 8 * vector) {
    const uint8_t* p = ring.base + offset;
    if constexpr (kPrefetchBytes != 0) {
      for (int64_t line = 0; line < step; line += 64) hwy::Prefetch(p + kPrefetchBytes + line);
    }
    load(p, 0), load(p, 1), load(p, 2), load(p, 3), load(p, 4), load(p, 5), load(p, 6), load(p, 7);
    offset = (offset + step) & mask;
  }
}

// Writes four vectors a turn: of the source, or zeros.
template <bool kReads, bool kStreaming, int64_t kPrefetchBytes>
void fill_ring(const Ring& ring) {
  const Bytes d;
  const int64_t vector = int64_t(hn::Lanes(d) * sizeof(uint32_t)), mask = ring.size - 1;
  const auto zero = hn::Zero(d);
  int64_t offset = ring.begin & mask;
  for (int64_t done = 0; done < ring.bytes; done += 4 * vector) {
    const uint32_t* from = reinterpret_cast<const uint32_t*>(ring.base + offset);
    uint32_t* to = reinterpret_cast<uint32_t*>(ring.target + offset);
    const int64_t lanes = vector / 4;
    auto v0 = zero, v1 = zero, v2 = zero, v3 = zero;
    if constexpr (kReads) {
      if constexpr (kPrefetchBytes != 0) {
        const uint8_t* ahead = ring.base + offset + kPrefetchBytes;
        for (int64_t line = 0; line < 4 * vector; line += 64) hwy::Prefetch(ahead + line);
      }
      v0 = hn::Load(d, from), v1 = hn::Load(d, from + lanes);
      v2 = hn::Load(d, from + 2 * lanes), v3 = hn::Load(d, from + 3 * lanes);
    }
    if constexpr (kStreaming) {
      hn::Stream(v0, d, to), hn::Stream(v1, d, to + lanes);
      hn::Stream(v2, d, to + 2 * lanes), hn::Stream(v3, d, to + 3 * lanes);
    } else {
      hn::Store(v0, d, to), hn::Store(v1, d, to + lanes);
      hn::Store(v2, d, to + 2 * lanes), hn::Store(v3, d, to + 3 * lanes);
    }
    offset = (offset + 4 * vector) & mask;
  }
  if constexpr (kStreaming) hwy::FlushStream();
}

void Read1(const Ring& r) { read_ring<1, 0>(r); }
void Read1Prefetch(const Ring& r) { read_ring<1, 4096>(r); }
void Read1Prefetch8(const Ring& r) { read_ring<1, 8192>(r); }
void Read2(const Ring& r) { read_ring<2, 0>(r); }
void Read4(const Ring& r) { read_ring<4, 0>(r); }
void Copy(const Ring& r) { fill_ring<true, false, 0>(r); }
void CopyStream(const Ring& r) { fill_ring<true, true, 0>(r); }
void CopyPrefetch(const Ring& r) { fill_ring<true, false, 2048>(r); }
void CopyStreamPrefetch(const Ring& r) { fill_ring<true, true, 2048>(r); }
void Write(const Ring& r) { fill_ring<false, false, 0>(r); }
void WriteStream(const Ring& r) { fill_ring<false, true, 0>(r); }

// exp in eleven instructions, error under 5 units in the last place: x = n ln 2 + r, the polynomial in r fitted here to
// |r| <= ln 2 / 2, then n added to the exponent. Inputs outside [-87, 88] would need two more to clamp.
template <class D, class F = hn::Vec<D>>
HWY_INLINE F fast_exp(D d, F x) {
  const hn::RebindToSigned<D> di;
  const auto magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const auto r = hn::NegMulAdd(hn::Sub(shifted, magic), hn::Set(d, 0.693147181f), x);
  auto p = hn::MulAdd(hn::Set(d, 0.008357200148f), r, hn::Set(d, 0.04183380408f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.1666663083f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.4999974899f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// The division unit, or an estimate of the reciprocal and two corrections: right to a unit in the last place where the
// divisor is neither huge nor tiny (as in a sigmoid), and twice as fast on 512-bit vectors.
template <bool kNewton, class D, class F = hn::Vec<D>>
HWY_INLINE F divide(D d, F a, F b) {
  if constexpr (!kNewton) return hn::Div(a, b);
  auto r = hn::ApproximateReciprocal(b);
  r = hn::MulAdd(r, hn::NegMulAdd(b, r, hn::Set(d, 1.0f)), r);
  const auto q = hn::Mul(a, r);
  return hn::MulAdd(r, hn::NegMulAdd(b, q, a), q);
}

// x P(x^2) / Q(x^2), fitted here for the least relative error on [0, limit]; beyond it the value is 1 in f32.
template <bool kNewton, class D, class F = hn::Vec<D>>
HWY_INLINE F fast_tanh(D d, F x) {  // 2e-8 before rounding
  x = hn::Max(hn::Min(x, hn::Set(d, 9.02f)), hn::Set(d, -9.02f));
  const auto t = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(d, 1.347210424e-8f), t, hn::Set(d, 2.069324025e-5f));
  auto q = hn::MulAdd(hn::Set(d, 7.824431563e-7f), t, hn::Set(d, 0.000329398118f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.003500685374f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.02589636217f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.1338531395f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.4671863073f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.9999999811f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.0f));
  return divide<kNewton>(d, hn::Mul(x, p), q);
}

template <bool kNewton, class D, class F = hn::Vec<D>>
HWY_INLINE F fast_erf(D d, F x) {  // 2.7e-7 before rounding
  x = hn::Max(hn::Min(x, hn::Set(d, 3.95f)), hn::Set(d, -3.95f));
  const auto t = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(d, 0.0003034851703f), t, hn::Set(d, 0.008502011296f));
  auto q = hn::MulAdd(hn::Set(d, 1.771966484e-5f), t, hn::Set(d, 0.002142173633f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.06727870269f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.02460146786f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.3128224205f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.1631852591f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.128378866f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.610556583f));
  q = hn::MulAdd(q, t, hn::Set(d, 1.0f));
  return divide<kNewton>(d, hn::Mul(x, p), q);
}

// Four vectors a turn hide the latency of one behind the others.
template <class D, class Function>
HWY_INLINE void map(D d, const float* in, float* out, int64_t n, Function function) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += 4 * lanes) {
    const auto y0 = function(hn::Load(d, in + i)), y1 = function(hn::Load(d, in + i + lanes));
    const auto y2 = function(hn::Load(d, in + i + 2 * lanes)), y3 = function(hn::Load(d, in + i + 3 * lanes));
    hn::Store(y0, d, out + i), hn::Store(y1, d, out + i + lanes);
    hn::Store(y2, d, out + i + 2 * lanes), hn::Store(y3, d, out + i + 3 * lanes);
  }
}

template <bool kNewton, class D>
HWY_INLINE void special_of(D d, SpecialFunction which, const float* in, float* out, int64_t n) {
  using F = hn::Vec<D>;
  const auto one = hn::Set(d, 1.0f);
  switch (which) {
    case SpecialFunction::kExp:
      return map(d, in, out, n, [&](F x) HWY_ATTR { return fast_exp(d, x); });
    case SpecialFunction::kErf:
      return map(d, in, out, n, [&](F x) HWY_ATTR { return fast_erf<kNewton>(d, x); });
    case SpecialFunction::kTanh:
      return map(d, in, out, n, [&](F x) HWY_ATTR { return fast_tanh<kNewton>(d, x); });
    case SpecialFunction::kDivide:
      return map(d, in, out, n, [&](F x) HWY_ATTR { return divide<kNewton>(d, x, hn::Add(x, one)); });
    case SpecialFunction::kSqrt:
      return map(d, in, out, n, [](F x) HWY_ATTR { return hn::Sqrt(x); });
  }
}

void SpecialFull(SpecialFunction which, const float* in, float* out, int64_t n) {
  special_of<false>(hn::ScalableTag<float>(), which, in, out, n);
}
// The kernels' own, whose coefficients are looked up: tanh and erf are the faster by it (5 elements/ns for 4).
void SpecialTables(SpecialFunction which, const float* in, float* out, int64_t n) {
  namespace own = cpu::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  if (which == SpecialFunction::kErf) return map(d, in, out, n, [](auto x) HWY_ATTR { return own::erf_f32(x); });
  if (which == SpecialFunction::kTanh) return map(d, in, out, n, [](auto x) HWY_ATTR { return own::tanh_f32(x); });
  special_of<false>(d, which, in, out, n);
}
void SpecialHalf(SpecialFunction which, const float* in, float* out, int64_t n) {
  special_of<false>(hn::CappedTag<float, 8>(), which, in, out, n);
}
void SpecialNewton(SpecialFunction which, const float* in, float* out, int64_t n) {
  special_of<true>(hn::ScalableTag<float>(), which, in, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::probe
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::probe {
namespace {

HWY_EXPORT(FmaFull);
HWY_EXPORT(FmaHalf);
HWY_EXPORT(Read1);
HWY_EXPORT(Read1Prefetch);
HWY_EXPORT(Read1Prefetch8);
HWY_EXPORT(Read2);
HWY_EXPORT(Read4);
HWY_EXPORT(Copy);
HWY_EXPORT(CopyStream);
HWY_EXPORT(CopyPrefetch);
HWY_EXPORT(CopyStreamPrefetch);
HWY_EXPORT(Write);
HWY_EXPORT(WriteStream);
HWY_EXPORT(SpecialFull);
HWY_EXPORT(SpecialHalf);
HWY_EXPORT(SpecialTables);
HWY_EXPORT(SpecialNewton);

#if defined(__x86_64__)
// The processor's own block moves: on recent cores they write whole lines without reading them first.
void copy_string(const Ring& r) {
  for (int64_t done = 0; done < r.bytes;) {
    const int64_t offset = (r.begin + done) & (r.size - 1);
    const int64_t bytes = std::min(r.bytes - done, r.size - offset);
    void* to = r.target + offset;
    const void* from = r.base + offset;
    int64_t count = bytes;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
    done += bytes;
  }
}

void write_string(const Ring& r) {
  for (int64_t done = 0; done < r.bytes;) {
    const int64_t offset = (r.begin + done) & (r.size - 1);
    const int64_t bytes = std::min(r.bytes - done, r.size - offset);
    void* to = r.target + offset;
    int64_t count = bytes;
    asm volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(0) : "memory");
    done += bytes;
  }
}
#endif

int64_t fma_full() { return HWY_DYNAMIC_DISPATCH(FmaFull)(); }
int64_t fma_half() { return HWY_DYNAMIC_DISPATCH(FmaHalf)(); }

constexpr ComputeWay kF32Ways[] = {{"widest vectors", "", fma_full}, {"256-bit vectors", "avx512f", fma_half}};

constexpr MemoryWay kReadWays[] = {
    {"1 stream",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Read1)
       (r);
     }},
    {"1 stream, prefetched",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Read1Prefetch)
       (r);
     }},
    {"1 stream, prefetched 8 KiB ahead",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Read1Prefetch8)
       (r);
     }},
    {"2 streams",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Read2)
       (r);
     }},
    {"4 streams",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Read4)
       (r);
     }},
};

constexpr MemoryWay kCopyWays[] = {
    {"plain stores",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Copy)
       (r);
     }},
    {"non-temporal stores",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(CopyStream)
       (r);
     }},
    {"plain stores, prefetched",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(CopyPrefetch)
       (r);
     }},
    {"non-temporal stores, prefetched",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(CopyStreamPrefetch)
       (r);
     }},
#if defined(__x86_64__)
    {"rep movsb", copy_string},
#endif
};

constexpr MemoryWay kWriteWays[] = {
    {"plain stores",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(Write)
       (r);
     }},
    {"non-temporal stores",
     [](const Ring& r) {
       HWY_DYNAMIC_DISPATCH(WriteStream)
       (r);
     }},
#if defined(__x86_64__)
    {"rep stosb", write_string},
#endif
};

constexpr SpecialWay kSpecialWays[] = {
    {"widest vectors", "", false,
     [](SpecialFunction f, const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(SpecialFull)(f, in, out, n);
     }},
    {"256-bit vectors", "avx512f", false,
     [](SpecialFunction f, const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(SpecialHalf)(f, in, out, n);
     }},
    {"tables", "avx512f", true,
     [](SpecialFunction f, const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(SpecialTables)(f, in, out, n);
     }},
    {"Newton's division", "avx2", true,
     [](SpecialFunction f, const float* in, float* out, int64_t n) {
       HWY_DYNAMIC_DISPATCH(SpecialNewton)(f, in, out, n);
     }},
};

}  // namespace

std::span<const SpecialWay> special_function_ways() { return kSpecialWays; }
std::span<const ComputeWay> f32_ways() { return kF32Ways; }
std::span<const MemoryWay> read_ways() { return kReadWays; }
std::span<const MemoryWay> copy_ways() { return kCopyWays; }
std::span<const MemoryWay> write_ways() { return kWriteWays; }

}  // namespace ridgeline::probe
#endif
