// ridgeline make: a seeded synthetic model.
#include "formats/make/make.h"

#include "cli/common.h"

namespace ridgeline::cli {

void add_make(CLI::App& app, Common& common) {
  struct Arguments {
    std::string name, output, batch = "1", seq;
    int opset = 17;
  };
  auto arguments = std::make_shared<Arguments>();
  std::string what = "Write a synthetic model with seeded weights:";
  for (const MakeEntry& entry : make_entries()) what += fmt::format("\n  {:<14} {}", entry.name, entry.what);
  CLI::App* command = add_command(app, common, "make", what, [&common, arguments] {
    MakeOptions options;
    options.batch = parse_make_dim(arguments->batch, "N");
    if (!arguments->seq.empty()) options.seq = parse_make_dim(arguments->seq, "S");
    options.seed = common.seed;
    options.opset = arguments->opset;
    make_model(arguments->name, options, arguments->output);
    common.show({{"model", arguments->name}, {"file", arguments->output}},
                fmt::format("wrote {}\n", arguments->output));
  });
  command->add_option("name", arguments->name, "Which of these models")->required();
  command->add_option("-o,--output", arguments->output, "The file to write")->required();
  command->add_option("--batch", arguments->batch, "Batch size (default 1); 0 or a name: symbolic");
  command->add_option("--seq", arguments->seq,
                      "Sequence length (default: bert 128, decoder 64); 0 or a name: symbolic");
  command->add_option("--opset", arguments->opset, "Opset, 13 to 21 (default 17)");
}

}  // namespace ridgeline::cli
