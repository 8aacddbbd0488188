// The movement kernels against the reference: bits must be equal, whatever the layouts and the size of an element.
#include <gtest/gtest.h>

#include "kernel_problem.h"

namespace ridgeline {
namespace {

const Kernel& kernel(std::string_view name) {
  for (const Kernel* k : cpu::movement_kernels())
    if (k->name == name) return *k;
  throw std::runtime_error(std::string(name));
}

void check(const char* name, const char* domain, std::initializer_list<const char*> cases) {
  for (const char* keys : cases) {
    const Kernel& k = kernel(name);
    test::check(k, *find_op(k.op, domain), keys, 0);
  }
}

TEST(Movement, Copy) {
  check("cpu.copy", "ridgeline",
        {"x=f32[2,3,4,5]", "x=f32[2,3,4,5]~cl", "x=f32[2,3,40,50] out=~cl", "x=f32[1,64,56,56] out=~cl",
         "x=f32[1,64,56,56]~cl", "x=f32[2,37,19,23]~cl", "x=f32[2,37,19,23] out=~cl", "x=f64[2,37,19,23]~cl",
         "x=f16[2,37,19,23] out=~cl", "x=u8[2,37,19,23]~cl", "x=f32[0,3]", "x=f32[]", "x=f32[7]",
         "x=f32[300,500]~1x300", "x=i64[30,50]~1x30", "x=f32[3,33,65]~5000x70x1", "x=bool[3,5]"});
}

TEST(Movement, Transpose) {
  check("cpu.transpose", "",
        {"data=f32[3,5]", "data=f32[257,300]", "data=f32[2,3,4] perm=1,0,2", "data=f32[2,128,12,64] perm=0,2,1,3",
         "data=f32[4,5,6,7] perm=3,1,2,0", "data=f32[2,3,4,5] perm=0,3,1,2", "data=f32[2,17,33,5] perm=0,2,3,1",
         "data=f16[17,33]", "data=u8[170,330]", "data=f64[17,33]", "data=f32[0,3]", "data=f32[5]",
         "data=f32[2,3,4,5,6] perm=4,0,3,1,2", "data=f32[2,16,16,48]~cl perm=0,2,3,1"});
}

TEST(Movement, Views) {
  check("cpu.reshape", "",
        {"data=f32[2,3,4] shape=i64{4,6}", "data=f32[2,3,4,5]~cl shape=i64{2,60}",
         "data=f32[2,12] shape=i64{2,3,2,2} out=~cl"});
  check("cpu.flatten", "", {"input=f32[2,3,4]"});
  check("cpu.identity", "", {"x=i64[2,3,4]"});
  check("cpu.expand", "",
        {"input=f32[3,1] shape=i64{2,3,70}", "input=f32[70] shape=i64{3,70}", "input=i64[1] shape=i64{5}"});
  check("cpu.tile", "",
        {"input=f32[2,3] repeats=i64{2,4}", "input=u8[5] repeats=i64{3}", "input=f32[2,3,4] repeats=i64{1,0,2}"});
}

TEST(Movement, Parts) {
  check("cpu.slice", "",
        {"data=f32[20,10,5] starts=i64{0,0} ends=i64{3,10} axes=i64{0,1}",
         "data=f32[20,10] starts=i64{-1} ends=i64{-20} axes=i64{1} steps=i64{-2}",
         "data=f32[20,10] starts=i64{1,-3}  ends=i64{1000,9}",
         "data=f16[2,8,4,4]~cl starts=i64{1} ends=i64{7} axes=i64{1} steps=i64{3}"});
  check("cpu.concat", "",
        {"inputs=f32[2,3] inputs1=f32[2,4] axis=1", "inputs=f32[2,3,4,4]~cl inputs1=f32[2,5,4,4] axis=1 out=~cl",
         "inputs=i64[3] inputs1=i64[0] inputs2=i64[2] axis=0", "inputs=f32[2,3] inputs1=f32[1,3] axis=0"});
  check("cpu.split", "", {"input=f32[7,4] split=i64{7}"});
  check("cpu.depth_to_space", "",
        {"input=f32[2,12,3,5] blocksize=2", "input=f32[1,27,2,3] blocksize=3 mode=CRD",
         "input=f32[1,64,8,8]~cl blocksize=2 out=~cl"});
  check("cpu.space_to_depth", "", {"input=f32[2,3,6,10] blocksize=2", "input=i64[1,2,4,4] blocksize=2"});
}

TEST(Movement, SplitInParts) {
  const Kernel& k = kernel("cpu.split");
  Problem p = parse_problem(*find_op("Split"), "input=f32[4,7,5] axis=1 split=i64{7}");
  p.inputs[1].constant = Tensor::of<int64_t>({3}, {3, 0, 4});
  p.outputs.assign(3, p.outputs[0]);
  const int64_t sizes[] = {3, 0, 4};
  std::vector<Tensor> parts;
  std::vector<void*> out;
  for (int i = 0; i < 3; ++i) {
    p.outputs[size_t(i)].layout = Layout(Extents{4, sizes[i], 5});
    parts.push_back(Tensor(DType::kF32, p.outputs[size_t(i)].shape()));
    out.push_back(parts.back().data());
  }
  std::mt19937 random(1);
  const Tensor x = test::random_tensor(DType::kF32, {4, 7, 5}, random);
  void* in[2] = {x.data(), p.inputs[1].constant.data()};
  KernelCall call;
  call.problem = p;
  call.state = k.prepare(p, {});
  k.run(call, {in, out.data(), nullptr}, ThreadPool(1));
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t c = 0; c < 5; ++c) {
      EXPECT_EQ(parts[0].f64((i * 3 + 2) * 5 + c), x.f64((i * 7 + 2) * 5 + c));
      EXPECT_EQ(parts[2].f64((i * 4 + 3) * 5 + c), x.f64((i * 7 + 6) * 5 + c));
    }
}

TEST(Movement, Pad) {
  check("cpu.pad", "",
        {"data=f32[2,3,5] pads=i64{0,1,2,1,0,3}", "data=f32[3,4] pads=i64{2,3} axes=i64{-1} mode=reflect",
         "data=f32[3,4] pads=i64{1,1,2,2} mode=edge", "data=i64[3,4] pads=i64{4,1,2,5} mode=wrap",
         "data=f32[5,6] pads=i64{-1,2,0,-3}", "data=f16[0,4] pads=i64{1,0,1,0} constant_value=f16[]",
         "data=f32[1,8,6,5]~cl pads=i64{0,0,1,2,0,0,3,1} out=~cl constant_value=f32[]",
         "data=f32[4,5] pads=i64{3,2,1,4} mode=reflect", "data=f32[5,6] pads=i64{-5,2,2,-3}"});
}

TEST(Movement, Gather) {
  for (const char* keys :
       {"data=f32[25,64] indices=i64[3,5]", "data=f16[2,21,7] indices=i32[4] axis=1", "data=i64[30] indices=i64[]"})
    test::expect_close(test::run_kernel(kernel("cpu.gather"), *find_op("Gather"), keys, 2), keys, 0);
}

TEST(Movement, Resize) {
  for (const char* keys :
       {"X=f32[2,3,5,7] sizes=i64{2,3,10,14}", "X=f32[1,2,5,4] sizes=i64{7,9} axes=-2,-1 mode=linear",
        "X=f32[2,9] sizes=i64{2,4} mode=linear coordinate_transformation_mode=align_corners",
        "X=f32[1,20,5,7]~cl sizes=i64{1,20,10,14} out=~cl",
        "X=f32[1,20,5,7]~cl sizes=i64{1,20,9,13} out=~cl mode=linear",
        "X=f32[1,3,8,8] sizes=i64{1,3,4,4} coordinate_transformation_mode=asymmetric nearest_mode=floor",
        "X=f32[1,2,3,4,5] sizes=i64{1,2,6,7,8} mode=linear coordinate_transformation_mode=pytorch_half_pixel",
        "X=f32[1,2,6,6] sizes=i64{1,2,3,9} mode=linear"})
    test::check(kernel("cpu.resize"), *find_op("Resize"), keys, 4, 1);
}

TEST(Movement, LargeCopiesAreStreamed) { check("cpu.transpose", "", {"data=f32[2100,2064]", "data=f32[2064,2112]"}); }

}  // namespace
}  // namespace ridgeline
