// Which samples a data-parallel rank takes, and when.
//
// A global batch is made of blocks of micro_batch_size * data_ranks samples, one for each
// micro-batch; rank r takes the r-th part of each block. Only the number of samples consumed so far
// determines where a step starts: a run may resume with another number of ranks or another
// micro-batch size and see the same global batches.
//
// Source: megatron/training/datasets/data_samplers.py.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <vector>

#include "trainer/data/dataset.h"

namespace ferry {

enum class SampleOrder : uint8_t {
  single,  // --dataloader-type single: samples 0, 1, 2, ... once; the dataset is shuffled already
  cyclic   // --dataloader-type cyclic: every epoch all samples, in a new random order
};

struct SamplerOptions {
  SampleOrder order = SampleOrder::single;
  int64_t samples = 0;  // of the dataset
  int64_t micro_batch_size = 1;
  int64_t data_ranks = 1;
  /// Cyclic: each rank reads only its own part of the dataset (default; off: --no-data-sharding).
  bool data_sharding = true;
  /// Off (single only): the last samples, too few for a block, are distributed, too, so a rank's
  /// last micro-batch may be short or empty.
  bool drop_last = true;
};

class Sampler {
 public:
  /// invalid for no samples or numbers below 1; cyclic: for fewer samples than a block.
  explicit Sampler(const SamplerOptions& options);

  /// Micro-batches left after `consumed` samples; cyclic: unlimited.
  int64_t micro_batches_left(int64_t consumed) const noexcept;

  /// The samples of rank `rank` in micro-batch `number` of the step that starts after `consumed`
  /// samples. exhausted if too few are left; invalid (cyclic only) if `consumed` is not a whole
  /// number of blocks into its epoch. Not thread-safe: caches the order of the last epoch.
  void take(int64_t consumed, int64_t number, int64_t rank, std::vector<int64_t>& indices);

 private:
  int64_t block() const noexcept { return options_.micro_batch_size * options_.data_ranks; }
  void take_cyclic(int64_t consumed, int64_t rank, std::vector<int64_t>& indices);

  SamplerOptions options_;
  int64_t epoch_ = -1;  // of epoch_order_
  std::vector<int64_t> epoch_order_;
};

// Prefetches batches while the caller computes.

/// Not thread-safe; each read runs on its own thread, one at a time.
class BatchAhead {
 public:
  /// A micro-batch by its number in the step that begins after `consumed` samples.
  struct Place {
    int64_t consumed = 0, number = 0;
    bool operator==(const Place&) const = default;
  };
  using Read = std::function<void(const Place& place, Batch& batch)>;

  explicit BatchAhead(Read read) : read_(std::move(read)) {}
  ~BatchAhead() { drop(); }
  BatchAhead(const BatchAhead&) = delete;
  BatchAhead& operator=(const BatchAhead&) = delete;

  /// Sets `batch` to the one at `place` and starts reading the one at `next`. Throws errors of
  /// reading `place`; those of `next` are thrown when it is taken.
  void take(const Place& place, const Place& next, Batch& batch);

 private:
  void drop() noexcept;

  Read read_;
  std::future<void> reading_;
  Place place_;  // being read
  Batch batch_;
};

}  // namespace ferry
