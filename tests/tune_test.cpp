// Choosing by measurement: the duel, tile tables, the database of tuned results, the audit, and the commands.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli_command.h"
#include "graph_maker.h"
#include "kernels/cpu/simd.h"
#include "kernels/reference/reference.h"
#include "ops/catalogue.h"
#include "session/regret_audit.h"
#include "tune/bench.h"
#include "tune/database.h"
#include "tune/held_out.h"
#include "tune/tile_tables.h"
#include "tune/tuner.h"

namespace ridgeline {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// A folder of its own for tuned results, for this process and the commands that it starts.
class TuneTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("ridgeline-tune-{}", getpid());
    fs::remove_all(folder_);
    if (const char* before = std::getenv("RIDGELINE_DATA_DIR")) before_ = before;
    setenv("RIDGELINE_DATA_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    if (before_.empty())
      unsetenv("RIDGELINE_DATA_DIR");
    else
      setenv("RIDGELINE_DATA_DIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  std::string file() const { return (folder_ / "tuned.sqlite").string(); }
  fs::path folder_;
  std::string before_;
};

Problem problem(const std::string& op, const std::string& keys, int threads = 1) {
  Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  p.threads = threads;
  return p;
}
const char* const kRow = "a=f32[1,512] b=f32[512,768]!";

void spin(double us) {
  const int64_t until = now_ns() + int64_t(us * 1e3);
  while (now_ns() < until) {
  }
}

TEST(Duel, JudgesIntervals) {
  EXPECT_EQ(judge(0.90, 0.97, 0.02), Verdict::kFaster);
  EXPECT_EQ(judge(0.90, 0.99, 0.02), Verdict::kCannotTell);
  EXPECT_EQ(judge(0.99, 1.01, 0.02), Verdict::kSame);
  EXPECT_EQ(judge(1.03, 1.20, 0.02), Verdict::kSlower);
  EXPECT_EQ(judge(0.70, 1.40, 0.02), Verdict::kCannotTell);
}

TEST(Duel, FindsADifferenceAndNoneWhereThereIsNone) {
  const Duel d = duel([] { spin(20); }, [] { spin(40); }, {.seconds = 0.5});
  EXPECT_EQ(d.verdict, Verdict::kFaster);
  EXPECT_NEAR(d.ratio, 0.5, 0.2);
  EXPECT_LE(d.low, d.ratio);
  EXPECT_GE(d.high, d.ratio);
  // Times that vary by a factor, the same on both sides.
  int calls = 0;
  const auto noisy = [&] { spin(++calls * 7919 % 97 < 48 ? 10 : 40); };
  const Duel same = duel(noisy, noisy, {.seconds = 0.2, .slice_ns = 1});
  EXPECT_NE(same.verdict, Verdict::kFaster);
  EXPECT_NE(same.verdict, Verdict::kSlower);
}

TEST(TileTable, LinesAndTheirFaults) {
  const Problem p = problem("MatMul", kRow, 2);
  MeasuredRow row{problem_key(p), {"cpu.matmul_packed", 3, {}, 12340}};
  row.choice.tile.size = {28, 64, 256};
  const std::string line = tile_table_line(row);
  const std::vector<MeasuredRow> read = parse_tile_table("# a comment\n\n" + line + "\n", "test");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].key, row.key);
  EXPECT_EQ(read[0].choice.kernel, row.choice.kernel);
  EXPECT_EQ(read[0].choice.version, 3);
  EXPECT_EQ(read[0].choice.tile, row.choice.tile);
  EXPECT_NEAR(read[0].choice.time_ns, 12340, 1);
  EXPECT_EQ(problem_key(problem_of_key(row.key)), row.key);
  for (const char* broken : {"1\tcpu.matvec\t1\t-\t3.5", "0\tk\t1\t-\t3.5\tMatMul", "1\tk\tx\t-\t3.5\tMatMul",
                             "1\tk\t1\t-\t-2\tMatMul", "1\tk\t1\t12x\t2\tMatMul", "1 k 1 - 2 MatMul"}) {
    try {
      parse_tile_table(std::string("# one\n") + broken, "some.tsv");
      ADD_FAILURE() << broken;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
    }
  }
}

