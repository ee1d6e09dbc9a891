// Whether a dataset keeps to the contract of datasets.h: several copies of it, read in several
// orders, have to give the same items.
//
//   Faces one(...), another(...);        // as two ranks that compute one sample together make it
//   auto report = check_datasets<Face>({&one, &another}, {});
//   if (report.kept()) ...
//
// Source: bionemo-testing megatron_dataset_compatibility.py, which checks one index of one copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "ckpt/base/error.h"
#include "trainer/data/epochs/datasets.h"

namespace ferry {

struct DatasetCheckOptions {
  int64_t items = 32;  // of an epoch that are read: the first, the last, others at random
  int64_t epochs = 2;
  uint32_t seed = 1;  // of what is taken at random, and of the orders
};

/// How copies broke the contract.
enum class DatasetBreach : uint8_t {
  read_again,   // one copy gave another item when it was asked for it twice, one after the other
  other_order,  // one copy gave another item after it had read others
  other_copy    // another copy, which read in another order, gave another item
};
inline constexpr size_t kDatasetBreaches = 3;

/// The first item of a kind, and how many there are.
template <typename Item>
struct BrokenItems {
  EpochIndex at;
  size_t copy = 0;       // which gave `found`
  Item expected, found;  // `expected` is what the first copy gave first
  int64_t count = 0;
};

template <typename Item>
struct DatasetCheckReport {
  int64_t size = 0, items = 0, epochs = 0;  // of the dataset; read of each epoch; epochs
  int64_t reads = 0;
  /// By DatasetBreach. Each item counts for the first kind that it shows.
  std::array<std::optional<BrokenItems<Item>>, kDatasetBreaches> broken;
  /// All items that were read are one (of more than one), which is seldom meant.
  bool one_item = false;
  /// No item differs from one epoch to another: nothing is changed at random.
  bool same_in_all_epochs = true;

  bool kept() const {
    return std::none_of(broken.begin(), broken.end(), [](const auto& one) { return one; });
  }
};

/// Which elements of a dataset of `size` are read, in order.
std::vector<int64_t> elements_to_check(int64_t size, const DatasetCheckOptions& options);

/// The order in which copy `copy` reads `count` items: the first as they are, the second backwards,
/// the others at random.
std::vector<size_t> order_of_copy(size_t count, size_t copy, uint32_t seed);

/// Reads items of the first copy twice, then all again backwards; of the others once. Items are
/// compared with ==; those of the first copy are kept. invalid without a copy, for a dataset
/// without items, or for options below 1; mismatch for copies of several sizes.
template <typename Item>
class DatasetCheck {
 public:
  using Copies = std::vector<const MultiEpochDataset<Item>*>;

  DatasetCheck(Copies copies, const DatasetCheckOptions& options)
      : copies_(std::move(copies)), options_(options) {
    if (copies_.empty()) fail(ErrorKind::invalid, "there is no dataset to check");
    report_.size = copies_[0]->size();
    for (const auto* copy : copies_) {
      if (copy->size() == report_.size) continue;
      fail(ErrorKind::mismatch, "one copy of the dataset has {} items and another one {}",
           report_.size, copy->size());
    }
    const std::vector<int64_t> elements = elements_to_check(report_.size, options_);
    report_.items = std::ssize(elements);
    report_.epochs = options_.epochs;
    for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      for (const int64_t element : elements) at_.push_back({epoch, element});
    }
  }

  DatasetCheckReport<Item> run() {
    for (const EpochIndex& at : at_) {
      first_.push_back(read(0, at));
      compare(first_.size() - 1, 0, DatasetBreach::read_again);
    }
    compare_order(0, 1, DatasetBreach::other_order);
    for (size_t copy = 1; copy < copies_.size(); ++copy) {
      compare_order(copy, copy, DatasetBreach::other_copy);
    }
    const auto items = static_cast<size_t>(report_.items);
    for (size_t i = items; i < first_.size(); ++i) {
      if (!(first_[i] == first_[i % items])) report_.same_in_all_epochs = false;
    }
    report_.one_item =
        first_.size() > 1 && std::all_of(first_.begin(), first_.end(),
                                         [&](const Item& item) { return item == first_[0]; });
    return std::move(report_);
  }

 private:
  Item read(size_t copy, const EpochIndex& at) {
    ++report_.reads;
    return copies_[copy]->read(at);
  }

  void compare_order(size_t copy, size_t order, DatasetBreach breach) {
    for (const size_t i : order_of_copy(at_.size(), order, options_.seed)) compare(i, copy, breach);
  }

  void compare(size_t i, size_t copy, DatasetBreach breach) {
    Item found = read(copy, at_[i]);
    if (found == first_[i] || !reported_.insert(i).second) return;
    auto& broken = report_.broken[static_cast<size_t>(breach)];
    if (!broken) broken = BrokenItems<Item>{at_[i], copy, first_[i], std::move(found), 0};
    ++broken->count;
  }

  Copies copies_;
  DatasetCheckOptions options_;
  std::vector<EpochIndex> at_;
  std::vector<Item> first_;
  std::set<size_t> reported_;  // of at_, which were found broken
  DatasetCheckReport<Item> report_;
};

template <typename Item>
DatasetCheckReport<Item> check_datasets(typename DatasetCheck<Item>::Copies copies,
                                        const DatasetCheckOptions& options) {
  return DatasetCheck<Item>(std::move(copies), options).run();
}

}  // namespace ferry
