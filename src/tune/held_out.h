// Problems that no table has: random, but of the kind that models have, a family at a time.
#pragma once

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ir/problem.h"

namespace ridgeline {

/// The families whose problems leave a choice.
std::vector<std::string_view> held_out_families();

/// Draws one. Throws Error{kUsage} if there is no such family, listing those that there are.
Problem held_out_problem(std::string_view family, std::mt19937_64& random, int threads);

}  // namespace ridgeline
