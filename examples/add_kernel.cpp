// Adds a kernel from outside the library: a product of tiny square matrices that beats the packed driver at 4 by 4. It
// says what it can run, what it costs, and runs it; the dispatcher compares it with the others.
#include <cstdio>

#include "ridgeline/extend.h"
#include "ridgeline/ridgeline.h"

namespace {

using namespace ridgeline;

constinit const Kernel kTiny = {
    .name = "example.matmul_4x4",
    .op = "MatMul",
    .supports = [](const Problem& p) -> Support {
      if (p.has_epilogue()) return no("takes no epilogue");
      for (const Operand* o : {&p.input(0), &p.input(1), &p.output()}) {
        if (o->dtype != DType::kF32) return no("runs f32, not {}", name(o->dtype));
        if (o->shape() != Extents{4, 4} || !o->layout.is_row_major())
          return no("runs row-major [4,4], not {}", text(o->shape()));
      }
      return yes();
    },
    .estimate = [](const Problem&, const Tile&, const Ceilings&) { return 12.0; },  // ns
    .run =
        [](const KernelCall&, const Buffers& buffers, const ThreadPool&) {
          const auto* a = static_cast<const float*>(buffers.inputs[0]);
          const auto* b = static_cast<const float*>(buffers.inputs[1]);
          auto* c = static_cast<float*>(buffers.outputs[0]);
          for (int i = 0; i < 4; ++i) {
            float row[4] = {};
            for (int k = 0; k < 4; ++k) {
              for (int j = 0; j < 4; ++j) row[j] += a[4 * i + k] * b[4 * k + j];
            }
            for (int j = 0; j < 4; ++j) c[4 * i + j] = row[j];
          }
        },
};

}  // namespace

int main() try {
  register_kernel(kTiny);
  Op product("MatMul", {{DType::kF32, Extents{4, 4}}, {DType::kF32, Extents{4, 4}}});
  const Tensor ones = Tensor::from<float>({4, 4}, std::vector<float>(16, 1.0f));
  const std::vector<Tensor> y = product({ones, ones});
  std::printf("%s: %g\n", std::string(product.kernel()).c_str(), y[0].f64(5));
  for (const OpCandidate& c : product.candidates())
    std::printf("  %-22s %s\n", c.kernel.c_str(), c.supported ? "yes" : c.reason.c_str());
  return y[0].f64(5) == 4 && product.kernel() == kTiny.name ? 0 : 1;
} catch (const ridgeline::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
