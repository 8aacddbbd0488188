// What cards of each level can do, and that kernels are kept from what they cannot.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli_command.h"
#include "cuda_samples.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"
#include "onnx_model.h"
#include "ridgeline/error.h"
#include "tune/bench.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::cuda {
namespace {

TEST(CudaCapabilities, LevelsKnowWhatTheyHave) {
  const auto table = capability_table();
  for (size_t i = 1; i < table.size(); ++i) EXPECT_LT(table[i - 1].sm, table[i].sm);
  for (const Capabilities& c : table) {
    EXPECT_EQ(c.wgmma, c.sm == 90) << c.sm;
    EXPECT_EQ(c.bulk_copies, c.sm >= 90) << c.sm;
    EXPECT_EQ(c.f8, c.sm >= 89) << c.sm;
    EXPECT_EQ(c.shared_bytes_per_sm - c.shared_bytes_per_block, 1024) << c.sm;
  }
  EXPECT_EQ(capabilities_of(80).shared_bytes_per_block, 163 * 1024);
  EXPECT_EQ(capabilities_of(86).shared_bytes_per_block, 99 * 1024);
  EXPECT_EQ(capabilities_of(90).shared_bytes_per_block, 227 * 1024);
}

TEST(CudaCapabilities, ALevelWithoutARowGetsTheNearestBelow) {
  EXPECT_EQ(capabilities_of(87).sm, 86);
  EXPECT_EQ(capabilities_of(103).sm, 100);
  EXPECT_TRUE(capabilities_of(103).bulk_copies);
  EXPECT_FALSE(capabilities_of(91).wgmma);  // no level but sm_90 has it
}

TEST(CudaCapabilities, TheTargetIsItsRow) {
  const DeviceInfo& card = target();
  const Capabilities row = capabilities();
  EXPECT_LE(row.sm, card.sm);
  if (row.sm != card.sm) return;
  EXPECT_EQ(card.shared_bytes_per_block, row.shared_bytes_per_block);
  EXPECT_EQ(card.registers_per_sm, row.registers_per_sm);
  EXPECT_EQ(card.threads_per_sm, row.threads_per_sm);
  EXPECT_EQ(shared_bytes_over(card.shared_bytes_per_block), 0);
  EXPECT_EQ(shared_bytes_over(card.shared_bytes_per_block + 16), 16);
  for (const Capability what :
       {Capability::kWgmma, Capability::kBulkCopies, Capability::kClusters, Capability::kF8, Capability::kDependent})
    EXPECT_EQ(missing(what).empty(), has(row, what));
}

// Choosing needs no card: the same model for an H200, and for the level of an A100.
class CudaGates : public OnnxTest {};

TEST_F(CudaGates, ALevelWithoutWgmmaTakesOtherKernels) {
  constexpr int kF16 = 10;
  input("a", {"1024", "1024"}, kF16);
  input("b", {"1024", "1024"}, kF16);
  node("MatMul", {"a", "b"}, {"y"}, "product");
  output("y");
  write("product.onnx", model_.SerializeAsString());
  const std::string file = path("product.onnx");
  const auto explained = [&](const char* environment) {
    const Ran ran = command("explain " + file + " --device cuda --json -", environment);
    EXPECT_EQ(ran.exit_code, 0) << ran.out;
    return nlohmann::json::parse(ran.out).at("dispatch").at(0);
  };
  const auto hopper = explained("RIDGELINE_SM=90"), ampere = explained("RIDGELINE_SM=80");
  EXPECT_NE(hopper.at("chosen"), "cuda.matmul_mma");
  EXPECT_EQ(ampere.at("chosen"), "cuda.matmul_mma");
  bool said = false;
  for (const auto& other : ampere.at("rejected")) {
    if (other.at("kernel") != "cuda.matmul_wgmma") continue;
    said = true;
    EXPECT_EQ(other.at("reason"), "needs products of warpgroups (wgmma) (in sm_90); this is sm_80");
  }
  EXPECT_TRUE(said) << ampere;
}

// The target is the process's: the other levels are asked in processes of their own.
TEST(CudaOffers, NothingIsMoreThanTheTargetHas) {
  int looked_at = 0;
  for (const CudaSample& sample : cuda_samples()) {
    const Kernel* kernel = cuda_kernel(sample.kernel);
    ASSERT_NE(kernel, nullptr) << sample.kernel;
    const Problem p = cuda_problem(sample.problem);
    if (!kernel->supports(p).ok) continue;
    for (const Tile& tile : kernel->tiles ? kernel->tiles(p) : std::vector<Tile>{Tile{}}) {
      const Source source = kernel->source(p, tile);
      ++looked_at;
      EXPECT_EQ(shared_bytes_over(source.shared_bytes), 0) << sample.kernel << " " << tile_words(tile);
      if (!capabilities().wgmma)
        EXPECT_EQ((source.program + std::string(embedded(source.file))).find("wgmma"), std::string::npos)
            << sample.kernel;
    }
  }
  EXPECT_GT(looked_at, 20);
}

TEST(CudaOffers, NorMoreThanOlderLevelsHave) {
  if (std::getenv("RIDGELINE_SM")) return;  // one of those processes
  for (const int sm : {80, 86, 89}) {
    const std::string line =
        fmt::format("RIDGELINE_SM={} '{}' --gtest_filter=CudaOffers.NothingIsMoreThanTheTargetHas > /dev/null 2>&1", sm,
                    std::filesystem::read_symlink("/proc/self/exe").string());
    EXPECT_EQ(std::system(line.c_str()), 0) << line;
  }
  EXPECT_EQ(command("kernels --device cuda", "RIDGELINE_SM=90").exit_code, 0);
  EXPECT_EQ(command("explain matmul --device cuda", "RIDGELINE_SM=70").exit_code, 2);
}

Problem product(const char* keys) { return cuda_problem(std::string("MatMul ") + keys); }
std::string refusal(const Problem& p, const Tile& tile) {
  try {
    check_tile_everywhere(p, unmeasured_cuda_ceilings(), tile);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "";
}

TEST(CudaTiles, OneThatDoesNotFitIsRefusedWithTheBytesItIsOver) {
  const Problem p = product("a=bf16[4096,4096] b=bf16[4096,4096]");
  // The sums of 256 x 256 are 65,536 bytes more than two warpgroups' registers hold; four stages of 4096 rows and 64
  // columns are far more than shared memory.
  EXPECT_NE(refusal(p, {{256, 256}}).find("it is 65536 bytes over"), std::string::npos) << refusal(p, {{256, 256}});
  const std::string large = refusal(p, {{2048, 2048}});
  const int64_t over = 4 * (2048 + 2048) * 32 * 2 - target().shared_bytes_per_block;
  EXPECT_NE(large.find(fmt::format("it is {} bytes over", over)), std::string::npos) << large;
  if (capabilities().wgmma) EXPECT_EQ(refusal(p, {{128, 256}}), "");
  EXPECT_EQ(refusal(p, {{128, 128}}), "");
}

// Every tile that a kernel offers stands in its own check.
TEST(CudaTiles, WhatIsOfferedFits) {
  for (const char* keys : {"a=bf16[4096,4096] b=bf16[4096,4096]!", "a=f16[512,4096] b=f16[4096,14336]",
                           "a=bf16[64,4096] b=bf16[4096,4096]!", "a=f32[300,100] b=f32[100,70]"}) {
    const Problem p = product(keys);
    for (const Kernel* kernel : kernels_of("MatMul", DeviceKind::kCuda)) {
      if (!kernel->supports(p).ok || !kernel->tiles) continue;
      for (const Tile& tile : kernel->tiles(p)) {
        const TileCheck check = check_tile(*kernel, p, tile);
        EXPECT_TRUE(check.fits()) << kernel->name << " " << tile_words(tile) << ": " << tile_refusal(check);
        EXPECT_LE(kernel->source(p, tile).shared_bytes, target().shared_bytes_per_block) << kernel->name;
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cuda
