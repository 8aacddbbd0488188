// OpenBLAS and BLIS: products of f32 by the C interface of BLAS. Neither can be given a B that was packed before.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>

#include "rivals/libraries.h"

namespace ridgeline {
namespace {

// Values of CBLAS, from its C interface (BLAS Technical Forum, 2001).
constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
using Sgemm = void(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                   const float* b, int ldb, float beta, float* c, int ldc);
using Sgemv = void(int order, int trans, int m, int n, float alpha, const float* a, int lda, const float* x,
                   int increment_x, float beta, float* y, int increment_y);

struct Blas {
  Library library;
  std::string name;  // "openblas 0.3.21 SkylakeX"
  std::function<void(int)> set_threads;
  Sgemm* gemm = nullptr;
  Sgemv* gemv = nullptr;

  explicit Blas(Library opened) : library(std::move(opened)) {
    if (library.open() && library.find("cblas_sgemm", gemm)) library.find("cblas_sgemv", gemv);
  }
  bool usable() const { return gemv && set_threads && !name.empty(); }
};

class BlasStep : public RivalStep {
 public:
  BlasStep(const Blas& blas, const Product& product, const Problem& problem) : blas_(blas), product_(product) {
    for (const Operand& o : problem.inputs) bytes_.push_back(o.bytes());
    output_bytes_ = problem.output().bytes();
  }
  int64_t input_bytes(int input) const override { return bytes_[size_t(input)]; }
  int64_t output_bytes() const override { return output_bytes_; }
  void load(int, const Tensor& from, void* to) override { std::memcpy(to, from.data(), size_t(from.bytes())); }
  void unload(const void* from, Tensor& to) override { std::memcpy(to.data(), from, size_t(to.bytes())); }
  void bind(const std::vector<void*>& inputs, void* output) override {
    sets_.push_back(
        {static_cast<const float*>(inputs[0]), static_cast<const float*>(inputs[1]), static_cast<float*>(output)});
  }
  void run(size_t set) override {
    const auto& [a, b, c] = sets_[set];
    const Product& p = product_;
    const int m = int(p.m), n = int(p.n), k = int(p.k);
    const int lda = p.trans_a ? m : k, ldb = p.trans_b ? k : n;
    if (m == 1)
      blas_.gemv(kRowMajor, p.trans_b ? kPlain : kTransposed, p.trans_b ? n : k, ldb, float(p.alpha), b, ldb, a, 1, 0,
                 c, 1);
    else
      blas_.gemm(kRowMajor, p.trans_a ? kTransposed : kPlain, p.trans_b ? kTransposed : kPlain, m, n, k, float(p.alpha),
                 a, lda, b, ldb, 0, c, n);
  }

 private:
  struct Set {
    const float *a, *b;
    float* c;
  };
  const Blas& blas_;
  Product product_;
  std::vector<int64_t> bytes_;
  int64_t output_bytes_;
  std::vector<Set> sets_;
};

std::string why_not(const Problem& problem, const Product& product) {
  if (!product.reason.empty()) return "a BLAS: " + product.reason;
  if (problem.has_epilogue()) return "a BLAS has no epilogues";
  for (const Operand* o : {&problem.inputs[0], &problem.inputs[1], &problem.outputs[0]})
    if (o->dtype != DType::kF32 || !o->layout.is_row_major()) return "a BLAS: only f32, timed row-major";
  if (product.batch > 1) return "a BLAS: one product a call";
  if (std::max({product.m, product.n, product.k}) > INT32_MAX) return "a BLAS of 32-bit extents";
  return "";
}

std::vector<Rival> rivals(const Blas& blas, const std::string& short_name, const Problem& problem) {
  std::vector<Rival> out(1);
  Rival& rival = out.front();
  rival.name = blas.usable() ? blas.name : short_name;
  const Product product = product_of(problem);
  rival.reason = blas.usable() ? why_not(problem, product) : blas.library.reason();
  if (!rival.reason.empty()) return out;
  blas.set_threads(problem.threads);
  rival.name += product.m == 1 ? " gemv" : " gemm";
  rival.step = std::make_unique<BlasStep>(blas, product, problem);
  return out;
}

Blas open_openblas() {
  Blas blas(Library({"libopenblas.so.0", "libopenblas.so"}, "libopenblas0-pthread"));
  const char* (*config)() = nullptr;
  const char* (*core)() = nullptr;
  void (*set_threads)(int) = nullptr;
  if (blas.gemv && blas.library.find("openblas_get_config", config) &&
      blas.library.find("openblas_get_corename", core) && blas.library.find("openblas_set_num_threads", set_threads)) {
    blas.set_threads = set_threads;
    const std::string words = config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
    const size_t version = words.find(' ') + 1;
    blas.name = fmt::format("openblas {} {}", words.substr(version, words.find(' ', version) - version), core());
  }
  return blas;
}

Blas open_blis() {
  Blas blas(Library({"libblis.so.4", "libblis.so.3", "libblis.so"}, "libblis4-pthread"));
  const char* (*version)() = nullptr;
  int (*arch)() = nullptr;
  const char* (*arch_name)(int) = nullptr;
  void (*set_threads)(int64_t) = nullptr;  // its dim_t
  if (blas.gemv && blas.library.find("bli_info_get_version_str", version) &&
      blas.library.find("bli_arch_query_id", arch) && blas.library.find("bli_arch_string", arch_name) &&
      blas.library.find("bli_thread_set_num_threads", set_threads)) {
    blas.set_threads = [set_threads](int threads) { set_threads(threads); };
    blas.name = fmt::format("blis {} {}", version(), arch_name(arch()));
  }
  return blas;
}

const Blas& kept(std::map<std::string, Blas>& opened, Blas (*open)()) {
  const std::string folders = rival_folders();
  auto it = opened.find(folders);
  if (it == opened.end()) it = opened.emplace(folders, open()).first;
  return it->second;
}

}  // namespace

std::vector<Rival> openblas_rivals(const Problem& problem) {
  static std::map<std::string, Blas> opened;
  return rivals(kept(opened, open_openblas), "openblas", problem);
}

std::vector<Rival> blis_rivals(const Problem& problem) {
  static std::map<std::string, Blas> opened;
  return rivals(kept(opened, open_blis), "blis", problem);
}

}  // namespace ridgeline
