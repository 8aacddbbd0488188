// Rivals: missing ones say how they are installed; installed ones compute what our kernels compute, or are not timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ops/catalogue.h"
#include "tune/bench.h"
#include "tune/bench_rivals.h"

namespace ridgeline {
namespace {

// The environment variable that says where rivals are looked for, for one scope.
class Folders {
 public:
  explicit Folders(const char* folders) {
    if (const char* const old = std::getenv(kName)) before_ = old;
    setenv(kName, folders, 1);
  }
  ~Folders() {
    if (before_)
      setenv(kName, before_->c_str(), 1);
    else
      unsetenv(kName);
  }

 private:
  static constexpr const char* kName = "RIDGELINE_RIVALS";
  std::optional<std::string> before_;
};

Problem problem(std::string_view op, std::string_view keys) { return parse_problem(*find_op_in_any_domain(op), keys); }

Problem with_content(Problem p) {
  std::mt19937_64 random(3);
  for (Operand& operand : p.inputs) {
    if (!operand.present() || !operand.is_constant || operand.constant) continue;
    operand.constant = Tensor(operand.dtype, operand.shape());
    fill_operand(operand, operand.constant.data(), random);
  }
  return p;
}

Candidate ours(const Problem& p) { return choose_kernel(p, unmeasured_ceilings()).winner(); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Rivals, AMissingLibraryNamesItsPackage) {
  const Folders nowhere("/nowhere/at/all");
  const std::vector<Rival> rivals = rivals_of(problem("MatMul", "a=f32[4,8] b=f32[8,16]!"));
  ASSERT_EQ(rivals.size(), 3u);
  const char* const packages[] = {"libdnnl2", "libopenblas0-pthread", "libblis4-pthread"};
  for (size_t i = 0; i < rivals.size(); ++i) {
    EXPECT_EQ(rivals[i].step, nullptr);
    EXPECT_TRUE(contains(rivals[i].reason, packages[i])) << rivals[i].reason;
    EXPECT_TRUE(contains(rivals[i].reason, "/nowhere/at/all/lib")) << rivals[i].reason;
  }
}

// One problem for each form that a rival is told about; `blas` where OpenBLAS and BLIS have it, too.
struct Case {
  const char *op, *keys;
  bool blas = false;
};
constexpr Case kCases[] = {
    {"MatMul", "a=f32[5,33] b=f32[33,17]!", true},
    {"MatMul", "a=f32[1,33] b=f32[33,17]!", true},
    {"MatMul", "a=f32[5,33] b=f32[33,17]", true},
    {"MatMul", "a=f32[2,3,5,33] b=f32[33,17]!", true},
    {"MatMul", "a=f32[3,5,33] b=f32[3,33,17]"},
    {"FusedMatMul", "a=f32[33,5] b=f32[17,33]! transA=1 transB=1", true},
    {"FusedMatMul", "a=f32[33,1] b=f32[17,33]! transA=1 transB=1", true},
    {"FusedMatMul", "a=f32[2,33,5] b=f32[2,17,33] transA=1 transB=1"},
    {"MatMul", "a=bf16[5,32] b=bf16[32,16]!"},
    {"MatMulInteger", "a=u8[5,32] b=i8[32,16]!"},
    {"Conv", "x=f32[1,16,9,11] w=f32[32,16,3,3]! b=f32[32]! pads=1,1,1,1"},
    {"Conv", "x=f32[2,3,9,11] w=f32[16,3,3,3]! strides=2,2"},
    {"Conv", "x=f32[1,16,9,11] w=f32[16,1,3,3]! b=f32[16]! pads=1,1,1,1 group=16"},
    {"Conv", "x=f32[1,32,9,11] w=f32[32,16,3,3]! dilations=2,2 pads=0,1,2,3 group=2"},
    {"Conv", "x=f32[1,16,9] w=f32[16,16,3]!"},
    {"Softmax", "x=f32[5,67]"},
    {"Softmax", "x=f32[3,5,7] axis=1"},
    {"LogSoftmax", "x=f32[5,67]"},
    {"LayerNormalization", "x=f32[5,67] scale=f32[67]! bias=f32[67]!"},
    {"LayerNormalization", "x=f32[5,67] scale=f32[67]! epsilon=0.1"},
    {"Relu", "x=f32[5,67]"},
    {"Gelu", "x=f32[5,67]"},
    {"Gelu", "x=f32[5,67] approximate=tanh"},
    {"Sigmoid", "x=f32[5,67]"},
    {"SiLU", "x=f32[5,67]"},
    {"Swish", "x=f32[5,67] alpha=1.5"},
    {"HardSwish", "x=f32[5,67]"},
    {"Tanh", "x=f32[5,67]"},
    {"Exp", "x=f32[5,67]"},
    {"Add", "x=f32[5,67] y=f32[5,67]"},
    {"Add", "x=f32[5,67] y=f32[67]"},
    {"Mul", "x=f32[5,67] y=f32[5,67]"},
    {"ReduceSum", "x=f32[5,67] axes=i64{1}"},
    {"ReduceSum", "x=f32[5,67] axes=i64{0} keepdims=0"},
    {"ReduceMean", "x=f32[3,5,7]"},
    {"Transpose", "data=f32[5,67] perm=1,0"},
    {"Transpose", "data=f32[2,3,5,7] perm=0,2,3,1"},
};

TEST(Rivals, ThoseThatRunComputeTheSame) {
  for (const Case& c : kCases) {
    const Problem p = with_content(problem(c.op, c.keys));
    bool dnn_found = false, dnn_ran = false;
    for (Rival& rival : rivals_of(p)) {
      const std::string what = fmt::format("{} {}: {}: {}", c.op, c.keys, rival.name, rival.reason);
      const bool installed = !contains(rival.reason, "not found"), dnn = rival.name.starts_with("onednn");
      EXPECT_EQ(rival.step == nullptr, !rival.reason.empty()) << what;
      EXPECT_TRUE(installed || contains(rival.reason, "install Debian's lib")) << what;
      // One of another version or on another runtime is told but not timed.
      dnn_found |= dnn && installed && !contains(rival.reason, "version") && !contains(rival.reason, "built ");
      if (!dnn && installed) EXPECT_EQ(rival.step != nullptr, c.blas) << what;
      if (!rival.step) continue;
      PreparedRival prepared(p, ours(p), std::move(rival), 3, 1);
      EXPECT_EQ(prepared.reason(), "") << what;
      for (int i = 0; i < 4; ++i) prepared.run();  // round its sets
      dnn_ran |= dnn;
    }
    EXPECT_EQ(dnn_ran, dnn_found) << c.op << " " << c.keys;
  }
}

TEST(Rivals, WhatIsNotTheSameProblemIsRefused) {
  const std::vector<Case> cases = {{"Gemm", "a=f32[5,33] b=f32[33,17]! c=f32[5,17] beta=2"},
                                   {"MatMul", "a=f32[5,33] b=f32[33,17]! epilogue='relu(v)'"},
                                   {"MatMul", "a=f32[3,5,33] b=f32[1,33,17]", true},  // one B for all: is one product
                                   {"MatMul", "a=f32[1,5,33] b=f32[3,33,17]"},
                                   {"Relu", "x=f32[2,3,5,7]~cl"},
                                   {"MaxPool", "x=f32[1,8,7,7] kernel_shape=2,2"}};
  for (const Case& c : cases) {
    for (const Rival& rival : rivals_of(problem(c.op, c.keys))) {
      if (c.blas) continue;
      EXPECT_EQ(rival.step, nullptr) << c.op << " " << c.keys << ": " << rival.name;
      EXPECT_FALSE(rival.reason.empty()) << c.op << " " << c.keys << ": " << rival.name;
    }
  }
}

// Adds 1 to what is right.
class Wrong : public RivalStep {
 public:
  int64_t input_bytes(int) const override { return 4 * 64; }
  int64_t output_bytes() const override { return 4 * 64; }
  void load(int, const Tensor& from, void* to) override { std::memcpy(to, from.data(), size_t(from.bytes())); }
  void unload(const void* from, Tensor& to) override { std::memcpy(to.data(), from, size_t(to.bytes())); }
  void bind(const std::vector<void*>& inputs, void* output) override {
    x_ = static_cast<const float*>(inputs[0]);
    y_ = static_cast<float*>(output);
  }
  void run(size_t) override {
    for (int i = 0; i < 64; ++i) y_[i] = std::max(x_[i], 0.0f) + 1;
  }

