// The training data of a language model: datasets of samples, and batches made of them.
//
// A dataset is a function from a number to a sample: it has no position and no generator, so any
// number of threads may read any samples in any order, and a resumed run reads what an
// uninterrupted one would. The Sampler (sampler.h) decides which samples a rank takes, and when.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// One sequence of `sequence_length` tokens with the token that follows each. Vectors keep their
/// capacity from sample to sample.
struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;        // labels[i] follows tokens[i]
  std::vector<float> loss_mask;       // weight of the loss at each label: 0 or 1
  std::vector<int32_t> position_ids;  // 0, 1, 2, ...; restarts at 0 where positions are reset
  /// Where attention restarts, ascending from 0: token i attends to tokens from the last start at
  /// or before i. {0} unless attention is reset.
  std::vector<int32_t> document_starts;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const noexcept = 0;
  /// Whether a stored order of samples was replaced because the dataset's files have changed.
  virtual bool has_replaced_order() const noexcept { return false; }
  /// Sample `index` of [0, size()): the same at every call. Safe from several threads, each with a
  /// sample of its own. corrupt, naming the file, if its bytes are not valid tokens.
  virtual void read(int64_t index, Sample& sample) const = 0;
};

/// Samples of a micro-batch: row r has elements [r * sequence, (r + 1) * sequence).
struct Batch {
  int64_t rows = 0;
  int64_t sequence_length = 0;
  std::vector<int32_t> tokens;  // rows x sequence_length, as all below
  std::vector<int32_t> labels;
  std::vector<float> loss_mask;
  std::vector<int32_t> position_ids;
  /// Document starts of all rows in one list, counted from the first row's first token; each row's
  /// first token is a start. Followed by rows * sequence_length, these are the cumulative lengths
  /// that variable-length attention kernels take.
  std::vector<int32_t> document_starts;
};

/// Reads the samples of these numbers, in this order. `batch` and `sample` are overwritten and keep
/// their capacity. invalid if a number is outside the dataset or samples differ in length.
void read_batch(const Dataset& dataset, std::span<const int64_t> indices, Sample& sample,
                Batch& batch);

}  // namespace ferry
