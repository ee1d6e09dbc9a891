#include "ckpt/base/size_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>

namespace ferry {
namespace {

// Factor of a unit, in lower case; 0: no such unit.
double unit_factor(std::string_view unit) {
  struct Unit {
    std::string_view name;
    double factor;
  };
  static constexpr std::array<Unit, 10> kUnits{{{"", 1},
                                                {"b", 1},
                                                {"kb", 1e3},
                                                {"mb", 1e6},
                                                {"gb", 1e9},
                                                {"tb", 1e12},
                                                {"kib", 1024.0},
                                                {"mib", 1048576.0},
                                                {"gib", 1073741824.0},
                                                {"tib", 1099511627776.0}}};
  for (const Unit& known : kUnits) {
    if (known.name == unit) return known.factor;
  }
  return 0;
}

}  // namespace

std::optional<uint64_t> size_in_bytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit(text.substr(digits));
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string number(text.substr(0, digits));
  char* end = nullptr;
  const double value = std::strtod(number.c_str(), &end);
  const double bytes = value * unit_factor(unit);
  const bool bad = number.empty() || *end != '\0' || unit_factor(unit) == 0;
  if (bad || bytes >= 9.2e18 || (unit.empty() && number.find('.') != std::string::npos)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string three_digits(double value) {
  const int decimals = value < 9.995 ? 2 : (value < 99.95 ? 1 : 0);
  return fmt::format("{:.{}f}", value, decimals);
}

std::string human_bytes(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  static constexpr std::array<const char*, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1e3;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1e3;
  return three_digits(value) + " " + kUnits[unit];
}

}  // namespace ferry
