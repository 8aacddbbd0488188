// Described machines: their files, tiles, and what they would choose.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "machine/described.h"
#include "machine/tile_fit.h"
#include "ridgeline/error.h"
#include "session/described_choice.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

DescribedAnswer ask(const std::string& machine, const std::string& line) {
  const std::vector<std::string> all = words(line);
  return answer_for_words(all[0], {all.begin() + 1, all.end()}, find_machine(machine), false);
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2) << error.what();
    return error.what();
  }
  return "";
}

Json document(const std::string& name) {
  std::ifstream file(machines_folder() / (name + ".json"));
  return Json::parse(file);
}

TEST(Machines, AllFilesOfTheFolderAreRead) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(machines_folder())) {
    const DescribedMachine m = find_machine(entry.path().stem().string());
    EXPECT_FALSE(m.name.empty());
    EXPECT_EQ(find_machine(entry.path().string()).name, m.name);  // by file
    ++count;
  }
  EXPECT_GE(count, 5);
}

TEST(Machines, RidgeOfA100) {
  const DescribedAnswer a = ask("a100", "matmul m=4096 n=4096 k=4096 dtype=f16");
  EXPECT_NEAR(a.ridge, 312000.0 / 2039, 1e-9);
  EXPECT_GE(a.ridge, 153);
  EXPECT_LE(a.ridge, 161);
  EXPECT_EQ(a.bound, Bound::kCompute);
  // 2 x 4096^3 FLOPs at 312 TFLOP/s, and a launch.
  EXPECT_NEAR(a.floor_us, 137438953472.0 / 312e6 + 0.5, 1e-6);
}

// A 192x64 and B 64x64 in 2 bytes, C 192x64 in 4: 24 + 8 + 48 = 80 KiB; A and B twice: 112 of 256 KiB.
TEST(Machines, TileOf192x64x64) {
  const DescribedAnswer a = ask("npu", "matmul m=1024 n=1024 k=1024 dtype=f16 tile=192x64x64");
  ASSERT_TRUE(a.asked);
  EXPECT_EQ(a.asked->a_bytes, 24 << 10);
  EXPECT_EQ(a.asked->b_bytes, 8 << 10);
  EXPECT_EQ(a.asked->c_bytes, 48 << 10);
  EXPECT_EQ(a.asked->accumulator, DType::kF32);
  EXPECT_EQ(a.asked->single_bytes(), 80 << 10);
  EXPECT_EQ(a.asked->double_bytes(), 112 << 10);
  EXPECT_TRUE(a.asked->fits_double);
  EXPECT_EQ(a.asked->padding_share, 0);
  const Json json = answer_json(a, find_machine("npu"));
  EXPECT_DOUBLE_EQ(json["tile"]["buffers"][0]["double_share"], 0.4375);
  EXPECT_EQ(json["tile"]["single_bytes_narrow_accumulator"], 56 << 10);
  EXPECT_NE(answer_text(a, find_machine("npu")).find("44 % of SRAM"), std::string::npos);
}

TEST(Machines, TileThatIsTooLargeIsRejectedWithTheBytesItIsOver) {
  // A 128 KiB, B 8 KiB, C 256 KiB.
  const std::string why = message_of([] { ask("npu", "matmul m=4096 n=64 k=64 dtype=f16 tile=1024x64x64"); });
  EXPECT_NE(why.find("139264 bytes over"), std::string::npos) << why;
  // Accumulators of a GPU lie in registers: 256x256 in f32 is 128 KiB too much, whatever k.
  const std::string gpu = message_of([] { ask("a100", "matmul m=4096 n=4096 k=4096 dtype=f16 tile=256x256x16"); });
  EXPECT_NE(gpu.find("registers"), std::string::npos) << gpu;
  EXPECT_NE(gpu.find("131072 bytes over"), std::string::npos) << gpu;
  // Exactly full is not over; two sets of inputs are.
  const DescribedAnswer full = ask("npu", "matmul m=4096 n=4096 k=4096 dtype=f16 tile=128x128x384");
  EXPECT_EQ(full.asked->single_bytes(), 256 << 10);
  EXPECT_FALSE(full.asked->fits_double);
  EXPECT_EQ(full.asked->buffers[0].over_double(), 192 << 10);
  for (const char* bad : {"tile=16x16", "tile=0x16x16", "tile=16x16x16x", "tile=-1x2x3", "tile=axbxc",
                          "tile=", "tile=99999999999999999999x1x1"})
    EXPECT_FALSE(message_of([&] { ask("npu", std::string("matmul m=64 n=64 k=64 dtype=f16 ") + bad); }).empty()) << bad;
  EXPECT_FALSE(message_of([] { ask("npu", "relu shape=64x64 tile=16x16x16"); }).empty());
}

