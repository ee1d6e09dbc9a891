// MNIST's files, and in which order the tutorial takes their images.
#include "images.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "idx_file.h"
#include "tests/io/memory_file_system.h"
#include "trainer/data/epochs/datasets.h"
#include "trainer/data/samples/random_order.h"

namespace ferry::mnist {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFixture = std::string(FERRY_FIXTURES) + "/mnist";

// The error that work() throws.
template <typename Work>
std::string problem_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(IdxFile, ReadsPackedAndPlainOnes) {
  const auto files = posix_file_system();
  const IdxArray labels = read_idx(*files, kFixture + "/train-labels-idx1-ubyte", 1);
  EXPECT_THAT(labels.shape, ElementsAre(720));
  EXPECT_THAT(std::vector(labels.elements.begin(), labels.elements.begin() + 5),
              ElementsAre(5, 0, 4, 1, 9));
  const IdxArray images = read_idx(*files, kFixture + "/train-images-idx3-ubyte", 3);
  EXPECT_THAT(images.shape, ElementsAre(720, 28, 28));
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("plain", std::string("\0\0\x08\x01\0\0\0\x02\x07\x09", 10));
  EXPECT_THAT(read_idx(*memory, "plain", 1).elements, ElementsAre(7, 9));
}

TEST(IdxFile, RefusesWhatIsNone) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  const auto problem = [&](const std::string& bytes, const std::string& name = "file") {
    memory->remove_all(name);
    memory->put(name, bytes);
    return problem_of([&] { read_idx(*memory, "file", 1); });
  };
  EXPECT_THAT(problem_of([&] { read_idx(*memory, "file", 1); }), HasSubstr("file.gz"));
  EXPECT_THAT(problem(""), HasSubstr("0x00000801"));
  EXPECT_THAT(problem(std::string("\0\0\x08\x03\0\0\0\0", 8)), HasSubstr("0x00000801"));
  EXPECT_THAT(problem(std::string("\0\0\x08\x01\0\0\0\x03\x07\x09", 10)),
              HasSubstr("2 bytes after its header, which announces 3"));
  EXPECT_THAT(problem(std::string("\0\0\x08\x01\xff\xff\xff\xff", 8)), HasSubstr("announces"));
  memory->remove_all("file");
  EXPECT_THAT(problem("no gzip", "file.gz"), HasSubstr("gzip stream"));
  const std::string whole =
      read_file(*posix_file_system(), kFixture + "/train-labels-idx1-ubyte.gz", 1 << 20);
  EXPECT_THAT(problem(whole.substr(0, 200), "file.gz"), HasSubstr("ends in the middle"));
}

TEST(Images, AreBytesOver255) {
  const ImageFile file(*posix_file_system(), kFixture, "train");
  const Image image = file.read(0);
  EXPECT_EQ(image.label, 5);
  EXPECT_EQ(image.number, 0);
  ASSERT_EQ(image.pixels.size(), 784U);
  EXPECT_FLOAT_EQ(image.pixels[5 * 28 + 12], 3.0F / 255);  // the first one that is not blank
  EXPECT_EQ(check_dataset(file, int64_t{7}), DatasetFinding::none);
}

TEST(Images, OfOtherFilesAreRefused) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->create_folder("data");
  const auto put = [&](const std::string& name, std::string bytes) {
    memory->remove_all("data/" + name);
    memory->put("data/" + name, std::move(bytes));
  };
  const auto problem = [&] { return problem_of([&] { ImageFile(*memory, "data", "train"); }); };
  const std::string labels("\0\0\x08\x01\0\0\0\x01\x07", 9);
  put("train-labels-idx1-ubyte", labels);
  put("train-images-idx3-ubyte",
      std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x02\0\0\0\x02\1\2\3\4", 20));
  EXPECT_THAT(problem(), HasSubstr("2 x 2 pixels"));
  const std::string image =
      std::string("\0\0\x08\x03\0\0\0\x01\0\0\0\x1c\0\0\0\x1c", 16) + std::string(784, 'x');
  put("train-images-idx3-ubyte", image);
  EXPECT_EQ(problem(), "");
  put("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x01\x0a", 9));
  EXPECT_THAT(problem(), HasSubstr("label 0 is 10"));
  put("train-labels-idx1-ubyte", std::string("\0\0\x08\x01\0\0\0\x02\x01\x02", 10));
  EXPECT_THAT(problem(), HasSubstr("has 2 labels"));
}

// Numbers of PyTorch's random_split, as the tutorial seeds it.
TEST(Images, AreSplitAsPyTorchDoes) {
  const std::vector<int64_t> mixed = torch_permutation(60000, 42);
  EXPECT_THAT(std::vector(mixed.begin(), mixed.begin() + 5),
              ElementsAre(37542, 43087, 2992, 25810, 39634));
  EXPECT_THAT(std::vector(mixed.begin() + 55000, mixed.begin() + 55005),
              ElementsAre(55299, 34709, 13174, 51723, 17718));
}

TEST(Images, AreDrawnAsTheTutorialDrawsThem) {
  const auto images = tutorial_images(*posix_file_system(), kFixture, false);
  EXPECT_EQ(images.train.size(), 660);
  EXPECT_EQ(images.valid.size(), 60);
  EXPECT_EQ(images.test.size(), 120);
  const std::vector<int64_t> mixed = torch_permutation(720, 42);
  RandomResampler train(660, 44), valid(60, 45), test(120, 43);
  for (int64_t i = 0; i < 60; ++i) {
    EXPECT_EQ(images.train.order[static_cast<size_t>(i)], mixed[static_cast<size_t>(train.at(i))]);
    EXPECT_EQ(images.valid.order[static_cast<size_t>(i)],
              mixed[static_cast<size_t>(660 + valid.at(i))]);
    EXPECT_EQ(images.test.order[static_cast<size_t>(i)], test.at(i));
  }
  const auto each = tutorial_images(*posix_file_system(), kFixture, true);
  for (int64_t i = 0; i < 120; ++i) EXPECT_EQ(each.test.order[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace ferry::mnist
