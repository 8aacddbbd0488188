// Finding libraries, and what they all are asked.
#include "rivals/rival.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "rivals/libraries.h"

namespace ridgeline {

std::string rival_folders() {
  const char* const variable = std::getenv("RIDGELINE_RIVALS");
  return variable ? variable : "";
}

Library::Library(std::initializer_list<const char*> names, std::string_view package) {
  const std::string folders = rival_folders();
  std::string errors;
  for (size_t at = 0; at <= folders.size() && !handle_;) {
    const size_t colon = std::min(folders.find(':', at), folders.size());
    const std::string folder = folders.substr(at, colon - at);
    at = colon + 1;
    for (const char* name : names) {
      path_ = folder.empty() ? name : folder + "/" + name;
      // Local: two BLAS libraries have the same names, and each must find its own.
      if ((handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
      const char* const error = dlerror();
      errors += fmt::format("{}{}", errors.empty() ? "" : "; ", error ? error : path_);
    }
  }
  if (!handle_)
    reason_ =
        fmt::format("not found: install Debian's {}, or name its folder in RIDGELINE_RIVALS ({})", package, errors);
}

void* Library::find(const char* symbol) {
  void* const address = dlsym(handle_, symbol);
  if (!address) reason_ = fmt::format("{} has no {}", path_, symbol);
  return address;
}

Product product_of(const Problem& p) {
  Product out;
  const std::string_view name = p.op->name;
  if (name != "MatMul" && name != "FusedMatMul" && name != "MatMulInteger" && name != "Gemm") {
    out.reason = "only products of matrices";
    return out;
  }
  for (int i = 2; i < p.op_inputs; ++i) {
    if (!p.has(i)) continue;
    out.reason = "only products without an addend or zero points";
    return out;
  }
  if (name == "FusedMatMul" && (p.flag("transBatchA") || p.flag("transBatchB"))) {
    out.reason = "only batches that stand first";
    return out;
  }
  const Extents &a = p.input(0).shape(), &b = p.input(1).shape();
  if (a.size() < 2 || b.size() < 2 || p.output().elements() == 0) {
    out.reason = "only matrices, not empty";
    return out;
  }
  if (name == "FusedMatMul" || name == "Gemm") {
    out.alpha = p.number("alpha");
    out.trans_a = p.flag("transA");
    out.trans_b = p.flag("transB");
  }
  out.m = a[a.size() - (out.trans_a ? 1 : 2)];
  out.k = a[a.size() - (out.trans_a ? 2 : 1)];
  out.n = b[b.size() - (out.trans_b ? 2 : 1)];
  out.batch = p.output().elements() / (out.m * out.n);
  const bool shared = p.input(1).elements() == out.k * out.n;
  if (shared && !out.trans_a && p.input(0).elements() == out.batch * out.m * out.k) {
    out.m *= out.batch;
    out.batch = 1;
  } else if (out.batch > 1 && (p.input(0).elements() != out.batch * out.m * out.k ||
                               p.input(1).elements() != out.batch * out.n * out.k)) {
    out.reason = "only batches of equal count, or one B for all";
  }
  return out;
}

std::vector<Rival> rivals_of(const Problem& problem) {
  std::vector<Rival> all;
  for (auto* of : {onednn_rivals, openblas_rivals, blis_rivals}) {
    std::vector<Rival> some = of(problem);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace ridgeline
