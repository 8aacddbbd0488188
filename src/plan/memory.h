// The memory planner: places buffers with lifetimes in one arena.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace ridgeline {

/// Sets offset_bytes of every slot; returns the arena's size. Slots are 64-byte aligned; two that live at the same step
/// never overlap. Best fit by size: largest first, each at the lowest gap that holds it (the order that wastes least on
/// chains of layers; within a few percent of the lower bound on the models here).
int64_t place_slots(std::vector<Slot>& slots);

/// Throws std::logic_error with the first fault that check_plan finds: every plan is checked as it is made.
void require_sound(const Plan& plan);

}  // namespace ridgeline
