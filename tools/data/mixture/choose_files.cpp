#include "tools/data/mixture/choose_files.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "trainer/data/samples/random_order.h"

namespace ferry::tool {
namespace {

constexpr uint32_t kSeed = 1234;

}  // namespace

void shuffle_files(std::vector<std::string>& paths) {
  PythonRandom(kSeed).shuffle(std::span(paths));
}

ChosenFiles choose_files(const std::vector<std::vector<uint64_t>>& bytes,
                         const std::vector<double>& shares) {
  ChosenFiles chosen{std::vector<size_t>(bytes.size()), std::vector<uint64_t>(bytes.size()), {}};
  std::vector<double> reached = shares;  // as if they were, at first
  while (true) {
    size_t most = 0;
    for (size_t k = 1; k < shares.size(); ++k) {
      if (shares[k] - reached[k] > shares[most] - reached[most]) most = k;
    }
    chosen.bytes[most] += bytes[most][chosen.counts[most]++];
    if (chosen.counts[most] == bytes[most].size()) {
      chosen.exhausted = most;
      return chosen;
    }
    const uint64_t total = std::accumulate(chosen.bytes.begin(), chosen.bytes.end(), uint64_t{0});
    for (size_t k = 0; k < shares.size(); ++k) {
      reached[k] = total == 0 ? shares[k]
                              : static_cast<double>(chosen.bytes[k]) / static_cast<double>(total);
    }
  }
}

}  // namespace ferry::tool