TEST(TileTable, ShippedRowsAreOfKernelsThatAreThere) {
  for (const ShippedTable& table : shipped_tile_tables()) {
    for (const MeasuredRow& row : parse_tile_table(table.text, std::string(table.machine_class))) {
      const Problem p = problem_of_key(row.key);
      EXPECT_EQ(problem_key(p), row.key);
      if (table.machine_class != machine_class()) continue;
      const MeasuredMap map("table", {row});
      const MeasuredChoices* list[] = {&map};
      const Choice choice = choose_kernel(p, unmeasured_ceilings(), {}, list);
      EXPECT_EQ(choice.chosen_by, "table") << tile_table_line(row);
      EXPECT_EQ(choice.winner().kernel->name, row.choice.kernel);
    }
  }
}

TEST(Choosing, AMeasurementOverrulesTheModelIfItStillHolds) {
  const Problem p = problem("MatMul", kRow);
  const Ceilings ceilings = unmeasured_ceilings();
  const auto chosen = [&](MeasuredChoice known) {
    const MeasuredMap map("table", {{problem_key(p), std::move(known)}});
    const MeasuredChoices* list[] = {&map};
    return choose_kernel(p, ceilings, {}, list);
  };
  EXPECT_EQ(choose_kernel(p, ceilings).chosen_by, "model");
  const Choice taken = chosen({"cpu.matmul", 1, {}, 1});
  EXPECT_EQ(taken.chosen_by, "table");
  EXPECT_EQ(taken.winner().kernel->name, "cpu.matmul");
  EXPECT_EQ(chosen({"cpu.matmul", 99, {}, 1}).chosen_by, "model");  // of another version of the kernel
  EXPECT_EQ(chosen({"cpu.gone", 1, {}, 1}).chosen_by, "model");
  MeasuredChoice large{"cpu.matmul_packed", 1, {}, 1};
  large.tile.size = {28, 64, 256};
  EXPECT_EQ(chosen(large).winner().tile, large.tile);
  large.tile.size = {30000, 64, 30000};
  EXPECT_EQ(chosen(large).chosen_by, "model");
  // The first that knows answers: tuned results stand before the table.
  const MeasuredMap tuned("tuned", {{problem_key(p), {"cpu.matmul_packed", 1, {}, 1}}});
  const MeasuredMap table("table", {{problem_key(p), {"cpu.matmul", 1, {}, 1}}});
  const MeasuredChoices* both[] = {&tuned, &table};
  EXPECT_EQ(choose_kernel(p, ceilings, {}, both).chosen_by, "tuned");
  // Neither is asked about another number of threads.
  Problem two = p;
  two.threads = 2;
  EXPECT_EQ(choose_kernel(two, ceilings, {}, both).chosen_by, "model");
}

TEST(Choosing, HeldOutProblemsAreLegalAndLeaveAChoice) {
  std::mt19937_64 random(5);
  for (const std::string_view family : held_out_families()) {
    int choices = 0;
    for (int i = 0; i < 60; ++i) {
      const Problem p = held_out_problem(family, random, 1);
      EXPECT_EQ(problem_key(problem_of_key(problem_key(p))), problem_key(p));
      const Choice choice = choose_kernel(p, unmeasured_ceilings());
      EXPECT_FALSE(is_reference(*choice.winner().kernel)) << p.text();
      choices += all_candidates(p, choice, true).size() > 1;
    }
    EXPECT_GE(choices, 8) << family;  // of convolutions, those that Winograd takes, too
  }
}

