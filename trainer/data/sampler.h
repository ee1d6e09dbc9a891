// Which samples a data-parallel rank takes, and when.
//
// A global batch is made of blocks of micro_batch_size * data_ranks samples, one for each
// micro-batch; rank r takes the r-th part of each block. Nothing but the samples consumed so far
// decides where a step begins: a run may stop, and go on with another number of ranks or another
// micro-batch size, and sees the same global batches.
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
  /// Cyclic: each rank keeps to its own part of the dataset (default; off: --no-data-sharding).
  bool data_sharding = true;
  /// Off, single: the samples that are too few for a block are dealt out all the same, so that a
  /// rank's last micro-batch may be short, or empty.
  bool drop_last = true;
};

class Sampler {
 public:
  /// invalid for no samples, or numbers below 1; cyclic: for fewer samples than a block has.
  explicit Sampler(const SamplerOptions& options);

  /// Micro-batches that can be taken from `consumed` samples on: all there are; cyclic: no end.
  int64_t micro_batches_left(int64_t consumed) const noexcept;

  /// The samples of rank `rank` in micro-batch `number` of the step that begins after `consumed`
  /// samples. exhausted when too few are left; invalid, cyclic only, where `consumed` is no whole
  /// number of blocks into its epoch. Not to be called by two threads at a time: it keeps the order
  /// of the last epoch that was asked for.
  void take(int64_t consumed, int64_t number, int64_t rank, std::vector<int64_t>& indices);

 private:
  int64_t block() const noexcept { return options_.micro_batch_size * options_.data_ranks; }
  void take_cyclic(int64_t consumed, int64_t rank, std::vector<int64_t>& indices);

  SamplerOptions options_;
  int64_t epoch_ = -1;  // that epoch_order_ is of
  std::vector<int64_t> epoch_order_;
};

// Reads batches before they are asked for, beside what the caller computes.

/// Used by one thread; each read has a thread of its own, one at a time.
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

  /// `batch` becomes that of `place`, and that of `next` is begun. Throws what reading throws of
  /// `place`; of `next`, when it is asked for.
  void take(const Place& place, const Place& next, Batch& batch);

 private:
  void drop() noexcept;

  Read read_;
  std::future<void> reading_;
  Place place_;  // of what is being read
  Batch batch_;
};

}  // namespace ferry
