// What each library adds to rivals_of, and what they share.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "rivals/rival.h"

namespace ridgeline {

/// RIDGELINE_RIVALS. What a library opens to is kept by it: another value looks again.
std::string rival_folders();

/// A shared library opened at run time, never closed (threads of its own may run).
class Library {
 public:
  /// The first that opens of these names in each folder in turn; `package` is Debian's, for the reason.
  Library(std::initializer_list<const char*> names, std::string_view package);
  bool open() const { return handle_ != nullptr; }
  const std::string& reason() const { return reason_; }  // why it is not open
  /// Sets `function`; false, and a reason, if the library and those it needs have no such name.
  template <typename Function>
  bool find(const char* symbol, Function*& function) {
    function = reinterpret_cast<Function*>(find(symbol));
    return function != nullptr;
  }

 private:
  void* find(const char* symbol);
  void* handle_ = nullptr;
  std::string path_, reason_;
};

/// y = alpha * A' B', the same for `batch` products if B is shared by them all: then they are one of batch * m rows.
struct Product {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  double alpha = 1;
  std::string reason;  // why the problem is no such product
};
Product product_of(const Problem& problem);

std::vector<Rival> onednn_rivals(const Problem& problem);
std::vector<Rival> openblas_rivals(const Problem& problem);
std::vector<Rival> blis_rivals(const Problem& problem);

}  // namespace ridgeline
