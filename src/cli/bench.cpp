// ridgeline bench: one operator, every kernel, beside its roof.
#include "tune/bench.h"

#include <algorithm>

#include "cli/common.h"
#include "session/described_choice.h"
#include "session/problem_words.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

std::string chosen_words(const BenchRow& row, const BenchResult& result) {
  std::string words = row.chosen ? "<- chosen " : "";
  if (row.chosen && (result.chosen_by == "tuned" || result.chosen_by == "table"))
    words += "by " + result.chosen_by + " ";
  if (const std::string tile = tile_words(row.tile); !tile.empty()) words += "tile=" + tile + " ";
  return words;
}

}  // namespace

void add_bench(CLI::App& app, Common& common) {
  struct Arguments {
    std::string op;
    std::vector<std::string> keys;
    double seconds = 1;
    bool rivals = false;
    bool dry = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "bench",
      "Time every kernel of one operator beside its roof: ridgeline bench matmul m=1024 n=1024 k=1024",
      [&common, arguments] {
        if (arguments->dry && common.machine.empty())
          fail(ErrorCode::kUsage, "--dry tells what a described machine would do: give --machine");
        if (!arguments->dry && !common.machine.empty())
          fail(ErrorCode::kUsage, "--machine: what is not here cannot be timed: add --dry");
        if (arguments->dry) {
          const DescribedMachine machine = find_machine(common.machine);
          const DescribedAnswer answer = answer_for_words(arguments->op, arguments->keys, machine, true);
          common.show(answer_json(answer, machine), answer_text(answer, machine));
          return;
        }
        const int threads = common.cuda() ? 1 : common.threads ? common.threads : available_cores();
        const BenchProblem given = parse_bench_problem(arguments->op, arguments->keys, threads, device_kind(common));
        const Ceilings ceilings = device_ceilings(common);
        BenchOptions options;
        options.warm = given.warm;
        options.seconds = arguments->seconds;
        options.forced = given.forced;
        options.tile = given.tile;
        options.rivals = arguments->rivals;
        options.progress = [&](const std::string& what) { common.progress("ridgeline: timing " + what); };
        const BenchResult r =
            common.cuda() ? bench_cuda(given.problem, ceilings, options) : bench(given.problem, ceilings, options);
        Json kernels = Json::array();
        std::string text = fmt::format(
            "{}: {} FLOPs, {} bytes, floor {:.2f} us ({}-bound; {:.1f} {} by {}), {} thread{}\n", given.words,
            r.cost.flops, r.cost.bytes(), r.floor.time_ns / 1e3, name(r.floor.bound), r.ceiling,
            r.floor.bound == Bound::kCompute ? "Gop/s" : "GB/s", r.ceiling_way, threads, threads == 1 ? "" : "s");
        if (r.floor.bound == Bound::kCompute)
          text += fmt::format(
              "roof: of the peak measured between the samples, at the clock the kernel leaves; burst: of the machine's "
              "best window, {:.1f} Gop/s\n",
              ceilings.compute_gop_s(arithmetic_of(given.problem)).at(threads, ceilings.cores));
        size_t width = 28;  // rivals name their implementation
        for (const BenchRow& row : r.rows) width = std::max(width, row.name.size());
        text += fmt::format("{:<{}} {:>11} {:>11} {:>11} {:>9} {:>9} {:>6} {:>6}\n", "kernel", width, "median us",
                            "p10", "p90", "Gop/s", "GB/s", "roof", "burst");
        for (const BenchRow& row : r.rows) {
          Json entry = {
              {"name", row.name},     {"rival", row.rival},   {"supported", row.supported},  {"reason", row.reason},
              {"layout", row.layout}, {"chosen", row.chosen}, {"tile", tile_words(row.tile)}};
          if (row.tile_check && row.tile_check->fits())
            entry.update({{"tile_bytes", row.tile_check->bytes},
                          {"tile_limit_bytes", row.tile_check->limit},
                          {"tile_padding_share", row.tile_check->padding_share}});
          if (row.chosen) entry["chosen_by"] = r.chosen_by;
          if (row.timed()) {
            entry.update({{"median_us", row.samples.median() / 1e3},
                          {"p10_us", row.samples.p10() / 1e3},
                          {"p90_us", row.samples.p90() / 1e3},
                          {"gop_s", row.gop_s},
                          {"gb_s", row.gb_s},
                          {"roof_share", row.roof_share},
                          {"burst_share", row.burst_share},
                          {"samples", row.samples.count()}});
            const std::string burst =
                row.burst_share > 0 ? fmt::format("{:>5.0f}%", row.burst_share * 100) : std::string(6, ' ');
            text += fmt::format("{:<{}} {:>11.2f} {:>11.2f} {:>11.2f} {:>9.1f} {:>9.2f} {:>5.0f}% {} {}{}\n", row.name,
                                width, row.samples.median() / 1e3, row.samples.p10() / 1e3, row.samples.p90() / 1e3,
                                row.gop_s, row.gb_s, row.roof_share * 100, burst, chosen_words(row, r), row.layout);
            if (row.tile_check) text += tile_line(*row.tile_check, row.tile);
          } else {
            text += fmt::format("{:<{}} {}\n", row.name, width, row.reason);
          }
          kernels.push_back(entry);
        }
        common.show({{"problem", given.words},
                     {"flops", r.cost.flops},
                     {"bytes", r.cost.bytes()},
                     {"floor_us", r.floor.time_ns / 1e3},
                     {"bound", std::string(name(r.floor.bound))},
                     {"chosen_by", r.chosen_by},
                     {"ceiling", r.ceiling},
                     {"threads", threads},
                     {"kernels", kernels}},
                    text);
      });
  command
      ->add_option(
          "op", arguments->op,
          "matmul, conv, attention, softmax, layer_norm, rms_norm, relu, add, transpose, ..., or a schema's name")
      ->required();
  command->add_option("keys", arguments->keys,
                      "KEY=VALUE ...: `ridgeline bench matmul` lists matmul's; or a problem as `profile` prints it");
  command->add_option("--time", arguments->seconds, "Seconds of measurement a kernel, at least (default 1)")
      ->check(seconds_to_measure());
  command->add_flag("--rivals", arguments->rivals,
                    "Also oneDNN, OpenBLAS and BLIS where they are installed; folders in RIDGELINE_RIVALS");
  command->add_flag("--dry", arguments->dry, "Time nothing: bound, floor, tiles and kernel class on --machine");
}

}  // namespace ridgeline::cli
