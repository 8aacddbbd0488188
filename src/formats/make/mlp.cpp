// Three Gemm with Relu between: the smallest model that is one.
#include <cmath>

#include "formats/make/builder.h"

namespace ridgeline::make {

void mlp(Builder& b) {
  std::string x = b.input("input", onnx::TensorProto::FLOAT, {b.options().batch, {64, {}}});
  constexpr int64_t kWidths[] = {64, 128, 128, 10};
  for (int i = 0; i < 3; ++i) {
    const std::string scope = "/fc" + std::to_string(i + 1);
    const int64_t from = kWidths[i], to = kWidths[i + 1];
    const std::string w = b.normal(Builder::parameter(scope, "weight"), {to, from}, std::sqrt(2.0f / float(from)));
    const std::string bias = b.normal(Builder::parameter(scope, "bias"), {to}, 0.1f);
    x = b.node("Gemm", scope, {x, w, bias}, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}});
    if (i < 2) x = b.node("Relu", "/relu" + std::to_string(i + 1), {x});
  }
  b.output("output", x, {b.options().batch, {10, {}}});
}

}  // namespace ridgeline::make
