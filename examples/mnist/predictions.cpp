#include "predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "pictures.h"

namespace ferry::mnist {
namespace {

std::vector<float> output_of(const Outputs& outputs, int64_t image) {
  const auto begin = outputs.values.begin() + image * outputs.width;
  return {begin, begin + outputs.width};
}

}  // namespace

void write_over(const std::string& path, const std::string& text) {
  const auto files = posix_file_system();
  make_folders(*files, split_path(path).parent);
  files->remove_all(path);
  write_file(*files, path, text);
}

void draw_reconstructions(const std::string& folder, const ImageFile& file,
                          const Outputs& outputs) {
  std::vector<std::vector<float>> images, reconstructions;
  for (int64_t digit = 0; digit < kDigits; ++digit) {
    int64_t image = 0;
    while (image < file.size() && file.label(image) != digit) ++image;
    if (image == file.size()) continue;
    images.push_back(file.read(image).pixels);
    reconstructions.push_back(output_of(outputs, image));
  }
  write_over(join(folder, "digits.png"), digits_png({images, reconstructions}));
}

double report_predictions(const std::string& folder, const ImageFile& file, const Outputs& outputs,
                          const std::function<void(std::string_view text)>& print) {
  Confusion counts(static_cast<size_t>(kDigits),
                   std::vector<int64_t>(static_cast<size_t>(kDigits)));
  std::string table = "image,label,prediction,logits\n";
  int64_t right = 0;
  for (int64_t image = 0; image < file.size(); ++image) {
    const std::vector<float> logits = output_of(outputs, image);
    const auto guess = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    const size_t digit = file.label(image);
    right += guess == digit ? 1 : 0;
    ++counts[digit][guess];
    table += fmt::format("{},{},{},{:.4f}\n", image, digit, guess, fmt::join(logits, " "));
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(file.size());
  print(fmt::format("test images recognised: {} of {} ({:.2f} %)\n", right, file.size(),
                    100 * accuracy));
  if (!folder.empty()) {
    write_over(join(folder, "predictions.csv"), table);
    write_over(join(folder, "confusion.svg"), confusion_svg(counts));
  }
  return accuracy;
}

}  // namespace ferry::mnist
