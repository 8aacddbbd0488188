// com.microsoft's weights of few bits, in blocks with a scale each: the product is LowBitMatMul, whose kernels pack the
// weights; the table a Gather of its bytes. Source: ONNX Runtime's ContribOperators.md, MatMulNBits-1,
// GatherBlockQuantized-1.
#include <algorithm>

#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

constexpr TypeSet kU8Only = type_bit(DType::kU8);
constexpr TypeSet kReal = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr TypeSet kNibbles = type_bit(DType::kI4) | type_bit(DType::kU4);
constexpr int64_t kMostExtent = int64_t(1) << 40;

void check_bits_and_block(const Infer& i) {
  const int64_t bits = i.integer("bits"), block = i.integer("block_size");
  i.require(bits == 2 || bits == 4 || bits == 8, fmt::format("bits = {} is unsupported: allowed are 2, 4 and 8", bits));
  i.require(block >= 16 && block <= kMostExtent && (block & (block - 1)) == 0,
            fmt::format("block_size = {}: a power of 2 from 16 on is wanted", block));
}

/// Levels packed along the last axis, the lowest bits first, one a byte; `count` of them where the last byte is not
/// full.
V unpacked(Builder& b, V bytes, int64_t bits, const Dim& count) {
  if (bits == 8) return bytes;
  const int64_t each = 8 / bits, levels = int64_t(1) << bits;
  const int rank = b.rank(bytes);
  V rest = b.op("Unsqueeze", {bytes, b.integers_constant({rank})});
  std::vector<V> parts;
  for (int64_t k = 0; k + 1 < each; ++k) {
    V above = rest / b.constant(double(levels), rest);
    parts.push_back(rest - above * b.constant(double(levels), rest));
    rest = above;
  }
  parts.push_back(rest);
  V stacked = b.op("Concat", parts, with({{"axis", int64_t(rank)}}));
  std::vector<int64_t> shape(size_t(rank), 0);
  const Dim& packed = b.shape(bytes).back();
  shape.back() = packed.known() ? packed.value() * each : -1;
  V flat = b.reshape(stacked, shape);
  if (!count.known() || (packed.known() && packed.value() * each == count.value())) return flat;
  return b.op("Slice",
              {flat, b.integers_constant({0}), b.integers_constant({count.value()}), b.integers_constant({-1})});
}

// ---- MatMulNBits

enum ProductInput { kA, kB, kScales, kZero, kGroupIndex, kBias };

struct Blocks {
  int64_t k, n, bits, block, count, blob;
};
template <typename Node>
Blocks blocks_of(const Node& node) {
  Blocks s{node.integer("K"), node.integer("N"), node.integer("bits"), node.integer("block_size"), 0, 0};
  s.count = (s.k + s.block - 1) / s.block;
  s.blob = s.block * s.bits / 8;
  return s;
}

void infer_product(Infer& i) {
  check_bits_and_block(i);
  i.require(i.integer("K") > 0 && i.integer("K") < kMostExtent && i.integer("N") > 0 && i.integer("N") < kMostExtent,
            fmt::format("K = {}, N = {}: at least 1 is wanted", i.integer("K"), i.integer("N")));
  i.require(i.integer("weight_prepacked") == 0, "weight_prepacked is unsupported: its layout is a GPU's own");
  i.require(!i.has(kGroupIndex), "its input 'g_idx' (a group for each row, deprecated) is unsupported");
  const Blocks s = blocks_of(i);
  i.require(i.rank(kA) >= 1 && same(i.shape(kA).back(), Dim(s.k)),
            [&] { return fmt::format("a is {}: K = {} is wanted as its last extent", describe(i, kA), s.k); });
  const Shape want = {s.n, s.count, s.blob};
  bool fits = i.rank(kB) == 3;
  for (size_t a = 0; fits && a < want.size(); ++a) fits = same(i.shape(kB)[a], want[a]);
  i.require(fits, [&] {
    return fmt::format("b is {}: {} is wanted (an omitted projection is unsupported)", describe(i, kB), text(want));
  });
  const auto check_grouped = [&](int input, int64_t each) {
    if (!i.has(input)) return;
    const Shape& g = i.shape(input);
    const bool flat = g.size() == 1 && same(g[0], Dim(s.n * each));
    i.require(flat || (g.size() == 2 && same(g[0], Dim(s.n)) && same(g[1], Dim(each))), [&] {
      return fmt::format("input '{}' is {}: [{}, {}] is wanted", i.op().inputs[input].name, describe(i, input), s.n,
                         each);
    });
  };
  check_grouped(kScales, s.count);
  check_grouped(kZero, i.has(kZero) && i.dtype(kZero) == DType::kU8 ? (s.count * s.bits + 7) / 8 : s.count);
  if (i.has(kBias))
    i.require(i.rank(kBias) == 1 && same(i.dim(kBias, 0), Dim(s.n)),
              [&] { return fmt::format("bias is {}: [{}] is wanted", describe(i, kBias), s.n); });
  Shape out = i.shape(kA);
  out.back() = s.n;
  i.output(0, i.dtype(kA), out);
}

