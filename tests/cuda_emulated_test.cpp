// The sweep of GPU kernels on a machine without a card: driver and compiler are emulated (emulated_cuda/), kernels
// without instructions of their own run thread by thread. On 30 November it showed exactly the failures that an H200
// did.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

namespace {

// Fibers and the sanitizers' view of stacks do not go together.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

class EmulatedCuda : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedCuda, FamilyDoesWhatTheReferenceDoes) {
  const std::string library = RIDGELINE_EMULATED_CUDA;
  const std::string command =
      "RIDGELINE_CUDA_DRIVER=" + library + " RIDGELINE_NVRTC=" + library + " RIDGELINE_CACHE_DIR=" + library +
      ".cache " RIDGELINE_CLI " check --device cuda --cases 40 --family " + GetParam() + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  const int status = pclose(pipe);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  EXPECT_NE(text.find(" 0 failed"), std::string::npos) << text;
  EXPECT_NE(text.find("cuda."), std::string::npos) << text;
}

// The others take minutes of compiling: make test-long runs them (tools/emulated_cuda.sh).
INSTANTIATE_TEST_SUITE_P(Families, EmulatedCuda, testing::Values("pool", "quantize", "movement"));

#endif

}  // namespace
