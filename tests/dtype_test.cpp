// Element types of a byte and less: every bit pattern against values written down anew, every rounding against the
// nearest of all values, packing, and the tables of ONNX Cast-28.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "formats/onnx/tensor_proto.h"
#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

// The magnitudes of a format in the order of their codes: a run of equal steps from 0, whose length is twice a
// binade's; then each binade has steps twice as wide. No exponent is taken apart here.
struct SmallFloat {
  DType dtype;
  double step;        // the least magnitude above 0
  int binade, count;  // codes a binade; finite magnitudes, 0 among them
  double largest;     // as the papers give it
  bool infinity, nan, signed_zero;
};
constexpr SmallFloat kFormats[] = {
    {DType::kF8E4M3, 0x1p-9, 8, 127, 448, false, true, true},
    {DType::kF8E5M2, 0x1p-16, 4, 124, 57344, true, true, true},
    {DType::kF8E4M3Fnuz, 0x1p-10, 8, 128, 240, false, true, false},
    {DType::kF8E5M2Fnuz, 0x1p-17, 4, 128, 57344, false, true, false},
    {DType::kF4E2M1, 0.5, 2, 8, 6, false, false, true},
    {DType::kF6E2M3, 0.125, 8, 32, 7.5, false, false, true},
    {DType::kF6E3M2, 0.0625, 4, 32, 28, false, false, true},
};

std::vector<double> magnitudes(const SmallFloat& f) {
  std::vector<double> out = {0};
  double step = f.step;
  for (int code = 1; code < f.count; ++code) {
    if (code > 2 * f.binade && (code - 1) % f.binade == 0) step *= 2;
    out.push_back(out.back() + step);
  }
  return out;
}

double loaded(DType dtype, unsigned code) {
  const auto byte = uint8_t(code);
  return load_f64(dtype, &byte, 0);
}

unsigned stored(DType dtype, double value) {
  uint8_t byte = 0;
  store_f64(dtype, &byte, 0, value);
  return byte;
}

TEST(SmallFloats, EveryPattern) {
  for (const SmallFloat& f : kFormats) {
    const std::vector<double> m = magnitudes(f);
    EXPECT_EQ(m.back(), f.largest) << name(f.dtype);
    EXPECT_EQ(info(f.dtype).largest, f.largest);
    const unsigned half = 1u << (info(f.dtype).bits - 1);
    for (unsigned code = 0; code < 2 * half; ++code) {
      const unsigned magnitude = code % half;
      const double got = loaded(f.dtype, code), sign = code < half ? 1 : -1;
      if (!f.signed_zero && code == half) {
        EXPECT_TRUE(std::isnan(got)) << name(f.dtype);
      } else if (magnitude < m.size()) {
        EXPECT_EQ(got, sign * m[magnitude]) << name(f.dtype) << " " << code;
        EXPECT_EQ(std::signbit(got), sign < 0) << name(f.dtype) << " " << code;
        EXPECT_EQ(stored(f.dtype, got), code) << name(f.dtype);
      } else if (f.infinity && magnitude == m.size()) {
        EXPECT_EQ(got, sign * kInf);
        EXPECT_EQ(stored(f.dtype, got), code);
      } else {
        EXPECT_TRUE(f.nan && std::isnan(got)) << name(f.dtype) << " " << code;
      }
    }
  }
}

// What is nearest, by a search over all magnitudes and the next one that the format would have; of two the even code.
unsigned nearest(const std::vector<double>& m, double x) {
  const auto above = size_t(std::lower_bound(m.begin(), m.end(), x) - m.begin());
  if (above == m.size()) return unsigned(above);
  if (m[above] == x || above == 0) return unsigned(above);
  const double up = m[above] - x, down = x - m[above - 1];
  if (up == down) return unsigned(above % 2 ? above - 1 : above);
  return unsigned(up < down ? above : above - 1);
}

TEST(SmallFloats, NearestOfAll) {
  std::mt19937 random(7);
  for (const SmallFloat& f : kFormats) {
    std::vector<double> m = magnitudes(f);
    const std::vector<double> finite = m;
    m.push_back(2 * m.back() - m[m.size() - 2]);
    std::vector<double> points;
    for (size_t k = 0; k + 1 < m.size(); ++k) {
      const double middle = (m[k] + m[k + 1]) / 2;
      for (const double x : {m[k], middle, std::nextafter(middle, 0), std::nextafter(middle, kInf)})
        points.push_back(x);
    }
    std::uniform_real_distribution<double> spread(-20, 7), wide(0, 1.3 * f.largest);
    for (int k = 0; k < 2000; ++k) points.push_back(k % 2 ? wide(random) : std::exp2(spread(random)));
    points.insert(points.end(), {1e9, 1e300, 1e-300, kInf});
    const unsigned sign = 1u << (info(f.dtype).bits - 1);
    for (const double x : points) {
      const unsigned code = x == kInf ? unsigned(finite.size()) : nearest(m, x);
      const bool beyond = code >= finite.size();
      const double got = loaded(f.dtype, stored(f.dtype, x));
      if (!beyond) {
        EXPECT_EQ(stored(f.dtype, x), code) << name(f.dtype) << " " << x;
        const bool minus = f.signed_zero || code != 0;
        EXPECT_EQ(stored(f.dtype, -x), minus ? sign | code : 0) << name(f.dtype) << " " << -x;
      } else if (f.infinity) {
        EXPECT_EQ(got, kInf) << name(f.dtype) << " " << x;
      } else if (f.nan) {
        EXPECT_TRUE(std::isnan(got)) << name(f.dtype) << " " << x;
      } else {
        EXPECT_EQ(got, f.largest) << name(f.dtype) << " " << x;
      }
    }
    EXPECT_EQ(std::isnan(loaded(f.dtype, stored(f.dtype, kNaN))), f.nan) << name(f.dtype);
  }
}

