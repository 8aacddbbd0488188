// --max-error, --calibrate, --scales and --mem-budget as a user meets them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli_command.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class PrecisionCommand : public testing::Test {
 protected:
  PrecisionCommand() : folder_(fs::temp_directory_path() / ("ridgeline-precision-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    EXPECT_EQ(command("make mlp -o " + at("a.onnx") + " --quiet").exit_code, 0);
    EXPECT_EQ(command("make mlp -o " + at("b.onnx") + " --seed 9 --quiet").exit_code, 0);
  }
  ~PrecisionCommand() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void refused(const std::string& arguments, int exit_code, const std::string& words) {
    const Ran ran = command(arguments);
    EXPECT_EQ(ran.exit_code, exit_code) << arguments << "\n" << ran.out;
    EXPECT_NE(ran.out.find(words), std::string::npos) << arguments << "\n" << ran.out;
  }
  fs::path folder_;
};

TEST_F(PrecisionCommand, TheFileBelongsToItsModel) {
  const std::string search = " --max-error 0.05 --calibrate noise --scales ";
  ASSERT_EQ(command("run " + at("a.onnx") + search + at("s.json") + " --quiet").exit_code, 0);
  const Json plan = Json::parse(std::ifstream(at("s.json")));
  EXPECT_GE(plan["layers"].size(), 2u);
  EXPECT_LE(plan["error"].get<double>(), 0.05);
  EXPECT_EQ(command("run " + at("a.onnx") + " --quiet --scales " + at("s.json")).exit_code, 0);
  refused("run " + at("b.onnx") + " --scales " + at("s.json"), 2, "another model");
  // A slip of the hand names a model: it stays as it is.
  const auto size = fs::file_size(at("b.onnx"));
  refused("run " + at("a.onnx") + search + at("b.onnx"), 2, "not overwritten");
  EXPECT_EQ(fs::file_size(at("b.onnx")), size);
}

TEST_F(PrecisionCommand, CalibrationIsAskedForAndComplete) {
  fs::create_directories(folder_ / "empty");
  refused("run " + at("a.onnx") + " --max-error 0.05", 2, "--calibrate noise");
  refused("run " + at("a.onnx") + " --calibrate noise", 2, "--max-error");
  refused("run " + at("a.onnx") + " --max-error 0.05 --calibrate " + at("empty"), 2, "input.npy");
  refused("run " + at("a.onnx") + " --max-error nan --calibrate noise", 2, "--max-error");
}

// The ladder's last stage has the precisions that the search found, and stays inside its error.
TEST_F(PrecisionCommand, TheLadderKeepsTheErrorThatWasAskedFor) {
  // Large enough that lower precision pays; where it does not, the ladder undoes it.
  ASSERT_EQ(command("make mlp --batch 128 -o " + at("c.onnx") + " --quiet").exit_code, 0);
  const std::string ladder = "optimize " + at("c.onnx") + " --time 0.1 --quiet --max-error 0.05 --calibrate noise";
  ASSERT_EQ(command(ladder + " --json " + at("o.json")).exit_code, 0);
  const Json result = Json::parse(std::ifstream(at("o.json")));
  const Json& last = result["stages"].back();
  EXPECT_LE(last["max_error"].get<double>(), 0.05);
  bool lowered = false;
  for (const Json& d : result["decisions"]) lowered = lowered || d["pass"].get<std::string>().starts_with("lower_to_");
  EXPECT_TRUE(lowered);
  EXPECT_GE(result["precision"]["layers"].size(), 2u);
  refused(ladder + " --precision bf16", 2, "no --precision");
  refused(ladder + " --strategy cost", 2, "--strategy");
}

TEST_F(PrecisionCommand, WhatOnnxCannotHoldIsRefusedBeforeAnythingIsMeasured) {
  const Ran ran = command("optimize " + at("a.onnx") + " --precision int8 -o " + at("out.onnx"));
  EXPECT_EQ(ran.exit_code, 2) << ran.out;
  EXPECT_NE(ran.out.find("has no form in ONNX"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("stage"), std::string::npos) << ran.out;  // what the ladder says while it measures
  EXPECT_FALSE(fs::exists(at("out.onnx")));
}

TEST_F(PrecisionCommand, ProfileTakesThePrecisionsOfAFile) {
  ASSERT_EQ(
      command("run " + at("a.onnx") + " --max-error 0.05 --calibrate noise --quiet --scales " + at("s.json")).exit_code,
      0);
  const std::string profile = "profile " + at("a.onnx") + " --time 0.05 --quiet --scales " + at("s.json");
  ASSERT_EQ(command(profile + " --json " + at("p.json")).exit_code, 0);
  EXPECT_EQ(Json::parse(std::ifstream(at("p.json")))["precision"], Json::parse(std::ifstream(at("s.json"))));
  refused(profile + " --precision bf16", 2, "no --precision");
  refused("profile " + at("a.onnx") + " --calibrate noise", 2, "--max-error");
}

TEST_F(PrecisionCommand, ABudgetThatCannotBeKeptNamesOneThatCan) {
  const Ran ran = command("run " + at("a.onnx") + " --mem-budget 1MB");
  EXPECT_EQ(ran.exit_code, 3) << ran.out;
  const size_t word = ran.out.find("--mem-budget ");
  ASSERT_NE(word, std::string::npos) << ran.out;
  const std::string rest = ran.out.substr(word + std::string("--mem-budget ").size());
  const Ran kept = command("run " + at("a.onnx") + " --mem-budget " + rest.substr(0, rest.find(' ')));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // whose shadow is no memory of the plan
  EXPECT_EQ(kept.exit_code, 0) << rest << "\n" << kept.out;
#endif
}

}  // namespace
}  // namespace ridgeline
