// Adds an operator from outside the library: SquaredDistance, y[n] = sum over k of (a[n,k] - b[n,k])^2, declared by a
// decomposition. The declaration alone gives it a reference, and with that a kernel, verification and a cost.
#include <cstdio>

#include "ridgeline/extend.h"
#include "ridgeline/ridgeline.h"

namespace {

using namespace ridgeline;

constinit const OpSchema kSquaredDistance = {
    .name = "SquaredDistance",
    .domain = "example",
    .family = "reduce",
    .kind = OpKind::kReduction,
    .doc = "y = sum((a - b)^2) over the last axis",
    .inputs = {{"a", kFloats}, {"b", kFloats, "a"}},
    .outputs = {{"y"}},
    .infer =
        [](Infer& i) {
          i.require(i.shape(0) == i.shape(1), "a and b must have one shape");
          i.require(i.rank(0) > 0, "a scalar has no last axis");
          Shape shape = i.shape(0);
          shape.pop_back();
          i.output(0, i.dtype(0), shape);
        },
    .decompose = {[](Builder& b) {
      const V difference = b.input(0) - b.input(1);
      b.result(b.reduce("ReduceSum", difference * difference, {-1}, false));
    }},
    .samples = {"a=f32[3,65] b=f32[3,65]", "a=f32[0,4] b=f32[0,4]"},
    .tolerance = Tolerance::reduction(),
};

}  // namespace

int main() try {
  register_op(kSquaredDistance);
  Op distance("SquaredDistance", {{DType::kF32, Extents{2, 3}}, {DType::kF32, Extents{2, 3}}});
  const std::vector<Tensor> y =
      distance({Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6}), Tensor::from<float>({2, 3}, {1, 1, 1, 1, 1, 1})});
  std::printf("%s: %g %g\n", std::string(distance.kernel()).c_str(), y[0].f64(0), y[0].f64(1));
  return y[0].f64(0) == 5 && y[0].f64(1) == 50 ? 0 : 1;
} catch (const ridgeline::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
