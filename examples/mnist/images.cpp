#include "images.h"

#include <algorithm>
#include <utility>

#include "ckpt/base/error.h"
#include "idx_file.h"
#include "trainer/data/samples/random_order.h"

namespace ferry::mnist {
namespace {

// The tutorial's.
constexpr uint64_t kSplitSeed = 42;
constexpr uint32_t kTestSeed = 43, kTrainSeed = 44, kValidSeed = 45;

OrderedImages drawn(std::shared_ptr<const ImageFile> file, const std::vector<int64_t>& part,
                    uint32_t seed) {
  OrderedImages images{std::move(file), {}};
  RandomResampler resampler(static_cast<int64_t>(part.size()), seed);
  for (int64_t i = 0; i < resampler.size(); ++i) {
    images.order.push_back(part[static_cast<size_t>(resampler.at(i))]);
  }
  return images;
}

std::vector<int64_t> all_of(const ImageFile& file) {
  std::vector<int64_t> all(static_cast<size_t>(file.size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  return all;
}

}  // namespace

ImageFile::ImageFile(const FileSystem& files, const std::string& folder, const std::string& part) {
  const std::string images_path = join(folder, part + "-images-idx3-ubyte");
  const std::string labels_path = join(folder, part + "-labels-idx1-ubyte");
  IdxArray images = read_idx(files, images_path, 3);
  IdxArray labels = read_idx(files, labels_path, 1);
  if (images.shape[1] != kSide || images.shape[2] != kSide) {
    fail(ErrorKind::corrupt, "{} has images of {} x {} pixels, where MNIST's have {} x {}",
         images_path, images.shape[1], images.shape[2], kSide, kSide);
  }
  if (images.shape[0] != labels.shape[0]) {
    fail(ErrorKind::corrupt, "{} has {} images, and {} has {} labels: they belong to other files",
         images_path, images.shape[0], labels_path, labels.shape[0]);
  }
  if (labels.elements.empty()) fail(ErrorKind::corrupt, "{} has no image", images_path);
  const auto wrong = std::ranges::find_if(labels.elements, [](uint8_t x) { return x >= kDigits; });
  if (wrong != labels.elements.end()) {
    fail(ErrorKind::corrupt, "{}: label {} is {}, which is not a digit", labels_path,
         wrong - labels.elements.begin(), *wrong);
  }
  pixels_ = std::move(images.elements);
  labels_ = std::move(labels.elements);
}

Image ImageFile::read(int64_t index) const {
  Image image{std::vector<float>(static_cast<size_t>(kPixels)), label(index), index};
  std::transform(bytes(index), bytes(index) + kPixels, image.pixels.begin(),
                 [](uint8_t pixel) { return static_cast<float>(pixel) / 255.0F; });
  return image;
}

PerSplit<OrderedImages> tutorial_images(const FileSystem& files, const std::string& folder,
                                        bool every_test_image) {
  const auto train = std::make_shared<ImageFile>(files, folder, "train");
  const auto test = std::make_shared<ImageFile>(files, folder, "t10k");
  // 55000 of MNIST's 60000.
  const std::vector<int64_t> mixed = torch_permutation(train->size(), kSplitSeed);
  const auto cut = static_cast<std::ptrdiff_t>(train->size() - train->size() / 12);
  const std::vector<int64_t> first(mixed.begin(), mixed.begin() + cut);
  const std::vector<int64_t> rest(mixed.begin() + cut, mixed.end());
  if (rest.empty()) {
    fail(ErrorKind::invalid, "{}: {} images are too few, for every twelfth is kept for validation",
         folder, train->size());
  }
  PerSplit<OrderedImages> images{
      drawn(train, first, kTrainSeed), drawn(train, rest, kValidSeed), {}};
  images.test =
      every_test_image ? OrderedImages{test, all_of(*test)} : drawn(test, all_of(*test), kTestSeed);
  return images;
}

}  // namespace ferry::mnist
