// What `ridgeline regret` does: on problems that nobody tuned, and on the table's own rows, is the choice the fastest?
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/regret_report.h"

namespace ridgeline {

struct AuditOptions {
  std::string family;  // empty: all
  int cases = 48;      // held-out problems, of each family
  int rows = 24;       // rows of the table, drawn, of each family
  int threads = 1;
  double seconds = 1;  // a problem, at most
  uint64_t seed = 0;
  std::function<void(const std::string&)> progress;
};

struct Audit {
  std::vector<RegretShape> shapes;      // held out
  std::vector<RegretShape> table_rows;  // of the table and of what was tuned
  std::vector<std::string> stale;       // rows that name a kernel, version or tile that is not there any more
  std::string table;                    // where the table is from
};

Audit audit_choice(const AuditOptions& options);

/// The problem of a row. Throws Error{kUsage} if it is none.
Problem problem_of_key(const std::string& key);

}  // namespace ridgeline
