// 8-bit floating-point numbers by their definition, and in the memory of a device.
#pragma once

#include <algorithm>
#include <limits>

#include "tests/kernels/support.h"

namespace ferry::kernels {

constexpr Float8 kFormats[] = {Float8::e4m3, Float8::e5m2};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// What a code stands for, by the formats' definition.
inline double value_of(uint8_t code, Float8 format) {
  const int bits = format == Float8::e4m3 ? 3 : 2, bias = format == Float8::e4m3 ? 7 : 15;
  const int magnitude = code & 0x7F, exponent = magnitude >> bits;
  const int fraction = magnitude & ((1 << bits) - 1);
  if (format == Float8::e4m3 ? magnitude == 0x7F : magnitude >= 0x7C) return kNaN;
  const double size = exponent == 0 ? std::ldexp(fraction, 1 - bias - bits)
                                    : std::ldexp((1 << bits) + fraction, exponent - bias - bits);
  return code & 0x80 ? -size : size;
}

/// The nearest code; of two as near ones the even one. Beyond the last one that.
inline uint8_t nearest(double x, Float8 format) {
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
inline Float8Scale scale_by(float factor) { return {1 / factor, factor}; }

}  // namespace ferry::kernels
