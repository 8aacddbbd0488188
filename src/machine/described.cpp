#include "machine/described.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/words.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr int64_t kMostFileBytes = 1 << 20;  // a description takes 4 KiB
constexpr int64_t kMostBytes = int64_t(1) << 50, kMostCores = 1 << 20, kMostShape = 4096;
constexpr double kMostRate = 1e12;  // Gop/s, GB/s, us: beyond every machine, and safe to multiply
constexpr size_t kMostEntries = 64;

// One object of the document, with its place in words; every key must be taken, and every object says its source.
class Reader {
 public:
  Reader(const Json& json, const std::string& path, std::string place)
      : json_(json), path_(path), place_(std::move(place)) {
    if (!json.is_object()) bad("is no object");
  }
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUsage, "{}: {} {} (docs/machines.md has the schema)", path_,
         place_.empty() ? "the document" : place_, fmt::format(format, std::forward<Args>(args)...));
  }
  const Json& need(const std::string& key) {
    seen_.insert(key);
    const auto it = json_.find(key);
    if (it == json_.end()) bad("has no '{}'", key);
    return *it;
  }
  bool has(const std::string& key) const { return json_.contains(key); }
  std::string text(const std::string& key) {
    const Json& value = need(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) bad("has a '{}' that is no text", key);
    return value.get<std::string>();
  }
  double rate(const std::string& key) {
    const Json& value = need(key);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number > 0 && number <= kMostRate)) bad("has a '{}' that is no number from 0 to {:g}", key, kMostRate);
    return number;
  }
  int64_t whole(const std::string& key, int64_t most) { return whole(need(key), key, most); }
  int64_t whole(const Json& value, const std::string& key, int64_t most) const {
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(most)
                                                 : value.is_number_integer() && value.get<int64_t>() <= most;
    if (!fits || value.get<int64_t>() < 1) bad("has a '{}' that is no whole number from 1 to {}", key, most);
    return value.get<int64_t>();
  }
  const Json& list(const std::string& key) {
    const Json& value = need(key);
    if (!value.is_array() || value.empty() || value.size() > kMostEntries)
      bad("has a '{}' that is no list of 1 to {} entries", key, kMostEntries);
    return value;
  }
  DType dtype(const std::string& key) {
    const std::string word = text(key);
    if (dtype_named(word) == DType::kNone) bad("has the {} '{}': there is no such type", key, one_line(word));
    return dtype_named(word);
  }
  Reader at(const std::string& key) { return {need(key), path_, inner(key)}; }
  std::string inner(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }
  void done(bool needs_source = true) {
    if (needs_source) text("source");
    for (const auto& [key, value] : json_.items())
      if (!seen_.count(key)) bad("has a key '{}' that means nothing", one_line(key));
  }

 private:
  const Json& json_;
  const std::string& path_;
  std::string place_;
  std::set<std::string> seen_;
};

DescribedRate rate_of(Reader r) {
  DescribedRate rate;
  rate.dtype = r.dtype("dtype");
  rate.accumulator = r.dtype("accumulator");
  rate.gop_s = r.rate("gop_s");
  const Json& shape = r.list("shape");
  if (shape.size() != 3) r.bad("has a 'shape' that is not [m, n, k]");
  for (size_t i = 0; i < 3; ++i) rate.shape[i] = r.whole(shape[i], "shape", kMostShape);
  r.done(false);
  return rate;
}

DescribedUnit unit_of(Reader r, const std::string& path) {
  DescribedUnit unit;
  unit.name = r.text("name");
  const std::string kind = r.text("kind");
  if (kind != "matrix" && kind != "vector") r.bad("has the kind '{}': there are matrix and vector", one_line(kind));
  unit.matrix = kind == "matrix";
  const Json& rates = r.list("rates");
  for (size_t i = 0; i < rates.size(); ++i) {
    const DescribedRate rate = rate_of({rates[i], path, r.inner(fmt::format("rates[{}]", i))});
    if (unit.rate(rate.dtype)) r.bad("has two rates for {}", name(rate.dtype));
    unit.rates.push_back(rate);
  }
  r.done();
  return unit;
}

DescribedBuffer buffer_of(Reader r) {
  DescribedBuffer buffer;
  buffer.name = r.text("name");
  buffer.bytes = r.whole("bytes", kMostBytes);
  for (const Json& what : r.list("holds")) {
    if (what == "inputs")
      buffer.inputs = true;
    else if (what == "accumulators")
      buffer.accumulators = true;
    else
      r.bad("has a 'holds' with something else than inputs and accumulators");
  }
  r.done();
  return buffer;
}

DescribedLevel level_of_json(Reader r, bool last) {
  DescribedLevel level;
  level.name = r.text("name");
  level.gb_s = r.rate("gb_s");
  if (last && r.has("bytes")) r.bad("is the last level, which holds everything: it has no 'bytes'");
  if (!last) level.bytes = r.whole("bytes", kMostBytes);
  r.done();
  return level;
}

}  // namespace

