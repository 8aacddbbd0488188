// Matrix products on the CPU: the engine on buffers with guard pages and canaries, the kernels against the reference,
// every vector target.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ir/graph.h"
#include "kernel_problem.h"
#include "kernels/cpu/matmul/blocking.h"
#include "kernels/cpu/matmul/epilogue.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/kernels.h"
#include "kernels/cpu/simd.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

using namespace cpu;

class MatMulTargets : public testing::TestWithParam<const char*> {
  void SetUp() override { limit_isa(GetParam()); }
  void TearDown() override { limit_isa("native"); }
};
INSTANTIATE_TEST_SUITE_P(Isa, MatMulTargets, testing::Values("native", "avx2", "scalar"));

/// Ends at a page that must not be touched.
class Guarded {
 public:
  Guarded(int64_t floats, std::mt19937& random)
      : floats_(floats), bytes_((size_t(floats) * 4 + 4095) / 4096 * 4096 + 4096) {
    base_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + bytes_ - 4096, 4096, PROT_NONE);
    for (int64_t i = 0; i < floats; ++i) data()[i] = float(int(random() % 2001) - 1000) / 1000;
  }
  ~Guarded() { munmap(base_, bytes_); }
  Guarded(const Guarded&) = delete;
  float* data() { return reinterpret_cast<float*>(base_ + bytes_ - 4096) - floats_; }

 private:
  int64_t floats_;
  size_t bytes_;
  char* base_;
};

struct Engine {
  int64_t m, n, k;
  int a_form, b_form;  // 0 rows, 1 columns, 2 both strided; b 3: packed ahead
  int residual;        // 0 none, 1 apart, 2 C itself
  bool bias, clamp, hook;
  int threads;
  GemmTile tile;
  int64_t parts_k = 1;
};

std::ostream& operator<<(std::ostream& out, const Engine& e) {
  return out << "m=" << e.m << " n=" << e.n << " k=" << e.k << " a=" << e.a_form << " b=" << e.b_form
             << " residual=" << e.residual << " bias=" << e.bias << " clamp=" << e.clamp << " hook=" << e.hook
             << " threads=" << e.threads;
}

void set_strides(int form, int64_t rows, int64_t cols, int64_t& row, int64_t& col, int64_t& span) {
  row = form == 1 ? 1 : form == 2 ? 2 * cols + 1 : cols + 3;
  col = form == 1 ? rows + 2 : form == 2 ? 2 : 1;
  span = rows && cols ? (rows - 1) * row + (cols - 1) * col + 1 : 0;
}

void run_engine(const Engine& e, bool few_rows) {
  std::mt19937 random(unsigned(e.m * 131 + e.n * 17 + e.k));
  Gemm g;
  g.m = e.m, g.n = e.n, g.k = e.k;
  g.tile = e.tile;
  g.parts_k = e.parts_k;
  int64_t a_span, b_span, b_row, b_col;
  set_strides(e.a_form, e.m, e.k, g.a.row_stride, g.a.k_stride, a_span);
  set_strides(e.b_form % 3, e.k, e.n, b_row, b_col, b_span);
  g.ldc = e.n + 5;
  Guarded a(a_span, random), b(b_span, random), bias(e.n, random), c(e.m * g.ldc, random),
      residual(e.m * g.ldc, random);
  const std::vector<float> before(c.data(), c.data() + e.m * g.ldc);
  for (int64_t i = 0; i < e.m * g.ldc; ++i)
    if (e.residual != 2 || i % g.ldc >= e.n) c.data()[i] = i % g.ldc < e.n ? NAN : 12345.0f;
  const std::shared_ptr<void> packed = allocate(packed_b_floats(e.k, e.n) * 4 + 64);
  g.a.data = a.data();
  if (e.b_form == 3) {
    pack_b(b.data(), b_row, b_col, e.k, e.n, static_cast<float*>(packed.get()));
    g.b.packed = static_cast<float*>(packed.get());
  } else {
    g.b = {nullptr, b.data(), b_row, b_col};
  }
  g.c = c.data();
  g.epilogue.alpha = 0.5f;
  if (e.bias) g.epilogue.bias = bias.data();
  if (e.residual)
    g.epilogue.residual = e.residual == 2 ? c.data() : residual.data(), g.epilogue.residual_stride = g.ldc;
  if (e.clamp) g.epilogue.low = -1, g.epilogue.high = 2;
  if (e.hook)
    g.epilogue.hook = [](const void*, const OutputBlock& block) {
      for (int64_t r = 0; r < block.rows; ++r)
        for (int64_t j = 0; j < block.cols; ++j)
          block.c[r * block.ldc + j] += float(block.row + r) + float(block.col + j) / 64;
    };
  const ThreadPool pool(e.threads);
  const int64_t bytes = few_rows ? matvec_workspace_bytes(g, e.threads) : gemm_workspace_bytes(g, e.threads);
  const std::shared_ptr<void> workspace = allocate(bytes + 1);
  if (few_rows)
    matvec(g, workspace.get(), pool);
  else
    gemm(g, workspace.get(), pool);
  for (int64_t r = 0; r < e.m; ++r) {
    for (int64_t j = 0; j < g.ldc; ++j) {
      const float got = c.data()[r * g.ldc + j];
      if (j >= e.n) {
        ASSERT_EQ(got, 12345.0f) << e << ": written beyond column " << j;
        continue;
      }
      double sum = 0, size = 1;
      for (int64_t k = 0; k < e.k; ++k) {
        const double term = double(a.data()[r * g.a.row_stride + k * g.a.k_stride]) * b.data()[k * b_row + j * b_col];
        sum += term, size += std::fabs(term);
      }
      sum *= 0.5;
      if (e.bias) sum += bias.data()[j];
      if (e.residual) sum += e.residual == 2 ? before[size_t(r * g.ldc + j)] : residual.data()[r * g.ldc + j];
      if (e.clamp) sum = std::min(std::max(sum, -1.0), 2.0);
      if (e.hook) sum += double(r) + double(j) / 64;
      ASSERT_NEAR(got, sum, 1e-6 * (size + std::fabs(sum))) << e << " at " << r << "," << j;
    }
  }
}

