// GPU convolutions without a card: who takes what, and how weights are packed.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "kernels/cuda/conv/geometry.h"
#include "kernels/kernel.h"
#include "ops/catalogue.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::cuda {
namespace {

Problem problem_of(const std::string& op, const std::string& keys) {
  Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  p.device = DeviceKind::kCuda;
  return p;
}

std::string chosen(const std::string& keys) {
  const Problem p = problem_of("Conv", keys);
  return std::string(choose_kernel(p, unmeasured_cuda_ceilings()).winner().kernel->name);
}

TEST(CudaConv, EachKernelGetsItsProblems) {
  EXPECT_EQ(chosen("x=f16[64,3,224,224]~cl w=f16[64,3,7,7]! b=f16[64]! strides=2,2 pads=3,3,3,3 out=~cl"),
            "cuda.conv_stem");
  EXPECT_EQ(chosen("x=f16[64,256,14,14]~cl w=f16[256,256,3,3]! b=f16[256]! pads=1,1,1,1 out=~cl"), "cuda.conv_wgmma");
  EXPECT_EQ(chosen("x=f16[1,512,7,7]~cl w=f16[512,512,3,3]! b=f16[512]! pads=1,1,1,1 out=~cl"), "cuda.conv_split");
  EXPECT_EQ(chosen("x=f16[8,64,56,56] w=f16[64,64,3,3]! pads=1,1,1,1"), "cuda.conv_mma");
  EXPECT_EQ(chosen("x=f32[8,64,56,56] w=f32[64,64,3,3]! pads=1,1,1,1"), "cuda.conv_fma");
  EXPECT_EQ(chosen("x=f16[8,64,56,56]~cl w=f16[64,1,3,3]! group=64 pads=1,1,1,1 out=~cl"), "cuda.depthwise");
  EXPECT_EQ(chosen("x=f64[1,8,9,9] w=f64[8,8,3,3]!"), "cuda.conv_direct");
}

const Kernel& kernel_of(const Problem& p, std::string_view name) {
  for (const Kernel* kernel : kernels_of(p.op->name, DeviceKind::kCuda))
    if (kernel->name == name) return *kernel;
  throw std::runtime_error("no such kernel");
}

// Weights 1, 2, 3, ...: where each has gone in the packed form, as 16-bit patterns.
std::vector<uint16_t> packed(const Problem& p, const Kernel& kernel, Tensor& weights) {
  weights = Tensor(p.input(1).dtype, p.input(1).shape());
  std::iota(weights.as<uint16_t>(), weights.as<uint16_t>() + weights.elements(), uint16_t(1));
  const Tile tile = kernel.tiles ? kernel.tiles(p).at(0) : Tile{};
  std::vector<uint16_t> to(size_t(kernel.packing(p, tile, 1).bytes / 2), 0xffff);
  kernel.pack(p, tile, 1, weights, to.data());
  return to;
}

int64_t zeros(const std::vector<uint16_t>& list) { return std::count(list.begin(), list.end(), uint16_t(0)); }

TEST(CudaConv, TapsArePackedInBlocksOf64Channels) {
  const Problem p = problem_of("Conv", "x=f16[1,72,9,9]~cl w=f16[16,72,3,2]! out=~cl");
  Tensor w;
  const std::vector<uint16_t> to = packed(p, kernel_of(p, "cuda.conv_wgmma"), w);
  ASSERT_EQ(to.size(), size_t(16 * 6 * 128));
  for (int64_t m = 0; m < 16; ++m)
    for (int64_t c = 0; c < 72; ++c)
      for (int64_t tap = 0; tap < 6; ++tap)
        ASSERT_EQ(to[size_t((m * 6 + tap) * 128 + c)], w.as<uint16_t>()[(m * 72 + c) * 6 + tap]);
  EXPECT_EQ(zeros(to), int64_t(to.size()) - w.elements());
}

TEST(CudaConv, GatheredWeightsOfTransposedGroups) {
  const Problem p = problem_of("ConvTranspose", "x=f16[1,6,9,9] w=f16[6,5,3,2]! group=2");
  Tensor w;
  const std::vector<uint16_t> to = packed(p, kernel_of(p, "cuda.conv_mma"), w);
  ASSERT_EQ(to.size(), size_t(2 * 5 * 32));  // K = 6 taps x 3 channels, rounded up to 32
  for (int64_t group = 0; group < 2; ++group)
    for (int64_t m = 0; m < 5; ++m)
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t tap = 0; tap < 6; ++tap)
          ASSERT_EQ(to[size_t((group * 5 + m) * 32 + tap * 3 + c)],
                    w.as<uint16_t>()[((group * 3 + c) * 5 + m) * 6 + tap]);
  EXPECT_EQ(zeros(to), int64_t(to.size()) - w.elements());
}

TEST(CudaConv, RowsOfTheFirstLayersWindow) {
  const Problem p = problem_of("Conv", "x=f16[1,3,32,32]~cl w=f16[16,3,5,7]! strides=2,2 out=~cl");
  Tensor w;
  const std::vector<uint16_t> to = packed(p, kernel_of(p, "cuda.conv_stem"), w);
  ASSERT_EQ(to.size(), size_t(16 * 128));  // 5 rows of 24 elements, in blocks of 64
  for (int64_t m = 0; m < 16; ++m)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t kh = 0; kh < 5; ++kh)
        for (int64_t kw = 0; kw < 7; ++kw)
          ASSERT_EQ(to[size_t(m * 128 + kh * 24 + kw * 3 + c)], w.as<uint16_t>()[((m * 3 + c) * 5 + kh) * 7 + kw]);
  EXPECT_EQ(zeros(to), int64_t(to.size()) - w.elements());
}

TEST(CudaConv, PixelMatrices) {
  EXPECT_TRUE(is_pixel_matrix(Layout::channels_last({2, 3, 4, 5})));
  EXPECT_FALSE(is_pixel_matrix(Layout({2, 3, 4, 5})));
  EXPECT_TRUE(is_pixel_matrix(Layout({2, 3, 1, 1})));  // extents of 1 have no say
  Layout gaps = Layout::channels_last({2, 3, 4, 5});
  gaps.strides[2] += 1;
  EXPECT_FALSE(is_pixel_matrix(gaps));
}

}  // namespace
}  // namespace ridgeline::cuda
