// The conformance sweep finds what it should: wrong values, missing and stray writes; and the tolerance is as tight as
// it says.
#include "verify/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "ir/graph.h"
#include "ir/reference.h"
#include "kernels/kernel.h"
#include "kernels/reference/reference.h"
#include "ops/catalogue.h"
#include "verify/check_parts.h"

namespace ridgeline {
namespace {

// A kernel for Softsign (which nothing else here uses) that goes wrong in the way asked for.
enum class Fault { kOff, kNone, kLastMissing, kStray, kWritesInput, kRounding, kWorkspace };
Fault fault = Fault::kOff;

void run_faulty(const KernelCall& call, const Buffers& buffers, const ThreadPool&) {
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t n = call.problem.output().elements();
  for (int64_t k = 0; k < n; ++k) {
    if (fault == Fault::kLastMissing && k == n - 1) break;
    y[k] = x[k] / (1 + std::fabs(x[k]));
    if (fault == Fault::kRounding) y[k] *= 1.00001f;
  }
  if (fault == Fault::kStray) y[n] = 1;
  if (fault == Fault::kWritesInput && n > 0) const_cast<float*>(x)[0] = 1;
  if (fault == Fault::kWorkspace) static_cast<char*>(buffers.workspace)[64] = 0;
}

const Kernel kFaulty = {
    .name = "test.faulty",
    .op = "Softsign",
    .supports =
        [](const Problem& p) {
          if (fault == Fault::kOff) return no("off");
          if (p.input(0).dtype != DType::kF32 || !p.input(0).layout.is_row_major() || !p.output().layout.is_row_major())
            return no("f32, row-major only");
          return yes();
        },
    .estimate = [](const Problem&, const Tile&, const Ceilings&) { return 1.0; },
    .workspace = [](const Problem&, const Tile&) { return int64_t(64); },
    .run = run_faulty,
};

CheckResult with_fault(Fault f) {
  static const bool registered = [] {
    register_kernel(kFaulty);
    return true;
  }();
  EXPECT_TRUE(registered);
  fault = f;
  CheckResult result = check_line("Softsign x=f32[3,5,127] seed=3 kernel=test.faulty");
  fault = Fault::kOff;
  return result;
}

TEST(Check, FindsFaults) {
  EXPECT_EQ(with_fault(Fault::kNone).failed, 0);
  constexpr std::pair<Fault, const char*> kFaults[] = {{Fault::kLastMissing, "nan"},
                                                       {Fault::kStray, "beside output"},
                                                       {Fault::kWritesInput, "input 0"},
                                                       {Fault::kRounding, "tolerance"},
                                                       {Fault::kWorkspace, "workspace"}};
  for (const auto& [f, word] : kFaults) {
    const CheckResult result = with_fault(f);
    ASSERT_EQ(result.failed, 1) << word;
    EXPECT_NE(result.failures[0].reason.find(word), std::string::npos) << result.failures[0].reason;
    EXPECT_EQ(result.failures[0].line, "Softsign x=f32[3,5,127] seed=3 kernel=test.faulty");
  }
}

// What the judge allows, in figures: a sum of `n` products, each result a thousandth over the bound and under it.
TEST(Check, TheToleranceOfASumIsWhatIsDerived) {
  const Problem p = parse_problem(*find_op("MatMul"), "a=f32[20,64] b=f32[64,1]");
  const std::vector<Tensor> inputs = fill_inputs(p, 5);
  std::vector<RefArray> exact = run_reference_exact(*p.op, p.attributes, inputs, 1);
  double largest = 0;
  for (double v : exact[0].f) largest = std::max(largest, std::fabs(v));
  const double u = 0x1p-24, bound = (p.op->tolerance.ulps * u + 4 * std::sqrt(64.0) * u) * largest;
  const Judge judge(p, inputs, exact, nullptr);
  for (const double sign : {-1.0, 1.0}) {
    EXPECT_EQ(judge.reject(0, 3, exact[0].f[3] + sign * bound * 0.999), "");
    EXPECT_NE(judge.reject(0, 3, exact[0].f[3] + sign * bound * 1.001), "");
  }
  EXPECT_LT(bound, 4e-6 * largest);
}

// A product beyond f32 is an infinity in any kernel, and infinity times sigmoid(-infinity) no number.
TEST(Check, AnOverflowBeforeAnEpilogueHasNoRightResult) {
  const CheckResult result = check_line(
      "ReduceProd x=f32[64,3,8,15] axes=i64{-2,-1} keepdims=0 noop_with_empty_axes=1 epilogue='v * sigmoid(v)' "
      "seed=882486595");
  EXPECT_EQ(result.failed, 0) << result.failures[0].reason;
}

// Scores of attention go through exp, so their error counts: 4 terms, |q| = |k| = 20, values of 1.
TEST(Check, TheToleranceOfAttentionHasItsScores) {
  const Problem p = parse_problem(*find_op_in_any_domain("ScaledDotProductAttention"),
                                  "q=f32[1,1,2,4] k=f32[1,1,3,4] v=f32[1,1,3,1] scale=0.5");
  std::vector<Tensor> inputs = {Tensor(DType::kF32, {1, 1, 2, 4}), Tensor(DType::kF32, {1, 1, 3, 4}),
                                Tensor(DType::kF32, {1, 1, 3, 1})};
  for (int k = 0; k < 3; ++k)
    for (int64_t i = 0; i < inputs[size_t(k)].elements(); ++i) inputs[size_t(k)].as<float>()[i] = k < 2 ? 10 : 1;
  const std::vector<RefArray> exact = run_reference_exact(*p.op, p.attributes, inputs, 1);
  const Judge judge(p, inputs, exact, nullptr);
  const double u = 0x1p-24, score = 20 * 20 * 0.5, exponent = 2 * u * (4 * std::sqrt(4.0) * score + 3 * score);
  EXPECT_EQ(judge.reject(0, 0, 1 + exponent), "");
  EXPECT_NE(judge.reject(0, 0, 1 + exponent + 64 * u), "");
}

TEST(Check, RunsWhatItCounts) {
  CheckOptions options;
  options.family = "elementwise";
  options.cases = 150;
  options.least_runs = 0;  // other tests register kernels that run nothing
  const CheckResult result = check(options);
  EXPECT_EQ(result.cases, 150);
  EXPECT_EQ(result.passed + result.failed, result.cases);
  for (const CheckFailure& failure : result.failures) ADD_FAILURE() << failure.line << "\n" << failure.reason;
  options.family = "no such";
  EXPECT_THROW(check(options), Error);
}

TEST(Check, MovementAgreesOnStridedViews) {
  CheckOptions options;
  options.family = "movement";
  options.cases = 150;
  options.case_directory = std::string(RIDGELINE_SOURCE_DIR) + "/tests/cases";
  const CheckResult result = check(options);
  EXPECT_GT(result.cases, 150);
  for (const CheckFailure& failure : result.failures) ADD_FAILURE() << failure.line << "\n" << failure.reason;
}

// Each kernel of the images' families is compared with the reference, however few problems it takes.
TEST(Check, EveryKernelIsReached) {
  for (const char* family : {"conv", "pool", "matmul", "attention"}) {
    CheckOptions options;
    options.family = family;
    options.cases = 60;
    options.least_runs = 4;
    options.case_directory = std::string(RIDGELINE_SOURCE_DIR) + "/tests/cases";
    const CheckResult result = check(options);
    for (const auto& [kernel, runs] : result.runs) EXPECT_GE(runs, options.least_runs) << kernel;
    for (const CheckFailure& failure : result.failures) ADD_FAILURE() << failure.line << "\n" << failure.reason;
    EXPECT_LT(result.reference_only, result.cases / 2) << family;
  }
}

// A kernel that no problem reaches is told, not passed over.
const Kernel kUnreachable = {
    .name = "test.unreachable",
    .op = "Mish",
    .supports = [](const Problem&) { return no("never"); },
    .estimate = [](const Problem&, const Tile&, const Ceilings&) { return 1.0; },
};

TEST(Check, AKernelThatIsNeverRunFails) {
  if (std::string_view(std::getenv("RIDGELINE_ISA") ? std::getenv("RIDGELINE_ISA") : "") == "scalar") GTEST_SKIP();
  register_kernel(kUnreachable);
  CheckOptions options;
  options.family = "elementwise";
  options.cases = 1;
  options.least_runs = 1;
  options.most_draws = 500;
  const CheckResult result = check(options);
  EXPECT_EQ(result.runs.at("test.unreachable"), 0);
  EXPECT_TRUE(std::any_of(result.failures.begin(), result.failures.end(), [](const CheckFailure& f) {
    return f.line == "Mish kernel=test.unreachable" && f.reason.find("reached") != std::string::npos;
  }));
}

TEST(Check, EveryOperatorGivesProblems) {
  for (const OpSchema* op : catalogue()) {
    Random random(7);
    int made = 0;
    for (int k = 0; k < 20; ++k) made += !random_problem(*op, random).empty();
    EXPECT_GE(made, 5) << op->name;
  }
}

TEST(Check, ErrorOfAProgram) {
  const std::array<std::string_view, 1> names = {"x"};
  auto error_at = [&](std::string_view expression, double x, double error = 0) {
    return program_error(Program::parse(expression, names, DType::kF32), {{x, 0}}, {error}, 4)[0];
  };
  const double epsilon = info(DType::kF32).epsilon;
  EXPECT_EQ(error_at("max(x, 1)", 3), 0);
  EXPECT_NEAR(error_at("x + x", 3), epsilon * 6, 1e-12);
  EXPECT_NEAR(error_at("exp(x)", 1, 1e-3), 2.718e-3, 1e-5);       // amplified by the function
  EXPECT_GT(error_at("(x + 1000) - 1000", 0.5), 1000 * epsilon);  // cancellation is seen
  EXPECT_EQ(error_at("select(x < 1, 0, 5)", 1.0001, 1e-3), 5);    // may go either way
  EXPECT_EQ(error_at("select(x < 1, 0, 5)", 1.1, 1e-3), 0);
}

}  // namespace
}  // namespace ridgeline
