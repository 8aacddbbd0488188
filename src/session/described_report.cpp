#include <algorithm>

#include "session/described_choice.h"
#include "session/problem_words.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTilesInJson = 16, kTilesInText = 4;

std::string kib(int64_t bytes) { return fmt::format("{:g} KiB", double(bytes) / 1024); }
double share(int64_t part, int64_t whole) { return double(part) / double(whole); }

Json tile_json(const TileFit& f) {
  Json buffers = Json::array();
  for (const BufferUse& use : f.buffers)
    buffers.push_back({{"name", use.buffer.name},
                       {"bytes", use.buffer.bytes},
                       {"single_bytes", use.single_bytes},
                       {"double_bytes", use.double_bytes},
                       {"single_share", share(use.single_bytes, use.buffer.bytes)},
                       {"double_share", share(use.double_bytes, use.buffer.bytes)},
                       {"over_double_bytes", use.over_double()}});
  return {{"tile", f.tile.text()},
          {"a_bytes", f.a_bytes},
          {"b_bytes", f.b_bytes},
          {"accumulator", std::string(name(f.accumulator))},
          {"accumulator_bytes", f.c_bytes},
          {"single_bytes", f.single_bytes()},
          {"double_bytes", f.double_bytes()},
          {"fits_double", f.fits_double},
          {"padding_share", f.padding_share},
          {"buffers", buffers}};
}

std::string tile_line(const TileFit& f) {
  std::string line =
      fmt::format("{:<13} A {} + B {} + C in {} {} = {}, with two sets of inputs {}:", f.tile.text(), kib(f.a_bytes),
                  kib(f.b_bytes), name(f.accumulator), kib(f.c_bytes), kib(f.single_bytes()), kib(f.double_bytes()));
  for (const BufferUse& use : f.buffers) {
    line += fmt::format(" {:.0f} % and {:.0f} % of {}", 100 * share(use.single_bytes, use.buffer.bytes),
                        100 * share(use.double_bytes, use.buffer.bytes), use.buffer.name);
    if (use.over_double() > 0) line += fmt::format(" (two sets are {} bytes over)", use.over_double());
    if (&use != &f.buffers.back()) line += ",";
  }
  if (f.padding_share > 0) line += fmt::format("; {:.1f} % of the unit's work is padding", 100 * f.padding_share);
  return line;
}

// With accumulators of the operands' type: less room, and the sums lose what the type cannot hold.
int64_t narrow_bytes(const TileFit& f, DType type) {
  return f.a_bytes + f.b_bytes + std::min(f.c_bytes, bytes_of(type, f.tile.m * f.tile.n));
}

const TileFit* largest(const std::vector<TileFit>& tiles, bool with_double) {
  const TileFit* best = nullptr;
  for (const TileFit& f : tiles)
    if ((f.fits_double || !with_double) && (!best || f.tile.volume() > best->tile.volume())) best = &f;
  return best;
}

std::string class_line(const KernelClass& c) {
  if (!c.possible()) return fmt::format("{:<16} {}", c.name, c.reason);
  return fmt::format("{:<16} {:.2f} us (arithmetic {:.2f}, bytes {:.2f}){}{}", c.name, c.time_us, c.compute_us,
                     c.memory_us, c.tile ? ", tile " + c.tile->tile.text() : "",
                     c.split > 1 ? fmt::format(", k in {}", c.split) : "");
}

}  // namespace

Json answer_json(const DescribedAnswer& a, const DescribedMachine& machine) {
  const double intensity = a.cost.bytes() ? double(a.cost.flops) / double(a.cost.bytes()) : 0;
  Json kernels = Json::array();
  for (size_t i = 0; i < a.classes.size(); ++i) {
    const KernelClass& c = a.classes[i];
    Json row = {{"name", c.name}, {"supported", c.possible()}, {"reason", c.reason}, {"chosen", int(i) == a.chosen}};
    if (c.possible()) {
      row.update({{"estimate_us", c.time_us}, {"compute_us", c.compute_us}, {"memory_us", c.memory_us}});
      if (c.tile) row.update({{"tile", c.tile->tile.text()}, {"split_k", c.split}});
    }
    kernels.push_back(row);
  }
  Json out = {{"machine", {{"name", machine.name}, {"kind", machine.kind}, {"file", machine.path}}},
              {"problem", a.words},
              {"flops", a.cost.flops},
              {"bytes", a.cost.bytes()},
              {"intensity", intensity},
              {"bound", std::string(name(a.bound))},
              {"floor_us", a.floor_us},
              {"compute_us", a.compute_us},
              {"memory_us", a.memory_us},
              {"launch_us", machine.launch_us},
              {"ridge_flop_per_byte", a.ridge},
              {"peak_gop_s", a.peak_gop_s},
              {"unit", a.unit},
              {"computed_in", std::string(name(a.computed_in))},
              {"level", a.level},
              {"chosen", a.winner().name},
              {"kernels", kernels}};
  if (!a.product) return out;
  out["product"] = {{"m", a.product->m}, {"n", a.product->n}, {"k", a.product->k}, {"batch", a.batch}};
  if (a.asked) {
    out["tile"] = tile_json(*a.asked);
    out["tile"]["single_bytes_narrow_accumulator"] = narrow_bytes(*a.asked, a.computed_in);
  }
  out["feasible_tiles"] = a.tiles.size();
  for (const bool with_double : {false, true})
    if (const TileFit* f = largest(a.tiles, with_double))
      out[with_double ? "largest_tile_double" : "largest_tile_single"] = tile_json(*f);
  Json tiles = Json::array();
  for (size_t i = 0; i < std::min(kTilesInJson, a.tiles.size()); ++i) tiles.push_back(tile_json(a.tiles[i]));
  out["tiles"] = tiles;
  return out;
}