// Prefill and decode by turns, on the same weights: no step falls back to the reference or to packing in each call, and
// the weights are packed once.
TEST(Choosing, AlternatingPrefillAndDecodeNeedsNoGenericKernel) {
  G g;
  ValueId x = g.input("x", Shape{Dim::symbol("M"), 256});
  x = g.op("Relu", {g.op("MatMul", {x, g.weight({256, 512})})});
  g.output(g.op("Add", {g.op("MatMul", {x, g.weight({512, 256})}), g.weight({256})}));
  optimized(g.graph);
  ConstantStore store;
  int64_t packed = 0;
  for (int round = 0; round < 3; ++round) {
    for (const int64_t rows : {int64_t(1024), int64_t(1)}) {
      PlanOptions options;
      options.threads = 1;
      options.bindings = {{"M", rows}};
      const Plan plan = make_plan(g.graph, options, store);
      for (const Step& step : plan.steps) {
        EXPECT_FALSE(is_reference(*step.call.kernel)) << rows << ": " << step.name;
        const bool product = step.call.problem.op->family == "matmul";
        if (product) EXPECT_NE(step.call.kernel->name, "cpu.matmul") << rows << ": packs in each call";
      }
      if (packed == 0) packed = store.bytes();
      EXPECT_EQ(store.bytes(), packed) << "weights were packed again for " << rows << " rows";
    }
  }
}

// sqlite would wait for someone to write.
TEST_F(TuneTest, AFifoInPlaceOfTheFileIsRefused) {
  fs::create_directories(folder_);
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  for (const bool reads : {true, false}) {
    try {
      reads ? void(read_tuned_results()) : void(TuningDatabase());
      ADD_FAILURE() << reads;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("no regular file"), std::string::npos) << error.what();
    }
  }
}

TEST_F(TuneTest, StoresReadsAndForgets) {
  EXPECT_TRUE(read_tuned_results().empty());
  EXPECT_FALSE(fs::exists(file()));  // reading makes nothing
  const Problem p = problem("MatMul", kRow);
  MeasuredRow row{problem_key(p), {"cpu.matmul_packed", 1, {}, 2500}};
  row.choice.tile.size = {28, 64, 256};
  {
    TuningDatabase database;
    database.store(row);
    row.choice.time_ns = 2000;
    database.store(row);  // in its place
    EXPECT_EQ(database.rows().size(), 1u);
  }
  const std::vector<MeasuredRow> read = read_tuned_results();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].key, row.key);
  EXPECT_EQ(read[0].choice.tile, row.choice.tile);
  EXPECT_NEAR(read[0].choice.time_ns, 2000, 1e-6);
  TuningDatabase database;
  EXPECT_TRUE(database.forget(row.key));
  EXPECT_FALSE(database.forget(row.key));
  EXPECT_TRUE(read_tuned_results().empty());
}

TEST_F(TuneTest, SeveralProcessesAtOnce) {
  constexpr int kProcesses = 4, kRows = 40;
  std::vector<pid_t> children;
  for (int child = 0; child < kProcesses; ++child) {
    const pid_t pid = fork();
    if (pid == 0) {
      try {
        for (int i = 0; i < kRows; ++i) {
          TuningDatabase database;
          database.store({fmt::format("threads=1 process {} row {}", child, i), {"k", 1, {}, double(i + 1)}});
        }
        _exit(0);
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        _exit(1);
      }
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_tuned_results().size(), size_t(kProcesses * kRows));
}

// Broken, foreign, cut off, a folder: said with the file's name and a remedy, by exit code 3, and no result is lost.
TEST_F(TuneTest, BrokenDatabasesAreSaidNotCrashed) {
  const auto complains = [&](const char* what) {
    try {
      const TuningDatabase database;
      ADD_FAILURE() << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 3) << what;
      EXPECT_NE(std::string(error.what()).find(file()), std::string::npos) << error.what();
    }
    EXPECT_THROW(read_tuned_results(), Error) << what;
    const Ran tune = command("tune relu shape=64 --quiet");
    EXPECT_EQ(tune.exit_code, 3) << what << ": " << tune.out;
    EXPECT_NE(tune.out.find(file()), std::string::npos) << tune.out;
    // Other commands go on without, and say so.
    const Ran bench = command("cost matmul m=1 n=8 k=8 tile=14x32x8");
    EXPECT_EQ(bench.exit_code, 0) << what << ": " << bench.out;
    EXPECT_NE(bench.out.find("choices are made without tuned results"), std::string::npos) << bench.out;
  };
  fs::create_directories(folder_);
  std::ofstream(file()) << std::string(5000, 'x');
  complains("no database");
  {
    fs::remove(file());
    TuningDatabase database;
    for (int i = 0; i < 400; ++i) database.store({fmt::format("threads=1 row {}", i), {"k", 1, {}, 1}});
  }
  {
    std::fstream middle(file(), std::ios::in | std::ios::out | std::ios::binary);
    for (int page = 1; page < 8; ++page) {
      middle.seekp(page * 4096);
      middle << std::string(2048, '\xee');
    }
  }
  EXPECT_THROW(read_tuned_results(), Error);
  fs::remove(file());
  fs::create_directories(file());
  complains("a folder");
}

