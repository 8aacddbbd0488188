// ridgeline check: random problems of every operator, every kernel against the reference.
#include "verify/check.h"

#include "cli/common.h"
#include "kernels/cuda/compiler.h"

namespace ridgeline::cli {
namespace {

constexpr int64_t kMostCases = 10'000'000;  // about a day

}  // namespace

void add_check(CLI::App& app, Common& common) {
  struct Arguments {
    CheckOptions options;
    std::string line;
    const CLI::Option* line_given = nullptr;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "check",
      "Compare every kernel with the reference on random problems: strided, poisoned, between canaries",
      [&common, arguments] {
        arguments->options.threads = common.threads ? common.threads : 1;
        if (common.cuda()) arguments->options.device = DeviceKind::kCuda;
        if (common.seed) arguments->options.seed = common.seed;
        const bool given = arguments->line_given->count() > 0;
        if (given && arguments->line.find_first_not_of(" \t") == std::string::npos)
          fail(ErrorCode::kUsage, "--case '{}': it names no operator", arguments->line);
        const CheckResult r = given ? check_line(arguments->line, arguments->options) : check(arguments->options);
        Json failures = Json::array(), runs = Json::object();
        std::string text;
        for (const CheckFailure& f : r.failures) {
          failures.push_back({{"case", f.line}, {"reason", f.reason}});
          text += fmt::format("FAILED {}\n       {}\n       repeat it with: ridgeline check {}--case '{}'\n", f.line,
                              f.reason, common.cuda() ? "--device cuda " : "", f.line);
        }
        for (const auto& [kernel, count] : r.runs) {
          runs[kernel] = count;
          text += fmt::format("{:<28} {:>9} runs\n", kernel, count);
        }
        text += fmt::format("{} problems: {} passed, {} failed ({} have no kernel but the reference)\n", r.cases,
                            r.passed, r.failed, r.reference_only);
        Json compilations = nullptr;
        if (common.cuda()) {
          compilations = cuda::compilations();
          text += fmt::format("{} kernels were compiled, the cache had the others\n", cuda::compilations());
          for (const auto& [kernel, count] : r.not_emulated) text += fmt::format("{}: not emulated, not run\n", kernel);
        }
        common.show({{"cases", r.cases},
                     {"passed", r.passed},
                     {"failed", r.failed},
                     {"failures", failures},
                     {"reference_only", r.reference_only},
                     {"compilations", compilations},
                     {"runs", runs}},
                    text);
        common.exit_code = r.failed ? 1 : 0;
      });
  command->add_option("--family", arguments->options.family, "Only operators of this family");
  command
      ->add_option("--cases", arguments->options.cases,
                   "How many problems (default 2000; with --isa all at each level)")
      ->check(whole_number(1, kMostCases));
  command->add_option("--isa", arguments->options.isa,
                      "scalar, avx2, avx512, vnni, neon, native, or all: each in turn");
  arguments->line_given = command->add_option("--case", arguments->line, "One problem, as a failure prints it");
  command->add_option("--case-directory", arguments->options.case_directory,
                      "Also the problems in FAMILY.txt there, one a line");
}

}  // namespace ridgeline::cli
