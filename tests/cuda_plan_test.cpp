// What of a GPU's plan can be held without one: choosing, geometry of epilogues, printed programs, the cache of
// compiled code, and what is said where driver or compiler are missing.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"
#include "ops/catalogue.h"
#include "session/session.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

Problem problem_of(const std::string& op, const std::string& keys) {
  Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  p.device = DeviceKind::kCuda;
  return p;
}

std::string compiler_library() {
  const std::string fetched = RIDGELINE_SOURCE_DIR "/build/nvrtc/nvidia/cu13/lib/libnvrtc.so.13";
  if (const char* given = std::getenv("RIDGELINE_NVRTC")) return given;
  if (fs::exists(fetched)) setenv("RIDGELINE_NVRTC", fetched.c_str(), 0);
  return fetched;
}

// Of the command: its exit code, and what it said.
std::pair<int, std::string> cli(const std::string& words, const std::string& environment = "") {
  const std::string command = environment + " " RIDGELINE_CLI " " + words + " 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char part[4096];
  for (size_t n; (n = fread(part, 1, sizeof part, pipe)) > 0;) text.append(part, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}

TEST(CudaPlan, WithoutACardKernelsAreChosenForAnH200) {
  if (!cuda::driver_trouble().empty()) {
    EXPECT_EQ(cuda::target().sm, 90);
    EXPECT_EQ(cuda::target().multiprocessors, 132);
    EXPECT_EQ(cuda::architecture(), "sm_90a");
  }
  const Problem p = problem_of("Relu", "x=bf16[64,64]");
  const Choice choice = choose_kernel(p, unmeasured_ceilings());
  EXPECT_EQ(choice.winner().kernel->name, "cuda.program");
  EXPECT_FALSE(on_host(p, *choice.winner().kernel));
}

TEST(CudaPlan, WhatNoKernelRunsStandsOnTheHostAndIsCounted) {
  Graph graph;
  const ValueId x = graph.add_input("x", DType::kF32, Shape{Dim(4), Dim(6)});
  const NodeId relu = graph.add_node(*find_op("Relu"), {x});
  const NodeId det = graph.add_node(
      *find_op("CumSum"), {graph.node(relu).output(), graph.add_constant("axis", Tensor::of<int64_t>({}, {1}))});
  graph.mark_output(graph.node(det).output());
  ConstantStore store;
  PlanOptions options;
  options.device = DeviceKind::kCuda;
  const Plan plan = make_plan(graph, options, store);
  ASSERT_EQ(plan.steps.size(), 2u);
  EXPECT_EQ(plan.steps[0].call.kernel->device, DeviceKind::kCuda);
  EXPECT_EQ(plan.device, DeviceKind::kCuda);
  int host = 0;
  for (const Step& step : plan.steps) host += step.call.kernel->device == DeviceKind::kCpu;
  EXPECT_EQ(plan.host_steps(), host);
  EXPECT_EQ(host, 1);
  EXPECT_EQ(check_plan(plan), std::vector<std::string>{});
}

TEST(CudaPlan, EpilogueOperandsGetOneStrideForRowsAndOneForColumns) {
  Problem p =
      problem_of("MatMul", "a=f32[2,8,16] b=f32[16,32]! e1=f32[32]! e2=f32[2,8,32] epilogue='relu(v + e1) * e2'");
  EXPECT_EQ(cuda::epilogue_reject(p, 2), "");
  void* const inputs[] = {nullptr, nullptr, reinterpret_cast<void*>(0x1000), reinterpret_cast<void*>(0x2000)};
  EXPECT_EQ(cuda::epilogue_words(p, 2, inputs), (std::vector<uint64_t>{0x1000, 0, 1, 0x2000, 32, 1}));
  EXPECT_EQ(cuda::epilogue_source(p, 2).operands, 2);
  // Rows of an operand that stand apart in one batch only: no single stride.
  p.inputs[3].layout = Layout({2, 8, 32}, {1024, 64, 1});
  EXPECT_NE(cuda::epilogue_reject(p, 2), "");
  p.inputs[3].layout = Layout({2, 8, 32}, {512, 64, 1});
  EXPECT_EQ(cuda::epilogue_reject(p, 2), "");
  EXPECT_EQ(cuda::epilogue_words(p, 2, inputs)[4], 64u);
}

TEST(nvrtc, PrintedProgramsOfEveryElementwiseOperatorCompile) {
  compiler_library();
  ASSERT_EQ(cuda::compiler_trouble(), "");
  int compiled = 0;
  for (const OpSchema* op : catalogue()) {
    if (!op->is_elementwise()) continue;
    // Several operators in one source: what is compiled is their text.
    for (const std::string_view sample : op->samples) {
      const Problem p = problem_of(std::string(op->name), std::string(sample));
      if (!p.program || !cuda::printable(*p.program)) continue;
      for (const Kernel* kernel : kernels_of(op->name, DeviceKind::kCuda)) {
        if (!kernel->supports(p).ok) continue;
        EXPECT_NO_THROW(cuda::compile(kernel->source(p, Tile{}), "sm_90a")) << op->name << " " << sample;
        ++compiled;
        break;
      }
      break;  // the first sample that there is: types differ little in the text
    }
  }
  EXPECT_GT(compiled, 60);
}

TEST(nvrtc, TheCacheServesTheSecondTimeAndSurvivesABrokenFile) {
  compiler_library();
  const fs::path folder = fs::temp_directory_path() / fmt::format("ridgeline-cuda-cache-{}", getpid());
  fs::create_directories(folder);
  const char* const before = std::getenv("RIDGELINE_CACHE_DIR");
  const std::string kept = before ? before : "";
  setenv("RIDGELINE_CACHE_DIR", folder.c_str(), 1);
  const Problem p = problem_of("Add", "x=f32[64,64] y=f32[64]");
  const cuda::Source source = kernels_of("Add", DeviceKind::kCuda)[0]->source(p, Tile{});
  const int64_t count = cuda::compilations();
  const cuda::Compiled first = cuda::compile(source, "sm_90a");
  EXPECT_FALSE(first.from_cache);
  EXPECT_EQ(cuda::compilations(), count + 1);
  const cuda::Compiled second = cuda::compile(source, "sm_90a");
  EXPECT_TRUE(second.from_cache);
  EXPECT_EQ(second.code, first.code);
  EXPECT_EQ(cuda::compilations(), count + 1);
  ASSERT_EQ(second.kernels.size(), first.kernels.size());
  EXPECT_EQ(second.kernels[0].registers, first.kernels[0].registers);
  // Another architecture is another file.
  EXPECT_FALSE(cuda::compile(source, "sm_80").from_cache);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) std::ofstream(entry.path(), std::ios::trunc) << "broken";
  EXPECT_FALSE(cuda::compile(source, "sm_90a").from_cache);
  // Two at once write the same file.
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) fs::remove(entry.path());
  std::string codes[4];
  std::vector<std::thread> threads;
  for (std::string& code : codes) threads.emplace_back([&] { code = cuda::compile(source, "sm_90a").code; });
  for (std::thread& t : threads) t.join();
  for (const std::string& code : codes) EXPECT_EQ(code, first.code);
  if (kept.empty())
    unsetenv("RIDGELINE_CACHE_DIR");
  else
    setenv("RIDGELINE_CACHE_DIR", kept.c_str(), 1);
  fs::remove_all(folder);
}