const DescribedRate* DescribedUnit::rate(DType dtype) const {
  if (dtype == DType::kU8) dtype = DType::kI8;
  if (dtype == DType::kU4) dtype = DType::kI4;
  for (const DescribedRate& r : rates)
    if (r.dtype == dtype) return &r;
  return nullptr;
}

const DescribedUnit* DescribedMachine::unit(bool matrix) const {
  for (const DescribedUnit& u : units)
    if (u.matrix == matrix) return &u;
  return nullptr;
}

const DescribedLevel& DescribedMachine::level_of(int64_t bytes) const {
  for (const DescribedLevel& level : levels)
    if (level.bytes >= bytes) return level;
  return memory();
}

DescribedMachine parse_machine(std::string_view text, const std::string& path) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail(ErrorCode::kUsage, "{}: not JSON: {}", path, error.what());
  }
  Reader r(json, path, "");
  DescribedMachine m;
  m.path = path;
  if (r.whole("format", INT32_MAX) != kFormat) r.bad("has a 'format' that is not {}", kFormat);
  m.name = r.text("name");
  m.kind = r.text("kind");
  if (m.kind != "gpu" && m.kind != "cpu" && m.kind != "npu")
    r.bad("has the kind '{}': there are gpu, cpu and npu", one_line(m.kind));
  Reader cores = r.at("cores");
  m.cores = cores.whole("count", kMostCores);
  cores.done();
  Reader launch = r.at("launch");
  m.launch_us = launch.rate("us");
  launch.done();
  const Json& units = r.list("units");
  for (size_t i = 0; i < units.size(); ++i) {
    DescribedUnit unit = unit_of({units[i], path, fmt::format("units[{}]", i)}, path);
    if (m.unit(unit.matrix)) r.bad("has two {} units", unit.matrix ? "matrix" : "vector");
    m.units.push_back(std::move(unit));
  }
  if (!m.unit(false)) r.bad("has no vector unit: what is no product could not run");
  const Json& buffers = r.list("buffers");
  bool inputs = false, accumulators = false;
  for (size_t i = 0; i < buffers.size(); ++i) {
    m.buffers.push_back(buffer_of({buffers[i], path, fmt::format("buffers[{}]", i)}));
    if ((m.buffers.back().inputs && inputs) || (m.buffers.back().accumulators && accumulators))
      r.bad("has two buffers for the same");
    inputs |= m.buffers.back().inputs;
    accumulators |= m.buffers.back().accumulators;
  }
  if (!inputs || !accumulators) r.bad("has no buffer that holds {}", inputs ? "accumulators" : "inputs");
  const Json& levels = r.list("levels");
  for (size_t i = 0; i < levels.size(); ++i) {
    m.levels.push_back(level_of_json({levels[i], path, fmt::format("levels[{}]", i)}, i + 1 == levels.size()));
    if (i > 0 && i + 1 < levels.size() && m.levels[i].bytes <= m.levels[i - 1].bytes)
      r.bad("has levels that are not ordered from small to large");
  }
  r.done(false);
  return m;
}

fs::path machines_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  // bin/ridgeline of an installed copy; build/release/ridgeline and build/release/tests/... of a checkout.
  const fs::path folder = program.parent_path();
  for (const char* beside : {"../share/ridgeline/machines", "../../share/machines", "../../../share/machines"})
    if (fs::is_directory(folder / beside, error)) return (folder / beside).lexically_normal();
  return {};
}

DescribedMachine find_machine(const std::string& name_or_file) {
  std::error_code error;
  fs::path file = name_or_file;
  const bool is_name = name_or_file.find('/') == std::string::npos && !name_or_file.ends_with(".json");
  const fs::path folder = machines_folder();
  if (is_name && !fs::is_regular_file(file, error)) {
    file = folder / (name_or_file + ".json");
    if (folder.empty() || !fs::is_regular_file(file, error)) {
      std::vector<std::string> names;
      for (const auto& entry : fs::directory_iterator(folder, error))
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
      std::sort(names.begin(), names.end());
      fail(ErrorCode::kUsage, "--machine {}: there is no such machine; described are: {}; or give a file", name_or_file,
           names.empty() ? "none (no folder of machines was found beside the program)"
                         : fmt::format("{}", fmt::join(names, ", ")));
    }
  }
  // A pipe would be waited for, a folder reads as nothing.
  if (!fs::is_regular_file(file, error)) fail(ErrorCode::kUsage, "--machine {}: there is no such file", name_or_file);
  if (const auto bytes = fs::file_size(file, error); error || bytes > uintmax_t(kMostFileBytes))
    fail(ErrorCode::kUsage, "{}: larger than a description of a machine can be ({} bytes)", file.string(),
         kMostFileBytes);
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) fail(ErrorCode::kUsage, "{}: cannot be read", file.string());
  return parse_machine(text.str(), file.string());
}

}  // namespace ridgeline
