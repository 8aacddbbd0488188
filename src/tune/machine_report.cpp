#include "tune/machine_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "kernels/cuda/device.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

std::string size_text(int64_t bytes) {
  if (bytes >= (int64_t(1) << 20)) return fmt::format("{:g} MiB", double(bytes) / (1 << 20));
  return fmt::format("{:g} KiB", double(bytes) / 1024);
}

// Four significant digits at most, aligned on the point where it can be.
std::string number(double value) {
  return value >= 1000  ? fmt::format("{:.0f}", value)
         : value >= 100 ? fmt::format("{:.1f}", value)
                        : fmt::format("{:.2f}", value);
}

class Table {
 public:
  explicit Table(int cores) : cores_(cores) {
    text_ = cores > 1 ? fmt::format("{:<26}{:>12}{:>14}\n", "", "1 thread", fmt::format("{} threads", cores))
                      : fmt::format("{:<26}{:>12}\n", "", "1 thread");
  }
  void row(std::string_view what, const Rate& rate, std::string_view unit) {
    text_ += fmt::format("{:<26}{:>12}", what, number(rate.one));
    if (cores_ > 1) text_ += fmt::format("{:>14}", number(rate.all));
    text_ += fmt::format("  {}\n", unit);
  }
  void bandwidths(std::string_view what, const std::array<Rate, kMemoryLevels>& rates) {
    static constexpr std::string_view kNames[] = {"L1", "L2", "L3", "DRAM"};
    for (size_t level = 0; level < rates.size(); ++level)
      row(fmt::format("{} {}", what, kNames[level]), rates[level], "GB/s");
  }
  const std::string& text() const { return text_; }

 private:
  int cores_;
  std::string text_;
};

// The widest of each kind; the full list is in the JSON.
std::string instruction_sets(const Cpu& cpu) {
  std::string text;
  const auto add = [&](std::string_view feature, std::string_view name) {
    if (cpu.has(feature)) text += fmt::format("{}{}", text.empty() ? "" : " ", name);
  };
  if (cpu.has("avx512f"))
    add("avx512f", "avx512");
  else
    add("avx2", "avx2");
  add("avx512_vnni", "vnni");
  add("avx512_bf16", "bf16");
  add("amx_tile", "amx");
  return text.empty() ? fmt::format("{}", fmt::join(cpu.isa, " ")) : text;
}

}  // namespace

Json machine_json(const Cpu& cpu, const Ceilings& ceilings) {
  // The stored form has the contract's names already; what is about the cache file stays out.
  Json measured = Json::parse(ceilings.to_json());
  for (const char* key : {"format", "fingerprint", "cores"}) measured.erase(key);
  Json json;
  json["cpu"] = {{"name", cpu.name}, {"cores", cpu.cores}, {"isa", cpu.isa}};
  json["cpu"]["caches_bytes"] = {{"l1d", cpu.caches.l1d}, {"l2", cpu.caches.l2}, {"l3", cpu.caches.l3}};
  json["ceilings"] = std::move(measured);
  json["gpus"] = Json::array();
  return json;
}

std::string machine_text(const Cpu& cpu, const Ceilings& c) {
  std::string text = fmt::format("{}, {} core{}\n", cpu.name, cpu.cores, cpu.cores == 1 ? "" : "s");
  text += fmt::format("instruction sets: {}\n", fmt::join(cpu.isa, " "));
  text += fmt::format("caches: L1d {} and L2 {} a core, L3 {}", size_text(cpu.caches.l1d), size_text(cpu.caches.l2),
                      size_text(cpu.caches.l3));
  if (c.caches.l3 != cpu.caches.l3)
    text += fmt::format(" shown, of which {} answer faster than DRAM", size_text(c.caches.l3));
  text += "\n\n";
  Table table(c.cores);
  table.row("f32 multiply-add", c.f32, "Gop/s");
  table.row("bf16 multiply-add", c.bf16, "Gop/s");
  table.row("u8 x s8 multiply-add", c.u8s8, "Gop/s");
  table.bandwidths("read", c.read_gb_s);
  table.bandwidths("copy (read + written)", c.copy_gb_s);
  table.bandwidths("write", c.write_gb_s);
  for (int f = 0; f < kSpecialFunctions; ++f)
    table.row(name(SpecialFunction(f)), c.special_per_ns[size_t(f)], "elements/ns");
  table.row("start of a parallel region", c.launch_ns, "ns");
  text += table.text();
  const double dram = c.read_gb_s[size_t(MemoryLevel::kDram)].all;
  text += fmt::format(
      "\nAll threads: f32 arithmetic is the bound above {:.1f} FLOP per byte read from DRAM, memory below.\n",
      c.f32.all / dram);
  if (!c.quiet) {
    text +=
        "Other processes took the cores while this was measured: the figures of L3 and DRAM may be too low. `machine "
        "--measure` on a quiet machine mends them.\n";
  }
  return text;
}

