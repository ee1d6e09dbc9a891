// Products of groups of rows of 8-bit numbers, and what gives them their form.
#include "tests/kernels/float8_sums.h"

namespace ferry::kernels {
namespace {

/// Groups of rows, each multiplied with a weight of its own scale.
struct Float8Groups {
  std::vector<int64_t> offsets;
  int64_t n, k;

  int64_t count() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t rows() const { return offsets.back(); }
};

std::vector<Float8Groups> float8_groups() {
  std::vector<Float8Groups> all{
      {{0, 70, 70, 71, 200}, 32, 48},
      {{0, 127, 256, 256, 257, 545, 802, 802, 807}, 48, 80},  // any numbers of rows
      {{0, 0, 0, 530, 530}, 32, 144},                         // all rows in one group
      {{0, 1, 3, 6, 10, 15, 31, 47, 64, 97}, 16, 16},
      {{0, 3, 20}, 272, 528},
      {{0}, 16, 144},  // more than a launch takes
  };
  for (int64_t g = 0; g < 300; ++g) {
    all.back().offsets.push_back(all.back().offsets.back() + g * 7 % 5);
  }
  return all;
}

/// All elements of the products by row, without the scales.
std::vector<Sum> sums_of(const Float8Groups& x, const std::vector<double>& a,
                         const std::vector<double>& b) {
  std::vector<Sum> sums;
  std::vector<double> products(static_cast<size_t>(x.k));
  for (int64_t g = 0; g < x.count(); ++g) {
    for (int64_t row = x.offsets[static_cast<size_t>(g)];
         row < x.offsets[static_cast<size_t>(g) + 1]; ++row) {
      for (int64_t column = g * x.n; column < (g + 1) * x.n; ++column) {
        for (size_t s = 0; s < products.size(); ++s) {
          products[s] =
              a[static_cast<size_t>(row * x.k) + s] * b[static_cast<size_t>(column * x.k) + s];
        }
        sums.push_back(sum_of(products, products.size()));
      }
    }
  }
  return sums;
}

void check_products(const Float8Groups& x, Float8 format, Kind kind) {
  const int64_t rows = x.offsets.back();
  const auto a = random_codes(rows * x.k, format, kind, 1);
  const auto b = random_codes(x.count() * x.n * x.k, Float8::e4m3, kind, 2);
  const auto sums = sums_of(x, values_of(a, format), values_of(b, Float8::e4m3));
  std::vector<Float8Scale> factors{scale_by(3)};
  for (int64_t g = 0; g < x.count(); ++g) {
    factors.push_back(scale_by(std::ldexp(1.25F, static_cast<int>(g % 5) - 2)));
  }
  for (auto& device : devices()) {
    if (!device.kernels->has_grouped_float8())
      GTEST_SKIP() << device.name << " has no such products";
    const OnDevice<uint8_t> left(*device.kernels, a), right(*device.kernels, b);
    const Scales scales(*device.kernels, factors);
    for (const bool shares_scale : {false, true}) {
      Numbers c(sums.size(), Type::bf16);
      const auto run = [&] {
        device.kernels->run(GroupedFloat8Matmul{.n = x.n,
                                                .k = x.k,
                                                .rows = rows,
                                                .groups = x.count(),
                                                .offsets = x.offsets.data(),
                                                .a = {left.data(), format, scales.data()},
                                                .b = right.data(),
                                                .scales = scales.data() + 1,
                                                .shares_scale = shares_scale,
                                                .c = c});
      };
      run();
      const std::string bits = c.bits();
      for (size_t i = 0, g = 0; i < sums.size(); ++i) {
        while (static_cast<int64_t>(i) >= x.offsets[g + 1] * x.n) ++g;
        const double scale = 1 / (3.0 * factors[shares_scale ? 1 : g + 1].factor);
        const double size =
            std::max(std::fabs(sums[i].value), 8 * std::sqrt(static_cast<double>(x.k)));
        ASSERT_NEAR(c[i] / scale, sums[i].value,
                    0.6 * step_of(Type::bf16) * size + (product_slack() > 1 ? sums[i].loss : 0))
            << device.name << " n " << x.n << ", k " << x.k << ", group " << g << ", element " << i;
      }
      run();
      EXPECT_EQ(bits, c.bits()) << device.name;
    }
  }
}

TEST(Float8, GroupedProductsEqualAPlainLoop) {
  for (const auto& groups : float8_groups()) {
    for (const Float8 format : kFormats) {
      for (const Kind kind : {Kind::any, Kind::whole}) check_products(groups, format, kind);
    }
  }
}

/// Places of random rows of a table, in no order.
std::vector<int32_t> random_places(int64_t count, int64_t rows) {
  std::mt19937 engine(5);
  std::uniform_int_distribution<int32_t> place(0, static_cast<int32_t>(rows) - 1);
  std::vector<int32_t> places;
  for (int64_t i = 0; i < count; ++i) places.push_back(place(engine));
  return places;
}

std::vector<uint8_t> transposed(Kernels& kernels, const Float8Groups& x, int64_t width,
                                const std::vector<uint8_t>& codes,
                                const std::vector<int32_t>* index) {
  const auto count = static_cast<size_t>(width * grouped_columns(x.count(), x.rows()));
  const OnDevice<uint8_t> from(kernels, codes), to(kernels, std::vector<uint8_t>(count, 0xAA));
  kernels.run(GroupedTranspose{.rows = x.rows(),
                               .width = width,
                               .groups = x.count(),
                               .offsets = x.offsets.data(),
                               .index = index == nullptr ? nullptr : index->data(),
                               .divisor = index == nullptr ? 1 : 3,
                               .x = from.data(),
                               .y = to.data()});
  return to.values();
}

TEST(Float8, TransposesRowsByGroups) {
  for (auto& device : devices()) {
    for (const Float8Groups& x : float8_groups()) {
      const auto index = random_places(x.rows(), 90);
      for (const bool is_copy : {false, true}) {
        const auto codes =
            random_codes((is_copy ? 30 : x.rows()) * x.k, Float8::e4m3, Kind::any, 1);
        const auto y = transposed(*device.kernels, x, x.k, codes, is_copy ? &index : nullptr);
        const int64_t columns = grouped_columns(x.count(), x.rows());
        // What is in no group stays.
        std::vector<uint8_t> expected(y.size(), 0xAA);
        for (int64_t g = 0; g < x.count(); ++g) {
          const auto at = static_cast<size_t>(g);
          const int64_t begin = x.offsets[at], rows = x.offsets[at + 1] - begin;
          const int64_t end = (rows + kFloat8Columns - 1) / kFloat8Columns * kFloat8Columns;
          ASSERT_LE(grouped_column(g, begin) + end, grouped_column(g + 1, x.offsets[at + 1]));
          for (int64_t i = 0; i < end * x.k; ++i) {
            const int64_t row = begin + i / x.k, place = i % x.k;
            const int64_t from =
                is_copy && row < x.rows() ? index[static_cast<size_t>(row)] / 3 : row;
            expected[static_cast<size_t>(place * columns + grouped_column(g, begin) + i / x.k)] =
                i / x.k < rows ? codes[static_cast<size_t>(from * x.k + place)] : 0;
          }
        }
        ASSERT_EQ(y, expected) << device.name << " k " << x.k << ", copied " << is_copy;
      }
    }
  }
}

/// The gradients of all groups' weights [k, n], without the scales.
std::vector<Sum> gradient_sums(const Float8Groups& x, const std::vector<double>& a,
                               const std::vector<double>& b) {
  std::vector<Sum> sums;
  for (int64_t g = 0; g < x.count(); ++g) {
    const int64_t begin = x.offsets[static_cast<size_t>(g)];
    std::vector<double> products(
        static_cast<size_t>(x.offsets[static_cast<size_t>(g) + 1] - begin));
    for (int64_t i = 0; i < x.k * x.n; ++i) {
      for (size_t s = 0; s < products.size(); ++s) {
        const int64_t row = begin + static_cast<int64_t>(s);
        products[s] = a[static_cast<size_t>(row * x.k + i / x.n)] *
                      b[static_cast<size_t>(row * x.n + i % x.n)];
      }
      sums.push_back(products.empty() ? Sum() : sum_of(products, products.size()));
    }
  }
  return sums;
}

struct GradientFactors {
  std::vector<uint8_t> a, b;
  Float8 format;
  std::vector<Sum> sums;

