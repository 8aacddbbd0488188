// Mutants of ONNX's own node models, of small chains of them, and of headers of other formats: each either becomes a
// sound plan or an Error, in bounded time and memory. tools/fuzz.sh goes on from there by coverage.
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "formats/tensor_file.h"
#include "fuzz/mutate.h"
#include "onnx_model.h"
#include "ops/catalogue.h"
#include "session/session.h"

namespace ridgeline {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr int kMutants = 600;  // the sanitizers' build has the fuzz target, which goes on for a minute
constexpr double kMostSeconds = 20;
#else
constexpr int kMutants = 10000;
constexpr double kMostSeconds = 2;  // of processor time, one mutant
#endif
constexpr int64_t kMostBytes = int64_t(1) << 30;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

int64_t most_resident() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

std::vector<std::string> seeds() {
  std::vector<std::string> out;
  std::vector<std::filesystem::path> files;
  for (const char* folder : {"node", "simple", "pytorch-operator"}) {
    const std::filesystem::path root = std::string("/usr/share/libonnx-testdata/data/") + folder;
    if (!std::filesystem::is_directory(root)) continue;
    for (const auto& each : std::filesystem::directory_iterator(root)) files.push_back(each.path() / "model.onnx");
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!bytes.empty() && bytes.size() <= 32768) out.push_back(std::move(bytes));
  }
  return out;
}

/// As far as a user's `run` goes before the first kernel. What it throws beside Error fails the test.
const char* plan(const std::string& bytes) {
  try {
    Graph graph = import_onnx(std::as_bytes(std::span(bytes)), "", "mutant");
    for (const std::string& fault : graph.verify()) ADD_FAILURE() << "unsound: " << fault;
    LoadOptions load;
    load.make_inputs = false;
    Model model = bind_model(std::move(graph), load);
    ConstantStore store;
    compile(model, {}, store);
    return "planned";
  } catch (const Error&) {
    return "refused";
  }
}

TEST(Mutants, OfModelsGoThroughOrAreRefused) {
  const std::vector<std::string> models = seeds();
  ASSERT_GT(models.size(), 100u) << "libonnx-testdata is not installed";
  std::vector<std::string> operators;
  for (const OpSchema* op : catalogue()) operators.emplace_back(op->name);
  std::map<std::string, int> results;
  const char* save = std::getenv("RIDGELINE_MUTANT");  // the mutant at hand, for one that ends the process
  const char* other = std::getenv("RIDGELINE_MUTANTS");
  for (int i = 0, n = other ? std::atoi(other) : kMutants; i < n; ++i) {
    Mutator mutator(uint64_t(i), operators);
    onnx::ModelProto model;
    ASSERT_TRUE(model.ParseFromString(models[size_t(i) * 7919 % models.size()]));
    mutator.mutate(model);
    const std::string bytes = model.SerializeAsString();
    if (save) std::ofstream(save, std::ios::binary) << bytes;
    const double begin = processor_seconds();
    try {
      ++results[plan(bytes)];
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutant " << i << ": " << error.what() << "\n" << model.ShortDebugString().substr(0, 2000);
    }
    EXPECT_LT(processor_seconds() - begin, kMostSeconds) << "mutant " << i << "\n"
                                                         << model.ShortDebugString().substr(0, 2000);
    if (HasFailure() && save) break;
  }
  // Of both kinds, or the mutants are no test: nothing but noise, or nothing that hurts.
  EXPECT_GT(results["planned"], kMutants / 20);
  EXPECT_GT(results["refused"], kMutants / 20);
  EXPECT_LT(most_resident(), kMostBytes);
  std::printf("%d planned, %d refused, %lld MiB at the most\n", results["planned"], results["refused"],
              static_cast<long long>(most_resident() >> 20));
}

void put(std::string& to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) to += char(value >> 8 * i);
}
void put(std::string& to, const std::string& text) {
  put(to, text.size(), 8);
  to += text;
}

std::string small_gguf() {
  std::string out = "GGUF";
  put(out, 3, 4);
  put(out, 2, 8);
  put(out, 4, 8);
  put(out, "general.architecture");
  put(out, 8, 4);
  put(out, "llama");
  put(out, "llama.attention.head_count");
  put(out, 4, 4);
  put(out, 4, 4);
  put(out, "general.alignment");
  put(out, 4, 4);
  put(out, 32, 4);
  put(out, "tokens");
  put(out, 9, 4);
  put(out, 8, 4);
  put(out, 2, 8);
  put(out, "a");
  put(out, "b");
  for (int i = 0; i < 2; ++i) {
    put(out, i ? "blk.0.attn_q.weight" : "w");
    put(out, 2, 4);
    put(out, 32, 8);
    put(out, 2, 8);
    put(out, i ? 8 : 0, 4);  // Q8_0, F32
    put(out, i ? 256 : 0, 8);
  }
  out.resize((out.size() + 31) / 32 * 32);
  out.resize(out.size() + 256 + 68);
  return out;
}

std::string small_safetensors() {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}})";
  std::string out;
  put(out, header);
  return out + std::string(18, '\0');
}

TEST(Mutants, OfHeadersAreReadOrRefused) {
  const std::string gguf = small_gguf(), safe = small_safetensors();
  int read[2] = {}, refused[2] = {};
  for (int i = 0; i < 40000; ++i) {
    const bool first = i % 2 == 0;
    std::string bytes = first ? gguf : safe;
    if (i >= 2) Mutator(uint64_t(i), {}).mutate(bytes);
    const std::span<const std::byte> all = std::as_bytes(std::span(bytes));
    try {
      const TensorFile file =
          first ? read_gguf(all, int64_t(all.size()), "mutant") : read_safetensors(all, int64_t(all.size()), "mutant");
      for (const ListedTensor& t : file.tensors) {
        EXPECT_GE(t.offset_bytes, file.data_offset_bytes);
        EXPECT_LE(t.offset_bytes + t.bytes, int64_t(all.size()));
      }
      if (i < 2) EXPECT_EQ(file.tensors.size(), 2u);
      ++read[first];
    } catch (const Error&) {
      EXPECT_GE(i, 2) << "the sound ones are read";
      ++refused[first];
    }
  }
  for (const int count : {read[0], read[1], refused[0], refused[1]}) EXPECT_GT(count, 200);
  EXPECT_LT(most_resident(), kMostBytes);
}

}  // namespace
}  // namespace ridgeline
