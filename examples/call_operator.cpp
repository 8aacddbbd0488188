// Calls operators: typed, in one line; and planned for layouts, on buffers of one's own.
#include <cmath>
#include <cstdio>
#include <vector>

#include "ridgeline/ridgeline.h"

using ridgeline::DType;
using ridgeline::Layout;
using ridgeline::Tensor;

int main() try {
  // One line: a [2,3] times the transpose of b [2,3]. The plan is kept: the second call costs a look-up.
  const Tensor a = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = Tensor::from<float>({2, 3}, {1, 0, 1, 0, 1, 0});
  const Tensor product = ridgeline::ops::matmul(a, b, {.trans_b = true});
  std::printf("matmul: [[%g, %g], [%g, %g]]\n", product.f64(0), product.f64(1), product.f64(2), product.f64(3));
  const Tensor probabilities = ridgeline::ops::softmax(product, {.axis = -1});

  // Planned once, for images that lie channels last, with weights that are packed now; run on the caller's buffers.
  const ridgeline::Extents image{1, 8, 32, 32};
  const Tensor weights = Tensor::from<float>({16, 8, 3, 3}, std::vector<float>(16 * 8 * 9, 0.01f));
  ridgeline::OpOptions options;
  options.layouts = {Layout::channels_last({1, 16, 32, 32})};
  ridgeline::Op conv("Conv", {{DType::kF32, Layout::channels_last(image)}, ridgeline::OpInput::constant_of(weights)},
                     {{"pads", {1, 1, 1, 1}}}, options);
  std::vector<float> x(8 * 32 * 32, 1.0f), y(16 * 32 * 32);
  conv.run({x.data()}, {y.data()});
  std::printf("conv: %s, centre %g\n", std::string(conv.kernel()).c_str(), double(y[(16 * 32 + 16) * 16]));
  std::printf("problem: %s\n", conv.problem().c_str());
  for (const ridgeline::OpCandidate& c : conv.candidates()) {
    std::printf("  %-24s %s\n", c.kernel.c_str(), c.supported ? "can run it" : c.reason.c_str());
  }
  const bool right = product.f64(0) == 4 && product.f64(3) == 5 && std::abs(y[(16 * 32 + 16) * 16] - 0.72f) < 1e-5f &&
                     std::abs(probabilities.f64(0) + probabilities.f64(1) - 1) < 1e-6;
  return right ? 0 : 1;
} catch (const ridgeline::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
