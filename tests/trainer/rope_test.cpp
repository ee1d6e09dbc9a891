// Rotary positions of a part of each head.
#include "trainer/model/attention/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ferry {
namespace {

// int(head_dim x fraction) elements give the frequencies, and an odd number of them is rotated in
// whole pairs, as in Megatron-LM and transformers.
TEST(Rope, OddPartsAreRotatedInPairs) {
  Architecture a;
  a.head_dim = 6;
  a.rotary_fraction = 0.5;
  a.rope_theta = 1000;
  const int64_t positions[] = {5};
  const RopeTable table = rope_table(a, positions);
  EXPECT_EQ(table.dim, 4);
  ASSERT_EQ(table.cosine.size(), 2u);
  EXPECT_FLOAT_EQ(table.cosine[0], std::cos(5.0f));
  EXPECT_FLOAT_EQ(table.cosine[1], std::cos(5 * std::pow(1000.0f, -2.0f / 3)));
}

}  // namespace
}  // namespace ferry