TEST(Machines, MisalignedTileShowsItsPadding) {
  const DescribedAnswer a = ask("npu", "matmul m=4096 n=4096 k=4096 dtype=f16 tile=100x60x64");
  EXPECT_NEAR(a.asked->padding_share, 1 - 100.0 * 60 / (112 * 64), 1e-12);
  EXPECT_NE(answer_text(a, find_machine("npu")).find("16.3 % of the unit's work is padding"), std::string::npos);
  // It costs: the same amount of work in aligned tiles takes less.
  EXPECT_GT(a.winner().compute_us,
            ask("npu", "matmul m=4096 n=4096 k=4096 dtype=f16 tile=112x64x64").winner().compute_us);
}

TEST(Machines, BytesAllowLargerTiles) {
  for (const char* machine : {"npu", "a100", "h200"}) {
    const auto largest = [&](const char* dtype) {
      const DescribedAnswer a = ask(machine, std::string("matmul m=4096 n=4096 k=4096 dtype=") + dtype);
      int64_t most = 0;
      for (const TileFit& f : a.tiles)
        if (f.fits_double) most = std::max(most, f.tile.volume());
      return most;
    };
    EXPECT_GT(largest("i8"), largest("f16")) << machine;
  }
  // Every tile of f16 is one of i8, too, and takes less.
  const DescribedMachine npu = find_machine("npu");
  const DescribedRate& bytes = *npu.unit(true)->rate(DType::kI8);
  for (const TileFit& f : ask("npu", "matmul m=4096 n=4096 k=4096 dtype=f16").tiles) {
    const TileFit narrow = fit_tile(npu, bytes, f.tile, DType::kI8, DType::kI8);
    EXPECT_TRUE(narrow.fits);
    EXPECT_LT(narrow.single_bytes(), f.single_bytes());
  }
}

TEST(Machines, TilesAreAlignedAndFit) {
  for (const char* machine : {"npu", "a100", "v100", "h200", "zen4-2core"}) {
    const DescribedAnswer a = ask(machine, "matmul m=1000 n=1000 k=1000 dtype=f16");
    ASSERT_FALSE(a.tiles.empty()) << machine;
    for (const TileFit& f : a.tiles) {
      EXPECT_TRUE(f.fits);
      EXPECT_EQ(f.padding_share, 0);
      for (const BufferUse& use : f.buffers) EXPECT_LE(use.single_bytes, use.buffer.bytes);
    }
  }
}