  GradientFactors(const Float8Groups& x, Float8 a_format, Kind kind)
      : a(random_codes(x.rows() * x.k, a_format, kind, 1)),
        b(random_codes(x.rows() * x.n, Float8::e4m3, kind, 2)),
        format(a_format),
        sums(gradient_sums(x, values_of(a, format), values_of(b, Float8::e4m3))) {}
};

void check_gradients(Kernels& kernels, const Float8Groups& x, const GradientFactors& factors,
                     Type type, bool accumulate) {
  const std::vector<Sum>& sums = factors.sums;
  const OnDevice<uint8_t> left(kernels, transposed(kernels, x, x.k, factors.a, nullptr)),
      right(kernels, transposed(kernels, x, x.n, factors.b, nullptr));
  const Scales scales(kernels, {scale_by(3), scale_by(0.5)});
  const auto before = random_numbers(x.count() * x.k * x.n, type, 4);
  std::string bits;
  for (int time = 0; time < 2; ++time) {
    Numbers c = before;
    std::vector<Array> parts;
    for (int64_t g = 0; g < x.count(); ++g) parts.push_back(c.array().from(g * x.k * x.n));
    kernels.run(GroupedFloat8Gradient{.m = x.k,
                                      .n = x.n,
                                      .rows = x.rows(),
                                      .offsets = x.offsets.data(),
                                      .a = {left.data(), factors.format, scales.data()},
                                      .b = {right.data(), Float8::e4m3, scales.data() + 1},
                                      .c = parts,
                                      .accumulate = accumulate});
    for (size_t i = 0; i < sums.size(); ++i) {
      const double product = sums[i].value * (2.0 / 3);
      const double expected = product + (accumulate ? before[i] : 0);
      const double size = std::max(std::fabs(expected), 512.0);
      const double rounding = (type == Type::f32 ? 32 : 0.6) * step_of(type) * size;
      ASSERT_NEAR(c[i], expected, rounding + (product_slack() > 1 ? sums[i].loss * (2.0 / 3) : 0))
          << "m " << x.k << ", n " << x.n << ", to " << name_of(type) << ", element " << i;
    }
    EXPECT_TRUE(time == 0 || bits == c.bits());
    bits = c.bits();
  }
}

TEST(Float8, GradientsOfGroupsEqualAPlainLoop) {
  for (auto& device : devices()) {
    if (!device.kernels->has_grouped_float8()) GTEST_SKIP() << device.name << " has none";
    SCOPED_TRACE(device.name);
    for (const Float8Groups& x : float8_groups()) {
      for (const Float8 format : kFormats) {
        const Kind kind = format == Float8::e4m3 ? Kind::any : Kind::whole;
        const GradientFactors factors(x, format, kind);
        for (const Type type : {Type::f32, Type::bf16}) {
          for (const bool accumulate : {false, true}) {
            check_gradients(*device.kernels, x, factors, type, accumulate);
          }
        }
      }
    }
  }
}

/// Each matrix is rounded as it is alone.
TEST(Float8, RoundsSeveralMatricesAtOnce) {
  for (auto& device : devices()) {
    Kernels& kernels = *device.kernels;
    for (const auto& [rows, width] :
         {std::pair<int64_t, int64_t>{48, 80}, {272, 128}, {5, 7}, {16, 33}}) {
      for (const size_t matrices : {size_t{3}, size_t{150}}) {
        std::vector<Numbers> numbers;
        std::vector<ConstArray> x;
        for (size_t i = 0; i < matrices; ++i) {
          numbers.push_back(random_numbers(rows * width, Type::bf16, static_cast<unsigned>(i)));
          numbers.back().set(i % numbers.back().size(), 1.5 + static_cast<double>(i % 7));
        }
        for (const Numbers& each : numbers) x.push_back(each);
        const auto count = static_cast<size_t>(rows * width);
        const std::vector<uint8_t> nothing(matrices * count);
        for (const bool has_own : {false, true}) {
          const OnDevice<uint8_t> y(kernels, nothing), turned(kernels, nothing);
          const Scales given(kernels, {scale_by(31)}),
              own(kernels, std::vector<Float8Scale>(matrices));
          const OnDevice<float> maximum(kernels, {0}), alone(kernels, {0});
          kernels.run(QuantizeEach{.rows = rows,
                                   .width = width,
                                   .x = x,
                                   .to = {.format = Float8::e4m3,
                                          .scale = has_own ? nullptr : given.data(),
                                          .by_row = y.data(),
                                          .by_column = turned.data(),
                                          .maximum = maximum.data()},
                                   .scales = has_own ? own.data() : nullptr});
          const auto codes = y.values(), columns = turned.values();
          const OnDevice<uint8_t> each(kernels, std::vector<uint8_t>(count)),
              each_turned(kernels, std::vector<uint8_t>(count));
          for (size_t i = 0; i < matrices; ++i) {
            const OnDevice<float> most(kernels, {0});
            const Scales scale(kernels, {scale_by(31)});
            if (has_own) {
              kernels.run(
                  AbsoluteMaximum{.count = rows * width, .x = x[i], .maximum = most.data()});
              kernels.run(CurrentScale{
                  .format = Float8::e4m3, .maximum = most.data(), .scale = scale.data()});
              ASSERT_EQ(own.values()[i].factor, scale.values()[0].factor) << i;
              ASSERT_EQ(own.values()[i].inverse, scale.values()[0].inverse) << i;
            }
            kernels.run(Quantize{.rows = rows,
                                 .width = width,
                                 .x = x[i],
                                 .to = {.format = Float8::e4m3,
                                        .scale = scale.data(),
                                        .by_row = each.data(),
                                        .by_column = each_turned.data(),
                                        .maximum = alone.data()}});
            const auto from = static_cast<std::ptrdiff_t>(i * count);
            const auto part = [&](const std::vector<uint8_t>& all) {
              return std::vector<uint8_t>(all.begin() + from,
                                          all.begin() + from + static_cast<std::ptrdiff_t>(count));
            };
            ASSERT_EQ(part(codes), each.values()) << device.name << i;
            ASSERT_EQ(part(columns), each_turned.values()) << device.name << i;
          }
          EXPECT_EQ(maximum.values(), alone.values());
        }
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