TEST(SmallFloats, PowersOfTwo) {
  for (unsigned code = 0; code < 255; ++code) {
    EXPECT_EQ(loaded(DType::kF8E8M0, code), std::pow(2.0, int(code) - 127));
    EXPECT_EQ(stored(DType::kF8E8M0, std::pow(2.0, int(code) - 127)), code);
    if (code < 254) EXPECT_EQ(stored(DType::kF8E8M0, 1.0001 * std::pow(2.0, int(code) - 127)), code + 1);
  }
  EXPECT_TRUE(std::isnan(loaded(DType::kF8E8M0, 255)));
  EXPECT_EQ(stored(DType::kF8E8M0, 0), 0u);
  EXPECT_EQ(stored(DType::kF8E8M0, kInf), 254u);
  EXPECT_EQ(stored(DType::kF8E8M0, 1e300), 254u);
  EXPECT_EQ(stored(DType::kF8E8M0, kNaN), 255u);
  EXPECT_EQ(stored(DType::kF8E8M0, -1), 255u);
}

TEST(SmallTypes, LieInOneStreamOfBits) {
  // By the words of onnx.proto: x0 | x1 << 2 | ...; x0 | x1 << 4; and for 6 bits three bytes of four.
  const std::vector<uint8_t> two = {0b11100100, 0b01}, four = {0x21, 0x03}, six = {0b10000001, 0b00110000, 0b00010000};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_i64(DType::kU2, two.data(), i), i);
  EXPECT_EQ(load_i64(DType::kU2, two.data(), 4), 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_i64(DType::kI2, two.data(), i), i < 2 ? i : i - 4);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(load_i64(DType::kU4, four.data(), i), i + 1);
  const unsigned sixes[] = {1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_f64(DType::kF6E2M3, six.data(), i), loaded(DType::kF6E2M3, sixes[i])) << i;
  EXPECT_EQ(bytes_of(DType::kI2, 5), 2);
  EXPECT_EQ(bytes_of(DType::kF6E3M2, 5), 4);
  for (const DType dtype :
       {DType::kI2, DType::kU2, DType::kI4, DType::kU4, DType::kF4E2M1, DType::kF6E2M3, DType::kF6E3M2}) {
    Tensor t = Tensor::zeros(dtype, {11});
    for (int64_t i = 0; i < 11; ++i) {  // back and forth: a store leaves its neighbours
      const int64_t at = i * 7 % 11;
      store_f64(dtype, t.data(), at, double(at % 3) - (info(dtype).is_signed ? 1 : 0));
    }
    for (int64_t i = 0; i < 11; ++i)
      EXPECT_EQ(t.f64(i), double(i % 3) - (info(dtype).is_signed ? 1 : 0)) << name(dtype);
  }
}

TEST(SmallTypes, ThroughTensorProto) {
  ExternalData none("");
  for (const DType dtype : {DType::kI2, DType::kU2, DType::kI4, DType::kU4, DType::kF4E2M1, DType::kF6E2M3,
                            DType::kF6E3M2, DType::kF8E8M0, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz}) {
    Tensor t = Tensor::zeros(dtype, {7});
    for (int64_t i = 0; i < 7; ++i)
      store_f64(dtype, t.data(), i, info(dtype).is_float ? std::exp2(i % 3) : double(i % 2));
    onnx::TensorProto raw;
    put_tensor(t, raw);
    EXPECT_EQ(raw.data_type(), info(dtype).onnx_id);
    EXPECT_EQ(take_tensor(raw, "'t'", none).to_f64(), t.to_f64()) << name(dtype);
    onnx::TensorProto typed;  // one byte an int32; those of 6 bits one number
    typed.set_data_type(info(dtype).onnx_id);
    typed.add_dims(7);
    if (info(dtype).bits == 6) {
      for (int64_t i = 0; i < 7; ++i) typed.add_int32_data(int(stored(dtype, t.f64(i))));
    } else {
      for (int64_t i = 0; i < t.bytes(); ++i) typed.add_int32_data(t.as<uint8_t>()[i]);
    }
    EXPECT_EQ(take_tensor(typed, "'t'", none).to_f64(), t.to_f64()) << name(dtype);
  }
}