TEST_P(MatMulTargets, Engine) {
  std::mt19937 random(3);
  const auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + random() % of.size()); };
  for (int i = 0; i < 400; ++i) {
    const int bits = int(random());
    Engine e{pick({0, 1, 2, 3, 4, 5, 7, 13, 14, 15, 28, 29, 57}),
             pick({0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 65, 100}),
             pick({0, 1, 2, 3, 5, 16, 33, 64, 129}),
             int(random() % 3),
             int(random() % 4),
             int(random() % 3),
             (bits & 1) != 0,
             (bits & 2) != 0,
             (bits & 12) == 0,
             1 + int(random() % 3)};
    run_engine(e, false);
    if (HasFatalFailure()) return;
    e.b_form = 3, e.a_form = 0, e.m = 1 + e.m % kMaxMatvecRows;
    run_engine(e, true);
    if (HasFatalFailure()) return;
  }
  // Several blocks of k, of rows, of panels; rows that share cache sets.
  run_engine({30, 40, 3000, 0, 3, 1, true, true, true, 2}, false);
  run_engine({900, 33, 300, 1, 2, 2, true, true, false, 2}, false);
  run_engine({20, 700, 1021, 0, 1, 0, false, false, true, 1}, false);
}

TEST_P(MatMulTargets, LongSumsAreSplit) {
  run_engine({3, 20, 20001, 0, 3, 1, true, true, true, 2, {}, 3}, false);
  run_engine({5, 17, 20001, 0, 3, 2, true, true, true, 1, {}, 7}, false);
  run_engine({5, 33, 9000, 1, 0, 0, true, false, false, 3, {}, 7}, false);
  run_engine({4, 70, 9001, 2, 1, 2, false, true, false, 2, {}, 2}, false);
  run_engine({3, 20, 20001, 0, 3, 1, true, true, true, 2, {}, 3}, true);
  run_engine({1, 7, 30000, 0, 3, 2, true, false, true, 3, {}, 16}, true);
}

// Where tiles are fewer than threads, and only there.
TEST(MatMulChoice, SharesKAmongThreads) {
  const auto chosen = [](std::string_view text, int threads) {
    Problem problem = parse_problem(*find_op("MatMul"), std::string(text));
    problem.threads = threads;
    const Choice choice = choose_kernel(problem, unmeasured_ceilings(threads));
    return std::string(choice.winner().kernel->name) + "/" + std::to_string(choice.winner().tile.size[0]);
  };
  EXPECT_EQ(chosen("a=f32[1,65536] b=f32[65536,16]!", 8), "cpu.matmul_split_k/4");  // four threads fill the memory
  EXPECT_EQ(chosen("a=f32[1,65536] b=f32[65536,16]!", 2), "cpu.matmul_split_k/2");
  EXPECT_EQ(chosen("a=f32[1,65536] b=f32[65536,16]!", 1), "cpu.matvec/0");
  EXPECT_EQ(chosen("a=f32[1,4096] b=f32[4096,4096]!", 8), "cpu.matvec/0");
  EXPECT_EQ(chosen("a=f32[512,4096] b=f32[4096,512]!", 8), "cpu.matmul_packed/0");
}

