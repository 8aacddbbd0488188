// The conformance sweep: random problems of every operator, run by every kernel that supports them, against the
// reference. Inputs are strided, outputs start poisoned, every buffer stands between canaries; a line of text repeats a
// failure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/problem.h"

namespace ridgeline {

struct CheckOptions {
  std::string family;    // "": all
  int64_t cases = 2000;  // problems in all, shared out over the operators; those of the case files, and those drawn for
                         // kernels with few runs, come on top
  std::string isa;       // "": as it is; scalar, avx2, avx512, vnni, neon, native; "all": each in turn
  uint64_t seed = 1;
  int threads = 1;
  DeviceKind device = DeviceKind::kCpu;  // on kCuda `isa` has no say
  int64_t least_runs = 20;     // of each kernel: further problems are drawn for those with fewer; one with none fails
  int most_draws = 60'000;     // in search of them; Winograd takes one problem of some 500
  std::string case_directory;  // holds <family>.txt, a problem a line, # begins a comment; "": none
};

struct CheckFailure {
  std::string line;    // "MatMul a=f32[7,13] b=f32[13,5]! seed=81 kernel=cpu.gemm": check_line repeats it
  std::string reason;  // which element, got, wanted, tolerance; or which canary
};

struct CheckResult {
  int64_t cases = 0;  // problems times ISA levels
  int64_t passed = 0;
  int64_t failed = 0;
  int64_t reference_only = 0;  // of `cases`: no kernel but the reference supports the problem
  std::vector<CheckFailure> failures;
  /// Kernels whose code the emulator of tests cannot take (it has no PTX): not run, and not counted.
  std::map<std::string, int64_t> not_emulated;
  std::map<std::string, int64_t> runs;  // of each kernel of the families, the reference's included; 0: never reached
};

CheckResult check(const CheckOptions& options);

/// One line, as a failure or a case file states it. Throws Error{kUsage} if it cannot be read.
CheckResult check_line(std::string_view line, const CheckOptions& options = {});

}  // namespace ridgeline
