// Mutations of JSON by members: values of every kind and size, members removed, named otherwise,
// given twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace ferry::test {

/// A value at the edge of what a member can be: null, 0, negative, huge, a fraction, a text, an
/// array, an object, NaN (as to_json_text spells it).
nlohmann::json edge_value(Random& random);

/// A value near `value`: of a number a neighbour, a multiple, a small number.
nlohmann::json near_value(const nlohmann::json& value, Random& random);

/// Names and values of members, from which others are taken.
class Members {
 public:
  /// Those of an object and of the objects in it.
  void learn(const nlohmann::json& object);
  bool empty() const { return known_.empty(); }
  /// Changes one member of `object`, or of an object in it.
  void change(nlohmann::json& object, Random& random) const;

 private:
  std::vector<std::pair<std::string, nlohmann::json>> known_;
};

/// The text of what these mutations make, with what JSON of Python knows beyond JSON: NaN and
/// infinities as values, and members that stand twice.
std::string to_json_text(const nlohmann::json& value);

}  // namespace ferry::test
