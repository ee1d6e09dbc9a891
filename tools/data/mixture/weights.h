// Weights of a command line.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ferry::tool {

/// Positive numbers. invalid for others, and unless there are `count`, as many as `of`
/// ("--folders").
std::vector<double> parse_weights(const std::vector<std::string>& words, size_t count,
                                  const std::string& of);

/// Divided by their sum, as Python's sum() adds them.
std::vector<double> shares_of(const std::vector<double>& weights);

}  // namespace ferry::tool
