// The folder that --external-root names, "" without it: a process has one command.
#pragma once

#include <string>

namespace ridgeline::cli {

std::string& external_root();

}  // namespace ridgeline::cli