TEST_P(MatMulTargets, TilesThatAreAskedFor) {
  for (const GemmTile tile : {GemmTile{1, 1, 1}, GemmTile{14, 64, 50}, GemmTile{100, 32, 7}, GemmTile{3, 1000, 1000}}) {
    run_engine({45, 70, 101, 0, 3, 1, true, true, true, 2, tile}, false);
    run_engine({45, 70, 101, 1, 0, 2, true, false, false, 2, tile}, false);
    run_engine({45, 70, 101, 2, 1, 0, false, false, true, 1, tile}, false);
  }
}

TEST_P(MatMulTargets, SpecialValues) {
  // Zero times infinity is NaN, in tails as elsewhere; NaN passes the clamp; k = 0 gives 0.
  for (int64_t n : {3, 16, 40}) {
    std::vector<float> a{0, 1}, b(size_t(2 * n), 1.0f), c(static_cast<size_t>(n), 7.0f);
    b[size_t(n) - 1] = INFINITY;
    Gemm g;
    g.m = 1, g.n = n, g.k = 2, g.a.data = a.data(), g.a.row_stride = 2, g.c = c.data(), g.ldc = n;
    g.b = {nullptr, b.data(), n, 1};
    g.epilogue.low = 0, g.epilogue.high = 6;
    gemm(g, allocate(gemm_workspace_bytes(g, 1) + 1).get(), ThreadPool(1));
    EXPECT_TRUE(std::isnan(c[size_t(n) - 1]));
    EXPECT_EQ(c[0], 1);
    g.k = 0;
    gemm(g, nullptr, ThreadPool(1));
    EXPECT_EQ(c[size_t(n) - 1], 0);
  }
}

// ---- kernels

const OpSchema& op(const char* name) {
  const OpSchema* schema = find_op_in_any_domain(name);
  EXPECT_NE(schema, nullptr) << name;
  return *schema;
}

struct Kernels {
  const Kernel *any, *packed, *few;
};
Kernels kernels_for(const std::string& name) {
  const int i = name == "MatMul" ? 0 : name == "FusedMatMul" ? 1 : 2;
  return {&kMatMulAny[i], &kMatMulPacked[i], &kMatVec[i]};
}

/// The problem on every kernel that takes it, B an activation and B a constant.
void check_all(const char* name, const std::string& a, const std::string& b, const std::string& rest,
               double scale = 16) {
  const Kernels k = kernels_for(name);
  test::check(*k.any, op(name), "a=" + a + " b=" + b + " " + rest, 8, scale);
  const std::string constant = "a=" + a + " b=" + b + "! " + rest;
  test::check(*k.packed, op(name), constant, 8, scale);
  if (k.few->supports(parse_problem(op(name), constant)).ok) test::check(*k.few, op(name), constant, 8, scale);
}

TEST_P(MatMulTargets, Samples) {
  for (const char* name : {"MatMul", "FusedMatMul", "Gemm"}) {
    for (std::string_view sample : op(name).samples) {
      const std::string keys(sample);
      const Problem p = parse_problem(op(name), keys);
      const Kernels k = kernels_for(name);
      const bool f32 = p.output().dtype == DType::kF32;
      EXPECT_EQ(k.any->supports(p).ok, f32) << keys;
      EXPECT_FALSE(k.packed->supports(p).ok) << keys;
      if (f32) test::check(*k.any, op(name), keys, 8, 40);
    }
  }
}

