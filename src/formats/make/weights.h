// A synthetic weight: how its values come about, so that they can be made while the file is written.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridgeline::make {

/// splitmix64 (Steele, Lea, Flood, 2014): one multiply chain a number, any seed is good, streams of different seeds
/// differ.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  float uniform() { return float(next() >> 40) * 0x1p-24f; }
  /// Mean 0, variance 1: the sum of the four 16-bit parts of one number (Irwin-Hall), so |x| < 3.5. The tails do not
  /// matter for weights, the time does: 110 million of them take 0.1 s.
  float normal() {
    const uint64_t bits = next();
    const int sum = int(bits & 0xffff) + int(bits >> 16 & 0xffff) + int(bits >> 32 & 0xffff) + int(bits >> 48);
    return float(sum - 131070) * (1.7320508f / 65536);
  }

 private:
  uint64_t state_;
};

/// Values are drawn in row-major order from the weight's own stream, whatever was drawn for others.
struct Weight {
  enum class Kind { kNormal, kUniform, kFloats, kInts };

  std::string name;
  std::vector<int64_t> dims;
  Kind kind = Kind::kNormal;
  float a = 0, b = 1;  // mean and deviation, or the ends of the interval
  uint64_t seed = 0;
  std::vector<float> floats;  // kFloats
  std::vector<int64_t> ints;  // kInts

  int64_t elements() const;
  int64_t bytes() const { return elements() * (kind == Kind::kInts ? 8 : 4); }
};

/// The values of a float weight, from the first on, in as many calls as one likes.
class WeightStream {
 public:
  explicit WeightStream(const Weight& weight) : weight_(weight), random_(weight.seed) {}
  void fill(std::span<float> out);

 private:
  const Weight& weight_;
  Random random_;
  size_t at_ = 0;
};

}  // namespace ridgeline::make
