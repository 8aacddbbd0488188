// The tile tables of share/tiles, built into the library (CMakeLists.txt): one a class of machines.
#pragma once

#include <span>
#include <string_view>

namespace ridgeline {

struct ShippedTable {
  std::string_view machine_class, text;
};
std::span<const ShippedTable> shipped_tile_tables();

}  // namespace ridgeline
