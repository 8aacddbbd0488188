// cuda.conv_direct: every convolution of the catalogue, whatever its types, strides and axes.
#include <algorithm>

#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/conv/strided_epilogue.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 256;

enum Kind { kPlain, kTransposed, kInteger, kQuantized };
Kind kind_of(const Problem& p) {
  const std::string_view name = p.op->name;
  return name == "Conv"            ? kPlain
         : name == "ConvTranspose" ? kTransposed
         : name == "ConvInteger"   ? kInteger
                                   : kQuantized;
}

Support supports(const Problem& p) {
  const int axes = p.input(0).layout.rank() - 2;
  if (axes < 1 || axes > 3) return no("takes one to three spatial axes, not {}", axes);
  if (storage_type(p.input(0).dtype).empty()) return no("operands of type {}", name(p.input(0).dtype));
  if (const std::string why = strided_epilogue_reject(p); !why.empty()) return no("{}", why);
  return yes();
}

bool has_channels_last(const Problem& p) {
  const ImageStrides s = image_strides(p.output().layout);
  return s[1] == 1 && p.output().shape()[1] > 1;
}

Source source(const Problem& p, const Tile&) {
  Source source;
  source.file = "conv/conv_direct.cu";
  source.entry = "conv_direct";
  const Kind kind = kind_of(p);
  const DType x = p.input(0).dtype;
  const bool whole = kind >= kInteger;
  source.defines = {fmt::format("KIND={}", int(kind)), fmt::format("SUM={}", whole ? "int" : register_type(x)),
                    fmt::format("X={}", whole ? "u8" : storage_type(x)),
                    fmt::format("W={}", whole ? "u8" : storage_type(p.input(weights_of(p)).dtype)),
                    fmt::format("OPERANDS={}", std::max(1, p.has_epilogue() ? p.epilogue_operands() : 0))};
  source.program = strided_epilogue_source(p);
  return source;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const ConvGeometry g = conv_geometry(p);
  const double rate = p.input(0).dtype == DType::kF64 ? 0.04 : has_channels_last(p) ? 0.02 : 0.05;
  // However few outputs there are: each is a chain of loads and additions.
  const double chain = 2000 + 8.0 * double(g.taps() * g.group_in());
  return std::max({c.compute_ns(DType::kF32, int64_t(g.flops()), 1) / rate,
                   c.stream_ns(p.read_bytes(), p.write_bytes(), 1), chain}) +
         c.launch_ns.at(1, 1);
}

// struct Arguments of conv_direct.cu, word by word.
class Words {
 public:
  template <typename... Values>
  void add(const Values&... values) {
    (words_.push_back(uint64_t(values)), ...);
  }
  void address(const void* p) { words_.push_back(reinterpret_cast<uint64_t>(p)); }
  template <typename List>
  void all(const List& list) {
    words_.insert(words_.end(), list.begin(), list.end());
  }
  void* data() { return words_.data(); }

 private:
  std::vector<uint64_t> words_;
};

// The distance from one number to the next of an operand with one, or one a channel.
int64_t channel_stride(const Operand& o) {
  return o.present() && o.layout.rank() == 1 && o.shape()[0] > 1 ? o.layout.strides[0] : 0;
}

int float_code(DType dtype) {
  return dtype == DType::kF16 ? 1 : dtype == DType::kBF16 ? 2 : dtype == DType::kF64 ? 3 : 0;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const ConvGeometry g = conv_geometry(p);
  const Kind kind = kind_of(p);
  const int w = weights_of(p), bias = kind == kQuantized ? 8 : kind == kInteger ? -1 : 2;
  const auto buffer = [&](int input) { return input >= 0 && p.has(input) ? buffers.inputs[input] : nullptr; };
  const int64_t count = p.output().elements();
  Words words;
  words.address(buffers.inputs[0]);
  words.address(buffers.inputs[w]);
  words.address(buffer(bias));
  words.address(buffers.outputs[0]);
  words.add(count, has_channels_last(p));
  words.all(std::array{g.images, g.out_channels, g.out[0], g.out[1], g.out[2]});
  words.all(image_strides(p.input(0).layout));
  words.all(image_strides(p.input(w).layout));
  words.all(image_strides(p.output().layout));
  words.add(bias >= 0 && p.has(bias) ? channel_stride(p.input(bias)) : 0);
  for (const auto& axes : {g.in, g.kernel, g.stride, g.dilation, g.begin}) words.all(axes);
  words.add(g.group_in(), g.group_out());
  if (kind >= kInteger) {
    const int x_zero = 2, w_zero = kind == kQuantized ? 5 : 3;
    words.address(buffer(x_zero));
    words.address(buffer(w_zero));
    words.add(p.has(w_zero) ? channel_stride(p.input(w_zero)) : 0, p.input(0).dtype == DType::kI8,
              p.input(w).dtype == DType::kI8);
  }
  if (kind == kQuantized) {
    for (int input : {1, 4, 6, 7}) words.address(buffers.inputs[input]);
    words.add(channel_stride(p.input(4)), float_code(p.input(1).dtype), float_code(p.input(4).dtype),
              float_code(p.input(6).dtype), p.input(7).dtype == DType::kI8);
  }
  words.all(strided_epilogue_words(p, buffers.inputs));
  void* parameters[] = {words.data()};
  launch(call.state_as<LoadedKernel>(), {(count + kThreads - 1) / kThreads}, kThreads, stream, parameters);
}

constexpr Kernel direct(std::string_view op) {
  return {.name = "cuda.conv_direct",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .estimate = estimate,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const std::array<Kernel, 4> kConvDirect = {direct("Conv"), direct("ConvTranspose"), direct("ConvInteger"),
                                                     direct("QLinearConv")};

}  // namespace ridgeline::cuda
