// ridgeline cost: the three questions about an operator: FLOPs, bytes, their ratio.
#include "cli/common.h"
#include "session/advice.h"
#include "session/described_choice.h"
#include "session/problem_words.h"

namespace ridgeline::cli {
void add_cost(CLI::App& app, Common& common) {
  struct Arguments {
    std::string op;
    std::vector<std::string> keys;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "cost",
      "FLOPs, bytes and intensity of one operator: ridgeline cost matmul m=1 n=4096 k=4096 dtype=f16",
      [&common, arguments] {
        if (!common.machine.empty()) {
          const DescribedMachine machine = find_machine(common.machine);
          const DescribedAnswer answer = answer_for_words(arguments->op, arguments->keys, machine, false);
          common.show(answer_json(answer, machine), answer_text(answer, machine));
          return;
        }
        const BenchProblem bench =
            parse_bench_problem(arguments->op, arguments->keys, common.threads ? common.threads : 1);
        const Cost cost = cost_of(bench.problem);
        const Ceilings* cached = cached_ceilings();
        const Ceilings ceilings = cached ? *cached : unmeasured_ceilings();
        const Levers levers = levers_for(bench.problem, cost, ceilings, bench.problem.threads);
        const double intensity = cost.bytes() ? double(cost.flops) / double(cost.bytes()) : 0;
        // Of a contraction the two products dA = dC B' and dB = A' dC; each result and operand once more. Elementwise
        // work: one derivative a value.
        const bool contraction = bench.problem.op->kind == OpKind::kContraction;
        const int64_t backward_flops = contraction ? 2 * cost.flops : cost.flops,
                      backward_bytes = contraction ? 2 * cost.bytes() : cost.bytes() + cost.write_bytes;
        std::string text = fmt::format(
            "{}\n  FLOPs      {}\n  bytes      {} ({} read, {} written)\n  intensity  {:.4f} FLOP/byte\n  bound      "
            "{}{}\n",
            bench.words, cost.flops, cost.bytes(), cost.read_bytes, cost.write_bytes, intensity, levers.bound,
            cached ? "" : " (by round figures: run `ridgeline machine` to measure this machine)");
        for (const std::string& l : levers.right) text += "  helps      " + l + "\n";
        for (const std::string& l : levers.wrong) text += "  does not   " + l + "\n";
        text += fmt::format("  backward   {} FLOPs, {} bytes\n", backward_flops, backward_bytes);
        Json tiles = Json::array();
        if (bench.tile) {
          for (const auto& [kernel, check] : check_tile_everywhere(bench.problem, ceilings, *bench.tile)) {
            text +=
                fmt::format("  {}{}", kernel,
                            check.fits() ? tile_line(check, *bench.tile) : fmt::format(": {}\n", tile_refusal(check)));
            tiles.push_back({{"kernel", kernel},
                             {"fits", check.fits()},
                             {"reason", check.fits() ? "" : tile_refusal(check)},
                             {"bytes", check.bytes},
                             {"limit_bytes", check.limit},
                             {"over_bytes", check.over()},
                             {"unit", check.unit},
                             {"padding_share", check.padding_share}});
          }
        }
        common.show({{"problem", bench.words},
                     {"tiles", tiles},
                     {"flops", cost.flops},
                     {"bytes", cost.bytes()},
                     {"intensity", intensity},
                     {"bound", levers.bound},
                     {"levers", levers.right},
                     {"wrong_levers", levers.wrong},
                     {"backward", {{"flops", backward_flops}, {"bytes", backward_bytes}}}},
                    text);
      });
  command
      ->add_option("op", arguments->op, "matmul, conv, attention, softmax, layer_norm, relu, ..., or a schema's name")
      ->required();
  command->add_option("keys", arguments->keys,
                      "KEY=VALUE ...: `ridgeline cost matmul` lists matmul's; or a problem as `profile` prints it");
}

}  // namespace ridgeline::cli
