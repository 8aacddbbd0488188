// The smallest use of the installed copy: headers found, library linked, values right.
#include <cstdio>

#include "ridgeline/ridgeline.h"

int main() {
  const ridgeline::Tensor tensor = ridgeline::Tensor::from<float>({2, 2}, {1, 2, 3, 4});
  const bool ok = tensor.bytes() == 16 && tensor.f64(3) == 4;
  std::printf("%s\n", ok ? "ok" : "wrong");
  return ok ? 0 : 1;
}
