// What stands behind the public Context.
#pragma once

#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "machine/ceilings.h"
#include "ridgeline/context.h"
#include "ridgeline/op.h"

namespace ridgeline {

struct Context::State {
  int threads = 1;
  Ceilings ceilings;
  bool measured = false;

  // Planned calls, the latest used first; the key is the operator with dtypes, shapes, attributes, and contents that
  // matter.
  size_t most_planned = 0, hits = 0;
  std::list<std::pair<std::string, Op>> planned;
  std::unordered_map<std::string_view, std::list<std::pair<std::string, Op>>::iterator> by_key;
  // For an operator with its attributes, dtypes and shapes: the inputs whose content the output's shape depends on.
  std::map<std::string, std::vector<int>, std::less<>> needed;

  Op* find(std::string_view key);
  Op& put(std::string key, Op op);
};

}  // namespace ridgeline
