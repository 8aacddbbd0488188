// ridgeline diff: the parts add up to the whole, whatever was fused; broken files are refused.
#include "session/diff.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

Json step(std::vector<std::string> nodes, const char* kernel, double time_us, int64_t bytes, const char* tile = "") {
  return {{"nodes", nodes}, {"kernel", kernel}, {"tile", tile}, {"time_us", time_us}, {"bytes", bytes}};
}

Json profile(std::vector<Json> steps, double total_us, double p10, double p90) {
  return {{"steps", steps}, {"total_us", total_us}, {"total_p10_us", p10}, {"total_p90_us", p90}};
}

double sum_of(const Json& diff) {
  double sum = 0;
  for (const Json& row : diff["nodes"]) sum += row["delta_us"].get<double>();
  return sum;
}

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "";
}

TEST(Diff, AFusionIsComparedWithWhatItReplaced) {
  const Json a = profile({step({"conv1"}, "cpu.direct", 60, 1000, "8x32"), step({"relu1"}, "cpu.program", 10, 400),
                          step({"fc"}, "cpu.gemm", 20, 300, "14x32")},
                         95, 94, 98);
  const Json b =
      profile({step({"conv1", "relu1"}, "cpu.winograd", 30, 800, "6x6"), step({"fc"}, "cpu.gemm", 21, 300, "8x48")}, 54,
              52, 58);
  const Json diff = diff_results(a, b, "a", "b");
  ASSERT_EQ(diff["nodes"].size(), 3u);
  const Json& fused = diff["nodes"][0];  // the largest first
  EXPECT_EQ(fused["nodes"], Json::array({"conv1", "relu1"}));
  EXPECT_EQ(fused["delta_us"], -40);
  EXPECT_EQ(fused["launches"], Json({{"before", 2}, {"after", 1}}));
  EXPECT_EQ(fused["bytes"]["before"], 1400);
  EXPECT_EQ(fused["bytes"]["after"], 800);
  EXPECT_EQ(fused["kernel"]["before"], "cpu.direct + cpu.program");
  EXPECT_EQ(fused["kernel"]["after"], "cpu.winograd");
  EXPECT_EQ(diff["nodes"][1]["delta_us"], 1);
  EXPECT_EQ(diff["nodes"][1]["cause"], "tile");
  // Between steps: 95 - 90 before, 54 - 51 after.
  EXPECT_EQ(diff["nodes"][2]["nodes"], Json::array());
  EXPECT_EQ(diff["nodes"][2]["delta_us"], -2);
  EXPECT_EQ(diff["total_delta_us"], -41);
  EXPECT_DOUBLE_EQ(sum_of(diff), -41);
  EXPECT_DOUBLE_EQ(diff["noise_us"], std::hypot(2, 3));
  EXPECT_NE(diff_text(diff).find("more than noise"), std::string::npos);
}

TEST(Diff, TheSameTwiceIsNothing) {
  const Json a = profile({step({"x"}, "k", 5, 10), step({"y"}, "k", 7, 10)}, 13, 12, 14);
  const Json diff = diff_results(a, a, "a", "a");
  EXPECT_EQ(diff["total_delta_us"], 0);
  for (const Json& row : diff["nodes"]) EXPECT_EQ(row["delta_us"], 0);
  EXPECT_EQ(diff["nodes"][0]["cause"], "time alone");
  EXPECT_NE(diff_text(diff).find("no more than noise"), std::string::npos);
}

TEST(Diff, NodesOfOneSideCountInFull) {
  const Json a = profile({step({"x"}, "k", 5, 10)}, 5, 5, 5), b = profile({step({"z"}, "k", 9, 10)}, 9, 9, 9);
  const Json diff = diff_results(a, b, "a", "b");
  EXPECT_EQ(diff["nodes"][0]["cause"], "only in the second");
  EXPECT_EQ(diff["nodes"][1]["cause"], "only in the first");
  EXPECT_DOUBLE_EQ(sum_of(diff), 4);
}

TEST(Diff, ResultsOfOptimize) {
  Json a = {{"steps", {step({"x"}, "k", 5, 10)}},
            {"stages",
             {{{"latency_ms", {{"median", 1}, {"p10", 1}, {"p90", 1}}}},
              {{"latency_ms", {{"median", 0.006}, {"p10", 0.005}, {"p90", 0.007}}}}}}};
  const Json b = profile({step({"x"}, "other", 3, 10)}, 4, 4, 4);
  const Json diff = diff_results(a, b, "a", "b");  // one of each
  EXPECT_DOUBLE_EQ(diff["total_delta_us"], -2);
  EXPECT_DOUBLE_EQ(sum_of(diff), -2);
  EXPECT_DOUBLE_EQ(diff["noise_us"], 1);
  EXPECT_EQ(diff["nodes"][0]["cause"], "kernel");
}

TEST(Diff, OldResultsDoNotSayTheirNoise) {
  const Json a = {{"steps", {step({"x"}, "k", 5, 10)}}, {"total_us", 6}};
  EXPECT_TRUE(diff_results(a, a, "a", "a")["noise_us"].is_null());
}

TEST(Diff, BrokenResultsAreRefusedByName) {
  const Json good = profile({step({"x"}, "k", 5, 10)}, 6, 6, 6);
  const std::vector<std::pair<const char*, Json>> changes = {
      {"/steps", nullptr},
      {"/steps", Json::object()},
      {"/steps/0", 5},
      {"/steps/0/time_us", -1},
      {"/steps/0/time_us", "5"},
      {"/steps/0/time_us", 1e300},
      {"/steps/0/bytes", Json::array()},
      {"/steps/0/kernel", 5},
      {"/steps/0/nodes", Json::array()},
      {"/steps/0/nodes", "x"},
      {"/steps/0/nodes", Json::array({1})},
      {"/total_us", nullptr},
      {"/total_p10_us", "no"},
      {"/stages", Json::array()},
      {"/stages", Json::array({5})},
      {"/stages", Json::array({Json{{"latency_ms", 5}}})},
  };
  for (const auto& [place, value] : changes) {
    Json bad = good;
    bad[Json::json_pointer(place)] = value;
    const std::string why = message_of([&] { diff_results(good, bad, "good.json", "bad.json"); });
    EXPECT_EQ(why.find("bad.json: "), 0u) << place << " = " << value.dump() << ": " << why;
  }
  EXPECT_FALSE(message_of([&] { diff_results(Json(), good, "a", "b"); }).empty());
  EXPECT_FALSE(message_of([] { read_result("/dev/zero"); }).empty());
  EXPECT_FALSE(message_of([] { read_result("/no/such"); }).empty());
  const std::string path = testing::TempDir() + "diff_broken.json";
  for (const std::string& text : {std::string(), std::string("{\"steps\":["), std::string(100000, '[')}) {
    std::ofstream(path) << text;
    EXPECT_EQ(message_of([&] { read_result(path); }).find(path), 0u) << text.substr(0, 20);
  }
}

}  // namespace
}  // namespace ridgeline
