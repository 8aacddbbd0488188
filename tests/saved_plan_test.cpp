// Saved plans: the same results to the bit, no weight packed anew, stale ones told and built anew, broken ones refused.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "cli_command.h"
#include "core/sha256.h"
#include "formats/make/make.h"
#include "formats/ridge/graph_record.h"
#include "formats/ridge/saved_file.h"
#include "graph_maker.h"
#include "ridgeline/ridgeline.h"
#include "session/load.h"
#include "session/saved_plan.h"

namespace ridgeline {
namespace {

std::string file(const std::string& name) { return testing::TempDir() + "/saved_plan_" + name; }

const std::string& small_model() {
  static const std::string path = [] {
    std::string p = file("mobilenet.onnx");
    make_model("mobilenet_v3", {}, p);
    return p;
  }();
  return path;
}

std::vector<Tensor> outputs_of(const std::string& path, std::vector<std::string>& notes, size_t* packed = nullptr) {
  LoadOptions load;
  Model model = load_model(path, load, notes);
  const Feeds feeds = model.feeds;
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  const Compiled compiled = compile(model, options, store);
  notes.insert(notes.end(), compiled.notes.begin(), compiled.notes.end());
  if (packed) {
    *packed = 0;
    store.each([&](const ConstantStore::Key& key, const Tensor&) { *packed += key.packing.empty() ? 0 : 1; });
  }
  Runner runner(compiled.plan, feeds);
  runner.run();
  return runner.outputs();
}

void save(const std::string& model_file, const std::string& to) {
  Model model = load_model(model_file, {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  options.plan.ceilings = cached_ceilings();
  const Compiled compiled = compile(model, options, store);
  save_plan(to, model_file, model, compiled.graph, compiled.decisions.all, options);
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].dtype() != b[i].dtype() || a[i].shape() != b[i].shape()) return false;
    if (std::memcmp(a[i].data(), b[i].data(), size_t(a[i].bytes())) != 0) return false;
  }
  return true;
}

TEST(SavedPlan, GivesTheSameBitsAndPacksNothing) {
  const std::string saved = file("same.ridge");
  save(small_model(), saved);
  std::vector<std::string> notes;
  const std::vector<Tensor> fresh = outputs_of(small_model(), notes);
  notes.clear();
  size_t packed = 0;
  const std::vector<Tensor> loaded = outputs_of(saved, notes, &packed);
  EXPECT_TRUE(same_bits(fresh, loaded));
  EXPECT_TRUE(notes.empty()) << notes[0];
  EXPECT_EQ(packed, load_saved_plan(saved, {}, notes).saved->packed.size());  // none beside those of the file
  EXPECT_GT(packed, 10u);
}

TEST(SavedPlan, KeepsTheDecisions) {
  const std::string saved = file("decisions.ridge");
  save(small_model(), saved);
  std::vector<std::string> notes;
  Model model = load_saved_plan(saved, {}, notes);
  const size_t kept = model.saved->decisions.size();
  ConstantStore store;
  const Compiled compiled = compile(model, {}, store);
  ASSERT_EQ(compiled.decisions.all.size(), kept);
  EXPECT_TRUE(std::any_of(compiled.decisions.all.begin(), compiled.decisions.all.end(), [](const Decision& d) {
    return d.pass == "fuse_epilogues" && d.action == Action::kApplied && !d.nodes.empty();
  }));
}

TEST(SavedPlan, OfAChangedModelIsBuiltAnewAndWritten) {
  const std::string source = file("changes.onnx"), saved = file("changes.ridge");
  make_model("mobilenet_v3", {}, source);
  save(source, saved);
  std::ofstream(source, std::ios::app | std::ios::binary) << std::string("\x6a\x00", 2);  // a field that nobody reads
  std::vector<std::string> notes;
  outputs_of(saved, notes);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("has changed since"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("written anew"), std::string::npos) << notes[1];
  notes.clear();
  outputs_of(saved, notes);
  EXPECT_TRUE(notes.empty()) << notes[0];
}

TEST(SavedPlan, OfAnotherMachineIsBuiltAnewFromTheGraphInIt) {
  const std::string source = file("moves.onnx"), saved = file("moves.ridge");
  std::filesystem::copy_file(small_model(), source, std::filesystem::copy_options::overwrite_existing);
  save(source, saved);
  std::filesystem::remove(source);
  SavedFile record = read_saved_file(saved);
  record.record["machine"] = "a machine of long ago";
  write_saved_file(file("moved.ridge"), record);
  std::vector<std::string> notes;
  const std::vector<Tensor> moved = outputs_of(file("moved.ridge"), notes);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("a machine of long ago"), std::string::npos) << notes[0];
  EXPECT_NE(notes[0].find("the graph in it"), std::string::npos) << notes[0];
  notes.clear();
  EXPECT_TRUE(same_bits(moved, outputs_of(small_model(), notes)));
}

TEST(SavedPlan, TakesNoPasses) {
  const std::string saved = file("passes.ridge");
  save(small_model(), saved);
  const Ran ran = command("run " + saved + " --passes none");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_NE(ran.out.find("is a saved plan"), std::string::npos) << ran.out;
}

TEST(SavedPlan, ThroughTheLibrary) {
  const std::string saved = file("api.ridge");
  const OptimizedModel first = optimize(LoadedModel::load(small_model()));
  first.save(saved);
  const LoadedModel loaded = LoadedModel::load(saved);
  const OptimizedModel second = optimize(loaded);
  EXPECT_EQ(second.text(), first.text());
}

// Every prefix, and every changed byte of the record with the checksum made right again: an error, never a crash.
TEST(SavedPlan, BrokenFilesAreRefused) {
  G g;
  const ValueId x = g.input("x", {Dim::symbol("n"), Dim(8)});
  const ValueId y = g.op("Relu", {g.op("MatMul", {x, g.weight({8, 16})})});
  g.graph.mark_output(y);
  SavedFile made;
  made.record = graph_record(g.graph, made.tensors);
  const std::string whole = file("small.ridge"), broken = file("broken.ridge");
  write_saved_file(whole, made);
  std::ifstream in(whole, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  auto read = [&](const std::string& content) {
    std::ofstream(broken, std::ios::binary) << content;
    const SavedFile file = read_saved_file(broken);
    std::map<uint64_t, uint64_t> ids;
    return graph_of_record(file.record, file.tensors, ids);
  };
  EXPECT_EQ(read(bytes).text(), g.graph.text());
  for (size_t n = 0; n + 64 < bytes.size(); n += 7) EXPECT_THROW(read(bytes.substr(0, n)), Error) << n;
  constexpr size_t kHeader = 88;
  int64_t record_bytes = 0;
  std::memcpy(&record_bytes, bytes.data() + 16, sizeof record_bytes);
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string changed = bytes;
    for (int k = 0; k < 1 + i % 3; ++k) changed[kHeader + random() % size_t(record_bytes)] = char(random());
    const std::string sum = sha256(changed.data() + kHeader, size_t(record_bytes));
    std::copy(sum.begin(), sum.end(), changed.begin() + 24);
    try {
      read(changed);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 250);
  std::string deep(bytes);
  const int64_t many = 100000;
  deep.resize(kHeader);
  deep.append(size_t(many), '\x81');
  std::memcpy(deep.data() + 16, &many, sizeof many);
  const std::string sum = sha256(deep.data() + kHeader, size_t(many));
  std::copy(sum.begin(), sum.end(), deep.begin() + 24);
  EXPECT_THROW(read(deep), Error);
}

}  // namespace
}  // namespace ridgeline