/// What LowBitMatMul takes: 4 bits two a byte, 8 bits less 128.
V product_levels(Builder& b, const Blocks& s) {
  V bytes = b.reshape(b.input(kB), {s.n, s.count * s.blob});
  if (s.bits == 4) return bytes;
  if (s.bits == 8) {
    V wide = b.cast(bytes, DType::kI16);
    return b.cast(wide - b.constant(128, wide), DType::kI8);
  }
  // Two levels of 2 bits in the low half of a byte, two in the high: each half becomes a byte of two levels of 4 bits.
  V halves = unpacked(b, bytes, 4, s.count * s.blob * 2);
  return halves + b.constant(12, halves) * (halves / b.constant(4, halves));
}

void decompose_product(Builder& b) {
  const Blocks s = blocks_of(b);
  V a = b.input(kA);
  if (const int64_t missing = s.count * s.block - s.k; missing > 0) {  // the last block's levels meet zeros
    std::vector<int64_t> pads(2 * size_t(b.rank(a)), 0);
    pads.back() = missing;
    a = b.op("Pad", {a, b.integers_constant(pads)});
  }
  V scale = b.reshape(b.input(kScales), {s.n, s.count}), zero, low;
  if (b.dtype(scale) == DType::kBF16) scale = b.cast(scale, DType::kF32);
  if (b.has(kZero)) {
    const bool packed = b.dtype(b.input(kZero)) == DType::kU8;
    V levels = packed ? unpacked(b, b.reshape(b.input(kZero), {s.n, (s.count * s.bits + 7) / 8}), s.bits, s.count)
                      : b.reshape(b.input(kZero), {s.n, s.count});
    if (packed && s.bits < 8) {
      zero = levels;
    } else {  // real zero points, or ones of 8 bits, of which 128 is in the levels already
      V real = b.cast(levels, DType::kF32);
      if (s.bits == 8) real = real - b.constant(128, real);
      low = b.cast(scale, DType::kF32) * real;
    }
  } else if (s.bits == 2) {
    Tensor middle(DType::kU8, {s.n, s.count});
    std::fill_n(static_cast<uint8_t*>(middle.data()), size_t(s.n * s.count), uint8_t(2));
    zero = V{&b, b.graph().add_constant({}, std::move(middle))};
  }
  std::vector<V> operands = {a, product_levels(b, s), scale, zero, low};
  while (!operands.back()) operands.pop_back();
  V y = b.op("LowBitMatMul", operands, with({{"bits", int64_t(s.bits == 8 ? 8 : 4)}}));
  b.result(b.has(kBias) ? y + b.input(kBias) : y);
}

// ---- GatherBlockQuantized

enum TableInput { kData, kRows, kTableScales, kTableZero };

/// Levels a byte of the last axis.
int64_t packed_levels(DType data, int64_t bits) { return data == DType::kU8 ? 8 / bits : 1; }

void infer_table(Infer& i) {
  check_bits_and_block(i);
  const Shape& data = i.shape(kData);
  const int rank = int(data.size());
  i.require(rank >= 1, "data is a scalar");
  const int gather = i.axis(i.integer("gather_axis"), rank), quantize = i.axis(i.integer("quantize_axis"), rank);
  const int64_t each = packed_levels(i.dtype(kData), i.integer("bits")), block = i.integer("block_size");
  i.require(gather != quantize, "gather_axis and quantize_axis that are the same axis are unsupported");
  i.require(i.dtype(kData) != DType::kU8 || (gather == 0 && quantize == rank - 1),
            "u8 data with another gather_axis than 0 or another quantize_axis than the last is unsupported");
  Shape levels = data;
  levels.back() = levels.back() * Dim(each);
  Shape blocks = levels;
  blocks[size_t(quantize)] = ceil_div(blocks[size_t(quantize)], block);
  const auto check = [&](int input, const Shape& want) {
    if (!i.has(input)) return;
    bool fits = i.rank(input) == rank;
    for (size_t a = 0; fits && a < want.size(); ++a) fits = same(i.shape(input)[a], want[a]);
    i.require(fits, [&] {
      return fmt::format("input '{}' is {}: {} is wanted", i.op().inputs[input].name, describe(i, input), text(want));
    });
  };
  check(kTableScales, blocks);
  blocks.back() = ceil_div(blocks.back(), each);
  check(kTableZero, blocks);
  Shape out(levels.begin(), levels.begin() + gather);
  const Shape& indices = i.shape(kRows);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), levels.begin() + gather + 1, levels.end());
  i.output(0, i.dtype(kTableScales), out);
}

