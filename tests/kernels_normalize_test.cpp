// Softmax and the norms against the reference, on every vector target.
#include <gtest/gtest.h>

#include "kernel_problem.h"
#include "kernels/cpu/normalize/norm_kernels.h"
#include "kernels/cpu/simd.h"

namespace ridgeline {
namespace {

class Normalize : public testing::TestWithParam<const char*> {
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa("native"); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Normalize, testing::Values("native", "avx2", "scalar"));

void check(const Kernel& kernel, std::initializer_list<const char*> cases, double ulps, double scale) {
  const OpSchema* op = find_op(kernel.op);
  if (!op) op = find_op(kernel.op, "ridgeline");
  if (!op) op = find_op(kernel.op, "com.microsoft");
  ASSERT_NE(op, nullptr) << kernel.op;
  for (const char* keys : cases) test::check(kernel, *op, keys, ulps, scale, 3);
}

TEST_P(Normalize, Softmax) {
  const auto cases = {"x=f32[3,5,127]",
                      "x=f32[5,33] axis=0",
                      "x=f32[2,7,5,3] axis=1",
                      "x=f32[4,1000] axis=-1",
                      "x=f32[0,64]",
                      "x=f32[3,0] axis=-1",
                      "x=f32[7,1]",
                      "x=f32[2,21,5,3]~cl axis=1 out=~cl",
                      "x=f32[2,3,4,50] axis=2",
                      "x=f32[9]",
                      "x=f32[2,300] axis=0",
                      "x=f32[3,64]~100x1",
                      "x=f32[2,3,7,64]~1344x64x192x1"};
  // The rounding of x - max, up to 16 here, is 8 ulp of its exponential.
  check(cpu::kSoftmaxKernel, cases, 12, 1e-6);
  check(cpu::kLogSoftmaxKernel, cases, 3, 3);
  check(cpu::kSoftmaxKernel, {"x=f32[3,65] epilogue='v * 2 + e1' e1=f32[65]"}, 4, 1);
}

TEST_P(Normalize, SoftmaxOfInfinities) {
  const float x[5] = {-INFINITY, 1, -INFINITY, 1, 100};
  float y[5];
  Problem p = parse_problem(*find_op("Softmax"), "x=f32[5]");
  KernelCall call;
  call.problem = p;
  call.state = cpu::kSoftmaxKernel.prepare(p, {});
  void *in[] = {const_cast<float*>(x)}, *out[] = {y};
  cpu::kSoftmaxKernel.run(call, {in, out, nullptr}, ThreadPool(1));
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[4], 1);
}

TEST_P(Normalize, Norms) {
  check(cpu::kLayerNormKernel,
        {"x=f32[2,3,64] scale=f32[64] bias=f32[64]", "x=f32[3,5,127] scale=f32[127]",
         "x=f32[1,7,768] scale=f32[768] bias=f32[768]", "x=f32[4,6,8] axis=1 scale=f32[6,8] bias=f32[6,8]",
         "x=f32[2,5,3] axis=0 scale=f32[2,5,3] bias=f32[1]", "x=f32[0,5] scale=f32[5] bias=f32[5]",
         "x=f32[5,1] scale=f32[1] bias=f32[1]", "x=f32[5,3] scale=f32[3] bias=f32[3]"},
        6, 8);
  check(cpu::kRmsNormKernel,
        {"x=f32[2,3,64] scale=f32[64]", "x=f32[3,5,127] scale=f32[127]", "x=f32[0,5] scale=f32[5]",
         "x=f32[9,1] scale=f32[1]", "x=f32[3,700]~1000x1 scale=f32[700]"},
        6, 8);
  check(cpu::kSimplifiedLayerNormKernel, {"x=f32[3,5,127] scale=f32[127] epsilon=0.001"}, 6, 8);
  check(cpu::kAddLayerNormKernel, {"x=f32[2,3,65] residual=f32[2,3,65] scale=f32[65] bias=f32[65]"}, 6, 8);
  check(cpu::kAddRmsNormKernel, {"x=f32[2,3,65] residual=f32[2,3,65] scale=f32[65]"}, 6, 8);
}

TEST_P(Normalize, Channels) {
  check(cpu::kBatchNormKernel, {"x=f32[0,3,4,4] scale=f32[3] bias=f32[3] mean=f32[3] variance=f32[3]"}, 6, 8);
  check(cpu::kInstanceNormKernel,
        {"x=f32[2,5,7,3] scale=f32[5] bias=f32[5]", "x=f32[1,32,129] scale=f32[32] bias=f32[32] epsilon=0.001",
         "x=f32[0,3,4,4] scale=f32[3] bias=f32[3]", "x=f32[1,2,3,5,4] scale=f32[2] bias=f32[2]"},
        8, 3);
  check(cpu::kGroupNormKernel,
        {"x=f32[2,6,7,3] scale=f32[6] bias=f32[6] num_groups=3",
         "x=f32[1,32,129] scale=f32[32] bias=f32[32] num_groups=1"},
        8, 3);
}

// The random variance of the harness may be negative: here it is not.
TEST_P(Normalize, Batch) {
  for (const char* keys : {"x=f32[2,5,7,3] scale=f32[5] bias=f32[5] mean=f32[5] variance=f32[5]",
                           "x=f32[2,37,7,3]~cl scale=f32[37] bias=f32[37] mean=f32[37] variance=f32[37] out=~cl",
                           "x=f32[3,17] scale=f32[17] bias=f32[17] mean=f32[17] variance=f32[17]"}) {
    Problem p = parse_problem(*find_op("BatchNormalization"), keys);
    ASSERT_TRUE(cpu::kBatchNormKernel.supports(p).ok);
    std::mt19937 random(5);
    std::vector<Tensor> in;
    std::vector<void*> pointers;
    for (const Operand& operand : p.inputs) in.push_back(test::random_tensor(DType::kF32, operand.shape(), random));
    for (int64_t i = 0; i < in[4].elements(); ++i) in[4].as<float>()[i] = std::fabs(in[4].as<float>()[i]) + 0.1f;
    test::Placed x(p.inputs[0]), y(p.outputs[0]);
    copy_elements(in[0].view(), x.view);
    for (const Tensor& t : in) pointers.push_back(t.data());
    pointers[0] = x.view.data;
    void* out[] = {y.view.data};
    KernelCall call;
    call.problem = p;
    call.state = cpu::kBatchNormKernel.prepare(p, {});
    const auto workspace = allocate(cpu::kBatchNormKernel.workspace(p, {}));
    cpu::kBatchNormKernel.run(call, {pointers.data(), out, workspace.get()}, ThreadPool(2));
    test::Result r;
    r.want = run_reference(*p.op, p.attributes, in, 1);
    r.got = {Tensor(DType::kF32, p.output().shape())};
    copy_elements(y.view, r.got[0].view());
    test::expect_close(r, keys, 4, 1);
  }
}

}  // namespace
}  // namespace ridgeline
