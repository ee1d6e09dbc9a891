// Rotary positions of a part of each head.
#include "trainer/model/attention/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

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

// The ramp from kept to interpolated frequencies begins and ends at whole pairs, or between them.
TEST(Rope, BoundsOfYarnAreRoundedOrNot) {
  Architecture a;
  a.head_dim = 16;
  a.rope_theta = 1000;
  a.rope_scaling = RopeScaling::yarn;
  a.rope_factor = 4;
  a.rope_original_positions = 100;
  const int64_t positions[] = {1};
  const auto angles = [&] {
    const RopeTable table = rope_table(a, positions);
    std::vector<double> all;
    for (size_t i = 0; i < 8; ++i) all.push_back(std::atan2(table.sine[i], table.cosine[i]));
    return all;
  };
  const double bound = 16 * std::log(100 / (2 * M_PI)) / (2 * std::log(1000));  // one turn: 3.2
  const auto part = [&](double low, double high, double pair) {
    return std::clamp((pair - low) / (high - low), 0.0, 1.0);
  };
  for (const bool truncates : {true, false}) {
    a.rope_truncates = truncates;
    const double high = truncates ? std::ceil(bound) : bound;
    const auto found = angles();
    for (int pair = 0; pair < 8; ++pair) {
      const double frequency = std::pow(1000, -pair / 8.0), of = part(0, high, pair);
      EXPECT_NEAR(found[static_cast<size_t>(pair)], frequency * (1 - of) + frequency / 4 * of, 1e-6)
          << truncates << " " << pair;
    }
  }
}

}  // namespace
}  // namespace ferry
