// In what order the elements of a dataset are taken, over one epoch or many.
//
// Source: bionemo-core data/{multi_epoch_dataset,resamplers}.py; CPython Lib/random.py and
// Modules/_randommodule.c.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trainer/data/samples/random_order.h"

namespace ferry {

/// An element of a dataset, and the epoch in which it is taken.
struct EpochIndex {
  int64_t epoch = 0, index = 0;
  bool operator==(const EpochIndex&) const = default;
};

struct EpochResamplerOptions {
  int64_t size = 0;  // of the dataset
  /// One of them; neither: one epoch. The last epoch of `samples` may be a part of one.
  std::optional<int64_t> epochs, samples;
  bool shuffle = true;
  uint32_t seed = 42;
};

/// Every element once an epoch, in an order of the epoch's own. Its memory is that of a number for
/// each epoch. Safe from several threads.
class EpochResampler {
 public:
  /// invalid for both of epochs and samples, for less than one of them, or for a dataset that
  /// cannot be shuffled: of more than 2^32 elements, or of none.
  explicit EpochResampler(const EpochResamplerOptions& options);

  int64_t size() const noexcept { return samples_; }
  /// invalid when `number` is not in [0, size()).
  EpochIndex at(int64_t number) const;

 private:
  int64_t elements_, samples_;
  bool shuffle_;
  std::vector<int32_t> seeds_;  // by epoch; empty: not shuffled
};

/// Elements at random, with repetition: those that Python's random.Random(seed).randint(0, size -
/// 1) gives one after another. Reading on is quick; reading back begins anew. Used by one thread at
/// a time.
class RandomResampler {
 public:
  /// As many samples as elements where `samples` is none. invalid for a size outside [1, 2^32).
  explicit RandomResampler(int64_t size, uint32_t seed = 42, std::optional<int64_t> samples = {});

  int64_t size() const noexcept { return samples_; }
  /// invalid when `number` is not in [0, size()).
  int64_t at(int64_t number);

 private:
  int64_t elements_, samples_;
  uint32_t seed_;
  PythonRandom random_;
  int64_t last_number_ = -1, last_ = 0;
};

}  // namespace ferry
