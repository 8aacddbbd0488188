#include "machine/ceilings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of the cached file; an older file is measured anew

constexpr std::array<std::string_view, kMemoryLevels> kLevelNames = {"l1", "l2", "l3", "dram"};
constexpr std::array<std::string_view, kSpecialFunctions> kSpecialNames = {"exp", "erf", "tanh", "divide", "sqrt"};

Json json_of(const Rate& rate) { return {{"one", rate.one}, {"all", rate.all}}; }

double positive(const Json& value) {
  const double number = value.get<double>();
  if (!std::isfinite(number) || number <= 0) throw std::domain_error("a rate must be a positive number");
  return number;
}

Rate rate_of(const Json& json) { return {positive(json.at("one")), positive(json.at("all"))}; }

template <size_t N>
Json json_of(const std::array<Rate, N>& rates, const std::array<std::string_view, N>& names) {
  Json json;
  for (size_t i = 0; i < N; ++i) json[std::string(names[i])] = json_of(rates[i]);
  return json;
}

template <size_t N>
std::array<Rate, N> rates_of(const Json& json, const std::array<std::string_view, N>& names) {
  std::array<Rate, N> rates;
  for (size_t i = 0; i < N; ++i) rates[i] = rate_of(json.at(std::string(names[i])));
  return rates;
}

// FNV-1a, 64 bits: names the file; the file holds the whole fingerprint.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  return h;
}

}  // namespace

std::string_view name(MemoryLevel level) { return kLevelNames[size_t(level)]; }
std::string_view name(SpecialFunction function) { return kSpecialNames[size_t(function)]; }

double Rate::at(int threads, int cores) const {
  if (threads <= 1) return one;
  return threads >= cores ? all : std::min(all, one * threads);
}

const Rate& Ceilings::compute_gop_s(DType dtype) const {
  switch (dtype) {
    case DType::kBF16:
      return bf16;
    case DType::kI8:
    case DType::kU8:
    case DType::kI4:
    case DType::kU4:
      return u8s8;
    case DType::kF16:
      return f16.all > 0 ? f16 : f32;
    case DType::kF8E4M3:
      return f8.all > 0 ? f8 : f32;
    default:
      return f32;
  }
}

double Ceilings::compute_ns(DType dtype, int64_t flops, int threads) const {
  // A vector of f64 has half the lanes of one of f32 on every CPU that we know. f16 is computed in f32: its sums need
  // it.
  const double lanes = dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kU64 ? 0.5 : 1;
  return double(flops) / (compute_gop_s(dtype).at(threads, cores) * lanes);
}

double Ceilings::special_ns(SpecialFunction function, int64_t elements, int threads) const {
  return elements ? double(elements) / special_per_ns[size_t(function)].at(threads, cores) : 0;
}

MemoryLevel Ceilings::level_of(int64_t working_set_bytes, int threads) const {
  const int64_t used = std::clamp(threads, 1, std::max(cores, 1));
  if (working_set_bytes <= caches.l1d * used) return MemoryLevel::kL1;
  if (working_set_bytes <= caches.l2 * used) return MemoryLevel::kL2;
  return working_set_bytes <= caches.l3 ? MemoryLevel::kL3 : MemoryLevel::kDram;
}

double Ceilings::stream_ns(int64_t read_bytes, int64_t write_bytes, int threads, MemoryLevel level) const {
  const int64_t bytes = read_bytes + write_bytes;
  if (bytes <= 0) return 0;
  const size_t l = size_t(level);
  if (write_bytes * 10 <= bytes) return double(bytes) / read_gb_s[l].at(threads, cores);
  double gb_s = copy_gb_s[l].at(threads, cores);
  if (write_bytes * 4 >= bytes * 3) gb_s = std::max(gb_s, write_gb_s[l].at(threads, cores));
  return double(bytes) / gb_s;
}

double Ceilings::stream_ns(int64_t read_bytes, int64_t write_bytes, int threads) const {
  return stream_ns(read_bytes, write_bytes, threads, level_of(read_bytes + write_bytes, threads));
}

std::string Ceilings::to_json() const {
  Json json = {{"format", kFormat}, {"fingerprint", fingerprint}, {"cores", cores}, {"quiet", quiet}};
  json["caches_bytes"] = {{"l1d", caches.l1d}, {"l2", caches.l2}, {"l3", caches.l3}};
  json["compute_gop_s"] = {{"f32", json_of(f32)}, {"bf16", json_of(bf16)}, {"u8s8", json_of(u8s8)}};
  if (f16.all > 0) json["compute_gop_s"]["f16"] = json_of(f16);
  if (f8.all > 0) json["compute_gop_s"]["f8e4m3"] = json_of(f8);
  json["read_gb_s"] = json_of(read_gb_s, kLevelNames);
  json["copy_gb_s"] = json_of(copy_gb_s, kLevelNames);
  json["write_gb_s"] = json_of(write_gb_s, kLevelNames);
  json["special_per_ns"] = json_of(special_per_ns, kSpecialNames);
  json["launch_ns"] = json_of(launch_ns);
  return json.dump(2);
}

