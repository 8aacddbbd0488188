#include "cli/common.h"
namespace ridgeline::cli {
#define S(n) void add_##n(CLI::App&, Common&) {}
S(inspect) S(profile) S(explain) S(verify) S(bench) S(cost) S(check) S(suite) S(op) S(kernels)
}
