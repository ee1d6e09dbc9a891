// Datasets of items of any kind, which may differ from epoch to epoch.
//
// **Contract.** An item depends on its index alone. Ranks that compute one sample together read it
// each by itself, and a run that stops and goes on reads what an unbroken one would: both break
// when an item depends on what was read before. An item that is changed at random takes its numbers
// from the index, by a generator of its own (random_of()), never from one that others use, and
// never gives that one another seed. check_dataset() finds datasets that do not keep to it.
//
//   auto images = std::make_shared<Images>(...);                               //
//   ItemDataset<Image> auto turned = std::make_shared<TransformedDataset<Image>>(images, [](Image
//   image, EpochIndex at) {
//     return turn(image, random_of(7, at)());                              // other turns each
//     epoch
//   });
//   ResampledDataset<Image> samples(turned, {.size = turned->size(), .epochs = 10});
//
// Source: bionemo-core data/multi_epoch_dataset.py, bionemo-testing
// megatron_dataset_compatibility.py.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <utility>

#include "ckpt/base/error.h"
#include "trainer/data/epochs/resamplers.h"

namespace ferry {

/// Items by their number, the same in every epoch. Safe from several threads.
template <typename Item>
class ItemDataset {
 public:
  virtual ~ItemDataset() = default;
  virtual int64_t size() const noexcept = 0;
  /// Item `index` of [0, size()).
  virtual Item read(int64_t index) const = 0;
};

/// Items by epoch and number.
template <typename Item>
class MultiEpochDataset {
 public:
  virtual ~MultiEpochDataset() = default;
  virtual int64_t size() const noexcept = 0;  // of an epoch
  virtual Item read(EpochIndex at) const = 0;
};

/// What gives each item of each epoch numbers of its own.
inline std::mt19937_64 random_of(uint64_t seed, EpochIndex at) {
  const auto low = [](uint64_t value) { return static_cast<uint32_t>(value); };
  const auto epoch = static_cast<uint64_t>(at.epoch), index = static_cast<uint64_t>(at.index);
  std::seed_seq words{low(seed),        low(seed >> 32), low(epoch),
                      low(epoch >> 32), low(index),      low(index >> 32)};
  return std::mt19937_64(words);
}

/// A dataset's items through a function of the item and of where it stands.
template <typename Item, typename From = Item>
class TransformedDataset final : public MultiEpochDataset<Item> {
 public:
  using Transform = std::function<Item(From item, EpochIndex at)>;
  TransformedDataset(std::shared_ptr<const ItemDataset<From>> dataset, Transform transform)
      : dataset_(std::move(dataset)), transform_(std::move(transform)) {}
  int64_t size() const noexcept override { return dataset_->size(); }
  Item read(EpochIndex at) const override { return transform_(dataset_->read(at.index), at); }

 private:
  std::shared_ptr<const ItemDataset<From>> dataset_;
  Transform transform_;
};

/// A dataset's items as they are, in every epoch.
template <typename Item>
class EveryEpoch final : public MultiEpochDataset<Item> {
 public:
  explicit EveryEpoch(std::shared_ptr<const ItemDataset<Item>> dataset)
      : dataset_(std::move(dataset)) {}
  int64_t size() const noexcept override { return dataset_->size(); }
  Item read(EpochIndex at) const override { return dataset_->read(at.index); }

 private:
  std::shared_ptr<const ItemDataset<Item>> dataset_;
};

/// Epochs of a dataset one after another, in the resampler's order.
template <typename Item>
class ResampledDataset final : public ItemDataset<Item> {
 public:
  /// `options.size` is the dataset's.
  ResampledDataset(std::shared_ptr<const MultiEpochDataset<Item>> dataset,
                   const EpochResamplerOptions& options)
      : dataset_(std::move(dataset)), resampler_(options) {}
  int64_t size() const noexcept override { return resampler_.size(); }
  Item read(int64_t number) const override { return dataset_->read(resampler_.at(number)); }

 private:
  std::shared_ptr<const MultiEpochDataset<Item>> dataset_;
  EpochResampler resampler_;
};

enum class DatasetFinding : uint8_t {
  none,
  differs,          // an item is another one when it is read again
  shared_generator  // reading an item draws from, or seeds, the generator of rand()
};

/// Reads an item twice and says how that breaks the contract. `Index` is int64_t or EpochIndex;
/// items are compared with ==. invalid for a dataset without items.
template <typename Items, typename Index>
DatasetFinding check_dataset(const Items& dataset, const Index& index) {
  if (dataset.size() == 0) fail(ErrorKind::invalid, "a dataset without items cannot be checked");
  constexpr unsigned kSeed = 1234;
  std::srand(kSeed);
  const int untouched = std::rand();
  std::srand(kSeed);
  const auto first = dataset.read(index);
  const int after = std::rand();
  if (!(first == dataset.read(index))) return DatasetFinding::differs;
  return after == untouched ? DatasetFinding::none : DatasetFinding::shared_generator;
}

}  // namespace ferry
