#include "kernels/random.h"

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

// Random123, tests/kat_vectors: philox4x32 with 10 rounds.
TEST(Philox, EqualsThePublishedVectors) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint64_t ones = ~uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, KeepsWhatTheAddressesSay) {
  const int64_t rows = 5, width = 133;
  const std::vector<int64_t> ids{7, 0, 1000000, 3, (int64_t{1} << 33) + 5};
  for (const Type type : kTypes) {
    const auto x = random_numbers(rows * width, type, 1);
    const auto residual = random_numbers(rows * width, type, 2);
    for (const bool has_residual : {false, true}) {
      const auto y = on_all(x, [&](Numbers& to) {
        return Dropout{.rows = rows,
                       .width = width,
                       .probability = 0.25,
                       .key = 99,
                       .row_ids = ids.data(),
                       .first_column = 33,
                       .total_width = 201,
                       .x = x,
                       .residual = has_residual ? ConstArray(residual) : ConstArray(),
                       .y = to};
      });
      std::vector<double> expected;
      int64_t dropped = 0;
      for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t element = ids[static_cast<size_t>(i / width)] * 201 + 33 + i % width;
        const bool is_kept = uniform_at(99, static_cast<uint64_t>(element)) >= 0.25F;
        dropped += is_kept ? 0 : 1;
        expected.push_back((is_kept ? x[i] / 0.75 : 0) + (has_residual ? residual[i] : 0));
      }
      expect_near(y, expected, type == Type::f32 ? 4 : 0.6, 1, name_of(type));
      EXPECT_NEAR(static_cast<double>(dropped) / (rows * width), 0.25, 0.06);
    }
  }
}

double normal_at(uint64_t key, uint64_t element) {
  const auto words = philox(key, element / 4, 0);
  const auto even = words[element % 4 / 2 * 2], odd = words[element % 4 / 2 * 2 + 1];
  const double length = std::sqrt(-2 * std::log((static_cast<double>(even >> 8) + 1) * 0x1p-24));
  const double angle = 2 * M_PI * static_cast<double>(odd >> 8) * 0x1p-24;
  return length * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(FillNormal, EqualsTheTransformOfEachAddress) {
  for (const Type type : kTypes) {
    for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 34) - 30}) {
      const auto y = on_all(Numbers(300, type), [&](Numbers& to) {
        return FillNormal{
            .count = 300, .key = 17, .first = first, .mean = 0.5, .deviation = 2, .y = to};
      });
      std::vector<double> expected;
      for (uint64_t i = 0; i < 300; ++i) expected.push_back(0.5 + 2 * normal_at(17, first + i));
      expect_near(y, expected, type == Type::f32 ? 16 : 0.6, 1, name_of(type));
    }
  }
}

TEST(FillNormal, HasTheMomentsOfTheNormalDistribution) {
  const int64_t count = 200000;
  Numbers y(static_cast<size_t>(count), Type::f32);
  one_device()->run(FillNormal{.count = count, .key = 3, .y = y});
  double moments[5] = {};
  for (size_t i = 0; i < y.size(); ++i) {
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(y[i], power) / count;
  }
  EXPECT_NEAR(moments[1], 0, 0.01);
  EXPECT_NEAR(moments[2], 1, 0.02);
  EXPECT_NEAR(moments[3], 0, 0.05);
  EXPECT_NEAR(moments[4], 3, 0.1);
}

}  // namespace
}  // namespace ferry::kernels
