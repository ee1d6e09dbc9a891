// Pictures of what a run did: curves of losses, digits, a confusion matrix.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "images.h"

namespace ferry::mnist {

struct Curve {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;  // iteration, loss
};

/// An SVG image of curves over iterations.
std::string curves_svg(const std::string& title, const std::vector<Curve>& curves);

/// `counts`[digit][prediction], as an SVG image.
using Confusion = std::vector<std::vector<int64_t>>;
std::string confusion_svg(const Confusion& counts);

/// Rows of images in a grid, as a PNG image in shades of grey: dark on light, each pixel three
/// times as large. Pixels are numbers in [0, 1]; what is outside is cut off.
std::string digits_png(const std::vector<std::vector<std::vector<float>>>& rows);

}  // namespace ferry::mnist