TEST_P(MatMulTargets, BatchesAndVectors) {
  check_all("MatMul", "f32[2,3,5,9]", "f32[9,40]", "");
  check_all("MatMul", "f32[2,1,5,9]", "f32[3,9,40]", "");
  check_all("MatMul", "f32[5,9]", "f32[4,9,17]", "");
  check_all("MatMul", "f32[4,1,9]", "f32[9,33]", "");
  check_all("MatMul", "f32[9]", "f32[2,9,33]", "");
  check_all("MatMul", "f32[3,4,9]", "f32[9]", "");
  check_all("MatMul", "f32[9]", "f32[9]", "");
  check_all("MatMul", "f32[2,3,4,0]", "f32[0,5]", "");
  check_all("MatMul", "f32[2,0,9]", "f32[9,5]", "");
  check_all("MatMul", "f32[0,3,9]", "f32[9,5]", "");
  check_all("FusedMatMul", "f32[2,3,20,8]", "f32[2,3,21,8]", "transB=1 alpha=0.125");
  check_all("FusedMatMul", "f32[3,8,20]", "f32[5,8]", "transA=1 transB=1");
}

TEST_P(MatMulTargets, Strides) {
  // Heads split as strides: [batch, sequence, heads, width] seen as [batch, heads, sequence, width].
  check_all("MatMul", "f32[2,3,7,8]~168x8x24x1", "f32[2,3,8,9]", "");
  test::check(kMatMulAny[0], op("MatMul"), "a=f32[2,3,7,8]~168x8x24x1 b=f32[2,3,8,7]~168x8x1x24", 8, 16);
  EXPECT_FALSE(kMatMulAny[0]
                   .supports([] {
                     Problem p = parse_problem(op("MatMul"), "a=f32[4,8] b=f32[8,6]");
                     p.outputs[0].layout.strides = {1, 4};
                     return p;
                   }())
                   .ok);
}

TEST_P(MatMulTargets, GemmForms) {
  for (const char* c : {"f32[33]", "f32[1,33]", "f32[20,33]", "f32[20,1]", "f32[1]", "f32[]"}) {
    check_all("Gemm", "f32[20,40]", "f32[33,40]", std::string("c=") + c + " transB=1");
    check_all("Gemm", "f32[40,20]", "f32[40,33]", std::string("c=") + c + " transA=1 alpha=0.5 beta=-2.0");
  }
  check_all("Gemm", "f32[3,40]", "f32[40,33]", "c=f32[33] beta=0.0");
  check_all("Gemm", "f32[20,40]", "f32[40,33]", "c=f32[33] e1=f32[20,33] epilogue='relu(v + e1)'");
  check_all("Gemm", "f32[2,40]", "f32[40,33]", "c=f32[2,1] epilogue='v * sigmoid(v)'");
}

TEST_P(MatMulTargets, Epilogues) {
  const auto check = [](const std::string& rest) {
    check_all("MatMul", "f32[2,18,40]", "f32[40,50]", rest);
    check_all("MatMul", "f32[1,2,40]", "f32[40,50]", rest);
    check_all("MatMul", "f32[2,18,40]", "f32[2,40,50]", rest);
  };
  check("e1=f32[50] epilogue='v + e1'");
  check("e1=f32[50] epilogue='relu(v + e1)'");
  check("e1=f32[50] epilogue='clamp(v * 0.25 + e1, -1, 1)'");
  check("e1=f32[1] epilogue='v * 2 + e1'");
  check("e1=f32[50] epilogue='v * 0.5 * erfc(-v * 0.7071067811865475) + e1'");
  check("e1=f32[50] epilogue='relu(v) + e1'");
  check("epilogue='-v'");
  check_all("MatMul", "f32[2,18,40]", "f32[40,50]", "e1=f32[50] e2=f32[2,18,50] epilogue='relu(v + e1 + e2)'");
  check_all("MatMul", "f32[2,18,40]", "f32[2,40,50]", "e1=f32[18,50] e2=f32[50] epilogue='v + e1 + e2'");
  check_all("MatMul", "f32[2,18,40]", "f32[2,40,50]", "e1=f32[2,1,50] e2=f32[18,1] epilogue='(v + e1) * e2'");
}

TEST(MatMul, EpilogueIsReadAsWhatRegistersDo) {
  const std::array<std::string_view, 3> names{"v", "d", "e"};
  const std::vector<EpilogueOperand> operands{{}, {true, true, true}, {true, false, true}};
  const auto read = [&](const char* text) { return read_epilogue(Program::parse(text, names, DType::kF32), operands); };
  const RegisterEpilogue all = read("min(max(e + (v * 0.5 + d), -1), 3)");
  EXPECT_FALSE(all.ok);  // two clamps in a row; simplified programs have one
  const RegisterEpilogue clamped = read("clamp(e + (v * 0.5 + d), -1, 3)");
  EXPECT_TRUE(clamped.ok);
  EXPECT_EQ(clamped.alpha, 0.5f);
  EXPECT_EQ(clamped.bias, 1);
  EXPECT_EQ(clamped.residual, 2);
  EXPECT_EQ(clamped.low, -1);
  EXPECT_EQ(clamped.high, 3);
  EXPECT_FALSE(read("relu(v) + d").ok);
  EXPECT_FALSE(read("(v + d) * 2").ok);
  EXPECT_FALSE(read("v * v").ok);
  EXPECT_FALSE(read("v + e + e").ok);
  EXPECT_FALSE(read("v * d").ok);
  EXPECT_TRUE(read("v").ok);
}

