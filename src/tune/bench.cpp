#include "tune/bench.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <thread>

#include "machine/probe.h"
#include "tune/bench_rivals.h"
#include "tune/known.h"
#include "tune/prepared.h"
#include "tune/probes.h"

namespace ridgeline {
namespace {

constexpr double kReferenceLimitNs = 2e9;  // a naive run longer than this is not waited for
constexpr double kReferenceNsPerFlop = 4;  // what the references take here, as an order of magnitude

struct Contender {
  TimedFunction run;
  BenchRow* row;
};

// A kernel, or several in turn, beside the ceiling that bounds them. The clock is part of both: here register-only
// multiply-adds run at 3.4 GHz, but at 2.9 for the 2 ms after products of 1024 cubed, and it takes 5 ms and more to
// rise again. So windows of arithmetic are short, follow some samples at once, and their median counts: the best of
// windows of 5 ms, once a second, told a kernel at 90 % of the peak of its own clock that it reached 74. Memory is only
// ever slowed down by others, and windows between samples are slower than those in a row (17 to 19 GB/s, not 22): of
// its windows the best counts, of all rows.
//
// Several take slices in turn, forwards and backwards, 5 ms of each not counted. Libraries with threads of
// their own let these spin for a while when they are done (OpenBLAS for 25 ms): the next one waits for that.
void measure_beside(const std::vector<Contender>& contenders, PeakProbe& probe, bool compute, int threads,
                    const TimingOptions& options) {
  const size_t count = contenders.size();
  if (!compute && count == 1) {
    contenders[0].row->samples = measure(contenders[0].run, options);
    for (int window = 0; window < 10; ++window) probe();
    return;
  }
  constexpr double kSliceSeconds = 0.02, kWindowNs = 2e5;
  constexpr auto kSettle = std::chrono::milliseconds(40);
  for (const Contender& c : contenders)
    measure(c.run, {.min_seconds = 0, .min_samples = 1, .warmup_seconds = options.warmup_seconds});
  TimingOptions slice = options;
  slice.min_seconds = std::min(kSliceSeconds, options.min_seconds);
  slice.min_samples = 1;
  slice.warmup_seconds = count > 1 ? 0.005 : 0;
  std::vector<Samples> windows(count);
  const int64_t start = now_ns();
  const auto few = [&](const Contender& c) { return c.row->samples.count() < options.min_samples; };
  for (int round = 0; std::any_of(contenders.begin(), contenders.end(), few) ||
                      double(now_ns() - start) < options.min_seconds * 1e9 * double(count);
       ++round) {
    for (size_t i = 0; i < count; ++i) {
      const size_t at = round % 2 ? count - 1 - i : i;
      const Samples some = measure(contenders[at].run, slice);
      for (const double ns : some.times_ns()) contenders[at].row->samples.add(ns);
      if (compute) windows[at].add(probe(kWindowNs));
      if (count > 1 && threads > 1) std::this_thread::sleep_for(kSettle);
    }
  }
  if (!compute)
    for (int window = 0; window < 10; ++window) probe();
  for (size_t i = 0; compute && i < count; ++i) contenders[i].row->ceiling = windows[i].median();
}

bool is_reference(const Kernel& kernel) { return kernel.name.find("reference") != std::string_view::npos; }

bool too_slow(const Problem& problem, const Kernel& kernel) {
  const Cost cost = cost_of(problem);
  return is_reference(kernel) && double(cost.flops + cost.bytes()) * kReferenceNsPerFlop > kReferenceLimitNs;
}

// The ceiling that bounds the problem, to be measured in the same seconds.
PeakProbe probe_for(const Problem& problem, const Floor& floor, bool warm, int threads) {
  if (floor.bound == Bound::kCompute) return compute_probe(arithmetic_of(problem), threads);
  const int64_t read = problem.read_bytes(), write = problem.write_bytes();
  const int64_t bytes = warm ? read + write : std::max(read + write, dram_probe_bytes());
  return write * 10 > read + write ? copy_probe(bytes, threads) : read_probe(bytes, threads);
}

// The floor with the one ceiling replaced by what was measured beside the run.
Floor floor_beside(const Problem& problem, const Cost& cost, Ceilings ceilings, double ceiling, bool compute, bool warm,
                   int threads) {
  if (compute) {
    for (Rate* rate : {&ceilings.f32, &ceilings.bf16, &ceilings.u8s8}) *rate = {ceiling, ceiling};
  } else {
    for (auto* rates : {&ceilings.read_gb_s, &ceilings.copy_gb_s, &ceilings.write_gb_s}) {
      for (Rate& r : *rates) {
        if (!warm) r = {ceiling, ceiling};  // rotated past the last cache: every byte comes from DRAM
      }
    }
  }
  Work work;
  work.flops = std::max<int64_t>(0, (cost.executed_flops >= 0 ? cost.executed_flops : cost.flops) - cost.special);
  work.read_bytes = cost.read_bytes;
  work.write_bytes = cost.write_bytes;
  work.special[size_t(SpecialFunction::kExp)] = cost.special;
  if (!warm) work.level = MemoryLevel::kDram;
  work.dtype = arithmetic_of(problem);
  return floor_of(work, ceilings, threads);
}

// Images have their channels at axis 1 by declaration and say no axis: where they lie in memory is the plan's choice.
bool may_be_channels_last(const Problem& problem) {
  const OpSchema& op = *problem.op;
  const bool images = op.family == "conv" || op.family == "pool" || op.family == "normalize";
  const bool names_axes = std::any_of(op.attributes.begin(), op.attributes.end(),
                                      [](const AttributeSpec& a) { return a.name == "axis" || a.name == "axes"; });
  const auto as_given = [](const Operand& o) { return !o.present() || o.layout.is_row_major(); };
  return images && !names_axes && op.kind != OpKind::kMovement && problem.output().layout.rank() == 4 &&
         std::all_of(problem.inputs.begin(), problem.inputs.end(), as_given) &&
         std::all_of(problem.outputs.begin(), problem.outputs.end(), as_given);
}

// Adds the rivals' rows. They and the chosen kernel take turns, so that their ratios are of the same seconds; that
// kernel's samples are then those of the race.
void race(const Problem& problem, const Ceilings& ceilings, const BenchOptions& options, int sets, bool compute,
          PeakProbe& probe, std::vector<BenchRow>& rows) {
  const Choice plain = choose(problem, ceilings);
  std::vector<std::unique_ptr<PreparedRival>> rivals;
  for (Rival& rival : rivals_of(problem)) {
    if (plain.chosen < 0 || too_slow(problem, *plain.winner().kernel))
      rival = {rival.name, "its result cannot be compared: no kernel of ours runs the problem as it is given", nullptr};
    rivals.push_back(std::make_unique<PreparedRival>(problem, plain.candidates[size_t(std::max(0, plain.chosen))],
                                                     std::move(rival), sets, options.seed));
  }
  std::unique_ptr<PreparedKernel> ours;
  const auto mine = std::find_if(rows.begin(), rows.end(), [](const BenchRow& row) { return row.chosen; });
  const size_t mine_at = size_t(mine - rows.begin());
  for (const auto& [layout, variant] : layouts_of(problem)) {
    if (mine == rows.end() || ours || layout != mine->layout) continue;
    const Choice choice = choose(variant, ceilings);
    SharedBuffers buffers(variant, sets, options.seed);
    for (Candidate c : choice.candidates) {
      if (!c.support.ok || c.kernel->name != mine->name) continue;
      if (options.tile) c.tile = *options.tile;
      ours = std::make_unique<PreparedKernel>(c, buffers);
    }
  }
  for (const auto& rival : rivals) {
    BenchRow row;
    row.name = rival->name();
    row.rival = true;
    row.reason = rival->reason();
    row.supported = row.reason.empty();
    rows.push_back(std::move(row));
  }
  std::vector<Contender> contenders;
  for (size_t i = 0; i < rivals.size(); ++i) {
    BenchRow& row = rows[rows.size() - rivals.size() + i];
    if (row.supported) contenders.push_back({[rival = rivals[i].get()] { rival->run(); }, &row});
  }
  if (contenders.empty()) return;
  if (ours) {
    rows[mine_at].samples = {};
    contenders.insert(contenders.begin(), {[kernel = ours.get()] { kernel->run(); }, &rows[mine_at]});
  }
  TimingOptions timing;
  timing.min_seconds = options.seconds;
  timing.min_samples = 5;
  timing.warmup_seconds = 0.05;
  measure_beside(contenders, probe, compute, problem.threads, timing);
}

}  // namespace

std::string tile_refusal(const TileCheck& check) {
  if (!check.reason.empty()) return check.reason;
  return fmt::format(
      "the tile takes {} bytes where it is to stay (a cache; on a GPU shared memory or registers), and there are {}: "
      "it is {} bytes over",
      check.bytes, check.limit, check.over());
}

std::string tile_line(const TileCheck& check, const Tile& tile) {
  std::string line = fmt::format("  tile {}: ", tile_words(tile));
  line += check.limit ? fmt::format("{} of {} bytes, ", check.bytes, check.limit) : "";
  line += check.padding_share > 0 ? fmt::format("{:.1f} % of its work is padding", 100 * check.padding_share)
                                  : std::string("none of its work is padding");
  if (check.padding_share > 0 && !check.unit.empty()) line += fmt::format(" (a multiple of {} has none)", check.unit);
  return line + "\n";
}

std::vector<std::pair<std::string, TileCheck>> check_tile_everywhere(const Problem& problem, const Ceilings& ceilings,
                                                                     const Tile& tile) {
  std::vector<std::pair<std::string, TileCheck>> out;
  for (const auto& [layout, variant] : layouts_of(problem)) {
    for (const Candidate& c : choose(variant, ceilings).candidates) {
      if (!c.support.ok || is_reference(*c.kernel) || on_host(variant, *c.kernel)) continue;
      TileCheck check = check_tile(*c.kernel, variant, tile);
      const auto there = std::find_if(out.begin(), out.end(), [&](const auto& o) { return o.first == c.kernel->name; });
      if (there == out.end())
        out.emplace_back(c.kernel->name, std::move(check));
      else if (check.fits())
        there->second = std::move(check);
    }
  }
  if (std::any_of(out.begin(), out.end(), [](const auto& o) { return o.second.fits(); })) return out;
  std::string reasons;
  for (const auto& [name, check] : out) reasons += fmt::format("; {}: {}", name, tile_refusal(check));
  fail(ErrorCode::kUsage, "tile={} fits no kernel of this problem{}", tile_words(tile), reasons);
}

std::string tile_words(const Tile& tile) {
  size_t count = tile.size.size();
  while (count > 0 && tile.size[count - 1] == 0) --count;
  return fmt::format("{}", fmt::join(tile.size.begin(), tile.size.begin() + count, "x"));
}

Tile parse_kernel_tile(std::string_view text) {
  Tile tile;
  const char *at = text.data(), *end = text.data() + text.size();
  bool good = true;
  for (size_t i = 0; good && (i == 0 || at != end); ++i) {
    if (i > 0) good = *at++ == 'x';
    good = good && i < tile.size.size();
    if (!good) break;
    const auto [stop, error] = std::from_chars(at, end, tile.size[i]);
    good = error == std::errc() && tile.size[i] >= 1;
    at = stop;
  }
  if (!good)
    fail(ErrorCode::kUsage, "tile={}: expected up to {} whole numbers joined by x, each at least 1, as 112x1024x512",
         text, tile.size.size());
  return tile;
}

std::vector<std::pair<std::string, Problem>> layouts_of(const Problem& problem) {
  std::vector<std::pair<std::string, Problem>> out = {{"", problem}};
  if (!may_be_channels_last(problem)) return out;
  Problem last = problem;
  for (Operand& o : last.inputs)
    if (!o.is_constant && o.layout.rank() == 4) o.layout = Layout::channels_last(o.shape());
  for (Operand& o : last.outputs)
    if (o.layout.rank() == 4) o.layout = Layout::channels_last(o.shape());
  out.insert(out.begin(), {"channels last", last});
  return out;
}

BenchResult bench(const Problem& given, const Ceilings& ceilings, const BenchOptions& options) {
  const Problem problem = with_weights(given, options.seed);
  const std::vector<Candidate> candidates = choose(problem, ceilings).candidates;
  if (!options.forced.empty() && std::none_of(candidates.begin(), candidates.end(),
                                              [&](const Candidate& c) { return c.kernel->name == options.forced; })) {
    std::vector<std::string_view> names;
    for (const Candidate& c : candidates) names.push_back(c.kernel->name);
    fail(ErrorCode::kUsage, "{} has no kernel '{}'; its kernels are: {}", problem.op->name, options.forced,
         fmt::join(names, ", "));
  }
  if (options.tile) check_tile_everywhere(problem, ceilings, *options.tile);  // fails before anything is timed
  BenchResult result;
  result.cost = cost_of(problem);
  for (const auto& [layout, variant] : layouts_of(problem)) {
    const Cost cost = cost_with(variant, choose(variant, ceilings));
    if (cost.executed_flops >= 0) result.cost.executed_flops = cost.executed_flops;
  }
  const int threads = problem.threads;
  const int64_t set_bytes = problem.read_bytes() + problem.write_bytes();
  // The whole last cache as shown, not the part of it that seemed ours: 400 MB rotated past 128 of 480 MiB let relu run
  // at 118 % of the copy bandwidth.
  const int sets = options.warm ? 1 : std::max(1, rotation_count(set_bytes, this_cpu().caches.l3));
  result.floor = floor_beside(problem, result.cost, ceilings,
                              ceilings.compute_gop_s(arithmetic_of(problem)).at(threads, ceilings.cores), true,
                              options.warm, threads);
  PeakProbe probe = probe_for(problem, result.floor, options.warm, threads);
  const bool compute = result.floor.bound == Bound::kCompute;

  const Kernel* fastest = nullptr;
  double fastest_us = 0;
  for (const Candidate& first : candidates) {
    BenchRow row;
    row.name = std::string(first.kernel->name);
    row.reason = first.support.reason;
    for (const auto& [layout, variant] : layouts_of(problem)) {
      Choice choice = choose(variant, ceilings);
      const auto it = std::find_if(choice.candidates.begin(), choice.candidates.end(),
                                   [&](const Candidate& c) { return c.kernel == first.kernel; });
      if (it == choice.candidates.end() || !it->support.ok) continue;
      row.supported = true;
      row.layout = layout;
      row.reason.clear();
      if (!options.forced.empty() && options.forced != row.name) {
        row.reason = "not timed: another kernel was asked for";
        break;
      }
      if (too_slow(problem, *first.kernel)) {
        row.reason = "the reference: too slow to time at this size";
        break;
      }
      if (options.tile) {
        it->tile = *options.tile;
        row.tile_check = check_tile(*first.kernel, variant, *options.tile);
        if (!row.tile_check->fits()) {
          row.reason = tile_refusal(*row.tile_check);
          continue;
        }
      }
      row.tile = it->tile;
      options.progress(row.name);
      SharedBuffers buffers(variant, is_reference(*first.kernel) ? 1 : sets, options.seed);
      PreparedKernel prepared(*it, buffers);
      TimingOptions timing;
      timing.min_seconds = is_reference(*first.kernel) ? 0.05 : options.seconds;
      timing.min_samples = is_reference(*first.kernel) ? 1 : 5;
      timing.warmup_seconds = is_reference(*first.kernel) ? 0 : 0.05;
      measure_beside({{[&] { prepared.run(); }, &row}}, probe, compute, threads, timing);
      const double us = row.samples.median() / 1e3;
      if (!is_reference(*first.kernel) && (!fastest || us < fastest_us)) {
        fastest = first.kernel;
        fastest_us = us;
      }
      break;
    }
    result.rows.push_back(std::move(row));
  }
  const Floor burst = result.floor;
  result.ceiling = probe.best();  // if no row is chosen
  result.ceiling_way = probe.way();
  bool chosen = false;
  // What the dispatcher would take: by its own estimate, in the layout the kernel is timed in.
  for (const auto& [layout, variant] : layouts_of(problem)) {
    const Choice choice = choose(variant, ceilings);
    if (choice.chosen < 0 || is_reference(*choice.winner().kernel) || chosen) continue;
    for (BenchRow& row : result.rows)
      if (row.name == choice.winner().kernel->name && row.timed()) {
        row.chosen = chosen = true;
        result.chosen_by = choice.chosen_by;
      }
  }
  for (BenchRow& row : result.rows)
    if (!chosen && row.timed() && (row.name == options.forced || options.forced.empty())) row.chosen = chosen = true;
  if (options.rivals) options.progress("the chosen one and the rivals, by turns");
  if (options.rivals) race(problem, ceilings, options, sets, compute, probe, result.rows);
  for (BenchRow& row : result.rows) {
    if (!row.timed()) continue;
    const double ns = row.samples.median();
    row.gop_s = double(result.cost.flops) / ns;
    row.gb_s = double(result.cost.bytes()) / ns;
    if (!compute) row.ceiling = probe.best();
    const Floor floor = floor_beside(problem, result.cost, ceilings, row.ceiling, compute, options.warm, threads);
    row.roof_share = floor.time_ns / ns;
    if (compute) row.burst_share = burst.time_ns / ns;
    if (!row.chosen) continue;
    result.ceiling = row.ceiling;
    result.floor = floor;
  }
  if (options.rivals)
    std::stable_sort(result.rows.begin(), result.rows.end(), [](const BenchRow& a, const BenchRow& b) {
      return a.timed() && (!b.timed() || a.samples.median() < b.samples.median());
    });
  return result;
}

}  // namespace ridgeline
