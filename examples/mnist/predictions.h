// Prints and draws a network's outputs for all images of a file.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "image_model.h"
#include "images.h"

namespace ferry::mnist {

/// Writes a small file, and the folders above it, in place of a former one.
void write_over(const std::string& path, const std::string& text);

/// For an autoencoder: draws the first image of each digit, and its reconstruction below it, to
/// `folder`/digits.png.
void draw_reconstructions(const std::string& folder, const ImageFile& file, const Outputs& outputs);

/// For a classifier: prints how many digits it recognises, and, unless `folder` is empty,
/// predictions.csv and confusion.svg in there. Returns the share that it recognises.
double report_predictions(const std::string& folder, const ImageFile& file, const Outputs& outputs,
                          const std::function<void(std::string_view text)>& print);

}  // namespace ferry::mnist
