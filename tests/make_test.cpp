// The synthetic models: the operators and parameters that their papers give, the same file for the same seed.
#include "formats/make/make.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "onnx.pb.h"

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

std::string bytes_of(const std::string& name, const MakeOptions& options = {}) {
  // Tests run side by side, each in a process of its own: a folder each.
  const std::string folder =
      testing::TempDir() + "/ridgeline-make-" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/" + name + ".onnx";
  make_model(name, options, path);
  std::stringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  std::filesystem::remove_all(folder);
  return std::move(content).str();
}

onnx::ModelProto made(const std::string& name, const MakeOptions& options = {}) {
  onnx::ModelProto model;
  EXPECT_TRUE(model.ParseFromString(bytes_of(name, options)));
  return model;
}

std::map<std::string, int> operators(const onnx::ModelProto& model) {
  std::map<std::string, int> count;
  for (const auto& node : model.graph().node()) ++count[node.op_type()];
  return count;
}

int64_t parameters(const onnx::ModelProto& model) {
  int64_t sum = 0;
  for (const auto& w : model.graph().initializer()) {
    int64_t n = 1;
    for (int64_t d : w.dims()) n *= d;
    EXPECT_EQ(int64_t(w.raw_data().size()), n * (w.data_type() == onnx::TensorProto::INT64 ? 8 : 4)) << w.name();
    sum += n;
  }
  return sum;
}

TEST(Make, ResNet50) {
  const auto model = made("resnet50");
  const std::map<std::string, int> want = {{"Conv", 53},   {"BatchNormalization", 53}, {"Relu", 49},   {"Add", 16},
                                           {"MaxPool", 1}, {"GlobalAveragePool", 1},   {"Flatten", 1}, {"Gemm", 1}};
  EXPECT_EQ(operators(model), want);
  EXPECT_EQ(parameters(model), 25557032 + 2 * 26560);  // the paper's, and the running statistics
}

TEST(Make, MobileNetV3Small) {
  const auto model = made("mobilenet_v3");
  auto count = operators(model);
  EXPECT_EQ(count["Conv"], 34 + 2 * 9);
  EXPECT_EQ(count["BatchNormalization"], 34);
  EXPECT_EQ(count["HardSwish"], 19);
  EXPECT_EQ(count["HardSigmoid"], 9);
  EXPECT_EQ(count["Add"], 6);
  EXPECT_EQ(parameters(model), 2542856 + 2 * 6056);
}

TEST(Make, StatisticsAreThoseOfTheInput) {
  // A channel of the first convolution sees N(0,1): its variance is the sum of the squares of its weights.
  const auto model = made("resnet50");
  std::map<std::string, const onnx::TensorProto*> weights;
  for (const auto& w : model.graph().initializer()) weights[w.name()] = &w;
  const auto* filter = reinterpret_cast<const float*>(weights.at("conv1.weight")->raw_data().data());
  const auto* variance = reinterpret_cast<const float*>(weights.at("bn1.running_var")->raw_data().data());
  for (int o = 0; o < 64; ++o) {
    double sum = 0;
    for (int i = 0; i < 147; ++i) sum += double(filter[147 * o + i]) * filter[147 * o + i];
    EXPECT_NEAR(variance[o], sum, 1e-4 * sum);
  }
}

TEST(Make, TheSameSeedGivesTheSameFileAndAnotherSeedAnother) {
  EXPECT_EQ(bytes_of("mlp"), bytes_of("mlp"));
  EXPECT_NE(bytes_of("mlp", {.seed = 1}), bytes_of("mlp"));
}

TEST(Make, SymbolicExtents) {
  const auto model = made("decoder", {.batch = {0, "N"}, .seq = {0, "S"}});
  const auto& shape = model.graph().input(0).type().tensor_type().shape();
  EXPECT_EQ(shape.dim(0).dim_param(), "N");
  EXPECT_EQ(shape.dim(1).dim_param(), "S");
  EXPECT_GT(operators(model)["Shape"], 0);
  EXPECT_EQ(operators(made("decoder"))["Shape"], 0);
}

TEST(Make, OpsetsThatLackAnOperatorSpellItOut) {
  MakeOptions old;
  old.opset = 13;
  auto count = operators(made("mobilenet_v3", old));
  EXPECT_EQ(count["HardSwish"], 0);
  EXPECT_EQ(count["HardSigmoid"], 9 + 19);
}

TEST(Make, ExtentsInWords) {
  EXPECT_EQ(parse_make_dim("8", "N").value, 8);
  EXPECT_EQ(parse_make_dim("0", "N").symbol, "N");
  EXPECT_EQ(parse_make_dim("batch", "N").symbol, "batch");
  for (const char* wrong : {"", "-1", "8x", "99999999999999999999"})
    EXPECT_THROW(parse_make_dim(wrong, "N"), Error) << wrong;
}

TEST(Make, SaysWhatIsWrong) {
  EXPECT_THROW(make_model("resnet51", {}, "x.onnx"), Error);
  EXPECT_THROW(make_model("mlp", {}, "/no/such/folder/x.onnx"), Error);
  MakeOptions ancient;
  ancient.opset = 7;
  EXPECT_THROW(make_model("mlp", ancient, "x.onnx"), Error);
}

}  // namespace
}  // namespace ridgeline
