// Products with weights of few bits: 8 or 4 with a scale for each row or group, the block formats of GGUF (q8_0, q4_0,
// q4_k) taken apart into arrays, and 16-bit floats. Source of the formats: com.microsoft MatMulNBits-1; GGUF's
// specification, ggml-quants.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/catalogue.h"
#include "ops/common.h"
#include "ops/low_bit.h"

namespace ridgeline {
namespace {

constexpr TypeSet kBytes = type_bit(DType::kU8) | type_bit(DType::kI8);
constexpr TypeSet kHalf = type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr TypeSet kScales = type_bit(DType::kF32) | type_bit(DType::kF16);
constexpr TypeSet kU8Only = type_bit(DType::kU8);
enum Input { kA, kQ, kScale, kZero, kMin, kSuperScale, kSuperMin };

void infer_low_bit(Infer& i) {
  i.require(i.rank(kA) >= 1 && i.rank(kQ) == 2,
            fmt::format("a is {}, q is {}: a [.., k] and q [n, k] (k / 2 bytes a row for 4 bits) are wanted",
                        describe(i, kA), describe(i, kQ)));
  const int64_t bits = i.integer("bits"), act_block = i.integer("act_block");
  i.require(bits == 4 || bits == 8 || bits == 16, fmt::format("bits = {}: allowed are 4, 8 and 16", bits));
  const DType q = i.dtype(kQ);
  i.require(bits == 16 ? q == DType::kF16 || q == DType::kBF16 : q == (bits == 4 ? DType::kU8 : DType::kI8),
            fmt::format("q is {} and bits = {}: 4 bits are u8 (two a byte), 8 are i8, 16 are f16 or bf16",
                        describe(i, kQ), bits));
  const std::string act = i.string("act");
  i.require(act == "f32" || act == "i8" || act == "bf16", fmt::format("act = '{}': allowed are f32, bf16 and i8", act));
  i.require(act != "bf16" || q == DType::kBF16, "act = bf16 is for weights in bf16");
  i.require(act_block >= 0 && act_block % 32 == 0,
            fmt::format("act_block = {}: 0 (the whole row) or a multiple of 32 is wanted", act_block));
  Shape out = i.shape(kA);
  const Dim k = out.back();
  const Dim &n = i.dim(kQ, 0), &columns = i.dim(kQ, 1);
  const int64_t per = bits == 4 ? 2 : 1;
  i.require(!k.known() || !columns.known() || k.value() == columns.value() * per,
            fmt::format("a is {}, q is {}: k differs", describe(i, kA), describe(i, kQ)));
  i.require(bits == 16 || i.has(kScale), "'scale' is missing");
  i.require(bits != 16 || act != "i8", "act = i8 with 16-bit weights");
  for (int input = kScale; input <= kSuperMin; ++input) {
    if (!i.has(input)) continue;
    i.require(bits != 16, fmt::format("'{}' is given with 16-bit weights", i.op().inputs[input].name));
    i.require(i.rank(input) == 2,
              fmt::format("'{}' is {}: [n, groups] is wanted", i.op().inputs[input].name, describe(i, input)));
    const Dim &rows = i.dim(input, 0), &groups = i.dim(input, 1);
    i.require(!rows.known() || !n.known() || rows == n,
              fmt::format("'{}' is {}, q is {}: one row for each of q's is wanted", i.op().inputs[input].name,
                          describe(i, input), describe(i, kQ)));
    if (!k.known() || !groups.known()) continue;
    i.require(groups.value() > 0 && k.value() % groups.value() == 0,
              fmt::format("'{}' is {}: k = {} does not divide into its groups", i.op().inputs[input].name,
                          describe(i, input), k.value()));
  }
  for (int input : {int(kZero), int(kMin)}) {
    if (!i.has(input) || !i.dim(input, 1).known() || !i.dim(kScale, 1).known()) continue;
    i.require(i.dim(input, 1) == i.dim(kScale, 1),
              fmt::format("'{}' is {}, 'scale' is {}: their groups differ", i.op().inputs[input].name,
                          describe(i, input), describe(i, kScale)));
  }
  i.require(!i.has(kSuperScale) || bits == 4, "'super_scale' is for 4 bits");
  i.require(!i.has(kSuperMin) || i.has(kMin), "'super_min' is given without 'min'");
  out.back() = n;
  i.output(0, i.dtype(kA), out);
}

Cost low_bit_cost(const Problem& p) {
  const int64_t k = p.input(kA).shape().back(), n = p.input(kQ).shape()[0];
  const int64_t m = k ? p.input(kA).elements() / k : element_count(p.output().shape()) / std::max<int64_t>(1, n);
  return {.flops = 2 * m * n * k, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
}

/// Group `group` of row `row` of an operand that may have fewer, wider groups.
double grouped(const RefArray& x, int64_t row, int64_t at, int64_t k) {
  return x.number(row * x.dim(1) + at / (k / x.dim(1)));
}

void low_bit_reference(Reference& c) {
  const RefArray &a = c.in[kA], &q = c.in[kQ];
  RefArray& y = c.out[0];
  const int64_t k = a.shape.back(), n = q.dim(0), m = k ? a.elements() / k : y.elements() / std::max<int64_t>(1, n);
  const int64_t bits = c.integer("bits"), act_block = c.integer("act_block") ? c.integer("act_block") : k;
  const bool quantize = c.string("act") == "i8", round_bf16 = c.string("act") == "bf16";
  std::vector<double> rows(size_t(m * k));
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t begin = 0; begin < k; begin += act_block) {
      const int64_t end = std::min(k, begin + act_block);
      float largest = 0;
      for (int64_t t = begin; t < end; ++t) largest = std::max(largest, std::fabs(float(a.f[size_t(r * k + t)])));
      for (int64_t t = begin; t < end; ++t)
        if (!std::isfinite(float(a.f[size_t(r * k + t)]))) largest = std::numeric_limits<float>::quiet_NaN();
      for (int64_t t = begin; t < end; ++t) {
        const double x = a.f[size_t(r * k + t)];
        double& to = rows[size_t(r * k + t)];
        to = quantize ? quantize_activation(float(x), largest) : round_bf16 ? bf16_to_f32(f32_to_bf16(float(x))) : x;
      }
    }
  }
  c.parallel_for(n, [&](int64_t first, int64_t last) {
    std::vector<double> w(static_cast<size_t>(k));
    for (int64_t col = first; col < last; ++col) {
      for (int64_t t = 0; t < k; ++t) {
        if (bits == 16) {
          w[size_t(t)] = q.f[size_t(col * k + t)];
          continue;
        }
        double scale = grouped(c.in[kScale], col, t, k), low = 0;
        if (c.has(kSuperScale)) scale *= grouped(c.in[kSuperScale], col, t, k);
        if (c.has(kMin)) low = grouped(c.in[kMin], col, t, k);
        if (c.has(kSuperMin)) low *= grouped(c.in[kSuperMin], col, t, k);
        double level = 0;
        if (bits == 4) {
          const int64_t byte = q.i[size_t(col * (k / 2) + t / 2)];
          level = double(t % 2 ? byte >> 4 & 15 : byte & 15);
        } else {
          level = double(q.i[size_t(col * k + t)]);
        }
        const double zero = c.has(kZero) ? grouped(c.in[kZero], col, t, k) : bits == 4 && !c.has(kMin) ? 8 : 0;
        w[size_t(t)] = scale * (level - zero) - low;
      }
      for (int64_t r = 0; r < m; ++r) {
        double sum = 0;
        for (int64_t t = 0; t < k; ++t) sum += rows[size_t(r * k + t)] * w[size_t(t)];
        y.f[size_t(r * n + col)] = sum;
      }
    }
  });
}

}  // namespace

