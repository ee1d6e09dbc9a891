// Moves micro-batches from the data to device memory.
#pragma once

#include <memory>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

/// The positions of a sequence of `length` on context rank `rank` of `ranks`, in its order: the
/// sequence is cut into 2 · ranks parts, of which the rank has parts rank and 2 · ranks - 1 - rank.
std::vector<int64_t> context_positions(int64_t length, int64_t ranks, int64_t rank);

struct FillOptions {
  /// Factor of each token's gradient, besides its mask; 0 if no backward pass follows.
  double loss_scale = 0;
  bool per_token_loss = false;  // the loss is a sum over tokens, otherwise the micro-batch's mean
  double prediction_scale = 0;  // weight of a prediction layer's loss relative to the model's
  bool has_resets = false;      // attention restarts at each document
  int64_t first_sample = 0;     // index of the first sequence in the step
};

/// Reusable device memory for micro-batches of one size.
class DeviceBatch {
 public:
  /// `positions` are those of this context rank.
  DeviceBatch(kernels::Kernels& kernels, int64_t sequences, std::vector<int64_t> positions,
              int64_t prediction_layers);

  /// Copies this rank's part of a batch, rows sequence first, and sets all loss sums to 0.
  void fill(kernels::Kernels& kernels, const Batch& batch, const FillOptions& options);

  const MicroBatch& micro_batch() const noexcept { return micro_batch_; }
  /// Sums of masks over whole sequences: of the model's targets, then each prediction layer's.
  const std::vector<double>& tokens() const noexcept { return token_counts_; }
  const int32_t* document_begin() const noexcept { return document_begin_; }
  /// Ids of rows and of sequences (pass.h).
  const int64_t* row_ids() const noexcept { return row_ids_; }
  const int64_t* sequence_ids() const noexcept { return sequence_ids_; }

 private:
  struct TargetMemory {
    int32_t* labels;
    float *mask, *weight;
    double* loss_sum;
    Targets targets(bool has_weight) const {
      return {labels, mask, has_weight ? weight : nullptr, loss_sum};
    }
  };

  template <typename Element>
  Element* place(int64_t elements);
  template <typename Element>
  std::vector<Element> own_part(const Batch& batch, const std::vector<Element>& all,
                                int64_t shift) const;
  void number(kernels::Kernels& kernels, int64_t first_sample, int64_t length);
  void fill_targets(kernels::Kernels& kernels, const Batch& batch, int64_t shift,
                    const FillOptions& options);
  void fill_documents(kernels::Kernels& kernels, const Batch& batch);

  int64_t sequences_;
  std::vector<int64_t> positions_;
  std::shared_ptr<void> memory_;
  std::byte* next_ = nullptr;
  int32_t *tokens_, *position_ids_, *documents_;
  int64_t *row_ids_, *sequence_ids_;
  std::vector<TargetMemory> targets_;        // the model's, then those of prediction layers
  std::vector<int32_t*> prediction_tokens_;  // by prediction layer
  std::vector<double> token_counts_;
  const int32_t* document_begin_ = nullptr;
  MicroBatch micro_batch_;
};

}  // namespace ferry