TEST(nvrtc, WhatTheCompilerRefusesIsSaidWithItsLog) {
  compiler_library();
  cuda::Source source = kernels_of("Relu", DeviceKind::kCuda)[0]->source(problem_of("Relu", "x=f32[64]"), Tile{});
  source.program += "\nthis is no C++;\n";
  try {
    cuda::compile(source, "sm_90a");
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("elementwise/program.cu"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("error"), std::string::npos) << error.what();
  }
}

TEST(CudaPlan, AMissingDriverIsSaidWithTheRemedy) {
  if (cuda::driver_trouble().empty()) {  // a machine with a card: the card that is not there is named instead
    const auto [code, text] = cli("bench relu shape=64x64 --device cuda:77");
    EXPECT_EQ(code, 3) << text;
    EXPECT_NE(text.find("cuda:77"), std::string::npos) << text;
    return;
  }
  const auto [code, text] = cli("bench relu shape=64x64 --device cuda");
  EXPECT_EQ(code, 3) << text;
  EXPECT_NE(text.find("libcuda.so.1"), std::string::npos) << text;
  EXPECT_NE(text.find("nvidia"), std::string::npos) << text;
  const auto [list_code, list] = cli("kernels --device cuda");
  EXPECT_EQ(list_code, 0);
  EXPECT_NE(list.find("cuda.program"), std::string::npos) << list;
}

TEST(CudaPlan, AWrongLevelOrDeviceIsRefused) {
  EXPECT_EQ(cli("kernels --device cuda:x").first, 2);
  EXPECT_EQ(cli("kernels --device gpu").first, 2);
}

}  // namespace
}  // namespace ridgeline
