// MNIST's images, and in which order they are taken.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/data/data_options.h"
#include "trainer/data/epochs/datasets.h"

namespace ferry::mnist {

inline constexpr int64_t kSide = 28, kPixels = kSide * kSide, kDigits = 10;

struct Image {
  std::vector<float> pixels;  // kPixels of [0, 1]
  int32_t label = 0;          // the digit
  int64_t number = 0;         // in its file

  bool operator==(const Image&) const = default;
};

/// The images of two files.
class ImageFile final : public ItemDataset<Image> {
 public:
  /// `part` is "train" or "t10k". As read_idx(); corrupt for images of another size, labels that
  /// are not digits, or as many of the one as not of the other.
  ImageFile(const FileSystem& files, const std::string& folder, const std::string& part);

  int64_t size() const noexcept override { return static_cast<int64_t>(labels_.size()); }
  Image read(int64_t index) const override;
  /// The same, without a copy: kPixels bytes.
  const uint8_t* bytes(int64_t index) const {
    return pixels_.data() + static_cast<size_t>(index * kPixels);
  }
  uint8_t label(int64_t index) const { return labels_[static_cast<size_t>(index)]; }

 private:
  std::vector<uint8_t> pixels_, labels_;
};

/// Images of a file in an order: which of them a sample is depends on its number alone.
struct OrderedImages {
  std::shared_ptr<const ImageFile> file;
  std::vector<int64_t> order;  // numbers in the file, by sample

  int64_t size() const noexcept { return static_cast<int64_t>(order.size()); }
};

/// As BioNeMo's tutorial deals MNIST out: of the training file a twelfth, chosen at random, is for
/// validation, and from each part samples are drawn at random with repetition, in one order that
/// every epoch repeats. With `every_test_image` those of the test file are taken once each, in
/// their order.
PerSplit<OrderedImages> tutorial_images(const FileSystem& files, const std::string& folder,
                                        bool every_test_image);

}  // namespace ferry::mnist
