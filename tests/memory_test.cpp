// Time against memory: budgets that are kept or refused with a number that works, plans that no other beats.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "graph_maker.h"
#include "machine/energy.h"
#include "session/ladder_judge.h"
#include "session/pareto.h"
#include "session/throughput.h"

namespace ridgeline {
namespace {

// Convolutions that Winograd would transform, with weights of 2.4 MB.
Model deep() {
  G g;
  ValueId v = g.input("x", {1, 128, 28, 28});
  for (int i = 0; i < 4; ++i) v = g.op("Relu", {g.conv(v, 128, 128)});
  g.output(v);
  return bind_model(std::move(g.graph), {});
}

// Kernel choice must not hang on what this machine measured: with these figures DRAM is no hindrance.
CompileOptions plenty(const Ceilings& ceilings) {
  CompileOptions options;
  options.plan.threads = 1;
  options.plan.ceilings = &ceilings;
  return options;
}

Ceilings fast_memory() {
  Ceilings c = unmeasured_ceilings();
  for (auto* rates : {&c.read_gb_s, &c.copy_gb_s, &c.write_gb_s})
    for (Rate& rate : *rates) rate = {1e6, 1e6};
  return c;
}

TEST(Memory, ADryPlanTakesWhatTheRealOneTakes) {
  const Ceilings ceilings = fast_memory();
  Model model = deep();
  Graph graph = model.graph;
  PlanOptions options;
  options.threads = 1;
  options.ceilings = &ceilings;
  bool transformed = false;
  int64_t most = 0;
  for (const double price : {0.0, 1e5}) {
    const Plan dry = dry_plan(graph, options, price);
    Graph copy = model.graph;
    ConstantStore store;
    options.ns_per_byte = price;
    const Plan real = make_plan(copy, options, store, true);
    EXPECT_EQ(dry.peak_bytes_with_packing(), real.peak_bytes_with_packing()) << price;
    EXPECT_EQ(dry.text(), real.text()) << price;
    // The price drives Winograd's larger weights out, wherever there is such a kernel.
    if (price == 0)
      transformed = dry.text().find("cpu.conv_winograd") != std::string::npos, most = dry.peak_bytes_with_packing();
    else if (transformed)
      EXPECT_LT(dry.peak_bytes_with_packing(), most);
  }
}

TEST(Memory, ABudgetIsKeptOrRefusedWithANumberThatWorks) {
  const Ceilings ceilings = fast_memory();
  CompileOptions options = plenty(ceilings);
  ConstantStore store;
  Model free = deep();
  options.consume = true;
  const int64_t most = compile(free, options, store).plan->peak_bytes_with_packing();

  options.memory_budget = 1;
  int64_t feasible = 0;
  try {
    Model model = deep();
    ConstantStore other;
    compile(model, options, other);
    ADD_FAILURE() << "a byte was enough";
  } catch (const Error& error) {
    EXPECT_EQ(int(error.code()), int(ErrorCode::kResource));
    const std::string what = error.what();
    const size_t at = what.find("--mem-budget ");
    ASSERT_NE(at, std::string::npos) << what;
    feasible = std::stoll(what.substr(at + 13)) * 1000000;
  }
  // The message rounds up to a MB.
  EXPECT_LT(feasible, most + 2000000);
  // With room for the fastest plan, that one is made, and not a smaller one.
  options.memory_budget = most;
  Model roomy = deep();
  ConstantStore fourth;
  EXPECT_EQ(compile(roomy, options, fourth).plan->peak_bytes_with_packing(), most);
  options.memory_budget = feasible;
  Model model = deep();
  ConstantStore third;
  EXPECT_LE(compile(model, options, third).plan->peak_bytes_with_packing(), feasible);
}

TEST(Memory, NoParetoPlanIsBeaten) {
  const Ceilings ceilings = fast_memory();
  ParetoOptions options;
  options.compile = plenty(ceilings);
  options.seconds = 0.1;
  Model model = deep();
  const Pareto found = pareto_plans(model, options);
  ASSERT_GE(found.plans.size(), 1u);
  EXPECT_GE(found.tried, int(found.plans.size()));
  for (size_t i = 1; i < found.plans.size(); ++i) {
    EXPECT_LT(found.plans[i].plan_bytes, found.plans[i - 1].plan_bytes);
    EXPECT_GT(median_ratio(found.plans[i].samples, found.plans[0].samples),
              median_ratio(found.plans[i - 1].samples, found.plans[0].samples));
    EXPECT_FALSE(found.plans[i].changes.empty());
  }
}

TEST(Memory, InstancesOfAPlanShareNothingButItsWeights) {
  Model model = deep();
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  const Compiled compiled = compile(model, options, store);
  const Throughput t = measure_throughput(compiled.plan, model.feeds, 3, 0.05);
  EXPECT_EQ(t.instances, 3);
  EXPECT_GE(t.runs, 3);
  EXPECT_GT(t.runs_per_s(), 0);
}

TEST(Memory, SharedCeilingsArePartsOfTheWhole) {
  Ceilings c = unmeasured_ceilings();
  c.cores = 4;
  c.read_gb_s[size_t(MemoryLevel::kDram)] = {10, 20};
  EXPECT_EQ(ceilings_when_shared(c).read_gb_s[size_t(MemoryLevel::kDram)].one, 5);
  c.read_gb_s[size_t(MemoryLevel::kDram)] = {10, 80};
  EXPECT_EQ(ceilings_when_shared(c).read_gb_s[size_t(MemoryLevel::kDram)].one, 10);
}

TEST(Energy, SumsPackagesAndFollowsTheOverflow) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("ridgeline_rapl_" + std::to_string(getpid()));
  const auto write = [&](const std::string& name, const std::string& file, uint64_t value) {
    fs::create_directories(root / name);
    std::ofstream(root / name / file) << value << "\n";
  };
  EXPECT_FALSE(EnergyMeter(root).available());
  EXPECT_FALSE(EnergyMeter(root).joules());
  write("intel-rapl:0", "energy_uj", 1000000), write("intel-rapl:0", "max_energy_range_uj", 5000000);
  write("intel-rapl:1", "energy_uj", 4500000), write("intel-rapl:1", "max_energy_range_uj", 5000000);
  write("intel-rapl:0:0", "energy_uj", 7);
  const EnergyMeter meter(root);
  ASSERT_TRUE(meter.available());
  write("intel-rapl:0", "energy_uj", 1500000);
  write("intel-rapl:1", "energy_uj", 500000);
  EXPECT_DOUBLE_EQ(meter.joules().value_or(-1), 0.5 + 1.0);
  fs::remove_all(root);
}

}  // namespace
}  // namespace ridgeline
