// Reductions and pools against the reference, on every vector target.
#include <gtest/gtest.h>

#include "kernel_problem.h"
#include "kernels/cpu/simd.h"

namespace ridgeline {
namespace {

class Reduce : public testing::TestWithParam<const char*> {
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa("native"); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Reduce, testing::Values("native", "avx2", "scalar"));

void check(std::span<const Kernel* const> list, std::string_view name, std::initializer_list<const char*> cases,
           double ulps, double scale) {
  for (const Kernel* k : list)
    if (k->name == name)
      for (const char* keys : cases) test::check(*k, *find_op(k->op), keys, ulps, scale);
}

TEST_P(Reduce, Sums) {
  const auto cases = {"x=f32[3,5,127] axes=i64{-1}",
                      "x=f32[3,5,7] axes=i64{0,2} keepdims=0",
                      "x=f32[7,13,5] axes=i64{1}",
                      "x=f32[3,5,7]",
                      "x=f32[3,5] noop_with_empty_axes=1",
                      "x=f32[3,0,5] axes=i64{0}",
                      "x=f32[2,17,3,5] axes=i64{-2,-1} keepdims=0",
                      "x=f32[300,70] axes=i64{0}",
                      "x=f32[2,33,7,5]~cl axes=i64{2,3}",
                      "x=f32[2,33,7,5]~cl axes=i64{1}",
                      "x=f32[300001]",
                      "x=f32[2,200000] axes=i64{1}",
                      "x=f32[4,5000] axes=i64{0}",
                      "x=f32[5]",
                      "x=f32[]",
                      "x=f32[5,64] axes=i64{1} epilogue='v * 2'"};
  for (const char* name :
       {"cpu.reduce_sum", "cpu.reduce_mean", "cpu.reduce_l1", "cpu.reduce_l2", "cpu.reduce_sum_square"})
    check(cpu::reduce_kernels(), name, cases, 30, 300);  // of sums of absolute values up to 240,000
  for (const char* name : {"cpu.reduce_max", "cpu.reduce_min"}) check(cpu::reduce_kernels(), name, cases, 0, 1);
  check(cpu::reduce_kernels(), "cpu.reduce_prod",
        {"x=f32[3,5,7] axes=i64{1}", "x=f32[3,5,37] axes=i64{2}", "x=f32[3,0,5] axes=i64{1}"}, 16, 1e-30);
}

TEST_P(Reduce, ArgExtreme) {
  const auto cases = {"x=f32[3,5,127] axis=-1", "x=f32[3,5,7] axis=1 keepdims=0", "x=f32[33,3] select_last_index=1",
                      "x=f32[2,9,4] axis=-2 select_last_index=1 keepdims=0"};
  check(cpu::reduce_kernels(), "cpu.arg_max", cases, 0, 1);
  check(cpu::reduce_kernels(), "cpu.arg_min", cases, 0, 1);
}

TEST_P(Reduce, Pools) {
  for (const char* form : {"last", "planes"}) {
    const std::string cl = form == std::string("last") ? "~cl" : "", out = cl.empty() ? "" : " out=~cl";
    for (const std::string& rest :
         {std::string("[2,5,17,13]$ kernel_shape=3,3 strides=2,2 pads=1,1,1,1"),
          std::string("[1,37,9,9]$ kernel_shape=2,2"),
          std::string("[1,3,12,50]$ kernel_shape=3,2 strides=1,2 dilations=2,1"),
          std::string("[1,64,10,11]$ kernel_shape=3,3 pads=0,1,2,1 ceil_mode=1 strides=2,3"),
          std::string("[2,3,40,70]$ kernel_shape=3,3 strides=2,2 pads=1,1,1,1"),
          std::string("[0,3,5,5]$ kernel_shape=2,2"), std::string("[1,4,30]$ kernel_shape=5 auto_pad=SAME_UPPER"),
          std::string("[1,2,3,70]$ kernel_shape=1,3")}) {
      std::string keys = "x=f32" + rest + out;
      const size_t at = keys.find('$');
      keys = keys.substr(0, at) + cl + keys.substr(at + 1);
      check(cpu::pool_kernels(), std::string("cpu.max_pool_") + form, {keys.c_str()}, 0, 1);
      check(cpu::pool_kernels(), std::string("cpu.average_pool_") + form,
            {keys.c_str(), (keys + " count_include_pad=1").c_str()}, 4, 1);
    }
  }
  for (const char* name : {"cpu.global_average_pool", "cpu.global_max_pool"})
    check(cpu::pool_kernels(), name,
          {"x=f32[2,5,7,7]", "x=f32[1,33,1,1]", "x=f32[3,4,19]", "x=f32[0,3,4,4]", "x=f32[2,37,7,7]~cl out=~cl",
           "x=f32[1,600,5,5]~cl", "x=f32[1,1,3,3]", "x=f32[2,40,9,3]~cl epilogue='max(v + e1, 0)' e1=f32[1,40,1,1]"},
          name[11] == 'a' ? 8 : 0, 1);
}

}  // namespace
}  // namespace ridgeline
