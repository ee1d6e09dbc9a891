#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "trainer/data/epochs/check_datasets.h"
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
  std::vector<double> in_order;
  for (int64_t i = 0; i < 200; ++i) in_order.push_back(samples.read(i));
  std::atomic<int> differences = 0;
  std::vector<std::jthread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t at = (i * 37 + t * 11) % 200;
        differences += samples.read(at) != in_order[static_cast<size_t>(at)];
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

// Keeps to the contract but in one way.
class Faulty final : public MultiEpochDataset<int64_t> {
 public:
  enum class Fault : uint8_t { none, counts, remembers, has_a_rank, same };
  explicit Faulty(Fault fault, int64_t rank = 0) : fault_(fault), rank_(rank) {}
  int64_t size() const noexcept override { return 1000; }
  int64_t read(EpochIndex at) const override {
    const int64_t last = std::exchange(last_, at.index), item = at.epoch * 1000 + at.index;
    ++reads_;
    if (fault_ == Fault::same) return 1;
    if (fault_ == Fault::counts && at.index == 999) return reads_;
    // Read twice in succession it is the same; after another item it is not.
    if (fault_ == Fault::remembers && last != at.index && last > at.index) return item + 1;
    return fault_ == Fault::has_a_rank ? item + rank_ : item;
  }

 private:
  Fault fault_;
  int64_t rank_;
  mutable int64_t last_ = 0, reads_ = 0;
};

DatasetCheckReport<int64_t> check_of(Faulty::Fault fault) {
  const Faulty one(fault), other(fault, 1), third(fault, 2);
  return check_datasets<int64_t>({&one, &other, &third}, {.items = 20, .epochs = 3});
}

TEST(CheckDatasets, FindsEachWayOfBreakingTheContract) {
  using Fault = Faulty::Fault;
  const auto kept = check_of(Fault::none);
  EXPECT_TRUE(kept.kept());
  EXPECT_EQ(kept.reads, 20 * 3 * 5);
  EXPECT_FALSE(kept.same_in_all_epochs || kept.one_item);
  const auto breach = [](Fault fault, DatasetBreach kind) {
    return *check_of(fault).broken.at(static_cast<size_t>(kind));
  };
  const auto again = breach(Fault::counts, DatasetBreach::read_again);
  EXPECT_EQ(again.at, (EpochIndex{0, 999}));
  EXPECT_EQ(again.count, 3);
  const auto order = breach(Fault::remembers, DatasetBreach::other_order);
  EXPECT_EQ(order.found, order.expected + 1);
  EXPECT_EQ(order.copy, 0u);
  const auto copy = breach(Fault::has_a_rank, DatasetBreach::other_copy);
  EXPECT_EQ(copy.at, (EpochIndex{2, 999}));  // the second copy reads backwards
  EXPECT_EQ(copy.copy, 1u);
  EXPECT_EQ(copy.count, 60);
  EXPECT_TRUE(check_of(Fault::same).one_item);
  EXPECT_TRUE(check_of(Fault::same).same_in_all_epochs);
}

TEST(CheckDatasets, ReadsTheFirstTheLastAndSomeBetween) {
  EXPECT_THAT(elements_to_check(3, {}), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(elements_to_check(1000, {.items = 1}), testing::ElementsAre(0));
  const auto some = elements_to_check(int64_t{1} << 40, {});
  EXPECT_EQ(some.size(), 32u);
  EXPECT_EQ(some.front(), 0);
  EXPECT_EQ(some.back(), (int64_t{1} << 40) - 1);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_THROW(elements_to_check(0, {}), Error);
  EXPECT_THROW(elements_to_check(5, {.items = 0}), Error);
  EXPECT_THROW(elements_to_check(5, {.epochs = 0}), Error);
  const EveryEpoch<int64_t> three(std::make_shared<Hundreds>(3)),
      four(std::make_shared<Hundreds>(4));
  EXPECT_THROW(check_datasets<int64_t>({&three, &four}, {}), Error);
  EXPECT_THROW(check_datasets<int64_t>({}, {}), Error);
  EXPECT_TRUE(check_datasets<int64_t>({&three}, {}).same_in_all_epochs);
}

}  // namespace
}  // namespace ferry
