// The sweep of GPU kernels on a machine without a card: driver and compiler are emulated (emulated_cuda/), kernels
// without instructions of their own run thread by thread. On 30 November it showed exactly the failures that an H200
// did.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace {

// Fibers and the sanitizers' view of stacks do not go together.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

struct Family {
  const char* name;
  const char* kernel;  // that must have run
};
class EmulatedCuda : public testing::TestWithParam<Family> {};

TEST_P(EmulatedCuda, FamilyDoesWhatTheReferenceDoes) {
  const std::string library = RIDGELINE_EMULATED_CUDA;
  const std::string cache = library + "." + GetParam().name + ".cache";
  std::filesystem::remove_all(cache);
  const std::string command =
      "RIDGELINE_CUDA_DRIVER=" + library + " RIDGELINE_NVRTC=" + library + " RIDGELINE_CACHE_DIR=" + cache +
      " " RIDGELINE_CLI " check --device cuda --cases 40 --quiet --json - --family " + GetParam().name + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  const int status = pclose(pipe);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  const nlohmann::json answer = nlohmann::json::parse(text);
  EXPECT_EQ(answer.at("failed"), 0);
  EXPECT_GE(answer.at("cases"), 40);
  EXPECT_GT(answer.at("compilations"), 5) << "nothing was compiled: what ran?";
  EXPECT_GE(answer.at("runs").at(GetParam().kernel), 15) << text;
}

// The others take minutes of compiling: make test-long runs them (tools/emulated_cuda.sh).
INSTANTIATE_TEST_SUITE_P(Families, EmulatedCuda,
                         testing::Values(Family{"pool", "cuda.max_pool"}, Family{"quantize", "cuda.quantize"},
                                         Family{"movement", "cuda.concat"}));

#endif

}  // namespace
