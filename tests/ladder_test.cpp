// The ladder: one judgement on paired samples, equal plans measured once, no stage slower than the one before.
#include "session/ladder.h"

#include <gtest/gtest.h>

#include "session/ladder_judge.h"
#include "session/ladder_report.h"

namespace ridgeline {
namespace {

Samples samples(const std::vector<double>& times) {
  Samples s;
  for (double t : times) s.add(t);
  return s;
}

TEST(Judgement, IsClearOnlyWhereACoinWouldNotDoIt) {
  const std::vector<double> base(12, 100);
  auto beside = [&](int slower, double by) {
    std::vector<double> b = base;
    for (int i = 0; i < 12; ++i) b[size_t(i)] += i < slower ? by : -by;
    return compare_paired(samples(base), samples(b));
  };
  EXPECT_TRUE(beside(12, 2).clearly_slower);
  EXPECT_TRUE(beside(10, 2).clearly_slower);
  EXPECT_FALSE(beside(9, 2).clearly_slower);  // 7.3 %: a coin does that
  EXPECT_FALSE(beside(7, 50).clearly_slower);
  EXPECT_FALSE(beside(12, 0.4).clearly_slower);  // under what a plan differs from itself
  EXPECT_TRUE(beside(0, 2).clearly_faster);
  EXPECT_FALSE(beside(3, 2).clearly_faster);
  const Comparison few = compare_paired(samples({100, 100, 100}), samples({150, 150, 150}));
  EXPECT_FALSE(few.clearly_slower);  // three rounds prove nothing
  EXPECT_NEAR(few.ratio, 1.5, 1e-9);
  EXPECT_EQ(beside(12, 2).text(), "time +2.0 %, slower in 12 of 12 rounds");
}

TEST(Judgement, UndoneRewritesKeepTheirNodesAndShowTheMeasurement) {
  std::vector<Decision> all(4);
  all[0].pass = all[1].pass = all[2].pass = "p";
  all[3].pass = "other";
  all[0].nodes = {"a", "b"}, all[0].predicted_gain_us = 3;
  all[1].nodes = {"c"}, all[1].predicted_gain_us = 1;
  all[2].action = Action::kRefused;
  const Comparison slower = compare_paired(samples(std::vector<double>(9, 100)), samples(std::vector<double>(9, 110)));
  const std::vector<Decision> undone = undone_decisions(all, "p", slower, 40, "whole graph");
  ASSERT_EQ(undone.size(), 2u);
  EXPECT_EQ(undone[0].nodes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(undone[1].action, Action::kUndone);
  EXPECT_EQ(undone[0].reason_code, "slower");
  EXPECT_NE(undone[0].reason.find("+10.0 %"), std::string::npos) << undone[0].reason;
  EXPECT_NEAR(undone[0].measured_gain_us, -3, 1e-9);  // -10 % of 40 us, three quarters of it
  EXPECT_NEAR(undone[1].measured_gain_us, -1, 1e-9);
  share_gain(all, "p", 8);
  EXPECT_NEAR(all[0].measured_gain_us, 6, 1e-9);
  EXPECT_EQ(all[2].measured_gain_us, 0);
  EXPECT_EQ(all[3].measured_gain_us, 0);
}

Model model_of(bool fusible) {
  Graph g;
  ValueId v = g.add_input("x", DType::kF32, Shape{64, 64});
  Tensor w(DType::kF32, {64, 64});
  for (int64_t k = 0; k < w.elements(); ++k) w.as<float>()[k] = float(k % 13 - 6) / 16;
  v = g.node(g.add_node(*find_op("MatMul"), {v, g.add_constant("w", w)}, {}, 1, {}, "product")).output();
  if (fusible) v = g.node(g.add_node(*find_op("Relu"), {v}, {}, 1, {}, "activation")).output();
  g.mark_output(v);
  return bind_model(std::move(g), {});
}

Ladder ladder_of(Model& model) {
  static const Ceilings ceilings = unmeasured_ceilings();
  LadderOptions options;
  options.threads = 1;
  options.seconds = 0.05;
  options.ceilings = &ceilings;
  return build_ladder(model, options);
}

TEST(Ladder, EqualPlansShareOneMeasurement) {
  Model model = model_of(false);
  const Ladder ladder = ladder_of(model);
  ASSERT_EQ(ladder.stages.size(), size_t(kStageCount));
  for (const StageResult& s : ladder.stages) {
    EXPECT_EQ(s.samples.times_ns(), ladder.stages[0].samples.times_ns()) << name(s.stage);
    EXPECT_EQ(s.gain, 0);
    EXPECT_FALSE(s.undone);
  }
  EXPECT_NE(ladder.stages[3].note.find("the same plan as 'residuals'"), std::string::npos) << ladder.stages[3].note;
}

TEST(Ladder, NoStageIsSlowerThanTheOneBefore) {
  Model model = model_of(true);
  const Ladder ladder = ladder_of(model);
  for (size_t s = 1; s < ladder.stages.size(); ++s) {
    const StageResult& stage = ladder.stages[s];
    EXPECT_LE(stage.samples.median(), ladder.stages[s - 1].samples.median()) << stage.note;
    EXPECT_GE(stage.gain, 0) << stage.note;
    if (stage.undone) EXPECT_NE(stage.note.find("undone"), std::string::npos);
  }
  const auto json = ladder_json(model, ladder, unmeasured_ceilings());
  EXPECT_EQ(json["model"]["bytes"], 3 * 64 * 64 * 4);  // x and w read once, y written once
  EXPECT_TRUE(json["model"]["bound"] == "memory" || json["model"]["bound"] == "compute");
  for (const auto& d : json["decisions"]) {
    if (d["action"] == "applied") EXPECT_EQ(d["measured_of"], "pass");
    if (d["action"] == "refused") EXPECT_EQ(d["measured_of"], "nothing");
    if (d["action"] == "undone") EXPECT_FALSE(d["nodes"].empty());
  }
  EXPECT_NE(ladder_text(model, ladder, unmeasured_ceilings()).find("operators: 1 MatMul, 1 Relu"), std::string::npos);
}

}  // namespace
}  // namespace ridgeline
