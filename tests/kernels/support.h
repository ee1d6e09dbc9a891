// Arrays of any type with the numbers that they hold, for comparison with plain loops in double
// precision.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace ferry::kernels {

constexpr Type kTypes[] = {Type::f32, Type::bf16, Type::f16};

inline const char* name_of(Type type) {
  return type == Type::f32 ? "f32" : type == Type::bf16 ? "bf16" : "f16";
}

/// The distance from 1 to the next number of the type.
inline double step_of(Type type) {
  return type == Type::f32 ? 0x1p-23 : type == Type::bf16 ? 0x1p-7 : 0x1p-10;
}

/// The nearest number of the type, ties to even.
inline double rounded(double x, Type type) {
  if (type == Type::f32 || !std::isfinite(x) || x == 0) return static_cast<float>(x);
  const int bits = type == Type::bf16 ? 8 : 11, lowest = type == Type::bf16 ? -126 : -14;
  const int exponent = std::max(std::ilogb(x), lowest) - bits + 1;
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

inline uint16_t word_of(double x, Type type) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
  if (type == Type::bf16) return static_cast<uint16_t>(bits >> 16);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const double size = std::fabs(x);
  if (size < 0x1p-14) return static_cast<uint16_t>(sign | static_cast<uint16_t>(size * 0x1p24));
  return static_cast<uint16_t>(sign | (((bits >> 13) - (112 << 10)) & 0x7FFF));
}
inline double number_of(uint16_t word, Type type) {
  if (type == Type::bf16) return std::bit_cast<float>(uint32_t{word} << 16);
  const int exponent = word >> 10 & 31;
  const double fraction = word & 1023;
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return word & 0x8000 ? -size : size;
}

class Numbers {
 public:
  Numbers() = default;
  Numbers(size_t count, Type type) : type_(type), count_(count), memory_(count * 4 + 64) {}
  Numbers(const std::vector<double>& values, Type type) : Numbers(values.size(), type) {
    for (size_t i = 0; i < count_; ++i) set(i, values[i]);
  }

  size_t size() const { return count_; }
  Type type() const { return type_; }
  double operator[](size_t i) const {
    if (type_ == Type::f32) return floats()[i];
    return number_of(words()[i], type_);
  }
  double operator[](int64_t i) const { return (*this)[static_cast<size_t>(i)]; }
  void set(size_t i, double x) {
    if (type_ == Type::f32)
      floats()[i] = static_cast<float>(x);
    else
      words()[i] = word_of(rounded(x, type_), type_);
  }
  float* floats() const { return reinterpret_cast<float*>(memory_.data()); }
  Array array() const { return {memory_.data(), type_}; }
  operator Array() const { return array(); }
  operator Gradient() const { return array(); }
  operator ConstArray() const { return array(); }
  std::vector<double> values() const {
    std::vector<double> all;
    for (size_t i = 0; i < count_; ++i) all.push_back((*this)[i]);
    return all;
  }
  /// The bytes of the elements.
  std::string bits() const {
    return {reinterpret_cast<const char*>(memory_.data()),
            count_ * static_cast<size_t>(size_bytes(type_))};
  }

 private:
  uint16_t* words() const { return reinterpret_cast<uint16_t*>(memory_.data()); }

  Type type_ = Type::f32;
  size_t count_ = 0;
  mutable std::vector<unsigned char> memory_;
};

/// Numbers about as large as activations, the same at every run.
inline Numbers random_numbers(int64_t count, Type type, unsigned seed, double size = 1) {
  std::mt19937_64 engine(seed * 7919 + static_cast<uint64_t>(count));
  std::normal_distribution<double> normal(0, size);
  Numbers numbers(static_cast<size_t>(count), type);
  for (size_t i = 0; i < numbers.size(); ++i) numbers.set(i, normal(engine));
  return numbers;
}

/// Each element is within `steps` of the type's steps of what is expected, as large as the greatest
/// expected number near it, and `floor` large at least.
inline void expect_near(const Numbers& got, const std::vector<double>& expected, double steps,
                        double floor, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double bound = steps * step_of(got.type()) * std::max(std::fabs(expected[i]), floor);
    ASSERT_NEAR(got[i], expected[i], bound) << what << ", element " << i;
  }
}

struct Device {
  std::string name;
  std::unique_ptr<Kernels> kernels;
};
/// The devices of the test program's kind: each instruction set of this machine with one and with
/// three threads; or the GPU. run() waits for its operation, which takes any memory of the tests.
std::vector<Device> devices();
std::unique_ptr<Kernels> one_device(int threads = 1);
/// How many times the processor's error the device's products of 16-bit numbers may have: those of
/// a GPU cut sums off where the processor rounds them.
double product_slack();

/// Runs the operation that make(results) gives on every device. All must give the same bits, which
/// are the results.
template <typename Make>
Numbers on_all(const Numbers& result, const Make& make) {
  Numbers first;
  for (auto& device : devices()) {
    for (int time = 0; time < 2; ++time) {
      Numbers numbers = result;
      device.kernels->run(make(numbers));
      if (first.size() == 0) first = numbers;
      EXPECT_TRUE(first.bits() == numbers.bits()) << device.name;
    }
  }
  return first;
}

}  // namespace ferry::kernels
