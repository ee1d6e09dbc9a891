#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "trainer/data/epochs/datasets.h"

namespace ferry {
namespace {

// 100, 101, 102, ...
class Hundreds final : public ItemDataset<int64_t> {
 public:
  explicit Hundreds(int64_t size) : size_(size) {}
  int64_t size() const noexcept override { return size_; }
  int64_t read(int64_t index) const override { return 100 + index; }

 private:
  int64_t size_;
};

using Noisy = TransformedDataset<double, int64_t>;

std::shared_ptr<Noisy> noisy(uint64_t seed) {
  return std::make_shared<Noisy>(
      std::make_shared<Hundreds>(50), [seed](int64_t item, EpochIndex at) {
        auto generator = random_of(seed, at);
        return static_cast<double>(item) + std::uniform_real_distribution<>()(generator);
      });
}

TEST(EpochDatasets, EveryEpochHasTheSameItems) {
  const EveryEpoch<int64_t> dataset(std::make_shared<Hundreds>(3));
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.read({0, 2}), 102);
  EXPECT_EQ(dataset.read({7, 2}), 102);
}

TEST(EpochDatasets, ChangesDifferByEpochAndItemAndRepeat) {
  const auto dataset = noisy(1);
  std::set<double> noises;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t i = 0; i < 50; ++i) {
      const double value = dataset->read({epoch, i});
      EXPECT_EQ(value, dataset->read({epoch, i}));
      noises.insert(value - static_cast<double>(100 + i));
    }
  }
  EXPECT_EQ(noises.size(), 150u);
  EXPECT_NE(noisy(2)->read({0, 0}), dataset->read({0, 0}));
}

TEST(EpochDatasets, ResampledOnesAreTheSameFromEveryThread) {
  const ResampledDataset<double> samples(noisy(1), {.size = 50, .epochs = 4, .samples = {}});
  ASSERT_EQ(samples.size(), 200);
  std::vector<double> wanted;
  for (int64_t i = 0; i < 200; ++i) wanted.push_back(samples.read(i));
  std::atomic<int> differences = 0;
  std::vector<std::jthread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t at = (i * 37 + t * 11) % 200;
        differences += samples.read(at) != wanted[static_cast<size_t>(at)];
      }
    });
  }
  threads.clear();
  EXPECT_EQ(differences, 0);
}

// Breaks the contract in one way or another.
class Broken final : public ItemDataset<int> {
 public:
  enum class How : uint8_t { counts, draws, seeds };
  explicit Broken(How how, int64_t size = 1) : how_(how), size_(size) {}
  int64_t size() const noexcept override { return size_; }
  int read(int64_t) const override {
    if (how_ == How::counts) return ++reads_;
    if (how_ == How::seeds) std::srand(77);
    return how_ == How::draws ? std::rand() % 1 : 0;
  }

 private:
  How how_;
  int64_t size_;
  mutable int reads_ = 0;
};

TEST(EpochDatasets, AreCheckedForWhatTheyHaveToBe) {
  using How = Broken::How;
  EXPECT_EQ(check_dataset(Hundreds(2), int64_t{1}), DatasetFinding::none);
  EXPECT_EQ(check_dataset(*noisy(1), EpochIndex{1, 2}), DatasetFinding::none);
  EXPECT_EQ(check_dataset(Broken(How::counts), int64_t{0}), DatasetFinding::differs);
  EXPECT_EQ(check_dataset(Broken(How::draws), int64_t{0}), DatasetFinding::shared_generator);
  EXPECT_EQ(check_dataset(Broken(How::seeds), int64_t{0}), DatasetFinding::shared_generator);
  EXPECT_THROW(check_dataset(Broken(How::counts, 0), int64_t{0}), Error);
}

}  // namespace
}  // namespace ferry
