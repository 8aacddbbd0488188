// The teaching ladder: every step computes what the reference does, at sizes that leave rests of every kind; the ladder
// refuses a wrong step; its traffic follows from its loops.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "kernels/cpu/simd.h"
#include "ridgeline/error.h"
#include "teach/conv_steps.h"
#include "teach/ladder.h"
#include "teach/matmul_steps.h"

namespace ridgeline::teach {
namespace {

std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> each(-1, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = each(random);
  return out;
}

float* aligned(std::vector<float>& memory, int64_t count) {
  memory.assign(size_t(count) + 16, std::numeric_limits<float>::quiet_NaN());
  return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
}

class TeachSteps : public testing::TestWithParam<const char*> {
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa("native"); }
};
INSTANTIATE_TEST_SUITE_P(Isa, TeachSteps, testing::Values("native", "avx2", "scalar"));

constexpr void (*kMatmul[])(const Matmul&) = {matmul_1_naive,       matmul_2_reordered, matmul_3_tiled,
                                              matmul_4_vectorised,  matmul_5_registers, matmul_6_packed,
                                              matmul_7_prefetching, matmul_8_threaded};
constexpr void (*kConv[])(const Conv&) = {conv_1_naive,  conv_2_reordered, conv_3_tiled,       conv_4_vectorised,
                                          conv_5_packed, conv_6_registers, conv_7_prefetching, conv_8_threaded};

TEST_P(TeachSteps, MatmulIsRight) {
  const int64_t sizes[][3] = {{1, 1, 1},     {6, 32, 16},  {7, 33, 5},  {13, 95, 257},
                              {5, 520, 300}, {64, 64, 64}, {3, 1100, 2}};
  for (const auto& [m, n, k] : sizes) {
    const std::vector<float> a = numbers(m * k, 1), b = numbers(k * n, 2);
    std::vector<double> want(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t p = 0; p < k; ++p)
          want[size_t(i * n + j)] += double(a[size_t(i * k + p)]) * double(b[size_t(p * n + j)]);
    std::vector<float> memory;
    float* const scratch = aligned(memory, 3 * kScratchFloats);
    for (size_t s = 0; s < std::size(kMatmul); ++s) {
      std::vector<float> c(size_t(m * n), std::numeric_limits<float>::quiet_NaN());
      kMatmul[s]({a.data(), b.data(), c.data(), m, n, k, n, scratch, 3});
      for (size_t i = 0; i < c.size(); ++i)
        ASSERT_NEAR(c[i], want[i], 1e-6 * double(k) + 1e-6) << "step " << s + 1 << " of " << m << "x" << n << "x" << k;
    }
  }
}

TEST_P(TeachSteps, ConvIsRight) {
  const int64_t sizes[][5] = {{1, 1, 1, 1, 1},  {3, 5, 7, 2, 3},   {2, 13, 50, 5, 3},
                              {5, 6, 48, 4, 5}, {4, 19, 33, 9, 1}, {2, 3, 4, 3, 7}};
  for (const auto& [c, h, w, o, k] : sizes) {
    const std::vector<float> x = numbers(c * h * w, 3), weights = numbers(o * c * k * k, 4);
    std::vector<double> want(static_cast<size_t>(o * h * w));
    for (int64_t oc = 0; oc < o; ++oc)
      for (int64_t y = 0; y < h; ++y)
        for (int64_t z = 0; z < w; ++z)
          for (int64_t ic = 0; ic < c; ++ic)
            for (int64_t i = 0; i < k; ++i)
              for (int64_t j = 0; j < k; ++j) {
                const int64_t from_y = y + i - k / 2, from_x = z + j - k / 2;
                if (from_y < 0 || from_y >= h || from_x < 0 || from_x >= w) continue;
                want[size_t((oc * h + y) * w + z)] += double(x[size_t((ic * h + from_y) * w + from_x)]) *
                                                      double(weights[size_t(((oc * c + ic) * k + i) * k + j)]);
              }
    for (size_t s = 0; s < std::size(kConv); ++s) {
      std::vector<float> y(size_t(o * h * w), std::numeric_limits<float>::quiet_NaN()), memory;
      Conv t{x.data(), weights.data(), y.data(), c, h, w, o, k, nullptr, 3};
      t.scratch = aligned(memory, packed_floats(t, 3));
      kConv[s](t);
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], want[i], 1e-6 * double(c * k * k) + 1e-6)
            << "step " << s + 1 << " of c=" << c << " h=" << h << " w=" << w << " oc=" << o << " kernel=" << k;
    }
  }
}

