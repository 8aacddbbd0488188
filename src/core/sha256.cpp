// SHA-256 (FIPS 180-4, section 6.2): a name for an output's bytes. OpenSSL would be a dependency for this alone.
#include "core/sha256.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

namespace ridgeline {
namespace {

// First 32 bits of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

void compress(std::array<uint32_t, 8>& h, const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t)
    w[t] = uint32_t(block[4 * t]) << 24 | uint32_t(block[4 * t + 1]) << 16 | uint32_t(block[4 * t + 2]) << 8 |
           block[4 * t + 3];
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  std::array<uint32_t, 8> v = h;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    const uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + kRound[t] + w[t];
    const uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    const uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
    v = {t1 + t2, v[0], v[1], v[2], v[3] + t1, v[4], v[5], v[6]};
  }
  for (size_t i = 0; i < 8; ++i) h[i] += v[i];
}

// Bytes in pieces; all but the last a multiple of 64.
class Hash {
 public:
  void whole_blocks(const uint8_t* p, size_t bytes) {
    total_ += bytes;
    for (; bytes >= 64; bytes -= 64, p += 64) compress(h_, p);
  }
  std::string finish(const uint8_t* p, size_t bytes) {
    whole_blocks(p, bytes);
    const size_t left = bytes % 64;
    std::array<uint8_t, 128> tail{};
    if (left) std::memcpy(tail.data(), p + bytes - left, left);
    tail[left] = 0x80;
    const size_t length = left < 56 ? 64 : 128;
    for (size_t i = 0; i < 8; ++i) tail[length - 1 - i] = uint8_t(total_ * 8 >> (8 * i));
    compress(h_, tail.data());
    if (length == 128) compress(h_, tail.data() + 64);
    std::string hex;
    constexpr char kDigits[] = "0123456789abcdef";
    for (uint32_t word : h_)
      for (int shift = 28; shift >= 0; shift -= 4) hex += kDigits[(word >> shift) & 15];
    return hex;
  }

 private:
  std::array<uint32_t, 8> h_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t total_ = 0;
};

}  // namespace

std::string sha256(const void* data, size_t bytes) { return Hash().finish(static_cast<const uint8_t*>(data), bytes); }

std::string sha256_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  Hash hash;
  std::vector<char> piece(1 << 20);
  for (;;) {
    in.read(piece.data(), std::streamsize(piece.size()));
    const size_t got = size_t(in.gcount());
    const auto* bytes = reinterpret_cast<const uint8_t*>(piece.data());
    if (got < piece.size()) return hash.finish(bytes, got);
    hash.whole_blocks(bytes, got);
  }
}

}  // namespace ridgeline
