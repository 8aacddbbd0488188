// The ladder as JSON (the contract of `optimize`) and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "session/ladder.h"

namespace ridgeline {

nlohmann::ordered_json ladder_json(const Model& model, const Ladder& ladder, const Ceilings& ceilings);
std::string ladder_text(const Model& model, const Ladder& ladder, const Ceilings& ceilings);

}  // namespace ridgeline
