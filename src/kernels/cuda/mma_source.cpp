#include "kernels/cuda/mma_source.h"

#include <cassert>

#include <fmt/format.h>

namespace ridgeline::cuda {

std::string wgmma_function(DType dtype, int n, const std::string& name, bool a_along_k, bool b_along_k) {
  struct Form {
    const char* shape;
    const char* types;
    bool scales, transposes, whole;
  };
  const auto form = [&]() -> Form {
    switch (dtype) {
      case DType::kBF16:
        return {"k16", "f32.bf16.bf16", true, true, false};
      case DType::kF16:
        return {"k16", "f32.f16.f16", true, true, false};
      case DType::kF32:
        return {"k8", "f32.tf32.tf32", true, false, false};
      case DType::kF8E4M3:
        return {"k32", "f32.e4m3.e4m3", true, false, false};
      default:
        assert(dtype == DType::kI8);
        return {"k32", "s32.s8.s8", false, false, true};
    }
  }();
  std::string registers, operands;
  for (int i = 0; i < n / 2; ++i) {
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+{}\"(sum[{}])", i ? ", " : "", form.whole ? "r" : "f", i);
  }
  const int at = n / 2;
  return fmt::format(
      "using WgmmaSum = {0};\n"
      "__device__ __forceinline__ void {1}(WgmmaSum (&sum)[{2}], u64 a, u64 b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{3}, 0;\\n\"\n"
      "               \"wgmma.mma_async.sync.aligned.m64n{4}{5}.{6} {{{7}}}, %{8}, %{9}, p{10}{11};\\n}}\\n\"\n"
      "               : {12}\n               : \"l\"(a), \"l\"(b), \"r\"(add));\n}}\n",
      form.whole ? "int" : "float", name, n / 2, at + 2, n, form.shape, form.types, registers, at, at + 1,
      form.scales ? ", 1, 1" : "", form.transposes ? fmt::format(", {:d}, {:d}", !a_along_k, !b_along_k) : "",
      operands);
}
std::string wgmma_from_registers(DType dtype, int n, const std::string& name) {
  const char* const type = dtype == DType::kBF16 ? "bf16" : "f16";
  std::string registers, operands;
  for (int i = 0; i < n / 2; ++i) {
    registers += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(sum[{}])", i ? ", " : "", i);
  }
  const int at = n / 2;
  return fmt::format(
      "__device__ __forceinline__ void {0}(float (&sum)[{1}], const u32 (&a)[4], u64 b, int add) {{\n"
      "  asm volatile(\"{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{2}, 0;\\n\"\n"
      "               \"wgmma.mma_async.sync.aligned.m64n{3}k16.f32.{4}.{4} {{{5}}}, {{%{6}, %{7}, %{8}, %{9}}}, "
      "%{10}, "
      "p, 1, 1, 1;\\n}}\\n\"\n"
      "               : {11}\n               : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), "
      "\"r\"(add));\n}}\n",
      name, n / 2, at + 5, n, type, registers, at, at + 1, at + 2, at + 3, at + 4, operands);
}

}  // namespace ridgeline::cuda
