// Tests of a property over random cases, each of which its number makes again.
//
//   FERRY_TEST_CASES=5000   that many cases of each property instead of the usual number
//   FERRY_TEST_SEED=1017    the number of the first one: printed by a failing case
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <exception>

namespace ferry::test {

inline uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Calls property(number) for one case after another until one fails, or throws. Returns how many
/// cases there were.
template <typename Property>
uint64_t for_random_cases(uint64_t usual, const Property& property) {
  const uint64_t cases = number_from_environment("FERRY_TEST_CASES", usual);
  const uint64_t first = number_from_environment("FERRY_TEST_SEED", 1);
  for (uint64_t number = first; number < first + cases; ++number) {
    SCOPED_TRACE(testing::Message() << "case " << number << "; again: FERRY_TEST_SEED=" << number
                                    << " FERRY_TEST_CASES=1");
    try {
      property(number);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (testing::Test::HasFailure()) return number - first + 1;
  }
  return cases;
}

}  // namespace ferry::test