void decompose_table(Builder& b) {
  V data = b.input(kData), scales = b.input(kTableScales), indices = b.input(kRows), zero;
  const int rank = b.rank(data), gather = positive_axis(b.integer("gather_axis"), rank);
  const int quantize = positive_axis(b.integer("quantize_axis"), rank);
  const int64_t bits = b.integer("bits"), block = b.integer("block_size");
  const bool bytes = b.dtype(data) == DType::kU8;
  const DType wide = b.dtype(data) == DType::kI4 ? DType::kI8 : DType::kU8;
  const auto rows = [&](V x, V at) { return b.op("Gather", {x, at}, with({{"axis", int64_t(gather)}})); };
  // An index outside gives zeros: it reads row 0, by a scale of 0.
  V inside;
  if (const Dim& count = b.shape(data)[size_t(gather)]; count.known() && count.value() > 0) {
    inside = b.op("And", {b.op("GreaterOrEqual", {indices, b.constant(double(-count.value()), indices)}),
                          b.op("Less", {indices, b.constant(double(count.value()), indices)})});
    indices = b.op("Where", {inside, indices, b.constant(0, indices)});
  }
  const int at = quantize < gather ? quantize : quantize + b.rank(indices) - 1;  // the quantized axis of the result
  const Dim count = b.shape(scales)[size_t(quantize)];
  V levels = rows(bytes ? data : b.cast(data, wide), indices), scale = rows(scales, indices);
  if (bytes) levels = unpacked(b, levels, bits, b.shape(data).back() * Dim(8 / bits));
  if (b.has(kTableZero)) {
    zero = rows(bytes ? b.input(kTableZero) : b.cast(b.input(kTableZero), wide), indices);
    if (bytes) zero = unpacked(b, zero, bits, count);
  }
  if (inside) {
    std::vector<int64_t> more;
    for (int axis = 0; axis < b.rank(scale); ++axis)
      if (axis < gather || axis >= gather + b.rank(indices)) more.push_back(axis);
    V flag = more.empty() ? inside : b.op("Unsqueeze", {inside, b.integers_constant(more)});
    scale = b.op("Where", {flag, scale, b.constant(0, scale)});
  }
  // Blocks become an axis of their own, over which scales and zero points broadcast.
  const Dim& length = b.shape(levels)[size_t(at)];
  const int64_t whole = count.known() ? count.value() * block : 0;
  if (!length.known() || !count.known())
    fail(ErrorCode::kUnsupported, "GatherBlockQuantized: a quantized axis of unknown extent");
  if (length.value() < whole) {
    std::vector<int64_t> pads(2 * size_t(b.rank(levels)), 0);
    pads[size_t(b.rank(levels) + at)] = whole - length.value();
    levels = b.op("Pad", {levels, b.integers_constant(pads)});
  }
  std::vector<int64_t> split(size_t(b.rank(levels)) + 1, 0), joined(size_t(b.rank(levels)), 0);
  // 0 keeps the extent of the same place: behind the split axis the places differ, so that it may be but the last or
  // all behind it must be known.
  for (int axis = 0; axis < b.rank(levels); ++axis) {
    const Dim& extent = b.shape(levels)[size_t(axis)];
    if (axis <= at) continue;
    if (!extent.known()) fail(ErrorCode::kUnsupported, "GatherBlockQuantized: an axis of unknown extent");
    split[size_t(axis) + 1] = extent.value();
    joined[size_t(axis)] = extent.value();
  }
  split[size_t(at)] = count.value(), split[size_t(at) + 1] = block, joined[size_t(at)] = whole;
  const auto beside = [&](V x) { return b.op("Unsqueeze", {x, b.integers_constant({at + 1})}); };
  V x = b.cast(b.reshape(levels, split), DType::kF32);
  if (zero)
    x = x - b.cast(beside(zero), DType::kF32);
  else if (bytes)
    x = x - b.constant(double(int64_t(1) << (bits - 1)), x);
  V y = b.reshape(x * b.cast(beside(scale), DType::kF32), joined);
  if (length.value() < whole)
    y = b.op("Slice", {y, b.integers_constant({0}), b.integers_constant({length.value()}), b.integers_constant({at})});
  b.result(b.cast(y, b.dtype(b.input(kTableScales))));
}

}  // namespace