std::optional<Ceilings> Ceilings::from_json(std::string_view text) try {
  const Json json = Json::parse(text);
  if (json.at("format") != kFormat) return std::nullopt;
  Ceilings c;
  c.fingerprint = json.at("fingerprint");
  c.cores = json.at("cores");
  c.quiet = json.at("quiet");
  const Json& caches = json.at("caches_bytes");
  c.caches = {caches.at("l1d"), caches.at("l2"), caches.at("l3")};
  const Json& compute = json.at("compute_gop_s");
  c.f32 = rate_of(compute.at("f32"));
  c.bf16 = rate_of(compute.at("bf16"));
  c.u8s8 = rate_of(compute.at("u8s8"));
  if (compute.contains("f16")) c.f16 = rate_of(compute.at("f16"));
  if (compute.contains("f8e4m3")) c.f8 = rate_of(compute.at("f8e4m3"));
  c.read_gb_s = rates_of(json.at("read_gb_s"), kLevelNames);
  c.copy_gb_s = rates_of(json.at("copy_gb_s"), kLevelNames);
  c.write_gb_s = rates_of(json.at("write_gb_s"), kLevelNames);
  c.special_per_ns = rates_of(json.at("special_per_ns"), kSpecialNames);
  c.launch_ns = rate_of(json.at("launch_ns"));
  if (c.cores < 1) return std::nullopt;
  return c;
} catch (const std::exception&) {
  return std::nullopt;
}

Ceilings ceilings_when_shared(Ceilings c) {
  for (const MemoryLevel level : {MemoryLevel::kL3, MemoryLevel::kDram}) {
    for (Rate* rate : {&c.read_gb_s[size_t(level)], &c.copy_gb_s[size_t(level)], &c.write_gb_s[size_t(level)]})
      rate->one = std::min(rate->one, rate->all / std::max(1, c.cores));
  }
  return c;
}

Ceilings unmeasured_ceilings(int cores) {
  Ceilings c;
  c.cores = cores;
  c.caches = this_cpu().caches;
  const auto rate = [&](double one) { return Rate{one, one * c.cores}; };
  c.f32 = rate(100), c.bf16 = rate(200), c.u8s8 = rate(400);
  c.read_gb_s = {rate(200), rate(100), rate(50), Rate{20, 20.0 * std::min(c.cores, 4)}};
  c.copy_gb_s = c.read_gb_s;
  c.write_gb_s = c.read_gb_s;
  c.special_per_ns = {rate(4), rate(2), rate(2), rate(4), rate(4)};
  c.launch_ns = {5, 1000};
  return c;
}

std::optional<fs::path> cache_directory() {
  const auto variable = [](const char* key) -> std::optional<fs::path> {
    const char* value = std::getenv(key);
    return value && *value ? std::optional<fs::path>(value) : std::nullopt;
  };
  if (auto directory = variable("RIDGELINE_CACHE_DIR")) return directory;
  if (auto directory = variable("XDG_CACHE_HOME")) return *directory / "ridgeline";
  if (auto home = variable("HOME")) return *home / ".cache" / "ridgeline";
  return std::nullopt;
}

std::optional<fs::path> ceilings_file(const std::string& fingerprint) {
  const auto directory = cache_directory();
  if (!directory) return std::nullopt;
  return *directory / fmt::format("ceilings-{:016x}.json", hash(fingerprint));
}

std::optional<Ceilings> load_ceilings(const std::string& fingerprint) {
  const auto path = ceilings_file(fingerprint);
  if (!path) return std::nullopt;
  std::error_code error;
  if (!std::filesystem::is_regular_file(*path, error)) return std::nullopt;  // a FIFO would be waited for
  std::ifstream file(*path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  auto ceilings = Ceilings::from_json(text.str());
  return ceilings && ceilings->fingerprint == fingerprint ? ceilings : std::nullopt;
}

bool save_ceilings(const Ceilings& ceilings) {
  const auto path = ceilings_file(ceilings.fingerprint);
  if (!path) return false;
  std::error_code error;
  fs::create_directories(path->parent_path(), error);
  fs::path temporary = *path;
  temporary += fmt::format(".{}", getpid());  // a second process writes its own
  {
    std::ofstream file(temporary);
    file << ceilings.to_json() << '\n';
    file.close();
    if (!file) {
      fs::remove(temporary, error);
      return false;
    }
  }
  fs::rename(temporary, *path, error);
  if (!error) return true;
  std::error_code ignored;
  fs::remove(temporary, ignored);
  return false;
}

}  // namespace ridgeline
