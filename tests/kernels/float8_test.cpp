#include <algorithm>
#include <cfloat>
#include <limits>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr Float8 kFormats[] = {Float8::e4m3, Float8::e5m2};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// What a code stands for, by the formats' definition.
double value_of(uint8_t code, Float8 format) {
  const int bits = format == Float8::e4m3 ? 3 : 2, bias = format == Float8::e4m3 ? 7 : 15;
  const int magnitude = code & 0x7F, exponent = magnitude >> bits;
  const int fraction = magnitude & ((1 << bits) - 1);
  if (format == Float8::e4m3 ? magnitude == 0x7F : magnitude >= 0x7C) return kNaN;
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - bits)
                                    : std::ldexp((1 << bits) + fraction, exponent - bias - bits);
  return code & 0x80 ? -size : size;
}

/// The nearest code; of two as near ones the even one. Beyond the last one that.
uint8_t nearest(double x, Float8 format) {
  static const auto magnitudes = [] {
    std::vector<std::vector<double>> all(2);
    for (const Float8 each : kFormats) {
      for (int code = 0; !std::isnan(value_of(static_cast<uint8_t>(code), each)); ++code) {
        all[static_cast<size_t>(each)].push_back(value_of(static_cast<uint8_t>(code), each));
      }
    }
    return all;
  }();
  if (!std::isfinite(x)) return 0x7F;
  const std::vector<double>& values = magnitudes[static_cast<size_t>(format)];
  const double size = std::min(std::fabs(x), values.back());
  const auto above = std::ranges::lower_bound(values, size) - values.begin();
  auto code = above;
  if (values[static_cast<size_t>(above)] != size) {
    const double up = values[static_cast<size_t>(above)] - size;
    const double down = size - values[static_cast<size_t>(above - 1)];
    if (down < up || (down == up && above % 2 == 1)) code = above - 1;
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 0x80 : 0));
}

/// Elements in the memory of a device.
template <typename T>
class OnDevice {
 public:
  OnDevice(Kernels& kernels, const std::vector<T>& values)
      : kernels_(kernels), count_(values.size()), memory_(kernels.allocate(bytes())) {
    kernels.upload(values.data(), memory_.get(), bytes());
  }
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::vector<T> values() const {
    std::vector<T> all(count_);
    kernels_.download(memory_.get(), all.data(), bytes());
    kernels_.wait();
    return all;
  }

 private:
  size_t bytes() const { return count_ * sizeof(T); }

  Kernels& kernels_;
  size_t count_;
  std::shared_ptr<void> memory_;
};

using Scales = OnDevice<Float8Scale>;
Float8Scale scale_by(float factor) { return {1 / factor, factor}; }

/// Each number of the format, those half way between neighbours, a little beside those, and what
/// lies beyond.
std::vector<double> telling_numbers(Float8 format) {
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
  kernels.run(Quantise{.rows = rows,
                       .width = static_cast<int64_t>(x.size()) / rows,
                       .format = format,
                       .x = x,
                       .scale = scale.data(),
                       .y = y.data()});
  return y.values();
}

