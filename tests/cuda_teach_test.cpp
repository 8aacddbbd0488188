// The steps of a product on a GPU, without a card: they compile, use the tensor cores where they say so and nowhere
// else, spill nothing, and what they ask of memory follows from their loops.
#include <gtest/gtest.h>

#include <filesystem>

#include "cuda_samples.h"
#include "kernels/cuda/instructions.h"
#include "ridgeline/error.h"
#include "session/cuda_advice.h"
#include "teach/cuda_matmul.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::teach {
namespace {

TEST(nvrtc, TeachingStepsCompileAndUseWhatTheySay) {
  find_nvrtc();
  ASSERT_EQ(cuda::compiler_trouble(), "");
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const CudaStep& step : cuda_matmul_steps({256, 256, 256, dtype})) {
      const cuda::MatrixInstructions found = cuda::matrix_instructions(step.source);
      EXPECT_EQ(found.wgmma > 0, step.boxes) << step.name << ": " << words(found);
      EXPECT_EQ(found.mma > 0, step.tensor_cores && !step.boxes) << step.name << ": " << words(found);
      for (const char* architecture : {"sm_80", "sm_90a"}) {
        if (step.boxes && std::string(architecture) == "sm_80") continue;
        const cuda::Compiled compiled = cuda::compile(step.source, architecture);
        ASSERT_EQ(compiled.kernels.size(), 1u) << step.name;
        EXPECT_EQ(compiled.kernels[0].spill_bytes, 0) << step.name << " " << architecture;
        // Blocks of tensor cores fill a multiprocessor, of the others two fit.
        EXPECT_LE(compiled.kernels[0].registers * step.threads * (step.tensor_cores ? 1 : 2), 65536)
            << step.name << " " << architecture;
        EXPECT_LE(compiled.kernels[0].shared_bytes + step.source.shared_bytes, step.boxes ? 227 << 10 : 163 << 10)
            << step.name;
      }
    }
  }
}

// The advice looks at the code, not at the kernel's name.
TEST(nvrtc, AdviceSaysWhetherTheCodeHasMatrixInstructions) {
  find_nvrtc();
  ASSERT_EQ(cuda::compiler_trouble(), "");
  Ceilings ceilings = unmeasured_cuda_ceilings();
  const auto words_for = [&](const char* keys, const char* kernel) {
    const Problem p = cuda_problem(std::string("MatMul ") + keys);
    Step step;
    step.choice = choose_kernel(p, ceilings, kernel);
    step.call.problem = p;
    step.call.kernel = step.choice.winner().kernel;
    step.call.tile = step.choice.winner().tile;
    return matrix_code_words(step, ceilings);
  };
  const std::string cores = words_for("a=bf16[1024,1024] b=bf16[1024,1024]", "cuda.matmul_cores");
  EXPECT_NE(cores.find("no matrix instruction: bf16 runs at 16 times the rate"), std::string::npos) << cores;
  const std::string wide = words_for("a=bf16[1024,1024] b=bf16[1024,1024]", "cuda.matmul_wgmma");
  EXPECT_TRUE(wide.starts_with("cuda.matmul_wgmma has ") && wide.ends_with(" wgmma")) << wide;
  const std::string narrow = words_for("a=f16[1024,1024] b=f16[1024,1024]", "cuda.matmul_mma");
  EXPECT_TRUE(narrow.starts_with("cuda.matmul_mma has ") && narrow.ends_with(" mma.sync")) << narrow;
  EXPECT_EQ(words_for("a=f32[1024,1024] b=f32[1024,1024]", "cuda.matmul_cores"), "");
}

TEST(CudaTeach, CountsInstructionsInPtx) {
  const auto found = cuda::matrix_instructions_in(
      "\tmma.sync.aligned.m16n8k16 {};\nwgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n256k16 {};\n"
      "\tmma.sync.aligned.m16n8k16 {};\n");
  EXPECT_EQ(found.mma, 2);
  EXPECT_EQ(found.wgmma, 1);
  EXPECT_EQ(words(found), "2 mma.sync, 1 wgmma");
  EXPECT_EQ(words(cuda::matrix_instructions_in("fma.rn.f32 %f1, %f2, %f3, %f4;")), "none");
}

TEST(CudaTeach, EveryStepIsReadAndAsksForNoMoreThanTheOneBefore) {
  const CudaProduct p{512, 768, 192, DType::kBF16};
  const std::vector<CudaStep> steps = cuda_matmul_steps(p);
  ASSERT_EQ(steps.size(), 11u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_TRUE(std::filesystem::exists(std::string(RIDGELINE_SOURCE_DIR "/") + steps[i].file)) << steps[i].file;
    EXPECT_GE(steps[i].bytes, p.least_bytes()) << steps[i].name;
    if (i > 0) EXPECT_LE(steps[i].bytes, steps[i - 1].bytes) << steps[i].name;
    const cuda::Grid grid = steps[i].grid(p);
    EXPECT_EQ(grid.x * grid.y * steps[i].tile_rows * steps[i].tile_columns, p.m * p.n) << steps[i].name;
  }
  // A warp and a k: 33 pieces of 32 bytes, then 3; tiles: 2 bytes for 32 uses of either operand.
  const int64_t products = p.m * p.n * p.k;
  EXPECT_EQ(steps[0].bytes, products * 33 + p.m * p.n * 32);
  EXPECT_EQ(steps[1].bytes, products * 3 + p.m * p.n * 2);
  EXPECT_EQ(steps[2].bytes, products / 8 + p.m * p.n * 2);
  EXPECT_EQ(steps.back().bytes, products / 64 + products / 128 + p.m * p.n * 2);
}

TEST(CudaTeach, KeysAreChecked) {
  const CudaTask task = cuda_matmul_task({"m=128", "n=256", "k=64", "dtype=f16", "steps=vectors,pipelined-2"});
  EXPECT_EQ(task.problem, "matmul m=128 n=256 k=64 dtype=f16");
  ASSERT_EQ(task.steps.size(), 2u);
  EXPECT_EQ(task.steps[0].name, "vectors");
  EXPECT_EQ(task.steps[1].name, "pipelined-2");
  EXPECT_EQ(cuda_matmul_task({}).product.k, 4096);
  for (const char* wrong : {"m=100", "n=128", "k=32", "dtype=f32", "steps=", "steps=tiled", "q=1", "m=0"})
    EXPECT_THROW(cuda_matmul_task({wrong}), Error) << wrong;
}

}  // namespace
}  // namespace ridgeline::teach
