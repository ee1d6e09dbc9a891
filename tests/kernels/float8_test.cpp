#include <algorithm>
#include <cfloat>

#include "tests/kernels/float8_numbers.h"

namespace ferry::kernels {
namespace {

/// Each number of the format, those half way between neighbours, those a little off half way, and
/// those out of range.
std::vector<double> numbers_around(Float8 format) {
  std::vector<double> all{0.0, -0.0, kInfinity, -kInfinity, kNaN, 1e30, -1e30, 1e-30, FLT_MAX};
  for (int code = 0; code < 0x7F; ++code) {
    const double low = value_of(static_cast<uint8_t>(code), format);
    const double high = value_of(static_cast<uint8_t>(code + 1), format);
    if (std::isnan(low)) break;
    const double middle = std::isnan(high) ? low * 1.06 : (low + high) / 2;
    for (const double x : {low, middle, middle * (1 - 1e-6), middle * (1 + 1e-6)}) {
      all.push_back(x);
      all.push_back(-x);
    }
  }
  return all;
}

std::vector<uint8_t> rounded_on(Kernels& kernels, const Numbers& x, int64_t rows, Float8 format,
                                float factor) {
  const OnDevice<uint8_t> y(kernels, std::vector<uint8_t>(x.size(), 0xAA));
  const Scales scale(kernels, {scale_by(factor)});
  kernels.run(Quantize{.rows = rows,
                       .width = static_cast<int64_t>(x.size()) / rows,
                       .x = x,
                       .to = {.format = format, .scale = scale.data(), .by_row = y.data()}});
  return y.values();
}

TEST(Float8, RoundsToTheNearestNumber) {
  for (auto& device : devices()) {
    for (const Float8 format : kFormats) {
      std::vector<double> numbers = numbers_around(format);
      numbers.resize((numbers.size() + 255) / 256 * 256);
      for (const int64_t rows : {int64_t{1}, int64_t{16}}) {  // one by one, and in tiles
        for (const float factor : {1.0F, 4.0F, 0.125F}) {
          const Numbers x(numbers, Type::f32);
          const auto codes = rounded_on(*device.kernels, x, rows, format, factor);
          for (size_t i = 0; i < codes.size(); ++i) {
            EXPECT_EQ(codes[i], nearest(x[i] * factor, format))
                << device.name << " " << x[i] << " times " << factor;
          }
        }
      }
    }
  }
}

TEST(Float8, ScalesBeforeItRounds) {
  for (auto& device : devices()) {
    for (const Type type : kTypes) {
      const auto x = random_numbers(32 * 48, type, 5);
      const auto codes = rounded_on(*device.kernels, x, 32, Float8::e4m3, 99.25F);
      for (size_t i = 0; i < codes.size(); ++i) {
        const float scaled = static_cast<float>(x[i]) * 99.25F;
        ASSERT_EQ(codes[i], nearest(scaled, Float8::e4m3)) << device.name << name_of(type);
      }
    }
  }
}

TEST(Float8, TransposesAndFindsTheMaximumOnTheWay) {
  const std::pair<int64_t, int64_t> sizes[] = {{16, 16},   {64, 64},  {48, 80}, {128, 192}, {5, 7},
                                               {272, 528}, {100, 64}, {64, 20}, {1, 1}};
  for (auto& device : devices()) {
    Kernels& kernels = *device.kernels;
    for (const auto& [rows, width] : sizes) {
      const auto count = static_cast<size_t>(rows * width);
      auto x = random_numbers(rows * width, Type::bf16, 6);
      x.set(count / 2, kNaN);
      double greatest_x = 0;
      for (size_t i = 0; i < count; ++i) greatest_x = std::fmax(greatest_x, std::fabs(x[i]));
      const OnDevice<uint8_t> y(kernels, std::vector<uint8_t>(count));
      const OnDevice<uint8_t> turned(kernels, std::vector<uint8_t>(count));
      const OnDevice<uint8_t> alone(kernels, std::vector<uint8_t>(count));
      const OnDevice<float> maximum(kernels, {0.25F, 1e9F});
      const Scales scale(kernels, {scale_by(31)});
      Quantize both{.rows = rows,
                    .width = width,
                    .x = x,
                    .to = {.format = Float8::e5m2,
                           .scale = scale.data(),
                           .by_row = y.data(),
                           .by_column = turned.data(),
                           .maximum = maximum.data()}};
      kernels.run(both);
      both.to.by_row = nullptr;
      both.to.by_column = alone.data();
      both.to.maximum = maximum.data() + 1;
      kernels.run(both);
      EXPECT_EQ(y.values(), rounded_on(kernels, x, rows, Float8::e5m2, 31));
      EXPECT_EQ(turned.values(), alone.values());
      const auto by_row = y.values(), by_column = turned.values();
      for (int64_t i = 0; i < rows * width; ++i) {
        ASSERT_EQ(by_row[static_cast<size_t>(i)],
                  by_column[static_cast<size_t>(i % width * rows + i / width)])
            << device.name << " " << rows << " x " << width << ", element " << i;
      }
      const float most = std::max(0.25F, static_cast<float>(greatest_x));
      EXPECT_EQ(maximum.values(), (std::vector<float>{most, 1e9F})) << device.name;
    }
  }
}

/// What an activation gives by row, by column and as the maximum, and what Quantize gives of the
/// array afterwards.
template <typename Operation>
void expect_rounded_as_afterwards(Kernels& kernels, Operation operation, int64_t width,
                                  const Numbers& result, bool only_rounded) {
  const auto count = static_cast<size_t>(operation.rows * width);
  const Scales scale(kernels, {scale_by(31)});
  std::vector<std::vector<uint8_t>> codes;
  std::vector<float> maxima;
  const auto keep = [&](const auto& run) {
    const OnDevice<uint8_t> by_row(kernels, std::vector<uint8_t>(count));
    const OnDevice<uint8_t> by_column(kernels, std::vector<uint8_t>(count));
    const OnDevice<float> maximum(kernels, {0});
    run(Float8Output{.format = Float8::e5m2,
                     .scale = scale.data(),
                     .by_row = by_row.data(),
                     .by_column = operation.rows == 33 ? nullptr : by_column.data(),
                     .maximum = maximum.data()});
    codes.push_back(by_row.values());
    codes.push_back(by_column.values());
    maxima.push_back(maximum.values()[0]);
  };
  keep([&](const Float8Output& to) {
    Operation rounding = operation;
    rounding.rounded = to;
    rounding.only_rounded = only_rounded;
    kernels.run(rounding);
  });
  const Numbers before = result;
  kernels.run(operation);
  keep([&](const Float8Output& to) {
    kernels.run(Quantize{.rows = operation.rows, .width = width, .x = result, .to = to});
  });
  EXPECT_EQ(codes[0], codes[2]);
  EXPECT_EQ(codes[1], codes[3]);
  EXPECT_EQ(maxima[0], maxima[1]);
  EXPECT_GT(maxima[0], 0);
  if (only_rounded) return;
  for (size_t i = 0; i < count; ++i) ASSERT_EQ(before[i], result[i]) << i;
}

TEST(Float8, ActivationsRoundOnTheWayAsAfterwards) {
  const std::pair<int64_t, int64_t> sizes[] = {{16, 16}, {144, 80}, {33, 32}, {5, 7}};
  for (auto& device : devices()) {
    for (const auto& [rows, width] : sizes) {
      for (const auto kind : {Activation::swiglu, Activation::quick_geglu, Activation::relu}) {
        for (const Type type : {Type::bf16, Type::f16, Type::f32}) {
          for (const bool only_rounded : {false, true}) {
            SCOPED_TRACE(device.name + std::string(" ") + name_of(type) + " " +
                         std::to_string(rows) + " x " + std::to_string(width));
            const int64_t in = is_gated(kind) ? 2 * width : width;
            const auto x = random_numbers(rows * in, type, 7);
            const auto dy = random_numbers(rows * width, type, 8);
            const Numbers y(dy.size(), type), dx(x.size(), type);
            const auto row_scale = random_numbers(rows, Type::f32, 9);
            const GluSettings glu{.clamp = is_gated(kind) && rows == 144 ? 0.5F : 0};
            expect_rounded_as_afterwards(
                *device.kernels,
                ActivationForward{.kind = kind,
                                  .rows = rows,
                                  .width = width,
                                  .x = x,
                                  .y = y,
                                  .glu = glu,
                                  .row_scale = rows == 16 ? nullptr : row_scale.floats()},
                width, y, only_rounded);
            expect_rounded_as_afterwards(*device.kernels,
                                         ActivationBackward{.kind = kind,
                                                            .rows = rows,
                                                            .width = width,
                                                            .x = x,
                                                            .dy = dy,
                                                            .dx = dx,
                                                            .glu = glu},
                                         in, dx, only_rounded);
            if (rows == 144) continue;
            // With factors of rows, as experts have them.
            const Numbers drow_scale(row_scale.size(), Type::f32);
            expect_rounded_as_afterwards(*device.kernels,
                                         ActivationBackward{.kind = kind,
                                                            .rows = rows,
                                                            .width = width,
                                                            .x = x,
                                                            .dy = dy,
                                                            .dx = dx,
                                                            .glu = glu,
                                                            .row_scale = row_scale.floats(),
                                                            .drow_scale = drow_scale.floats()},
                                         in, dx, only_rounded);
          }
        }
      }
    }
  }
}

TEST(Float8, FindsTheGreatestMagnitude) {
  for (auto& device : devices()) {
    Kernels& kernels = *device.kernels;
    for (const Type type : kTypes) {
      const auto maximum_of = [&](const std::vector<double>& values) {
        const OnDevice<float> maximum(kernels, {123});
        const Numbers x(values, type);
        kernels.run(AbsoluteMaximum{
            .count = static_cast<int64_t>(x.size()), .x = x, .maximum = maximum.data()});
        return maximum.values()[0];
      };
      EXPECT_EQ(maximum_of({}), 0) << device.name;
      EXPECT_EQ(maximum_of({0, -0.0, 0}), 0) << device.name;
      if (type != Type::f16) {  // of which tests write finite numbers alone
        EXPECT_EQ(maximum_of({1, kNaN, -3, 2}), 3) << device.name;
        EXPECT_EQ(maximum_of({1, -kInfinity, -3}), static_cast<float>(kInfinity)) << device.name;
      }
      std::vector<double> many(200000, 0.5);
      many[199999] = -7;
      EXPECT_EQ(maximum_of(many), 7) << device.name;
    }
  }
}

TEST(Float8, CurrentScalesFollowFromTheMaximum) {
  const std::pair<float, float> e4m3[] = {
      {448, 1}, {3, 448.0F / 3}, {0, 1}, {1e-38F, FLT_MAX}, {static_cast<float>(kInfinity), 1}};
  for (auto& device : devices()) {
    const auto scale_of = [&](float number, Float8 format) {
      const OnDevice<float> maximum(*device.kernels, {number});
      const Scales scale(*device.kernels, {scale_by(9)});
      device.kernels->run(
          CurrentScale{.format = format, .maximum = maximum.data(), .scale = scale.data()});
      return scale.values()[0];
    };
    for (const auto& [maximum, factor] : e4m3) {
      EXPECT_EQ(scale_of(maximum, Float8::e4m3).factor, factor) << device.name << " " << maximum;
      EXPECT_EQ(scale_of(maximum, Float8::e4m3).inverse, 1 / factor) << device.name;
    }
    EXPECT_EQ(scale_of(2, Float8::e5m2).factor, 28672) << device.name;
  }
}

// Three tensors: one that grows and shrinks, one that is zero at times, one that overflows once.
TEST(Float8, DelayedScalesFollowFromTheHistory) {
  const float inf = static_cast<float>(kInfinity);
  const std::vector<std::vector<float>> steps{
      {4, 2, 1}, {8, 0, inf}, {2, 4, 2}, {1, 0, 4}, {0.5, 1, 8}};
  // By step, of the greatest of the last three numbers, and of the newest.
  const std::vector<std::vector<float>> of_greatest{
      {4, 2, 1}, {8, 2, 1}, {8, 4, 1}, {8, 4, 1}, {2, 4, 8}};
  const std::vector<std::vector<float>> of_newest{
      {4, 2, 1}, {8, 2, 1}, {2, 4, 2}, {1, 4, 4}, {0.5, 1, 8}};
  for (auto& device : devices()) {
    Kernels& kernels = *device.kernels;
    for (const bool takes_newest : {false, true}) {
      const OnDevice<float> history(kernels, std::vector<float>(9)), maximum(kernels, {0, 0, 0});
      const Scales scale(kernels, std::vector<Float8Scale>(3));
      for (size_t step = 0; step < steps.size(); ++step) {
        kernels.upload(steps[step].data(), maximum.data(), 3 * sizeof(float));
        kernels.run(DelayedScales{.count = 3,
                                  .length = 3,
                                  .format = Float8::e4m3,
                                  .share = 0.25F,
                                  .takes_newest = takes_newest,
                                  .maximum = maximum.data(),
                                  .history = history.data(),
                                  .scale = scale.data()});
        for (size_t i = 0; i < 3; ++i) {
          const float of = (takes_newest ? of_newest : of_greatest)[step][i];
          EXPECT_EQ(scale.values()[i].factor, 112 / of)
              << device.name << ", step " << step << ", tensor " << i;
          EXPECT_EQ(scale.values()[i].inverse, 1 / (112 / of)) << device.name;
        }
        EXPECT_EQ(maximum.values(), std::vector<float>(3)) << device.name;
      }
      EXPECT_EQ(history.values(), (std::vector<float>{0.5, 1, 8, 1, 4, 4, 2, 2, 2}));
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
