#include "tune/held_out.h"

#include <algorithm>
#include <cmath>

#include "ops/catalogue.h"

namespace ridgeline {
namespace {

class Draw {
 public:
  explicit Draw(std::mt19937_64& random) : random_(random) {}
  int64_t below(int64_t n) { return int64_t(random_() % uint64_t(n)); }
  bool chance(double p) { return double(random_() >> 11) * 0x1p-53 < p; }
  template <size_t N>
  int64_t pick(const int64_t (&list)[N]) {
    return list[below(int64_t(N))];
  }
  /// Uniform in its logarithm; a multiple of `unit`.
  int64_t extent(int64_t least, int64_t most, int64_t unit = 1) {
    const double share = double(random_() >> 11) * 0x1p-53;
    const double value = double(least) * std::pow(double(most) / double(least), share);
    return std::max(unit, int64_t(std::llround(value / double(unit))) * unit);
  }

 private:
  std::mt19937_64& random_;
};

constexpr double kMostFlops = 3e9;  // 15 ms of a core: a dozen candidates are to be timed in a second

// Rows of models: one token, a few, a sentence, a batch of sentences; and widths that are hidden sizes, mostly.
std::string matmul(Draw& d, std::string& op) {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  do {
    m = d.chance(0.25) ? 1 + d.below(16) : d.extent(8, 2048, d.chance(0.5) ? 1 : 16);
    n = d.chance(0.7) ? d.extent(64, 8192, 64) : d.extent(3, 2000);
    k = d.chance(0.7) ? d.extent(64, 8192, 64) : d.extent(9, 3000);
    batch = d.chance(0.2) ? d.extent(2, 48) : 1;
  } while (2.0 * double(m) * double(n) * double(k) * double(batch) > kMostFlops);
  const bool packed = d.chance(0.65), ta = d.chance(0.08), tb = d.chance(0.25);
  const std::string lead = batch > 1 ? fmt::format("{},", batch) : "";
  const std::string kind = batch > 1 || d.chance(0.5) ? "plain" : d.chance(0.5) ? "gemm" : "epilogue";
  const std::string a = ta && batch == 1 ? fmt::format("f32[{},{}]", k, m) : fmt::format("f32[{}{},{}]", lead, m, k);
  const std::string b = tb && batch == 1 ? fmt::format("f32[{},{}]{}", n, k, packed ? "!" : "")
                                         : fmt::format("f32[{}{},{}]{}", packed ? "" : lead, k, n, packed ? "!" : "");
  const bool flags = batch == 1 && (ta || tb);
  if (kind == "gemm") {
    op = "Gemm";
    return fmt::format("a={} b={} c=f32[{}]! transA={} transB={}", a, b, n, int(flags && ta), int(flags && tb));
  }
  op = flags ? "FusedMatMul" : "MatMul";
  std::string text = fmt::format("a={} b={}", a, b);
  if (flags) text += fmt::format(" transA={} transB={}", int(ta), int(tb));
  if (kind == "epilogue")
    text += fmt::format(" e1=f32[{}]! epilogue='{}'", n,
                        d.chance(0.5) ? "relu(v + e1)" : "(v + e1) * 0.5 * erfc(-(v + e1) * 0.70710678118654752)");
  return text;
}

std::string low_bit(Draw& d) {
  const int64_t m = d.chance(0.5) ? 1 + d.below(16) : d.extent(16, 512);
  const int64_t n = d.extent(256, 8192, 32), k = d.extent(256, 4096, 128);
  switch (d.below(4)) {
    case 0:
      return fmt::format("a=f32[{0},{2}] q=i8[{1},{2}]! scale=f32[{1},1]! act=i8 act_block=0", m, n, k);
    case 1:
      return fmt::format("a=f32[{0},{2}] q=u8[{1},{3}]! scale=f16[{1},{4}]! bits=4 act=i8 act_block=0", m, n, k, k / 2,
                         k / 32);
    case 2:
      return fmt::format("a=f32[{0},{2}] q=bf16[{1},{2}]! bits=16 act=f32 act_block=0", m, n, k);
    default:
      return fmt::format("a=f32[{0},{2}] q=bf16[{1},{2}]! bits=16 act=bf16 act_block=0", m, n, k);
  }
}

// A third of the draws are narrow: bf16 images, or bytes that are quantized again (as QDQ models lower to).
enum class Narrow { kNo, kBf16, kBytes };

std::string conv_text(Draw& d, Narrow narrow) {
  const bool channels_last = narrow != Narrow::kNo || d.chance(0.7);
  const std::string_view x = narrow == Narrow::kNo ? "f32" : narrow == Narrow::kBf16 ? "bf16" : "u8";
  const std::string_view w = narrow == Narrow::kBytes ? "i8" : x;
  for (;;) {
    const int64_t kSizes[] = {1, 1, 3, 3, 3, 5, 7};
    const int64_t kernel = d.pick(kSizes), hw = d.extent(4, 160);
    const bool depthwise = kernel > 1 && d.chance(0.25);
    const int64_t unit = d.chance(0.7) ? 16 : d.chance(0.5) ? 8 : 1;
    const int64_t c = d.chance(0.06) ? 3 : d.extent(8, 1024, unit);
    const int64_t oc = depthwise ? c : d.extent(8, 1024, unit);
    const int64_t stride = d.chance(0.75) ? 1 : 2, batch = d.chance(0.8) ? 1 : d.extent(2, 8);
    const int64_t out = (hw + 2 * (kernel / 2) - kernel) / stride + 1;
    const double flops =
        2.0 * double(batch * out * out) * double(oc) * double(depthwise ? 1 : c) * double(kernel * kernel);
    if (out < 1 || flops > kMostFlops || flops < 1e5) continue;
    std::string text = fmt::format(
        "x={10}[{0},{1},{2},{2}]{9} w={11}[{3},{4},{5},{5}]! strides={6},{6} pads={7},{7},{7},{7} group={8}", batch, c,
        hw, oc, depthwise ? 1 : c, kernel, stride, kernel / 2, depthwise ? c : 1, channels_last ? "~cl" : "", x, w);
    if (channels_last) text += " out=~cl";
    const bool relu = d.chance(0.5);
    if (narrow == Narrow::kBytes)
      return text + fmt::format(" x_zero_point=u8[] e1=f32[{},1,1]! epilogue='cast_u8(round(cast_f32(v) * e1{}) + 3)'",
                                oc, relu ? "" : " / 255");
    if (narrow == Narrow::kBf16)
      return text + fmt::format(" e1=f32[{},1,1]! epilogue='cast_bf16({})'", oc, relu ? "relu(v + e1)" : "v + e1");
    text += fmt::format(" b=f32[{}]!", oc);
    if (d.chance(0.5)) text += relu ? " epilogue='relu(v)'" : " epilogue='v * sigmoid(v)'";
    return text;
  }
}

std::string conv(Draw& d, std::string& op) {
  const Narrow narrow = d.chance(0.67) ? Narrow::kNo : d.chance(0.5) ? Narrow::kBf16 : Narrow::kBytes;
  op = narrow == Narrow::kBytes ? "ConvInteger" : "Conv";
  return conv_text(d, narrow);
}

std::string attention(Draw& d) {
  const int64_t kHeadDims[] = {32, 64, 64, 80, 96, 128, 128};
  for (;;) {
    const int64_t heads = d.extent(2, 40), groups = d.chance(0.5) ? 1 : heads % 4 == 0 ? 4 : heads % 2 == 0 ? 2 : 1;
    const int64_t dim = d.pick(kHeadDims), batch = d.chance(0.8) ? 1 : d.extent(2, 8);
    const int64_t q = d.chance(0.4) ? 1 + d.below(16) : d.extent(16, 1024), kv = q > 16 ? q : d.extent(32, 8192);
    if (4.0 * double(batch * heads * q) * double(kv * dim) > kMostFlops) continue;
    return fmt::format("q=f32[{0},{1},{2},{5}] k=f32[{0},{3},{4},{5}] v=f32[{0},{3},{4},{5}] scale={6:.9g} causal={7}",
                       batch, heads, q, heads / groups, kv, dim, 1 / std::sqrt(double(dim)), int(d.chance(0.5)));
  }
}

}  // namespace

std::vector<std::string_view> held_out_families() { return {"matmul", "conv", "attention"}; }

Problem held_out_problem(std::string_view family, std::mt19937_64& random, int threads) {
  Draw d(random);
  std::string op, text;
  if (family == "matmul" && d.chance(0.12)) {
    op = "LowBitMatMul";
    text = low_bit(d);
  } else if (family == "matmul") {
    text = matmul(d, op);
  } else if (family == "conv") {
    text = conv(d, op);
  } else if (family == "attention") {
    op = "ScaledDotProductAttention";
    text = attention(d);
  } else {
    fail(ErrorCode::kUsage, "--family {}: only problems of these leave a choice: {}", family,
         fmt::join(held_out_families(), ", "));
  }
  Problem problem = parse_problem(*find_op_in_any_domain(op), text);
  problem.threads = threads;
  return problem;
}

}  // namespace ridgeline
