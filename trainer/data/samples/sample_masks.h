// From the tokens of a sample to what the model gets: labels, loss weights, positions, and where
// attention begins anew.
//
// Source: megatron/core/datasets/gpt_dataset.py; goldfish loss: Hans et al., "Be like a Goldfish,
// Don't Memorize!" (2024), as swiss-ai/Megatron-LM computes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/data_options.h"
#include "trainer/data/dataset.h"

namespace ferry {

/// Safe from several threads.
class SampleMasks {
 public:
  explicit SampleMasks(const MaskOptions& options);

  /// Fills the sample. `text`: its tokens and the label of the last one; options.padding where
  /// there is none. Padding becomes token 0, without loss.
  void apply(std::span<const int32_t> text, Sample& sample) const;

 private:
  void reset_at_documents(std::span<const int32_t> tokens, Sample& sample) const;
  void drop_goldfish_labels(Sample& sample) const;

  MaskOptions options_;
  std::vector<float> uniform_;  // of the goldfish loss
};

}  // namespace ferry