 private:
  const float* x_ = nullptr;
  float* y_ = nullptr;
};

TEST(Rivals, AnotherResultIsNotTimed) {
  const Problem p = problem("Relu", "x=f32[64]");
  const PreparedRival prepared(p, ours(p), {"wrong", "", std::make_unique<Wrong>()}, 2, 1);
  EXPECT_TRUE(contains(prepared.reason(), "its result differs by")) << prepared.reason();
}

TEST(Rivals, BenchRanksThemWithOurs) {
  const Problem p = problem("MatMul", "a=f32[16,64] b=f32[64,64]!");
  const BenchResult result = bench(p, unmeasured_ceilings(), {.warm = true, .seconds = 0.001, .rivals = true});
  int chosen = 0, rivals = 0;
  double before = 0;
  for (const BenchRow& row : result.rows) {
    EXPECT_FALSE(row.rival && row.chosen) << row.name;
    chosen += row.chosen;
    rivals += row.rival;
    if (row.rival) EXPECT_EQ(row.supported, row.timed()) << row.name;
    if (row.rival && !row.supported) EXPECT_FALSE(row.reason.empty()) << row.name;
    if (!row.timed()) {
      before = 1e300;  // those that were not timed stand last
      continue;
    }
    EXPECT_GE(row.samples.median(), before) << row.name;
    EXPECT_GT(row.roof_share, 0) << row.name;
    before = row.samples.median();
  }
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(rivals, 3);
  for (const BenchRow& row : bench(p, unmeasured_ceilings(), {.warm = true, .seconds = 0.001}).rows)
    EXPECT_FALSE(row.rival) << row.name;
}

}  // namespace
}  // namespace ridgeline