double quantize_activation(float x, float largest) {
  if (std::isnan(largest)) return std::numeric_limits<double>::quiet_NaN();
  if (largest < kLeastLargest) return 0;
  return double(std::nearbyintf(x * (127.0f / largest))) * double(largest / 127.0f);
}

constinit const OpSchema kLowBitMatMul = {
    .name = "LowBitMatMul",
    .domain = "ridgeline",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "a x w^T, w[n,k] = scale * (q - zero) - min in groups along k; 4-bit q two a byte, low half first, zero 8 if "
        "neither zero nor min is given; scale and min times super_scale and super_min of wider groups (GGUF's q4_k); "
        "bits = 16: w is q. act = bf16: a is rounded to bf16; i8: a is rounded to 127 levels of the largest of each "
        "act_block (0: row). Source: "
        "com.microsoft MatMulNBits-1, GGUF.",
    .since = 1,
    .versions = {1},
    .inputs = {{"a", kFloats},
               {"q", kBytes | kHalf},
               {"scale", kScales | kU8Only, "", true},
               {"zero", kU8Only, "", true},
               {"min", kScales | kU8Only, "", true},
               {"super_scale", kScales, "", true},
               {"super_min", kScales, "", true}},
    .outputs = {{"y"}},
    .attributes = {{"bits", 8}, {"act", "f32"}, {"act_block", 0}},
    .infer = infer_low_bit,
    .cost = low_bit_cost,
    .reference = low_bit_reference,
    .no_gradient = "weights of few bits are not trained; the product's own gradient needs them dequantized",
    .samples = {"a=f32[3,64] q=i8[33,64]! scale=f32[33,1]! act=i8",
                "a=f32[1,128] q=u8[40,64]! scale=f16[40,4]! bits=4 act=i8",
                "a=f32[17,128] q=u8[33,64]! scale=f16[33,1]! zero=u8[33,1]! bits=4 act=i8",
                "a=f32[2,5,64] q=i8[32,64]! scale=f16[32,2]! act=i8 act_block=32",
                "a=f32[33,64] q=u8[65,32]! scale=f16[65,2]! bits=4 act=i8 act_block=32",
                "a=f32[5,512] q=u8[31,256]! scale=u8[31,16]! min=u8[31,16]! super_scale=f16[31,2]! "
                "super_min=f16[31,2]! bits=4 act=i8 act_block=32",
                "a=f32[1,65] q=bf16[33,65]! bits=16", "a=f32[9,40] q=f16[31,40]! bits=16",
                "a=f32[33,70] q=bf16[65,70]! bits=16 act=bf16", "a=bf16[1,64] q=bf16[65,64]! bits=16 act=bf16",
                "a=f32[3,64] q=u8[33,32]! scale=f32[33,2]! zero=u8[33,2]! bits=4",
                "a=f32[0,64] q=i8[33,64]! scale=f32[33,1]!", "a=bf16[4,64] q=i8[33,64]! scale=f32[33,1]! act=i8",
                "a=f16[4,32] q=u8[7,16]! scale=f16[7,1]! bits=4"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> low_bit_ops() {
  static constexpr const OpSchema* kOps[] = {&kLowBitMatMul};
  return kOps;
}

}  // namespace ridgeline
