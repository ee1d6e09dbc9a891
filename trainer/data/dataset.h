// What a language model is trained on: datasets of samples, and the batches that are made of them.
//
// A dataset is a function from a number to a sample: it has no position and no generator, so any
// number of threads may read any samples in any order, and a run that stops and goes on reads what
// an unbroken one would. Which samples a rank takes, and when, is the Sampler's (sampler.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ferry {

/// One sequence of `sequence_length` tokens, and for each the token that follows it. Vectors keep
/// their memory from one sample to the next.
struct Sample {
  std::vector<int32_t> tokens;
  std::vector<int32_t> labels;        // labels[i] follows tokens[i]
  std::vector<float> loss_mask;       // weight of the loss at each label: 0 or 1
  std::vector<int32_t> position_ids;  // 0, 1, 2, ...; from 0 again where positions are reset
  /// Where attention begins anew, ascending, the first one 0: token i attends to those from the
  /// last start at or before i. Only {0} unless attention is reset.
  std::vector<int32_t> document_starts;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const noexcept = 0;
  /// Whether an order of samples was stored for it that is not of what its files hold now.
  virtual bool has_replaced_order() const noexcept { return false; }
  /// Sample `index` of [0, size()): the same at every call. Safe from several threads, each with a
  /// sample of its own. corrupt, naming the file, when its bytes are no valid tokens.
  virtual void read(int64_t index, Sample& sample) const = 0;
};

/// Samples side by side, as a micro-batch: row r has elements [r * sequence, (r + 1) * sequence).
struct Batch {
  int64_t rows = 0;
  int64_t sequence_length = 0;
  std::vector<int32_t> tokens;  // rows x sequence_length, as all that follow
  std::vector<int32_t> labels;
  std::vector<float> loss_mask;
  std::vector<int32_t> position_ids;
  /// Of all rows in one list, counted from the first row's first token: each row's first token is a
  /// start. With rows * sequence_length behind it, what kernels of attention over sequences of
  /// several lengths take as cumulative lengths.
  std::vector<int32_t> document_starts;
};

/// Reads the samples of these numbers, in this order. `batch` and `sample` are overwritten and keep
/// their memory. invalid, when a number is outside the dataset, or samples differ in length.
void read_batch(const Dataset& dataset, std::span<const int64_t> indices, Sample& sample,
                Batch& batch);

}  // namespace ferry
