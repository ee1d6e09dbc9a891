// What makes the inputs of a fuzz target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

namespace ferry::test {

/// Random numbers that are the same everywhere: the distributions of standard libraries differ.
/// Source: SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : next() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  /// An element of a container that has some.
  template <typename Container>
  const auto& pick(const Container& container) {
    return container[below(std::size(container))];
  }

 private:
  uint64_t state_;
};

class Mutator {
 public:
  virtual ~Mutator() = default;
  /// A mutation of the corpus that `random` alone decides on.
  virtual std::string input(Random& random) const = 0;
};

/// Each fuzz program is linked with one definition. `corpus` may be empty.
std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>& corpus, size_t max_bytes);

}  // namespace ferry::test
