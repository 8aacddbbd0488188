// ridgeline diff: what changed between two results, node by node.
#include "session/diff.h"

#include "cli/common.h"

namespace ridgeline::cli {

void add_diff(CLI::App& app, Common& common) {
  struct Arguments {
    std::string before, after;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "diff", "Explain the change between two results (--json FILE) of profile or optimize",
                  [&common, arguments] {
                    const Json diff = diff_results(read_result(arguments->before), read_result(arguments->after),
                                                   arguments->before, arguments->after);
                    common.show(diff, common.json_only() || common.quiet ? "" : diff_text(diff));
                  });
  command->add_option("before", arguments->before, "A result's JSON file")->required();
  command->add_option("after", arguments->after, "Another's")->required();
}

}  // namespace ridgeline::cli
