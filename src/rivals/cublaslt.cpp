#include "rivals/cublaslt.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

#include "kernels/cuda/compiler.h"
#include "rivals/libraries.h"

namespace ridgeline {
namespace {

// Values and layouts of cuBLASLt's C interface (cuBLAS documentation, "Using the cuBLASLt API", versions 12 and 13).
constexpr int kCompute32F = 68, kTransA = 3, kTransB = 4, kMaxWorkspace = 1;
struct Heuristic {
  std::array<uint64_t, 8> algorithm;
  size_t workspace;
  int state;
  float waves;
  std::array<int, 4> reserved;
};

struct Lt {
  int (*create)(void** handle);
  size_t (*version)();
  int (*desc_create)(void** desc, int compute, int scale);
  int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes);
  int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading);
  int (*preference_create)(void** preference);
  int (*preference_set)(void* preference, int attribute, const void* value, size_t bytes);
  int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference, int wanted,
                   Heuristic* results, int* found);
  int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const void* algorithm, void* workspace, size_t bytes, cuda::Stream);
  void* handle = nullptr;
  std::string trouble;
};

Lt load() {
  Lt lt;
  std::vector<std::string> folders = {""};
  const std::string given = rival_folders();
  for (size_t at = 0; at < given.size();) {
    const size_t colon = std::min(given.find(':', at), given.size());
    folders.push_back(given.substr(at, colon - at));
    at = colon + 1;
  }
  for (const std::string& folder : cuda::library_folders()) folders.push_back(folder);
  void* library = nullptr;
  for (const std::string& folder : folders)
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"})
      if (!library) library = dlopen((folder.empty() ? name : folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    lt.trouble = "not found: install the toolkit or PyPI's nvidia-cublas, or name its folder in RIDGELINE_RIVALS";
    return lt;
  }
  const std::pair<const char*, void*> entries[] = {
      {"cublasLtCreate", &lt.create},
      {"cublasLtGetVersion", &lt.version},
      {"cublasLtMatmulDescCreate", &lt.desc_create},
      {"cublasLtMatmulDescSetAttribute", &lt.desc_set},
      {"cublasLtMatrixLayoutCreate", &lt.layout_create},
      {"cublasLtMatmulPreferenceCreate", &lt.preference_create},
      {"cublasLtMatmulPreferenceSetAttribute", &lt.preference_set},
      {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic},
      {"cublasLtMatmul", &lt.matmul},
  };
  for (const auto& [name, place] : entries) {
    void* const symbol = dlsym(library, name);
    if (!symbol) {
      lt.trouble = fmt::format("it has no {}", name);
      return lt;
    }
    *static_cast<void**>(place) = symbol;
  }
  if (const int status = lt.create(&lt.handle); status != 0) lt.trouble = fmt::format("its start fails ({})", status);
  return lt;
}

int type_of(DType dtype) {
  return dtype == DType::kBF16 ? 14 : dtype == DType::kF16 ? 2 : dtype == DType::kF32 ? 0 : -1;
}

}  // namespace

std::vector<CudaRival> cublaslt_rivals(const Problem& problem, int most) {
  static const Lt lt = load();
  const auto none = [](std::string reason) { return std::vector<CudaRival>{{"cublaslt", std::move(reason), nullptr}}; };
  if (!lt.trouble.empty()) return none(lt.trouble);
  const Product product = product_of(problem);
  if (!product.reason.empty()) return none(product.reason);
  const int in = type_of(problem.input(0).dtype), out = type_of(problem.output().dtype);
  if (in < 0 || out < 0 || problem.input(1).dtype != problem.input(0).dtype) return none("only f32, f16 and bf16");
  if (product.batch != 1 || product.trans_a || problem.has_epilogue())
    return none("only one product of row-major rows, without an epilogue");
  if (!problem.input(1).is_constant) return none("only constant weights");
  // Column-major: D^T [n,m] = B [k,n]^T A [k,m], B's columns being our rows [n,k].
  void *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr, *preference = nullptr;
  const int transposed = 1, plain = 0;
  const size_t workspace = kCudaRivalWorkspace;
  std::array<Heuristic, 8> results{};
  int found = 0;
  const bool ready =
      lt.desc_create(&desc, kCompute32F, 0) == 0 && lt.desc_set(desc, kTransA, &transposed, sizeof transposed) == 0 &&
      lt.desc_set(desc, kTransB, &plain, sizeof plain) == 0 &&
      lt.layout_create(&b, in, uint64_t(product.k), uint64_t(product.n), product.k) == 0 &&
      lt.layout_create(&a, in, uint64_t(product.k), uint64_t(product.m), product.k) == 0 &&
      lt.layout_create(&d, out, uint64_t(product.n), uint64_t(product.m), product.n) == 0 &&
      lt.preference_create(&preference) == 0 &&
      lt.preference_set(preference, kMaxWorkspace, &workspace, sizeof workspace) == 0 &&
      lt.heuristic(lt.handle, desc, b, a, d, d, preference, int(results.size()), results.data(), &found) == 0;
  if (!ready || found == 0) return none("it has no algorithm for the problem");
  const size_t version = lt.version();
  std::vector<CudaRival> rivals;
  for (int i = 0; i < std::min(found, most); ++i) {
    CudaRival rival;
    rival.name = fmt::format("cublaslt {}.{} #{}", version / 10000, version / 100 % 100, i);
    const auto algorithm = std::make_shared<Heuristic>(results[size_t(i)]);
    const float alpha = float(product.alpha);
    rival.run = [=](cuda::Stream stream, const void* activations, const void* weights, void* result, void* room) {
      const float one = alpha, zero = 0;
      const int status = lt.matmul(lt.handle, desc, &one, weights, b, activations, a, &zero, result, d, result, d,
                                   algorithm->algorithm.data(), room, workspace, stream);
      if (status != 0) fail(ErrorCode::kResource, "cublasLtMatmul fails with status {}", status);
    };
    rivals.push_back(std::move(rival));
  }
  return rivals;  // its descriptions live as long as the process
}

}  // namespace ridgeline
