// Shapes of convolutions for tests: odd sizes, strides, dilations, pads, groups.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ridgeline {

struct Case {
  bool transposed = false;
  int64_t n = 1, c = 1, h = 1, w = 1, oc = 1, kh = 1, kw = 1;
  int64_t sh = 1, sw = 1, dh = 1, dw = 1, top = 0, left = 0, bottom = 0, right = 0, groups = 1;
  int64_t extra_h = 0, extra_w = 0;  // output_padding
  bool bias = true, flat_1d = false;
  std::string auto_pad;
  int64_t concat = 0;  // further channels of the tensor that the output is a slice of

  int64_t out(int64_t in, int64_t k, int64_t s, int64_t d, int64_t pads, int64_t extra) const {
    const int64_t reach = (k - 1) * d + 1;
    return transposed ? s * (in - 1) + extra + reach - pads : (in + pads - reach) / s + 1;
  }
  int64_t out_h() const { return out(h, kh, sh, dh, top + bottom, extra_h); }
  int64_t out_w() const { return out(w, kw, sw, dw, left + right, extra_w); }
  std::string text() const {
    return fmt::format("{}n{} c{} {}x{} oc{} k{}x{} s{}x{} d{}x{} p{},{},{},{} g{} concat{} {}", transposed ? "T " : "",
                       n, c, h, w, oc, kh, kw, sh, sw, dh, dw, top, left, bottom, right, groups, concat, auto_pad);
  }
};

inline std::vector<Case> fixed_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c) { cases.push_back(c); };
  add({.c = 3,
       .h = 17,
       .w = 19,
       .oc = 8,
       .kh = 7,
       .kw = 7,
       .sh = 2,
       .sw = 2,
       .top = 3,
       .left = 3,
       .bottom = 3,
       .right = 3});
  add({.n = 2, .c = 16, .h = 14, .w = 14, .oc = 40, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1});
  add({.n = 3, .c = 24, .h = 7, .w = 7, .oc = 33});
  add({.c = 20, .h = 9, .w = 11, .oc = 17, .sh = 2, .sw = 2});
  add({.c = 512, .h = 5, .w = 6, .oc = 48});
  add({.c = 512, .h = 6, .w = 5, .oc = 34, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1});
  add({.c = 5,
       .h = 12,
       .w = 40,
       .oc = 24,
       .kh = 3,
       .kw = 5,
       .dh = 2,
       .dw = 2,
       .top = 2,
       .left = 1,
       .bottom = 0,
       .right = 4});
  add({.c = 6, .h = 10, .w = 9, .oc = 12, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1, .groups = 3});
  add({.c = 8, .h = 13, .w = 10, .oc = 64, .kh = 2, .kw = 2, .sh = 2, .sw = 2, .top = 1, .groups = 2, .concat = 5});
  add({.c = 4, .h = 1, .w = 33, .oc = 6, .kh = 1, .kw = 3, .left = 1, .right = 1, .flat_1d = true});
  add({.n = 2,
       .c = 32,
       .h = 3,
       .w = 2,
       .oc = 70,
       .kh = 3,
       .kw = 3,
       .top = 4,
       .left = 4,
       .bottom = 4,
       .right = 4,
       .bias = false});
  add({.c = 9, .h = 30, .w = 1, .oc = 9, .kh = 5, .kw = 1, .sh = 3, .top = 2, .bottom = 2});
  add({.n = 0, .c = 4, .h = 8, .w = 8, .oc = 4, .kh = 3, .kw = 3});
  add({.c = 1, .h = 8, .w = 8, .oc = 1, .kh = 3, .kw = 3, .sh = 1, .sw = 2});
  // Wide enough for minimal filtering.
  add({.n = 2, .c = 32, .h = 14, .w = 13, .oc = 48, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1});
  add({.c = 48,
       .h = 7,
       .w = 30,
       .oc = 32,
       .kh = 3,
       .kw = 3,
       .top = 2,
       .left = 0,
       .bottom = 0,
       .right = 1,
       .concat = 16});
  add({.c = 32, .h = 1, .w = 2, .oc = 32, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1});
  add({.c = 64,
       .h = 33,
       .w = 30,
       .oc = 32,
       .kh = 3,
       .kw = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .bias = false});
  // Depthwise, with one and more outputs a channel.
  for (int64_t k : {3, 5, 7})
    for (int64_t s : {1, 2})
      add({.n = 2,
           .c = 35,
           .h = 15,
           .w = 18,
           .oc = 35,
           .kh = k,
           .kw = k,
           .sh = s,
           .sw = s,
           .top = k / 2,
           .left = k / 2,
           .bottom = k / 2,
           .right = k / 2,
           .groups = 35});
  add({.c = 16,
       .h = 7,
       .w = 5,
       .oc = 16,
       .kh = 3,
       .kw = 3,
       .dh = 2,
       .dw = 3,
       .top = 3,
       .left = 1,
       .bottom = 1,
       .right = 4,
       .groups = 16,
       .concat = 3});
  add({.c = 7, .h = 9, .w = 64, .oc = 21, .kh = 3, .kw = 3, .top = 1, .left = 1, .bottom = 1, .right = 1, .groups = 7});
  add({.c = 48, .h = 1, .w = 50, .oc = 48, .kh = 1, .kw = 9, .left = 4, .right = 4, .groups = 48, .flat_1d = true});
  return cases;
}

inline std::vector<Case> transposed_cases() {
  std::vector<Case> cases;
  const auto add = [&](Case c) { c.transposed = true, cases.push_back(c); };
  add({.c = 16, .h = 6, .w = 9, .oc = 24, .kh = 2, .kw = 2, .sh = 2, .sw = 2});
  add({.n = 2, .c = 24, .h = 5, .w = 7, .oc = 1, .kh = 2, .kw = 2, .sh = 2, .sw = 2});
  add({.c = 5,
       .h = 4,
       .w = 6,
       .oc = 40,
       .kh = 3,
       .kw = 3,
       .sh = 2,
       .sw = 2,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .extra_h = 1,
       .extra_w = 1});
  add({.c = 3,
       .h = 7,
       .w = 5,
       .oc = 7,
       .kh = 4,
       .kw = 4,
       .sh = 3,
       .sw = 2,
       .top = 1,
       .left = 2,
       .bottom = 0,
       .right = 1});
  add({.c = 8,
       .h = 6,
       .w = 6,
       .oc = 8,
       .kh = 3,
       .kw = 3,
       .sh = 2,
       .sw = 3,
       .dh = 2,
       .dw = 3,
       .top = 2,
       .left = 1,
       .bottom = 2,
       .right = 1});
  add({.c = 6,
       .h = 5,
       .w = 5,
       .oc = 9,
       .kh = 3,
       .kw = 3,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .groups = 3,
       .bias = false});
  add({.c = 4, .h = 3, .w = 3, .oc = 5, .kh = 2, .kw = 2, .sh = 4, .sw = 3});  // gaps that no tap reaches
  add({.c = 4, .h = 1, .w = 10, .oc = 6, .kh = 1, .kw = 4, .sw = 2, .left = 1, .right = 1, .flat_1d = true});
  add({.c = 4,
       .h = 6,
       .w = 5,
       .oc = 4,
       .kh = 3,
       .kw = 3,
       .sh = 2,
       .sw = 2,
       .top = 1,
       .left = 1,
       .bottom = 1,
       .right = 1,
       .groups = 4,
       .concat = 3});
  return cases;
}

}  // namespace ridgeline
