#include "session/diff.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

constexpr uintmax_t kMostFileBytes = uintmax_t(256) << 20;
constexpr size_t kMostSteps = 1 << 20, kRowsInText = 40;
constexpr double kMostNumber = 1e18;  // us or bytes: beyond every run, and sums of them stay exact enough

struct ResultStep {
  std::vector<std::string> nodes;
  std::string kernel, tile;
  double time_us = 0, bytes = 0;
};

struct Result {
  std::vector<ResultStep> steps;
  double total_us = 0;
  double spread_us = -1;  // half of what lies between p10 and p90; < 0: the file does not say
};

class File {
 public:
  explicit File(const std::string& path) : path_(path) {}
  template <typename... Args>
  [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kUsage, "{}: {}", path_, fmt::format(format, std::forward<Args>(args)...));
  }
  double number(const Json& object, const char* key, const std::string& place) const {
    const auto it = object.find(key);
    const double value = it != object.end() && it->is_number() ? it->get<double>() : NAN;
    if (!(value >= 0 && value <= kMostNumber)) bad("{} has no '{}' that is a number from 0", place, key);
    return value;
  }
  std::string text(const Json& object, const char* key) const {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : "";
  }
  Result read(const Json& json) const {
    if (!json.is_object() || !json.contains("steps") || !json["steps"].is_array())
      bad("no result of `profile` or `optimize`: it has no list 'steps'");
    const Json& steps = json["steps"];
    if (steps.size() > kMostSteps) bad("more than {} steps", kMostSteps);
    Result result;
    for (size_t s = 0; s < steps.size(); ++s) {
      const std::string place = fmt::format("steps[{}]", s);
      const Json& step = steps[s];
      if (!step.is_object()) bad("{} is no object", place);
      ResultStep out;
      out.time_us = number(step, "time_us", place);
      out.bytes = number(step, "bytes", place);
      out.kernel = text(step, "kernel");
      out.tile = text(step, "tile");
      if (out.kernel.empty()) bad("{} names no kernel", place);
      const auto nodes = step.find("nodes");
      if (nodes == step.end() || !nodes->is_array() || nodes->empty()) bad("{} has no list 'nodes'", place);
      for (const Json& node : *nodes) {
        if (!node.is_string()) bad("{} has a node that is no name", place);
        out.nodes.push_back(node.get<std::string>());
      }
      result.steps.push_back(std::move(out));
    }
    const auto stages = json.find("stages");
    if (stages == json.end()) {
      result.total_us = number(json, "total_us", "the result");
      if (json.contains("total_p10_us") && json.contains("total_p90_us"))
        result.spread_us =
            std::abs(number(json, "total_p90_us", "the result") - number(json, "total_p10_us", "the result")) / 2;
      return result;
    }
    if (!stages->is_array() || stages->empty() || !stages->back().is_object() ||
        !stages->back().contains("latency_ms") || !stages->back()["latency_ms"].is_object())
      bad("its last stage has no 'latency_ms'");
    const Json& latency = stages->back()["latency_ms"];
    result.total_us = 1e3 * number(latency, "median", "latency_ms");
    result.spread_us = 1e3 * std::abs(number(latency, "p90", "latency_ms") - number(latency, "p10", "latency_ms")) / 2;
    return result;
  }

 private:
  const std::string& path_;
};

// Which node belongs to which group: those of one step are one.
class Groups {
 public:
  void join(const std::vector<std::string>& nodes) {
    const size_t first = id(nodes.front());
    for (const std::string& node : nodes) parent_[root(id(node))] = root(first);
  }
  size_t of(const std::string& node) { return root(id(node)); }
  const std::vector<std::string>& names() const { return names_; }

 private:
  size_t id(const std::string& node) {
    const auto [at, fresh] = ids_.emplace(node, names_.size());
    if (fresh) names_.push_back(node), parent_.push_back(at->second);
    return at->second;
  }
  size_t root(size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  std::map<std::string, size_t> ids_;
  std::vector<std::string> names_;
  std::vector<size_t> parent_;
};

struct Side {
  std::vector<std::string> kernels, tiles;
  double time_us = 0, bytes = 0;
  int launches = 0;
};

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " + ")); }

// What differs beside the time, in words.
std::string cause_of(const Side& a, const Side& b) {
  std::vector<std::string> out;
  if (a.launches == 0) return "only in the second";
  if (b.launches == 0) return "only in the first";
  if (a.launches != b.launches) out.push_back("launches");
  if (a.kernels != b.kernels) out.push_back("kernel");
  if (a.tiles != b.tiles) out.push_back("tile");
  if (a.bytes != b.bytes) out.push_back("bytes");
  return out.empty() ? "time alone" : fmt::format("{}", fmt::join(out, ", "));
}

Json both(const Json& before, const Json& after) { return {{"before", before}, {"after", after}}; }

}  // namespace