TEST_F(TuneTest, ALockedDatabaseIsWaitedForAndThenSaid) {
  { const TuningDatabase database; }
  const Ran ran = command("--version");  // the command is there
  ASSERT_EQ(ran.exit_code, 0);
  const std::string hold = fmt::format(
      "python3 -c \"import sqlite3,time; c=sqlite3.connect('{}',isolation_level=None); c.execute('BEGIN EXCLUSIVE'); "
      "print('held',flush=True); time.sleep({{}})\"",
      file());
  FILE* const holder = popen(fmt::format(fmt::runtime(hold), 9).c_str(), "r");
  std::array<char, 16> line{};
  if (!fgets(line.data(), int(line.size()), holder)) {
    pclose(holder);
    GTEST_SKIP() << "no python3 to hold the database with";
  }
  const Ran tune = command("tune relu shape=64 --quiet");
  EXPECT_EQ(tune.exit_code, 3) << tune.out;
  EXPECT_NE(tune.out.find("another process"), std::string::npos) << tune.out;
  pclose(holder);
  EXPECT_EQ(command("tune relu shape=64 --quiet").exit_code, 0);
}

TEST_F(TuneTest, TunesOneProblem) {
  const Ran ran = command("tune matmul m=40 n=256 k=256 --threads 1 --time 0.2 --json - --quiet");
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const Json json = Json::parse(ran.out);
  ASSERT_EQ(json["problems"].size(), 1u);
  const Json& p = json["problems"][0];
  EXPECT_GE(p["candidates"].size(), 4u);
  EXPECT_EQ(p["chosen_by_before"], "model");
  EXPECT_EQ(json["rows"], p["stored"].get<bool>() ? 1 : 0);
  EXPECT_EQ(json["database"], file());
  EXPECT_EQ(json["regret"]["shapes"], 1);
  const std::string table = (folder_ / "table.tsv").string();
  EXPECT_EQ(command("tune --export " + table + " --list").exit_code, 0);
  EXPECT_TRUE(fs::exists(table));
  EXPECT_EQ(command("tune --forget").exit_code, 0);
  EXPECT_TRUE(read_tuned_results().empty());
  EXPECT_EQ(command("tune").exit_code, 2);
  EXPECT_EQ(command("tune matmul m=1 n=1 k=1 tile=1x1x1").exit_code, 2);
}

