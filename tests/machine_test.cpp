// The machine: probe, ceilings as values, their cache, the roofline, the timing loop.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/thread_pool.h"
#include "machine/ceilings.h"
#include "machine/probe.h"
#include "machine/roofline.h"
#include "ridgeline/error.h"
#include "ridgeline/tensor.h"
#include "tune/machine_report.h"
#include "tune/probes.h"
#include "tune/probes_kernels.h"
#include "tune/timing.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;

// Known numbers: two cores, one thread 100 Gop/s; DRAM is full with 1.5 threads.
Ceilings sample_ceilings() {
  Ceilings c;
  c.fingerprint = "a machine | of two cores";
  c.cores = 2;
  c.caches = {.l1d = 32 << 10, .l2 = 1 << 20, .l3 = 32 << 20};
  c.f32 = {100, 200}, c.bf16 = {200, 400}, c.u8s8 = {400, 800};
  c.read_gb_s = {Rate{200, 400}, {100, 200}, {50, 100}, {20, 30}};
  c.copy_gb_s = {Rate{180, 360}, {80, 160}, {40, 80}, {25, 32}};
  c.write_gb_s = {Rate{100, 200}, {60, 120}, {30, 60}, {40, 50}};
  c.special_per_ns = {Rate{4, 8}, {2, 4}, {2, 4}, {3, 6}, {3, 6}};
  c.launch_ns = {5, 1000};
  return c;
}