TEST(MatMul, ResidualMayShareTheOutput) {
  const std::string keys = "a=f32[40,30] b=f32[30,50]! e1=f32[50] e2=f32[40,50] epilogue='relu(v + e1 + e2)'";
  const Problem p = parse_problem(op("MatMul"), keys);
  EXPECT_TRUE(kMatMulPacked[0].in_place(p, 3));
  EXPECT_FALSE(kMatMulPacked[0].in_place(p, 2));
  test::expect_close(test::run_kernel(kMatMulPacked[0], op("MatMul"), keys, 2, 1, 3), keys, 8, 16);
  // Several blocks of k: C holds partial sums, after the residual was read.
  const std::string deep = "a=f32[9,3000] b=f32[3000,40]! e1=f32[9,40] epilogue='v + e1'";
  test::expect_close(test::run_kernel(kMatMulPacked[0], op("MatMul"), deep, 1, 1, 2), deep, 32, 64);
  const Problem gelu = parse_problem(op("MatMul"), "a=f32[4,3] b=f32[3,5]! e1=f32[4,5] epilogue='v * sigmoid(v) + e1'");
  EXPECT_FALSE(kMatMulPacked[0].in_place(gelu, 2));
}

// The order of a sum does not depend on the threads.
TEST(MatMul, LongSumsHaveTheSameBitsOnAnyNumberOfThreads) {
  for (const char* keys :
       {"a=f32[1,40000] b=f32[40000,24]!", "a=f32[9,30000] b=f32[30000,40]! e1=f32[40] epilogue='v + e1'"}) {
    for (const Kernel* kernel : {&kMatVec[0], &kMatMulPacked[0]}) {
      if (!kernel->supports(parse_problem(op("MatMul"), keys)).ok) continue;
      const test::Result one = test::run_kernel(*kernel, op("MatMul"), keys, 1, 1);
      const test::Result three = test::run_kernel(*kernel, op("MatMul"), keys, 3, 1);
      EXPECT_EQ(std::memcmp(one.got[0].data(), three.got[0].data(), size_t(one.got[0].bytes())), 0) << keys;
      // A part of some 4,096 additions to sums as large as the root of k: sqrt(4096) roundings, four times as the
      // worst.
      test::expect_close(one, keys, 256, 200);
    }
  }
}

TEST(MatMul, ReasonsAreGiven) {
  const auto reason = [](const Kernel& kernel, const char* keys) {
    return kernel.supports(parse_problem(op("MatMul"), keys)).reason;
  };
  EXPECT_EQ(reason(kMatMulAny[0], "a=f16[4,8] b=f16[8,6]"), "a is f16: f32 is wanted");
  EXPECT_EQ(reason(kMatMulPacked[0], "a=f32[4,8] b=f32[8,6]"), "b is no constant, so it cannot be packed ahead");
  EXPECT_EQ(reason(kMatVec[0], "a=f32[5,8] b=f32[8,6]!"), "5 rows, at most 4");
  EXPECT_EQ(reason(kMatVec[0], "a=f32[4,8] b=f32[8,6]!"), "");
}

TEST(MatMul, OneRowHasThreeKernels) {
  const Problem p = parse_problem(op("MatMul"), "a=f32[1,4096] b=f32[4096,4096]!");
  const Choice choice = choose_kernel(p, unmeasured_ceilings());
  int usable = 0;
  for (const Candidate& c : choice.candidates) usable += c.support.ok;
  EXPECT_GE(usable, 3);
  EXPECT_EQ(choice.winner().kernel->name, "cpu.matvec");
  const Problem wide = parse_problem(op("MatMul"), "a=f32[128,768] b=f32[768,3072]!");
  EXPECT_EQ(choose_kernel(wide, unmeasured_ceilings()).winner().kernel->name, "cpu.matmul_packed");
}

}  // namespace
}  // namespace ridgeline