constexpr int64_t kL2 = 1 << 20;

TEST(TeachLadder, StepsStandBesideTheLibrarysKernel) {
  for (const Task& task :
       {matmul_task({"m=40", "n=70", "k=30"}, 2, kL2, 1), conv_task({"c=3", "h=9", "w=11", "oc=5"}, 2, kL2, 1)}) {
    ASSERT_EQ(task.steps, 8);
    ASSERT_EQ(task.ways.size(), 10u);  // and the library's on one thread and on two
    EXPECT_EQ(task.ways[7].threads, 2);
    EXPECT_EQ(task.ways[9].threads, 2);
    const std::vector<Row> rows = climb(task, 0.01);
    for (const Row& row : rows) {
      EXPECT_GT(row.gop_s, 0) << row.way->name;
      EXPECT_GE(row.samples.count(), 3) << row.way->name;
      EXPECT_GT(row.roof_gop_s, 0) << row.way->name;
    }
  }
}

TEST(TeachLadder, AWrongStepIsFound) {
  Task task = matmul_task({"m=8", "n=8", "k=8"}, 1, kL2, 1);
  ASSERT_EQ(task.ways.size(), 9u);
  const auto run = task.ways[4].run;
  task.ways[4].run = [] {};  // leaves what was there
  EXPECT_THROW(climb(task, 0.01), std::logic_error);
  task.ways[4].run = run;
  EXPECT_NO_THROW(climb(task, 0.01));
}

TEST(TeachLadder, BytesFollowFromTheLoops) {
  const int64_t mib = 1 << 20;
  const Task large = matmul_task({"m=1024", "n=1024", "k=1024"}, 1, kL2, 1);
  EXPECT_EQ(large.flops, int64_t(2) << 30);
  EXPECT_EQ(large.ways[0].bytes, 4 * mib + 1024 * 4 * mib + 4 * mib);  // B once for each row of A
  EXPECT_EQ(large.ways[2].bytes,
            2 * 4 * mib + 4 * mib + 8 * 4 * mib);  // A for each of 2 blocks of n, C for each of 4 of k
  for (int s = 1; s < large.steps; ++s)
    if (s != 1) EXPECT_LE(large.ways[size_t(s)].bytes, large.ways[0].bytes) << large.ways[size_t(s)].name;
  const Task small = matmul_task({"m=64", "n=64", "k=64"}, 1, kL2, 1);
  for (const Way& way : small.ways) EXPECT_EQ(way.bytes, 3 * 64 * 64 * 4) << way.name;  // all stays in the cache
}

TEST(TeachLadder, RefusesWhatItCannotDo) {
  EXPECT_THROW(matmul_task({"q=3"}, 1, kL2, 1), Error);
  EXPECT_THROW(matmul_task({"m=0"}, 1, kL2, 1), Error);
  EXPECT_THROW(matmul_task({"m"}, 1, kL2, 1), Error);
  EXPECT_THROW(conv_task({"kernel=4"}, 1, kL2, 1), Error);
}

// A student reads them: each says at its head what the idea is, and is short.
TEST(TeachLadder, FilesAreShort) {
  for (const Task& task : {matmul_task({"m=8"}, 1, kL2, 1), conv_task({"c=2"}, 1, kL2, 1)}) {
    for (int s = 0; s < task.steps; ++s) {
      const std::string path = std::string(RIDGELINE_SOURCE_DIR) + "/" + task.ways[size_t(s)].file;
      std::ifstream file(path);
      ASSERT_TRUE(file) << path;
      std::string line;
      int lines = 0, head = 0;
      while (std::getline(file, line)) {
        ++lines;
        head += line.starts_with("//") && head == lines - 1;
      }
      EXPECT_LE(lines, 95) << path;
      EXPECT_GE(head, 4) << path;
    }
  }
}

}  // namespace
}  // namespace ridgeline::teach
