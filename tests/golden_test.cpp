// Golden lists: what the passes find in ten models and what they leave over. A rule that is lost, or one that finds
// too much, shows as a line of difference. RIDGELINE_UPDATE_GOLDEN=1 writes the files anew; then read the difference in
// git.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "golden_quantized.h"
#include "golden_sequence.h"
#include "match_summary.h"

namespace ridgeline {
namespace {

struct GoldenModel {
  const char* name;
  void (*build)(Sequence&);
};

const GoldenModel kModels[] = {
    {"resnet50", [](Sequence& g) { resnet50(g); }},
    {"mobilenet_v2", [](Sequence& g) { mobilenet_v2(g); }},
    {"mobilenet_v3", [](Sequence& g) { mobilenet_v3(g); }},
    {"efficientnet", [](Sequence& g) { efficientnet(g); }},
    {"convnext", convnext},
    {"vit", vit},
    {"bert", bert},
    {"ppocr_detection", [](Sequence& g) { ppocr_detection(g); }},
    {"ppocr_recognition", ppocr_recognition},
    {"quantized_resnet", [](Sequence& g) { quantized_resnet(g); }},
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// Lines of one text that the other lacks, with their section; both lists are short.
std::string difference(const std::string& golden, const std::string& now) {
  const std::vector<std::string> a = lines_of(golden), b = lines_of(now);
  std::string out, section;
  auto only_in = [&](const std::vector<std::string>& from, const std::vector<std::string>& other, char sign) {
    for (const std::string& line : from) {
      if (!line.starts_with(" ")) section = line;
      if (std::find(other.begin(), other.end(), line) == other.end())
        out += fmt::format("  {} [{}] {}\n", sign, section, line);
    }
  };
  only_in(a, b, '-');
  only_in(b, a, '+');
  return out;
}

class Golden : public testing::TestWithParam<GoldenModel> {};

TEST_P(Golden, MatchesAndLeftovers) {
  if (std::string_view(GetParam().name) == "quantized_resnet" && !sums_integers())
    GTEST_SKIP() << "no kernel sums the integers of a convolution";
  Sequence g;
  GetParam().build(g);
  ASSERT_TRUE(g.graph.verify().empty()) << g.graph.verify().front();
  const Graph imported = g.graph;
  const Decisions decisions = optimized(g.graph);
  const std::string now = match_summary(imported, g.graph, decisions);

  const std::string path = fmt::format("{}/tests/golden/{}.txt", RIDGELINE_SOURCE_DIR, GetParam().name);
  if (std::getenv("RIDGELINE_UPDATE_GOLDEN")) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << now;
  }
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  ASSERT_FALSE(golden.str().empty()) << path << " is missing; RIDGELINE_UPDATE_GOLDEN=1 writes it";
  EXPECT_TRUE(golden.str() == now) << path << ", - expected, + found:\n" << difference(golden.str(), now);
  expect_same(imported, g.graph);
}

INSTANTIATE_TEST_SUITE_P(Models, Golden, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ridgeline