std::string answer_text(const DescribedAnswer& a, const DescribedMachine& machine) {
  const double intensity = a.cost.bytes() ? double(a.cost.flops) / double(a.cost.bytes()) : 0;
  std::string out = fmt::format("{} on {} (described, not measured)\n", a.words, machine.name);
  out += fmt::format("  FLOPs      {}\n  bytes      {}\n  intensity  {:.4f} FLOP/byte\n", a.cost.flops, a.cost.bytes(),
                     intensity);
  out += fmt::format("  ridge      {:.1f} FLOP/byte ({} {:.0f} Gop/s in {}, {} {:.0f} GB/s)\n", a.ridge, a.unit,
                     a.peak_gop_s, name(a.computed_in), machine.memory().name, machine.memory().gb_s);
  out += fmt::format(
      "  bound      {}\n  floor      {:.3f} us (arithmetic {:.3f}, bytes from {} {:.3f}, a launch {:.2f})\n",
      name(a.bound), a.floor_us, a.compute_us, a.level, a.memory_us, machine.launch_us);
  for (size_t i = 0; i < a.classes.size(); ++i)
    out += fmt::format("  {:<10} {}\n", int(i) == a.chosen ? "chosen" : "not", class_line(a.classes[i]));
  if (a.asked) {
    out += "  tile       " + tile_line(*a.asked) + "\n";
    if (const int64_t bytes = narrow_bytes(*a.asked, a.computed_in); bytes < a.asked->single_bytes())
      out +=
          fmt::format("             with sums rounded to {} as they are kept: {}\n", name(a.computed_in), kib(bytes));
  } else if (a.product) {
    out += fmt::format("  tiles      {} fit the {}\n", a.tiles.size(), a.unit);
    for (size_t i = 0; i < std::min(kTilesInText, a.tiles.size()); ++i)
      out += "             " + tile_line(a.tiles[i]) + "\n";
    if (const TileFit* f = largest(a.tiles, true)) out += "  largest    " + tile_line(*f) + "\n";
  }
  return out;
}

DescribedAnswer answer_for_words(const std::string& op, std::vector<std::string> keys, const DescribedMachine& machine,
                                 bool benchmark) {
  std::string words = op;
  for (const std::string& key : keys) words += " " + key;
  std::optional<TileShape> tile;
  std::string dtype;
  int64_t m = 0, n = 0, k = 0;
  std::erase_if(keys, [&](const std::string& word) {
    if (word.starts_with("dtype=")) dtype = word.substr(6);
    if (!word.starts_with("tile=")) return false;
    tile = parse_tile(word.substr(5));
    return true;
  });
  BenchProblem given;
  if (op == "matmul" && (dtype == "i8" || dtype == "u8")) {
    // The standard's MatMul has no bytes, its MatMulInteger has.
    std::vector<std::string> plain = keys;
    std::erase(plain, "dtype=" + dtype);
    const Problem shape = parse_bench_problem(op, plain, 1).problem;  // checks the keys, names the missing
    if (shape.op->name != "MatMul" || shape.has_epilogue() || shape.output().layout.rank() != 2)
      fail(ErrorCode::kUsage, "unsupported: matmul in {} for a described machine takes m, n and k alone", dtype);
    m = shape.output().shape()[0], n = shape.output().shape()[1], k = shape.input(0).shape()[1];
    given = parse_bench_problem("MatMulInteger",
                                {fmt::format("a={}[{},{}]", dtype, m, k), fmt::format("b={}[{},{}]!", dtype, k, n)}, 1);
    given.warm = std::find(keys.begin(), keys.end(), "warm=1") != keys.end();
  } else {
    given = parse_bench_problem(op, keys, 1);
  }
  DescribedAnswer answer = answer_for(given.problem, machine, benchmark && !given.warm, tile);
  answer.words = words;
  return answer;
}

DescribedPlan describe_plan(const Plan& plan, const DescribedMachine& machine, const std::string& node) {
  Json steps = Json::array();
  DescribedPlan out;
  double floor_us = 0, estimate_us = 0;
  out.text = fmt::format("{} (described, not measured)\n{:>10} {:>10} {:<8} {:<16} {}\n", machine.name, "floor us",
                         "model us", "bound", "class", "problem");
  for (const Step& step : plan.steps) {
    const std::vector<std::string> nodes = step.origin.empty() ? std::vector<std::string>{step.name} : step.origin;
    if (!node.empty() && std::find(nodes.begin(), nodes.end(), node) == nodes.end()) continue;
    const DescribedAnswer a = answer_for(step.call.problem, machine, false);
    floor_us += a.floor_us;
    estimate_us += a.winner().time_us;
    Json row = answer_json(a, machine);
    row.erase("machine");
    row.erase("tiles");
    row["nodes"] = nodes;
    steps.push_back(row);
    out.text += fmt::format("{:>10.3f} {:>10.3f} {:<8} {:<16} {}\n", a.floor_us, a.winner().time_us, name(a.bound),
                            a.winner().name, a.words);
  }
  out.text += fmt::format("{} steps: floor {:.3f} ms, by the model {:.3f} ms\n", steps.size(), floor_us / 1e3,
                          estimate_us / 1e3);
  out.json = {{"machine", {{"name", machine.name}, {"kind", machine.kind}, {"file", machine.path}}},
              {"steps", steps},
              {"floor_ms", floor_us / 1e3},
              {"estimate_ms", estimate_us / 1e3}};
  return out;
}

}  // namespace ridgeline
