// ridgeline passes: every pass by name.
#include "cli/common.h"
#include "optimize/pipeline.h"

namespace ridgeline::cli {
namespace {

Json json_of(const Pass& pass) {
  return {{"name", std::string(pass.name)},
          {"stage", std::string(name(pass.stage))},
          {"class", std::string(name(pass.pass_class))},
          {"what", std::string(pass.what)}};
}

std::string line_of(const Pass& pass) {
  return fmt::format("{:<26} {:<12} {:<9} {}\n", pass.name, name(pass.stage), name(pass.pass_class), pass.what);
}

}  // namespace

// Lowerings are listed apart: whoever runs each of `passes` alone must get the same outputs.
void add_passes(CLI::App& app, Common& common) {
  CLI::App* command = add_command(app, common, "passes", "List the passes, in the order in which they run", [&common] {
    Json all = Json::array(), lowerings = Json::array();
    std::string text = fmt::format("{:<26} {:<12} {:<9} {}\n", "pass", "stage", "class", "what it does");
    std::string lossy;
    for (const Pass& pass : passes()) {
      const bool lowers = pass.pass_class == PassClass::kLossy;
      (lowers ? lowerings : all).push_back(json_of(pass));
      (lowers ? lossy : text) += line_of(pass);
    }
    text += "\nOff unless asked for, by --precision f16|bf16|int8 or by name in --passes:\n" + lossy;
    common.show({{"passes", all}, {"lowerings", lowerings}}, text);
  });
  command->footer("--passes A,B runs these alone; 'all' and 'none' are all but the lowerings, and none.");
}

}  // namespace ridgeline::cli
