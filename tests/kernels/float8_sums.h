// Random 8-bit numbers, sums of their products, and what a GPU's sums lose.
#pragma once

#include <span>

#include "tests/kernels/float8_numbers.h"

namespace ferry::kernels {

enum class Kind { any, whole };

/// Codes of numbers about as large as the format's range allows in sums, no NaN among them; or of
/// whole numbers so small that both formats have all of them.
inline std::vector<uint8_t> random_codes(int64_t count, Float8 format, Kind kind, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal(0, 8);
  std::uniform_int_distribution<int> whole(-8, 8);
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < count; ++i) {
    codes.push_back(nearest(kind == Kind::any ? normal(engine) : whole(engine), format));
  }
  return codes;
}

inline std::vector<double> values_of(const std::vector<uint8_t>& codes, Float8 format) {
  std::vector<double> values;
  for (const uint8_t code : codes) values.push_back(value_of(code, format));
  return values;
}

struct Sum {
  double value = 0;
  double loss = 0;  // the most that a GPU's may be off
};

/// A sum of products of which the first `block`, the next, and so on are added by tensor cores, and
/// their sums in fp32.
///
/// Hopper's tensor cores add 32 products at a time to what there is so far. All are shifted to the
/// exponent of the largest, 13 bits after the point stay, and the rest is cut off; so it is of the
/// sum (DeepSeek-AI 2024, DeepSeek-V3 technical report, 3.3.2; a sum below that is 1454.7 was off
/// by 1.509 on an H200, and is if one adds like that). Call the last bit of the largest
/// intermediate the unit. An addition then loses less than a unit of each product that has bits
/// below it, of the sum before and of the sum after it, and nothing where all are multiples of the
/// unit. Intermediates are sums of neighbouring products, whose largest is the distance between the
/// lowest and the highest of the sums from the first on.
inline Sum sum_of(std::span<const double> products, size_t block) {
  constexpr size_t kGroup = 32;
  Sum sum;
  for (size_t begin = 0; begin < products.size(); begin += block) {
    const auto part = products.subspan(begin, std::min(block, products.size() - begin));
    double own = 0, low = 0, high = 0;
    for (const double product : part) {
      own += product;
      low = std::min(low, own);
      high = std::max(high, own);
    }
    sum.value += own;
    if (low == high) continue;  // zeros
    const double unit = std::ldexp(1, std::ilogb(high - low) - 13);
    const auto cut =
        std::ranges::count_if(part, [&](double product) { return std::fmod(product, unit) != 0; });
    const auto additions = static_cast<double>((part.size() + kGroup - 1) / kGroup);
    if (cut > 0) sum.loss += unit * (static_cast<double>(cut) + 2 * additions);
  }
  return sum;
}

}  // namespace ferry::kernels
