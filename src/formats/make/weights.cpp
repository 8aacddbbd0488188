#include "formats/make/weights.h"

#include <algorithm>
#include <cassert>

namespace ridgeline::make {

int64_t Weight::elements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

void WeightStream::fill(std::span<float> out) {
  const float a = weight_.a, b = weight_.b;
  switch (weight_.kind) {
    case Weight::Kind::kNormal:
      for (float& x : out) x = a + b * random_.normal();
      break;
    case Weight::Kind::kUniform:
      for (float& x : out) x = a + (b - a) * random_.uniform();
      break;
    case Weight::Kind::kFloats:
      assert(at_ + out.size() <= weight_.floats.size());
      std::copy_n(weight_.floats.begin() + int64_t(at_), out.size(), out.begin());
      break;
    case Weight::Kind::kInts:
      assert(false);
  }
  at_ += out.size();
}

}  // namespace ridgeline::make