// A row that was planted: it is taken, and the audit finds it.
TEST_F(TuneTest, RegretFindsABadRow) {
  fs::create_directories(folder_);
  const std::string table = (folder_ / "bad.tsv").string();
  std::ofstream(table) << "1\tcpu.matmul\t1\t14x32x1\t1.0\tMatMul a=f32[200,512] b=f32[512,512]!\n";
  const std::string environment = "RIDGELINE_TILE_TABLE=" + table;
  const Ran bench = command("bench matmul m=200 n=512 k=512 --threads 1 --time 0.01 --json - --quiet", environment);
  ASSERT_EQ(bench.exit_code, 0) << bench.out;
  EXPECT_EQ(Json::parse(bench.out)["chosen_by"], "table") << bench.out;
  // The reference, 18 times slower in a release build. Under sanitizers the fast kernels are as slow: there the row
  // need only have been audited. (A poor tile of the fast kernel is not slow enough to be found on a busy machine.)
  std::ofstream(table) << "1\tcpu.reference\t1\t-\t1.0\tMatMul a=f32[50,128] b=f32[128,128]!\n";
  const Ran ran =
      command("regret --family matmul --cases 1 --rows 4 --time 0.3 --threads 1 --json - --quiet", environment);
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const Json json = Json::parse(ran.out);
  EXPECT_EQ(json["regret"]["shapes"], 1);
  EXPECT_EQ(json["table"]["rows"], 1);
  const auto planted = [](const Json& shapes) {
    return std::any_of(shapes.begin(), shapes.end(),
                       [](const Json& s) { return s["chosen_by"] == "table" && s["kernel"] == "cpu.reference"; });
  };
  EXPECT_TRUE(planted(json["problems"])) << ran.out;
#ifdef NDEBUG
  EXPECT_TRUE(planted(json["regret"]["flagged"])) << ran.out;
#endif
  EXPECT_EQ(command("regret --family nothing").exit_code, 2);
  EXPECT_EQ(command("regret --cases 1", "RIDGELINE_TILE_TABLE=/nowhere").exit_code, 2);
  EXPECT_EQ(command("regret --cases 1", "RIDGELINE_TILE_TABLE=/").exit_code, 2);  // a folder reads as an empty file
  EXPECT_EQ(command("cost matmul m=3 m=4 n=8 k=64").exit_code, 2);
  EXPECT_EQ(command("cost matmul m=3 n=8 k=64 --machine ''").exit_code, 2);
}

TEST(Tiles, OneThatDoesNotFitIsRefusedWithTheBytesItIsOver) {
  const Ran large = command("bench matmul m=1024 n=1024 k=1024 tile=4096x512x4096");
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_NE(large.out.find("bytes over"), std::string::npos) << large.out;
  const Ran none = command("bench softmax rows=8 cols=8 tile=4x4");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.out.find("has no tiles"), std::string::npos) << none.out;
  EXPECT_EQ(command("bench matmul m=8 n=8 k=8 tile=0x4x4").exit_code, 2);
  EXPECT_EQ(command("bench matmul m=8 n=8 k=8 tile=4x").exit_code, 2);
}

TEST(Tiles, AMisalignedOneShowsItsPadding) {
  const Ran ran = command("cost matmul m=512 n=512 k=512 tile=15x33x64 --json - --quiet");
  ASSERT_EQ(ran.exit_code, 0) << ran.out;
  const Json tiles = Json::parse(ran.out)["tiles"];
  ASSERT_FALSE(tiles.empty());
  const Kernel* packed = nullptr;
  const Problem p = problem("MatMul", "a=f32[512,512] b=f32[512,512]!");
  for (const Candidate& c : choose_kernel(p, unmeasured_ceilings()).candidates)
    if (c.kernel->name == "cpu.matmul_packed") packed = c.kernel;
  ASSERT_NE(packed, nullptr);
  const TileCheck odd = check_tile(*packed, p, parse_kernel_tile("15x33x64"));
  EXPECT_GT(odd.padding_share, cpu::active_isa() == cpu::Isa::kScalar ? 0 : 0.1);
  EXPECT_EQ(check_tile(*packed, p, parse_kernel_tile("28x64x64")).padding_share, 0);
  // Winograd's tiles of outputs: 7x7 by fours is 8x8.
  const Ran conv = command("cost conv c=64 h=7 oc=64 kh=3 pad=1 tile=4x4 --json - --quiet");
  if (cpu::active_isa() != cpu::Isa::kScalar)
    EXPECT_NE(conv.out.find("\"padding_share\": 0.234375"), std::string::npos) << conv.out;
  for (const Json& tile : tiles)
    if (tile["kernel"] == "cpu.matmul_packed") EXPECT_NEAR(tile["padding_share"], odd.padding_share, 1e-12);
}

}  // namespace
}  // namespace ridgeline