// A cache folder of its own for each test.
class Cache : public testing::Test {
 protected:
  void SetUp() override {
    folder = fs::temp_directory_path() / ("ridgeline_machine_test_" + std::to_string(getpid()));
    fs::create_directories(folder);
    setenv("RIDGELINE_CACHE_DIR", folder.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("RIDGELINE_CACHE_DIR");
    fs::remove_all(folder);
  }
  fs::path folder;
};

TEST(Machine, CpuIsSane) {
  const Cpu& cpu = this_cpu();
  EXPECT_FALSE(cpu.name.empty());
  EXPECT_EQ(cpu.cores, available_cores());
  EXPECT_GE(cpu.caches.l1d, 8 << 10);
  EXPECT_GT(cpu.caches.l2, cpu.caches.l1d);
  EXPECT_GT(cpu.caches.l3, cpu.caches.l2);
  EXPECT_FALSE(cpu.has("no such thing"));
#if defined(__x86_64__)
  EXPECT_TRUE(cpu.has("sse2"));
  if (isa_level() == IsaLevel::kNative) {
    EXPECT_EQ(cpu.has("avx2"), bool(__builtin_cpu_supports("avx2")));
    EXPECT_EQ(cpu.has("avx512f"), bool(__builtin_cpu_supports("avx512f")));
    EXPECT_EQ(cpu.has("avx512_vnni"), bool(__builtin_cpu_supports("avx512vnni")));
  }
#endif
  EXPECT_NE(cpu.fingerprint().find(cpu.name), std::string::npos);
}

TEST(Machine, WrongIsaLevelIsRefused) {
  const char* before = std::getenv("RIDGELINE_ISA");
  const std::string saved = before ? before : "";
  setenv("RIDGELINE_ISA", "sse9", 1);
  EXPECT_THROW(isa_level(), Error);
  setenv("RIDGELINE_ISA", "avx2", 1);
  EXPECT_EQ(isa_level(), IsaLevel::kAvx2);
  before ? setenv("RIDGELINE_ISA", saved.c_str(), 1) : unsetenv("RIDGELINE_ISA");
}

TEST(Ceilings, ThreadsShareTheAll) {
  const Rate rate{.one = 20, .all = 50};
  EXPECT_EQ(rate.at(1, 4), 20);
  EXPECT_EQ(rate.at(2, 4), 40);
  EXPECT_EQ(rate.at(3, 4), 50);
  EXPECT_EQ(rate.at(4, 4), 50);
  EXPECT_EQ(rate.at(64, 4), 50);
}

TEST(Ceilings, LevelHoldsTheWorkingSet) {
  const Ceilings c = sample_ceilings();
  EXPECT_EQ(c.level_of(32 << 10, 1), MemoryLevel::kL1);
  EXPECT_EQ(c.level_of((32 << 10) + 1, 1), MemoryLevel::kL2);
  EXPECT_EQ(c.level_of((32 << 10) + 1, 2), MemoryLevel::kL1);  // two L1s
  EXPECT_EQ(c.level_of(2 << 20, 1), MemoryLevel::kL3);
  EXPECT_EQ(c.level_of(2 << 20, 2), MemoryLevel::kL2);
  EXPECT_EQ(c.level_of(32 << 20, 2), MemoryLevel::kL3);  // shared: not twice
  EXPECT_EQ(c.level_of((32 << 20) + 1, 2), MemoryLevel::kDram);
}

TEST(Ceilings, StreamTakesTheBandwidthOfItsKind) {
  const Ceilings c = sample_ceilings();
  const int64_t mb = 1000000;
  EXPECT_DOUBLE_EQ(c.stream_ns(100 * mb, 0, 1), 100e6 / 20);
  EXPECT_DOUBLE_EQ(c.stream_ns(90 * mb, 10 * mb, 1), 100e6 / 20);  // a tenth does not exceed a tenth
  EXPECT_DOUBLE_EQ(c.stream_ns(50 * mb, 50 * mb, 1), 100e6 / 25);
  EXPECT_DOUBLE_EQ(c.stream_ns(50 * mb, 50 * mb, 2), 100e6 / 32);
  EXPECT_DOUBLE_EQ(c.stream_ns(0, 100 * mb, 1), 100e6 / 40);
  EXPECT_DOUBLE_EQ(c.stream_ns(1000, 1000, 1), 2000.0 / 180);
  EXPECT_DOUBLE_EQ(c.stream_ns(1000, 1000, 1, MemoryLevel::kDram), 2000.0 / 25);
  EXPECT_EQ(c.stream_ns(0, 0, 1), 0);
}

TEST(Ceilings, ArithmeticByType) {
  const Ceilings c = sample_ceilings();
  EXPECT_DOUBLE_EQ(c.compute_ns(DType::kF32, 1000, 1), 10);
  EXPECT_DOUBLE_EQ(c.compute_ns(DType::kF32, 1000, 2), 5);
  EXPECT_DOUBLE_EQ(c.compute_ns(DType::kF64, 1000, 1), 20);
  EXPECT_DOUBLE_EQ(c.compute_ns(DType::kBF16, 1000, 1), 5);
  EXPECT_DOUBLE_EQ(c.compute_ns(DType::kU8, 1000, 1), 2.5);
}

TEST(Roofline, MatmulTurnsFromMemoryToCompute) {
  const Ceilings c = sample_ceilings();
  const auto matmul = [&](int64_t m) {
    const int64_t n = 4096, k = 4096;
    return floor_of({.flops = 2 * m * n * k, .read_bytes = 4 * (m * k + n * k), .write_bytes = 4 * m * n}, c, 1);
  };
  EXPECT_EQ(matmul(1).bound, Bound::kMemory);
  EXPECT_NEAR(matmul(1).time_ns, 4.0 * 4096 * 4096 / 20, 4.0 * 4096 * 4096 / 20 * 0.01);
  EXPECT_EQ(matmul(1024).bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(matmul(1024).time_ns, 2.0 * 1024 * 4096 * 4096 / 100);
}

TEST(Roofline, SpecialFunctionsCount) {
  const Ceilings c = sample_ceilings();
  Work softmax{.flops = 4096, .read_bytes = 4096, .write_bytes = 4096};
  EXPECT_EQ(floor_of(softmax, c, 1).bound, Bound::kMemory);
  softmax.special[size_t(SpecialFunction::kExp)] = 1024;
  const Floor floor = floor_of(softmax, c, 1);
  EXPECT_EQ(floor.bound, Bound::kCompute);
  EXPECT_DOUBLE_EQ(floor.time_ns, 4096.0 / 100 + 1024.0 / 4);
  EXPECT_DOUBLE_EQ(floor_of({.other_special = 1024}, c, 1).time_ns, 1024.0 / 4);  // the fastest of them
  EXPECT_EQ(floor_of(softmax, c, 2).bound, Bound::kLaunch);                       // 0.15 us are not worth two threads
  EXPECT_DOUBLE_EQ(roof_share(floor, 2 * floor.time_ns), 0.5);
}

TEST(Ceilings, JsonRoundTrip) {
  const Ceilings c = sample_ceilings();
  const auto back = Ceilings::from_json(c.to_json());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->to_json(), c.to_json());
  EXPECT_EQ(back->read_gb_s, c.read_gb_s);
  EXPECT_EQ(back->launch_ns, c.launch_ns);
}

TEST(Ceilings, BrokenJsonIsNothing) {
  const std::string good = sample_ceilings().to_json();
  for (size_t cut = 0; cut + 1 < good.size(); cut += 37) EXPECT_FALSE(Ceilings::from_json(good.substr(0, cut))) << cut;
  nlohmann::json json = nlohmann::json::parse(good);
  json["compute_gop_s"]["f32"]["one"] = -3;
  EXPECT_FALSE(Ceilings::from_json(json.dump()));
  json["compute_gop_s"]["f32"]["one"] = "fast";
  EXPECT_FALSE(Ceilings::from_json(json.dump()));
  json["compute_gop_s"]["f32"]["one"] = 3;
  EXPECT_TRUE(Ceilings::from_json(json.dump()));
  json.erase("copy_gb_s");
  EXPECT_FALSE(Ceilings::from_json(json.dump()));
  EXPECT_FALSE(Ceilings::from_json("[]"));
}

TEST_F(Cache, SavesAndLoads) {
  const Ceilings c = sample_ceilings();
  EXPECT_FALSE(load_ceilings(c.fingerprint));
  ASSERT_TRUE(save_ceilings(c));
  const auto back = load_ceilings(c.fingerprint);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->to_json(), c.to_json());
  EXPECT_FALSE(load_ceilings("another machine"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "a temporary file was left";
}

TEST_F(Cache, FileOfAnotherMachineIsNotTaken) {
  Ceilings c = sample_ceilings();
  ASSERT_TRUE(save_ceilings(c));
  fs::copy_file(*ceilings_file(c.fingerprint), *ceilings_file("other"));
  EXPECT_FALSE(load_ceilings("other"));
}

TEST_F(Cache, CorruptFileIsNothing) {
  const Ceilings c = sample_ceilings();
  std::ofstream(*ceilings_file(c.fingerprint)) << "{\"format\": 1, \"finger";
  EXPECT_FALSE(load_ceilings(c.fingerprint));
  ASSERT_TRUE(save_ceilings(c));
  EXPECT_TRUE(load_ceilings(c.fingerprint));
}

TEST_F(Cache, UnwritableFolderIsNoError) {
  const fs::path file = folder / "a_file";
  std::ofstream(file) << "x";
  setenv("RIDGELINE_CACHE_DIR", (file / "below").c_str(), 1);  // not even root can make a folder in a file
  EXPECT_FALSE(save_ceilings(sample_ceilings()));
  EXPECT_FALSE(load_ceilings(sample_ceilings().fingerprint));
}

TEST_F(Cache, FolderFollowsTheEnvironment) {
  EXPECT_EQ(cache_directory(), folder);
  unsetenv("RIDGELINE_CACHE_DIR");
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string saved = before ? before : "";
  setenv("XDG_CACHE_HOME", "/x", 1);
  EXPECT_EQ(cache_directory(), fs::path("/x/ridgeline"));
  before ? setenv("XDG_CACHE_HOME", saved.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

TEST(Report, HasTheContractsFields) {
  const nlohmann::ordered_json json = machine_json(this_cpu(), sample_ceilings());
  EXPECT_EQ(json["cpu"]["cores"], this_cpu().cores);
  EXPECT_EQ(json["cpu"]["caches_bytes"]["l2"], this_cpu().caches.l2);
  EXPECT_TRUE(json["cpu"]["isa"].is_array());
  EXPECT_EQ(json["ceilings"]["compute_gop_s"]["bf16"]["all"], 400);
  EXPECT_EQ(json["ceilings"]["read_gb_s"]["dram"]["one"], 20);
  EXPECT_EQ(json["ceilings"]["copy_gb_s"]["l3"]["all"], 80);
  EXPECT_TRUE(json["gpus"].empty() && json["gpus"].is_array());
  EXPECT_NE(machine_text(this_cpu(), sample_ceilings()).find("6.7 FLOP per byte"), std::string::npos);  // 200 / 30
}

TEST(Timing, Percentiles) {
  Samples samples;
  for (int i = 100; i >= 0; --i) samples.add(i);
  EXPECT_EQ(samples.median(), 50);
  EXPECT_EQ(samples.p10(), 10);
  EXPECT_EQ(samples.p99(), 99);
  EXPECT_EQ(samples.least(), 0);
  EXPECT_EQ(samples.percentile(99.5), 99.5);
  EXPECT_EQ(Samples().median(), 0);
}

void spin(int64_t time_ns) {
  for (const int64_t until = now_ns() + time_ns; now_ns() < until;) {
  }
}

TEST(Timing, MeasuresWhatPasses) {
  const Samples samples = measure([] { spin(200000); }, {.min_seconds = 0, .min_samples = 7, .warmup_seconds = 0});
  EXPECT_EQ(samples.count(), 7);
  EXPECT_GE(samples.least(), 200000);
  EXPECT_LT(samples.least(), 400000);
}

TEST(Timing, ShortCallsAreBatched) {
  int64_t calls = 0;
  const Samples samples =
      measure([&] { ++calls; }, {.min_seconds = 0, .min_samples = 10, .warmup_seconds = 0.001, .min_sample_ns = 20000});
  EXPECT_GT(calls, 1000);
  EXPECT_LT(samples.median(), 5000);
}

TEST(Timing, InterleavedRunsInTurn) {
  std::string order;
  const auto samples = measure_interleaved({[&] { order += 'a', spin(3000); }, [&] { order += 'b', spin(6000); }},
                                           {.min_seconds = 0, .min_samples = 3, .warmup_seconds = 0});
  EXPECT_EQ(order, "ababbaab");  // one of each to warm up, then forwards and backwards
  EXPECT_EQ(samples[0].count(), 3);
  EXPECT_GT(median_ratio(samples[1], samples[0]), 1.2);
}

TEST(Timing, RotationExceedsTheCacheWithinTheLimit) {
  EXPECT_EQ(rotation_count(1 << 20, 32 << 20), 65);
  EXPECT_EQ(rotation_count(1 << 20, int64_t(480) << 20), 961);
  EXPECT_EQ(rotation_count(int64_t(1) << 30, int64_t(480) << 20), 1);
  EXPECT_EQ(rotation_count(int64_t(100) << 20, int64_t(2000) << 20), 15);  // 1.5 GiB at most
  EXPECT_EQ(rotation_count(0, 1 << 20), 1);
}

// The probe's functions must be the functions: a ceiling of something cheaper would be out of reach.
TEST(Probes, SpecialFunctionsAreRight) {
  alignas(64) float in[256], out[256];
  for (int i = 0; i < 256; ++i) in[i] = 0.02f + 0.03f * float(i);
  const auto worst = [&](SpecialFunction function, double (*exact)(double)) {
    double error = 0;
    for (const probe::SpecialWay& way : probe::special_function_ways()) {
      if (*way.feature && !this_cpu().has(way.feature)) continue;
      way.run(function, in, out, 256);
      for (int i = 0; i < 256; ++i) error = std::fmax(error, std::fabs(out[i] / exact(double(in[i])) - 1));
    }
    return error;
  };
  // What the fit leaves, plus half a unit in the last place for each rounding that reaches the result.
  const double half_unit = 0x1p-24;
  EXPECT_LT(worst(SpecialFunction::kExp, [](double x) { return std::exp(x); }), 3e-7 + 5 * half_unit);
  EXPECT_LT(worst(SpecialFunction::kErf, [](double x) { return std::erf(x); }), 2.7e-7 + 12 * half_unit);
  EXPECT_LT(worst(SpecialFunction::kTanh, [](double x) { return std::tanh(x); }), 2e-8 + 10 * half_unit);
  EXPECT_LT(worst(SpecialFunction::kDivide, [](double x) { return x / (x + 1); }), 3 * half_unit);
  EXPECT_LT(worst(SpecialFunction::kSqrt, [](double x) { return std::sqrt(x); }), half_unit + 1e-12);
}

TEST(Probes, CopyAndWriteReachEveryByte) {
  const int64_t size = 16384;
  const std::shared_ptr<void> memory = allocate(2 * size);
  uint8_t* from = static_cast<uint8_t*>(memory.get());
  uint8_t* to = from + size;
  for (const probe::MemoryWay& way : probe::copy_ways()) {
    for (int64_t i = 0; i < size; ++i) from[i] = uint8_t(i * 7), to[i] = 0;
    way.run({from, to, size, 4096, size});  // wraps round the ring
    EXPECT_EQ(std::memcmp(from, to, size_t(size)), 0) << way.name;
  }
  for (const probe::MemoryWay& way : probe::write_ways()) {
    for (int64_t i = 0; i < size; ++i) to[i] = 1;
    way.run({to, to, size, 4096, size});
    EXPECT_EQ(std::count(to, to + size, 0), size) << way.name;
  }
}

TEST(Probes, PeakIsPlausible) {
  PeakProbe f32 = f32_peak(1);
  const double rate = f32();
  EXPECT_GT(rate, 0.5);
  EXPECT_GE(f32.best(), rate);
  EXPECT_FALSE(f32.way().empty());
  PeakProbe copy = copy_probe(1 << 16, 1);
  EXPECT_GT(copy(), 0.5);
}

}  // namespace
}  // namespace ridgeline
