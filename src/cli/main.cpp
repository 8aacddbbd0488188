#include <cstdio>
#include <exception>
#include <new>

#include "cli/common.h"
#include "kernels/cpu/simd.h"
#include "ridgeline/error.h"

int main(int argc, char** argv) {
  using namespace ridgeline;
  CLI::App app(
      "Ridgeline takes an ONNX model, finds what bounds each operator on this machine, rewrites and tunes it, and "
      "proves each step.\n"
      "Start with:  ridgeline make resnet50 -o resnet50.onnx  and  ridgeline optimize resnet50.onnx\n"
      "Each command takes --help. What was measured is kept in ~/.cache/ridgeline (RIDGELINE_CACHE_DIR moves it);\n"
      "RIDGELINE_ISA=scalar, avx2 or avx512 forces a lower instruction set.",
      "ridgeline");
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridgeline 0.1.0");
  cli::Common common;
  try {
    cpu::limit_isa_from_environment();
    cli::add_optimize(app, common);
    cli::add_run(app, common);
    cli::add_inspect(app, common);
    cli::add_profile(app, common);
    cli::add_explain(app, common);
    cli::add_verify(app, common);
    cli::add_make(app, common);
    cli::add_machine(app, common);
    cli::add_bench(app, common);
    cli::add_cost(app, common);
    cli::add_passes(app, common);
    cli::add_op(app, common);
    cli::add_kernels(app, common);
    cli::add_check(app, common);
    cli::add_suite(app, common);
    // CLI11 would only say that a subcommand is required.
    std::string names;
    bool known = argc < 2 || argv[1][0] == '-';
    for (const CLI::App* command : app.get_subcommands({})) {
      names += " " + command->get_name();
      known = known || command->get_name() == argv[1];
    }
    if (!known) fail(ErrorCode::kUsage, "there is no command '{}'; there are:{}", argv[1], names);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    std::fprintf(stderr, "ridgeline: %s\n", error.what());
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "ridgeline: out of memory\n");
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ridgeline: %s\n", error.what());
    return 2;
  }
  return common.exit_code;
}