TEST(Float8, RoundsToTheNearestNumber) {
  for (auto& device : devices()) {
    for (const Float8 format : kFormats) {
      std::vector<double> numbers = telling_numbers(format);
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
      Quantise both{.rows = rows,
                    .width = width,
                    .format = Float8::e5m2,
                    .x = x,
                    .scale = scale.data(),
                    .y = y.data(),
                    .transposed = turned.data(),
                    .maximum = maximum.data()};
      kernels.run(both);
      both.y = nullptr;
      both.transposed = alone.data();
      both.maximum = maximum.data() + 1;
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

struct Case {
  int64_t m, n, k;
  Float8 a, b;
  bool accumulate, has_bias, fast;
};

/// Codes of numbers about as large as the format's range allows in sums, no NaN among them.
std::vector<uint8_t> random_codes(int64_t count, Float8 format, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, 8);
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < count; ++i) codes.push_back(nearest(normal(engine), format));
  return codes;
}

void check(Kernels& kernels, const Case& x, Type result, const std::string& name) {
  const auto a_codes = random_codes(x.m * x.k, x.a, 1), b_codes = random_codes(x.n * x.k, x.b, 2);
  const OnDevice<uint8_t> a(kernels, a_codes), b(kernels, b_codes);
  const Scales scales(kernels, {scale_by(3), scale_by(0.5)});
  const auto bias = random_numbers(x.n, Type::bf16, 3);
  const auto before = random_numbers(x.m * x.n, result, 4);
  std::vector<double> wanted;
  for (int64_t i = 0; i < x.m; ++i) {
    for (int64_t j = 0; j < x.n; ++j) {
      double sum = 0;
      for (int64_t s = 0; s < x.k; ++s) {
        sum += value_of(a_codes[static_cast<size_t>(i * x.k + s)], x.a) *
               value_of(b_codes[static_cast<size_t>(j * x.k + s)], x.b);
      }
      wanted.push_back(sum * (2.0 / 3) + (x.accumulate ? before[i * x.n + j] : 0) +
                       (x.has_bias ? bias[j] : 0));
    }
  }
  std::string bits;
  for (int time = 0; time < 2; ++time) {
    auto c = before;
    kernels.run(Float8Matmul{.m = x.m,
                             .n = x.n,
                             .k = x.k,
                             .a = {a.data(), x.a, scales.data()},
                             .b = {b.data(), x.b, scales.data() + 1},
                             .c = c,
                             .accumulate = x.accumulate,
                             .fast = x.fast,
                             .bias = x.has_bias ? ConstArray(bias) : ConstArray()});
    // A GPU's sums have fewer bits.
    const double size = 64 * std::sqrt(static_cast<double>(x.k));
    const double steps = result != Type::f32 ? 0.6 : product_slack() > 1 ? 0x1p13 : 32;
    expect_near(c, wanted, steps, size, name + " to " + name_of(result));
    EXPECT_TRUE(time == 0 || bits == c.bits()) << name;
    bits = c.bits();
  }
}

TEST(Float8, ProductsEqualAPlainLoop) {
  using enum Float8;
  const Case cases[] = {
      {16, 16, 16, e4m3, e4m3, false, false, true},
      {48, 32, 80, e4m3, e4m3, false, true, true},
      {64, 96, 128, e5m2, e4m3, false, false, false},
      {32, 48, 64, e5m2, e4m3, true, false, false},
      {128, 64, 512, e4m3, e5m2, false, false, true},
      {16, 160, 2064, e4m3, e4m3, true, false, false},
  };
  for (auto& device : devices()) {
    if (!device.kernels->has_float8()) GTEST_SKIP() << device.name << " has no such products";
    for (const auto& x : cases) {
      check(*device.kernels, x, Type::bf16, device.name);
      check(*device.kernels, x, Type::f32, device.name);
    }
  }
}

// What is not a number is found in the product.
TEST(Float8, ProductsOfNaNAreNaN) {
  for (auto& device : devices()) {
    if (!device.kernels->has_float8()) GTEST_SKIP() << device.name << " has no such products";
    for (const Float8 format : kFormats) {
      std::vector<uint8_t> codes(16 * 16, 0x30);
      codes[37] = 0x7F;
      const OnDevice<uint8_t> a(*device.kernels, codes);
      const OnDevice<uint8_t> b(*device.kernels, std::vector<uint8_t>(16 * 16, 0x30));
      const Scales scale(*device.kernels, {scale_by(1)});
      const Numbers c(16 * 16, Type::f32);
      device.kernels->run(Float8Matmul{.m = 16,
                                       .n = 16,
                                       .k = 16,
                                       .a = {a.data(), format, scale.data()},
                                       .b = {b.data(), Float8::e4m3, scale.data()},
                                       .c = c});
      for (int64_t i = 0; i < 256; ++i) {
        EXPECT_EQ(std::isnan(c[i]), i / 16 == 2) << device.name << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
