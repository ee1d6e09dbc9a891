#include "tools/data/mixture/weights.h"

#include <charconv>
#include <cmath>

#include "ckpt/base/error.h"

namespace ferry::tool {

std::vector<double> parse_weights(const std::vector<std::string>& words, size_t count,
                                  const std::string& of) {
  if (words.size() != count) {
    fail(ErrorKind::invalid, "{} weights are given for {} of {}; give as many", words.size(), count,
         of);
  }
  std::vector<double> weights;
  for (const std::string& word : words) {
    double weight = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), weight);
    if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(weight) ||
        weight <= 0) {
      fail(ErrorKind::invalid, "the weight '{}' is not a positive number", word);
    }
    weights.push_back(weight);
  }
  return weights;
}

std::vector<double> shares_of(const std::vector<double>& weights) {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / sum);
  return shares;
}

}  // namespace ferry::tool
