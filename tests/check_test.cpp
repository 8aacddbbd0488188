// The conformance sweep finds what it should: wrong values, missing and stray writes; and the tolerance is as tight as
// it says.
#include "verify/check.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ir/graph.h"
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

TEST(Check, RunsWhatItCounts) {
  CheckOptions options;
  options.family = "elementwise";
  options.cases = 150;
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
