#include "cli/common.h"
namespace ridgeline::cli {
#define S(n) void add_##n(CLI::App&, Common&) {}
S(verify)
}