TEST(Machines, TwoMachinesChooseDifferently) {
  struct Case {
    const char *problem, *one, *one_takes, *other, *other_takes;
  };
  const Case cases[] = {
      // One row on cores that draw 200 GB/s through 128 GFLOP/s in f32: the cube wastes 15 of 16 rows and still wins.
      {"matmul m=1 n=4096 k=4096 dtype=f16", "a100", "vector.stream", "npu", "matrix.tile"},
      {"matmul m=4 n=4096 k=4096 dtype=f16", "v100", "vector.stream", "npu", "matrix.tile"},
      // Four tiles for 108 cores, or for two.
      {"matmul m=128 n=128 k=16384 dtype=f16", "a100", "matrix.split_k", "zen4-2core", "vector.tile"},
      {"matmul m=128 n=128 k=16384 dtype=f16", "h200", "matrix.split_k", "npu", "matrix.tile"},
      // The first tensor cores knew f16 alone.
      {"matmul m=1024 n=1024 k=1024 dtype=bf16", "a100", "matrix.tile", "v100", "vector.tile"},
      {"matmul m=1024 n=1024 k=1024 dtype=i8", "h200", "matrix.tile", "v100", "vector.tile"},
      {"matmul m=1024 n=1024 k=1024 dtype=f64", "a100", "matrix.tile", "v100", "vector.tile"},
      // A row of 200 KB stays in 227 KiB, not in 163.
      {"softmax rows=64 cols=50000 dtype=f32", "h200", "vector.row", "a100", "vector.two_pass"},
      {"attention heads=32 q_len=1 kv_len=4096 head_dim=128 dtype=f16", "h200", "vector.stream", "npu", "matrix.tile"},
      {"conv n=1 c=64 h=56 oc=64 kh=3 pad=1 dtype=f16", "npu", "matrix.tile", "zen4-2core", "vector.tile"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(ask(c.one, c.problem).winner().name, c.one_takes) << c.problem << " on " << c.one;
    EXPECT_EQ(ask(c.other, c.problem).winner().name, c.other_takes) << c.problem << " on " << c.other;
  }
}

TEST(Machines, NoKernelIsFasterThanTheFloor) {
  for (const char* machine : {"npu", "a100", "v100", "h200", "zen4-2core"})
    for (const char* problem :
         {"matmul m=1 n=4096 k=4096 dtype=f16", "matmul m=333 n=777 k=1111 dtype=bf16", "relu shape=4096x4096",
          "softmax rows=64 cols=50000", "conv n=8 c=64 h=56 oc=64 kh=3 pad=1", "transpose shape=512x512",
          "matmul m=64 n=64 k=64 batch=12 packed=0 dtype=f16", "attention heads=8 q_len=512 head_dim=64 dtype=f16"}) {
      const DescribedAnswer a = ask(machine, problem);
      for (const KernelClass& c : a.classes)
        if (c.possible()) EXPECT_GE(c.time_us, a.floor_us * (1 - 1e-9)) << machine << " " << problem << " " << c.name;
      EXPECT_TRUE(a.winner().possible());
    }
}

TEST(Machines, WhatNoUnitComputesIsRefused) {
  const std::string why = message_of([] { ask("npu", "matmul m=64 n=64 k=64 dtype=f64"); });
  EXPECT_NE(why.find("unsupported"), std::string::npos) << why;
  EXPECT_NE(message_of([] { ask("no-such-machine", "relu shape=4x4"); }).find("a100"), std::string::npos);
}

// Each change of a good document must be refused with the file's name and the place.
TEST(Machines, HostileDocuments) {
  const Json good = document("npu");
  parse_machine(good.dump(), "m.json");
  const std::vector<std::pair<const char*, Json>> changes = {
      {"/format", 2},
      {"/format", "1"},
      {"/format", 1.5},
      {"/name", 7},
      {"/name", ""},
      {"/kind", "abacus"},
      {"/cores/count", 0},
      {"/cores/count", -1},
      {"/cores/count", 18446744073709551615u},
      {"/cores/count", 1e300},
      {"/cores", Json::array()},
      {"/cores/source", ""},
      {"/cores/source", nullptr},
      {"/units", Json::array()},
      {"/units", "many"},
      {"/units/0/kind", "cubic"},
      {"/units/0/source", 3},
      {"/units/0/rates", Json::array()},
      {"/units/0/rates/0/dtype", "f17"},
      {"/units/0/rates/0/dtype", "i8"},  // twice
      {"/units/0/rates/0/gop_s", 0},
      {"/units/0/rates/0/gop_s", -5},
      {"/units/0/rates/0/gop_s", 1e300},
      {"/units/0/rates/0/gop_s", "fast"},
      {"/units/0/rates/0/gop_s", nullptr},
      {"/units/0/rates/0/shape", Json::array({16, 16})},
      {"/units/0/rates/0/shape", Json::array({16, 16, 0})},
      {"/units/0/rates/0/shape", Json::array({16, 16, 1 << 30})},
      {"/units/1/kind", "matrix"},  // two of them, and no vector unit
      {"/buffers/0/bytes", int64_t(1) << 62},
      {"/buffers/0/bytes", 0.5},
      {"/buffers/0/holds", Json::array({"inputs"})},
      {"/buffers/0/holds", Json::array({"inputs", "hopes"})},
      {"/levels", Json::array()},
      {"/levels/0/gb_s", false},
      {"/levels/0/bytes", 5},  // the last level holds everything
      {"/launch/us", -1},
      {"/launch", 5},
      {"/nonsense", 5},
      {"/units/0/nonsense", 5},
  };
  for (const auto& [place, value] : changes) {
    Json bad = good;
    bad[Json::json_pointer(place)] = value;
    const std::string why = message_of([&] { parse_machine(bad.dump(), "m.json"); });
    EXPECT_NE(why.find("m.json: "), std::string::npos) << place << " = " << value.dump();
  }
  const std::string deep(100000, '['), text = good.dump();
  for (const std::string& bad : {std::string(), std::string("null"), std::string("[]"), std::string("{"), deep,
                                 std::string("{\"format\":1e999}"), text.substr(0, text.size() / 2),
                                 std::string("\xff\xfe{}"), std::string("{\"a\0\":1}", 8)})
    EXPECT_FALSE(message_of([&] { parse_machine(bad, "m.json"); }).empty()) << bad.substr(0, 40);
  EXPECT_FALSE(message_of([] { find_machine("/dev/zero"); }).empty());
  EXPECT_FALSE(message_of([] { find_machine("/tmp"); }).empty());
  EXPECT_FALSE(message_of([] { find_machine("/no/such/file.json"); }).empty());
  EXPECT_FALSE(message_of([] { find_machine("../../../etc/passwd"); }).empty());
}

}  // namespace
}  // namespace ridgeline