Json gpus_json(const Ceilings* measured) {
  Json list = Json::array();
  for (const cuda::DeviceInfo& gpu : cuda::devices()) {
    Json entry = {{"name", gpu.name},
                  {"sm", gpu.sm},
                  {"multiprocessors", gpu.multiprocessors},
                  {"memory_bytes", gpu.memory_bytes},
                  {"l2_bytes", gpu.l2_bytes}};
    if (measured && cuda::target().ordinal == gpu.ordinal) {
      // A card has no threads to share it: one figure a rate.
      const auto all = [](const Rate& rate) { return rate.all; };
      Json& c = entry["ceilings"];
      c["compute_gop_s"] = {{"f32", all(measured->f32)},
                            {"bf16", all(measured->bf16)},
                            {"f16", all(measured->f16)},
                            {"f8e4m3", all(measured->f8)},
                            {"u8s8", all(measured->u8s8)}};
      c["read_gb_s"] = {{"l2", all(measured->read_gb_s[1])}, {"dram", all(measured->read_gb_s[3])}};
      c["copy_gb_s"] = {{"l2", all(measured->copy_gb_s[1])}, {"dram", all(measured->copy_gb_s[3])}};
      for (int f = 0; f < kSpecialFunctions; ++f)
        c["special_per_ns"][std::string(name(SpecialFunction(f)))] = all(measured->special_per_ns[size_t(f)]);
      c["graph_node_ns"] = all(measured->launch_ns);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string gpus_text(const Ceilings* measured) {
  std::string text;
  for (const cuda::DeviceInfo& gpu : cuda::devices()) {
    text += fmt::format("\ncuda:{} {}, sm_{}, {} multiprocessors, {:.1f} GiB, second cache {}\n", gpu.ordinal, gpu.name,
                        gpu.sm, gpu.multiprocessors, double(gpu.memory_bytes) / (1 << 30), size_text(gpu.l2_bytes));
    if (!measured || cuda::target().ordinal != gpu.ordinal) {
      text += fmt::format("not measured yet: `ridgeline machine --device cuda:{}` does\n", gpu.ordinal);
      continue;
    }
    Table table(1);
    table.row("f32 multiply-add", measured->f32, "Gop/s");
    table.row("bf16 products", measured->bf16, "Gop/s");
    table.row("f16 products", measured->f16, "Gop/s");
    table.row("f8e4m3 products", measured->f8, "Gop/s");
    table.row("i8 products", measured->u8s8, "Gop/s");
    table.row("read L2", measured->read_gb_s[1], "GB/s");
    table.row("read DRAM", measured->read_gb_s[3], "GB/s");
    table.row("copy L2", measured->copy_gb_s[1], "GB/s");
    table.row("copy DRAM", measured->copy_gb_s[3], "GB/s");
    for (int f = 0; f < kSpecialFunctions; ++f)
      table.row(name(SpecialFunction(f)), measured->special_per_ns[size_t(f)], "elements/ns");
    table.row("a graph's node", measured->launch_ns, "ns");
    text += table.text();
  }
  return text;
}

std::string machine_line(const Cpu& cpu, const Ceilings& c) {
  const Rate& dram = c.read_gb_s[size_t(MemoryLevel::kDram)];
  return fmt::format("{}, {} core{}, {}, {:.0f} / {:.0f} Gop/s f32, {:.0f} / {:.0f} GB/s DRAM read (1 / all threads)",
                     cpu.name, cpu.cores, cpu.cores == 1 ? "" : "s", instruction_sets(cpu), c.f32.one, c.f32.all,
                     dram.one, dram.all);
}

}  // namespace ridgeline