std::vector<double> cast(const std::vector<double>& x, DType from, DType to, bool saturate = true,
                         const std::string& mode = "up", std::string_view op = "Cast") {
  Tensor t(from, {int64_t(x.size())});
  for (size_t k = 0; k < x.size(); ++k) store_f64(from, t.data(), int64_t(k), x[k]);
  Attributes a;
  if (op == "Cast") a.set("to", int64_t(info(to).onnx_id));
  a.set("saturate", int64_t(saturate));
  a.set("round_mode", mode);
  std::vector<Tensor> inputs = {t};
  if (op == "CastLike") inputs.push_back(Tensor::zeros(to, {1}));
  return run_reference(*find_op(op), a, inputs, 1)[0].to_f64();
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k)
    EXPECT_TRUE(got[k] == want[k] || (std::isnan(got[k]) && std::isnan(want[k])))
        << what << " " << k << ": " << got[k] << ", wanted " << want[k];
}

TEST(Casts, TablesOfTheStandard) {
  const std::vector<double> x = {0, -0.0, kNaN, kInf, -kInf, 1e6, -1e6, 1.0625};
  for (const std::string_view op : {"Cast", "CastLike"}) {
    for (const SmallFloat& f : kFormats) {
      const double m = f.largest,
                   past = f.infinity ? kInf
                          : f.nan    ? kNaN
                                     : m,
                   one = f.dtype == DType::kF6E2M3 ? 1.0 : 1;
      for (const DType from : {DType::kF32, DType::kF64, DType::kBF16}) {
        const std::vector<double> clamped = {0, 0, f.nan ? kNaN : 0, m, -m, m, -m, 1};
        const std::vector<double> open = {0, 0, f.nan ? kNaN : 0, past, -past, past, -past, 1};
        const std::string what = fmt::format("{} from {}", name(f.dtype), name(from));
        expect_same(cast(x, from, f.dtype, true, "up", op), clamped, what);
        expect_same(cast(x, from, f.dtype, false, "up", op), open, what + ", not saturating");
      }
    }
  }
  EXPECT_TRUE(std::signbit(cast({-0.0}, DType::kF32, DType::kF8E4M3)[0]));
  EXPECT_FALSE(std::signbit(cast({-0.0}, DType::kF32, DType::kF8E4M3Fnuz)[0]));
}

TEST(Casts, ScalesRoundAsAsked) {
  // By the definition: the power of two below, the one above, and which of them is nearer.
  std::vector<double> x, up, down, nearest;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> exponent(-126, 126);
  for (int k = 0; k < 500; ++k) {
    const double power = std::exp2(std::floor(exponent(random)));
    const double m = k % 5 == 0   ? 1
                     : k % 5 == 1 ? 1.5
                     : k % 5 == 2 ? std::nextafter(1.5, k % 2 ? 0 : 2)
                     : k % 5 == 3 ? std::nextafter(2.0, 0)
                                  : 1 + std::uniform_real_distribution<double>(0, 1)(random);
    x.push_back(m * power);
    down.push_back(power);
    up.push_back(m == 1 ? power : 2 * power);
    nearest.push_back(m < 1.5 ? power : 2 * power);
  }
  for (const bool saturate : {false, true}) {
    expect_same(cast(x, DType::kF64, DType::kF8E8M0, saturate, "up"), up, "up");
    expect_same(cast(x, DType::kF64, DType::kF8E8M0, saturate, "down"), down, "down");
    expect_same(cast(x, DType::kF64, DType::kF8E8M0, saturate, "nearest"), nearest, "nearest");
  }
  const std::vector<double> odd = {0, kNaN, kInf, 1e300, 1e-300, 0x1p127, 0x1p-127};
  for (const char* mode : {"up", "down", "nearest"}) {
    expect_same(cast(odd, DType::kF64, DType::kF8E8M0, true, mode),
                {0x1p-127, kNaN, 0x1p127, 0x1p127, 0x1p-127, 0x1p127, 0x1p-127}, mode);
    expect_same(cast(odd, DType::kF64, DType::kF8E8M0, false, mode), {kNaN, kNaN, kNaN, kNaN, kNaN, 0x1p127, 0x1p-127},
                mode);
  }
}

TEST(Casts, BelowAByteTheLowBitsStay) {
  const std::vector<double> x = {-9, -8.5, -3, -1, 0, 1.9, 3, 7, 8, 15, 1e30, kNaN};
  for (const DType from : {DType::kF32, DType::kF64}) {
    for (const DType to : {DType::kI4, DType::kU4, DType::kI2, DType::kU2}) {
      const std::vector<double> got = cast(x, from, to);
      for (size_t k = 0; k < 10; ++k) {
        const auto whole = int64_t(x[k]);
        const int64_t range = int64_t(1) << info(to).bits;
        int64_t want = ((whole % range) + range) % range;
        if (info(to).is_signed && want >= range / 2) want -= range;
        EXPECT_EQ(got[k], double(want)) << x[k] << " to " << name(to);
      }
    }
  }
  expect_same(cast({200, -3, 17}, DType::kI32, DType::kI4), {-8, -3, 1}, "from i32");
}

}  // namespace
}  // namespace ridgeline