constinit const OpSchema kMatMulNBits = {
    .name = "MatMulNBits",
    .domain = "com.microsoft",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "a x w^T + bias, w[n,k] = (level - zero) * scale in blocks along k, levels of 2, 4 or 8 bits packed the lowest "
        "first; zero is the middle level if it is not given. Source: ONNX Runtime MatMulNBits-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"a", kReal},
               {"b", kU8Only},
               {"scales", kReal},
               optional("zero_points", kU8Only | kReal),
               optional("g_idx", type_bit(DType::kI32)),
               optional("bias", kReal, "a")},
    .outputs = {{"y"}},
    .attributes = {{"K", AttributeType::kInt, kRequired},
                   {"N", AttributeType::kInt, kRequired},
                   {"block_size", AttributeType::kInt, kRequired},
                   {"bits", 4},
                   {"accuracy_level", 0},
                   {"weight_prepacked", 0}},
    .infer = infer_product,
    .cost = decomposed_cost,
    .decompose = {decompose_product},
    .no_gradient = "weights of few bits are not trained; the product's own gradient needs them dequantized",
    .samples = {"a=f32[3,64] b=u8[33,2,16]! scales=f32[33,2]! K=64 N=33 block_size=32",
                "a=f32[2,3,128] b=u8[17,4,16]! scales=f32[68]! zero_points=u8[34]! bias=f32[17]! K=128 N=17 "
                "block_size=32",
                "a=f32[1,40] b=u8[9,3,8]! scales=f32[9,3]! zero_points=u8[9,2]! K=40 N=9 block_size=16",
                "a=f32[4,64] b=u8[7,2,32]! scales=f32[7,2]! zero_points=u8[7,2]! K=64 N=7 block_size=32 bits=8",
                "a=f32[4,64] b=u8[7,2,16]! scales=f32[7,2]! zero_points=f32[7,2]! K=64 N=7 block_size=32",
                "a=f32[5,64] b=u8[8,2,8]! scales=f32[8,2]! K=64 N=8 block_size=32 bits=2",
                "a=f16[2,32] b=u8[8,2,16]! scales=f16[8,2]! K=32 N=8 block_size=16 bits=8",
                "a=f32[0,32] b=u8[8,1,16]! scales=f32[8,1]! K=32 N=8 block_size=32"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kGatherBlockQuantized = {
    .name = "GatherBlockQuantized",
    .domain = "com.microsoft",
    .family = "movement",
    .kind = OpKind::kOpaque,
    .doc =
        "slices of data, quantized in blocks along an axis, dequantized; an index outside gives zeros. Source: ONNX "
        "Runtime GatherBlockQuantized-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"data", kNibbles | kU8Only},
               {"indices", kIndices},
               {"scales", kReal},
               optional("zero_points", kNibbles | kU8Only, "data")},
    .outputs = {{"output"}},
    .attributes = {{"bits", 4}, {"block_size", 128}, {"gather_axis", 0}, {"quantize_axis", 1}},
    .infer = infer_table,
    .cost = decomposed_cost,
    .decompose = {decompose_table},
    .no_gradient = kNoGradientDiscrete,
    .samples = {"data=u8[9,16]! indices=i64{0,8,-1} scales=f32[9,2]! block_size=16",
                "data=u8[9,32]! indices=i32[2,3] scales=f32[9,2]! zero_points=u8[9,2]! block_size=16 bits=8",
                "data=u4[5,40]! indices=i64{4,1} scales=f32[5,3]! zero_points=u4[5,3]! block_size=16",
                "data=i4[32,6]! indices=i64{3,0} scales=f16[1,6]! block_size=32 gather_axis=1 quantize_axis=0",
                "data=u8[4,8]! indices=i64{7,3} scales=f32[4,2]! zero_points=u8[4,1]! block_size=16 bits=2",
                "data=u8[9,16]! indices=i64[0] scales=f32[9,2]! block_size=16"},
    .tolerance = Tolerance::elementwise(4),
};

std::span<const OpSchema* const> contributed_low_bit_ops() {
  static constexpr const OpSchema* kOps[] = {&kMatMulNBits, &kGatherBlockQuantized};
  return kOps;
}

}  // namespace ridgeline
