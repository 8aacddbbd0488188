// Runs the command line tool as a user does.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace ridgeline {

struct Ran {
  int exit_code = -1;
  std::string out;  // and err
};
inline Ran command(const std::string& arguments, const std::string& environment = "") {
  const std::string line = environment + " " + RIDGELINE_CLI + " " + arguments + " 2>&1";
  FILE* const pipe = popen(line.c_str(), "r");
  Ran ran;
  std::array<char, 4096> part;
  for (size_t n; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) ran.out.append(part.data(), n);
  ran.exit_code = WEXITSTATUS(pclose(pipe));
  return ran;
}

}  // namespace ridgeline
