// What cards of each level can do, and that kernels are kept from what they cannot.
#include <gtest/gtest.h>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

TEST(CudaCapabilities, LevelsKnowWhatTheyHave) {
  const auto table = capability_table();
  for (size_t i = 1; i < table.size(); ++i) EXPECT_LT(table[i - 1].sm, table[i].sm);
  for (const Capabilities& c : table) {
    EXPECT_EQ(c.wgmma, c.sm == 90) << c.sm;
    EXPECT_EQ(c.bulk_copies, c.sm >= 90) << c.sm;
    EXPECT_EQ(c.f8, c.sm >= 89) << c.sm;
    EXPECT_EQ(c.shared_bytes_per_sm - c.shared_bytes_per_block, 1024) << c.sm;
  }
  EXPECT_EQ(capabilities_of(80).shared_bytes_per_block, 163 * 1024);
  EXPECT_EQ(capabilities_of(86).shared_bytes_per_block, 99 * 1024);
  EXPECT_EQ(capabilities_of(90).shared_bytes_per_block, 227 * 1024);
}

TEST(CudaCapabilities, ALevelWithoutARowGetsTheNearestBelow) {
  EXPECT_EQ(capabilities_of(87).sm, 86);
  EXPECT_EQ(capabilities_of(103).sm, 100);
  EXPECT_TRUE(capabilities_of(103).bulk_copies);
  EXPECT_FALSE(capabilities_of(91).wgmma);  // no level but sm_90 has it
}

TEST(CudaCapabilities, TheTargetIsItsRow) {
  const DeviceInfo& card = target();
  const Capabilities row = capabilities();
  EXPECT_LE(row.sm, card.sm);
  if (row.sm != card.sm) return;
  EXPECT_EQ(card.shared_bytes_per_block, row.shared_bytes_per_block);
  EXPECT_EQ(card.registers_per_sm, row.registers_per_sm);
  EXPECT_EQ(card.threads_per_sm, row.threads_per_sm);
  EXPECT_EQ(shared_bytes_over(card.shared_bytes_per_block), 0);
  EXPECT_EQ(shared_bytes_over(card.shared_bytes_per_block + 16), 16);
  for (const Capability what :
       {Capability::kWgmma, Capability::kBulkCopies, Capability::kClusters, Capability::kF8, Capability::kDependent})
    EXPECT_EQ(missing(what).empty(), has(row, what));
}

}  // namespace
}  // namespace ridgeline::cuda