Json read_result(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) fail(ErrorCode::kUsage, "{}: there is no such file", path);
  if (const auto bytes = fs::file_size(path, error); error || bytes > kMostFileBytes)
    fail(ErrorCode::kUsage, "{}: larger than {} bytes", path, kMostFileBytes);
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  try {
    return Json::parse(text.str());
  } catch (const Json::exception& what) {
    fail(ErrorCode::kUsage, "{}: not JSON: {}", path, what.what());
  }
}

Json diff_results(const Json& before, const Json& after, const std::string& before_path,
                  const std::string& after_path) {
  const Result results[2] = {File(before_path).read(before), File(after_path).read(after)};
  Groups groups;
  for (const Result& result : results)
    for (const ResultStep& step : result.steps) groups.join(step.nodes);
  std::map<size_t, std::array<Side, 2>> sides;
  double in_steps[2] = {0, 0};
  for (int r = 0; r < 2; ++r) {
    for (const ResultStep& step : results[r].steps) {
      Side& side = sides[groups.of(step.nodes.front())][size_t(r)];
      side.kernels.push_back(step.kernel);
      side.tiles.push_back(step.tile);
      side.time_us += step.time_us;
      side.bytes += step.bytes;
      ++side.launches;
      in_steps[r] += step.time_us;
    }
  }
  std::map<size_t, std::vector<std::string>> members;
  for (const std::string& node : groups.names()) members[groups.of(node)].push_back(node);
  std::vector<std::pair<double, Json>> rows;
  double sum = 0;
  for (const auto& [group, pair] : sides) {
    const auto& [a, b] = pair;
    const double delta = b.time_us - a.time_us;
    sum += delta;
    rows.emplace_back(std::abs(delta), Json{{"nodes", members[group]},
                                            {"delta_us", delta},
                                            {"time_us", both(a.time_us, b.time_us)},
                                            {"kernel", both(joined(a.kernels), joined(b.kernels))},
                                            {"tile", both(joined(a.tiles), joined(b.tiles))},
                                            {"bytes", both(a.bytes, b.bytes)},
                                            {"launches", both(a.launches, b.launches)},
                                            {"cause", cause_of(a, b)}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  Json nodes = Json::array();
  for (auto& [size, row] : rows) nodes.push_back(std::move(row));
  // The whole is timed by itself: what its median has beyond the steps' medians lies between them (binding, gaps; and
  // medians do not add). It may be negative.
  const double total = results[1].total_us - results[0].total_us;
  nodes.push_back({{"nodes", Json::array()},
                   {"delta_us", total - sum},
                   {"time_us", both(results[0].total_us - in_steps[0], results[1].total_us - in_steps[1])},
                   {"kernel", both("", "")},
                   {"tile", both("", "")},
                   {"bytes", both(0, 0)},
                   {"launches", both(0, 0)},
                   {"cause", "between steps"}});
  Json noise;  // null: a file does not say
  if (results[0].spread_us >= 0 && results[1].spread_us >= 0)
    noise = std::hypot(results[0].spread_us, results[1].spread_us);
  return {{"nodes", nodes},
          {"noise_us", noise},
          {"total_delta_us", total},
          {"total_us", both(results[0].total_us, results[1].total_us)}};
}

std::string diff_text(const Json& diff) {
  std::string out = fmt::format("{:>11} {:>11} {:>11}  {:<24} {}\n", "delta us", "before", "after", "changed", "nodes");
  size_t shown = 0;
  for (const Json& row : diff["nodes"]) {
    const bool last = row["nodes"].empty();
    if (!last && ++shown > kRowsInText) continue;
    const Json &time = row["time_us"], &kernel = row["kernel"];
    out += fmt::format("{:>+11.2f} {:>11.2f} {:>11.2f}  {:<24} {}\n", row["delta_us"].get<double>(),
                       time["before"].get<double>(), time["after"].get<double>(), row["cause"].get<std::string>(),
                       fmt::join(row["nodes"].get<std::vector<std::string>>(), " + "));
    if (kernel["before"] != kernel["after"])
      out +=
          fmt::format("{:37}{} -> {}\n", "", kernel["before"].get<std::string>(), kernel["after"].get<std::string>());
  }
  if (shown > kRowsInText) out += fmt::format("... and {} with less\n", shown - kRowsInText);
  const double total = diff["total_delta_us"];
  out += fmt::format("total {:+.2f} us of {:.2f}", total, diff["total_us"]["before"].get<double>());
  if (diff["noise_us"].is_null()) return out + "; the files do not say how much is noise\n";
  const double noise = diff["noise_us"];
  return out + fmt::format("; noise {:.2f} us: {}\n", noise,
                           std::abs(total) > noise ? "more than noise" : "no more than noise");
}

}  // namespace ridgeline
