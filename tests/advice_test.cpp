// The advice follows the bound, and its numbers say what it says.
#include "session/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "ops/catalogue.h"

namespace ridgeline {
namespace {

Ceilings described() {
  Ceilings c = unmeasured_ceilings();
  c.cores = 1;
  return c;
}

Levers levers(const char* op, const std::string& keys, const Ceilings& ceilings = described()) {
  const Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  return levers_for(p, cost_of(p), ceilings, 1);
}

bool says(const std::vector<std::string>& list, std::string_view words) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& s) { return s.find(words) != std::string::npos; });
}

TEST(Advice, WhatBytesBoundGetsNoTiles) {
  constexpr std::pair<const char*, const char*> kBound[] = {
      {"MatMul", "a=f32[1,4096] b=f32[4096,4096]!"},
      {"LayerNormalization", "x=f32[4096,4096] scale=f32[4096] bias=f32[4096]"},
      {"Relu", "x=f32[4096,4096]"},
      {"ReduceSum", "x=f32[4096,4096] axes=i64{1}"},
  };
  for (const auto& [op, keys] : kBound) {
    const Levers l = levers(op, keys);
    EXPECT_EQ(l.bound, "memory") << op;
    EXPECT_TRUE(says(l.wrong, "tiles")) << op;
    EXPECT_FALSE(says(l.right, "tiles")) << op;
  }
}

TEST(Advice, WhatArithmeticBoundsGetsNoFusion) {
  constexpr std::pair<const char*, const char*> kBound[] = {
      {"MatMul", "a=f32[1024,1024] b=f32[1024,1024]!"},
      {"Conv", "x=f32[1,64,56,56] w=f32[64,64,3,3]!"},
  };
  for (const auto& [op, keys] : kBound) {
    const Levers l = levers(op, keys);
    EXPECT_EQ(l.bound, "compute") << op;
    EXPECT_TRUE(says(l.wrong, "fusing")) << op;
    EXPECT_FALSE(says(l.right, "fusing")) << op;
  }
}

// Operands in a cache are read faster than DRAM's ridge supposes: the sides compared are those of the bound.
TEST(Advice, TheArithmeticShownAgreesWithTheBound) {
  const Levers l = levers("MatMul", "a=f32[32,32] b=f32[32,32]!");
  for (const std::string& line : l.right) EXPECT_EQ(line.find("above the ridge"), std::string::npos) << line;
  const std::string& line = l.bound == "compute" ? l.right.at(0) : l.wrong.at(0);
  double arithmetic = 0, kilobytes = 0, memory = 0;
  const size_t at = line.find("arithmetic takes");
  ASSERT_NE(at, std::string::npos) << line;
  ASSERT_EQ(std::sscanf(line.c_str() + at, "arithmetic takes %lf us at least, the %lf kB %lf us", &arithmetic,
                        &kilobytes, &memory),
            3)
      << line;
  if (l.bound == "compute") EXPECT_GE(arithmetic, memory) << line;
  if (l.bound == "memory") EXPECT_LE(arithmetic, memory) << line;
}

TEST(Advice, NarrowerWeightsAreCountedFromTheirType) {
  EXPECT_TRUE(says(levers("MatMul", "a=f32[1,4096] b=f32[4096,4096]!").right, "8-bit ones are a quarter"));
  EXPECT_TRUE(says(levers("MatMul", "a=f16[1,4096] b=f16[4096,4096]!").right, "8-bit ones are half, 4-bit a quarter"));
  EXPECT_FALSE(says(levers("MatMul", "a=f32[1,4096] b=f32[4096,4096]").right, "weights"));
}

}  // namespace
}  // namespace ridgeline
