// Which layers a pipeline stage holds.
//
// Source: megatron/core/transformer/{transformer_block,transformer_layer,
// pipeline_parallel_layer_layout,multi_token_prediction}.py.
#pragma once

#include <cstdint>
#include <vector>

#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// What one model chunk (a stage, or a virtual stage of it) is built of.
struct StageContents {
  int64_t first_layer = 0, layers = 0;  // of the decoder, numbered through the model
  int64_t first_mtp = 0, mtp_layers = 0;
  bool first = false;       // embeddings
  bool last = false;        // output layer, or its copy of tied embeddings
  bool final_norm = false;  // the decoder's
};

class PipelineLayout {
 public:
  /// mismatch when the layers cannot be split as the arguments say.
  explicit PipelineLayout(const RunArguments& run);

  int64_t stages() const noexcept { return stages_; }
  int64_t chunks() const noexcept { return chunks_; }  // of each stage
  const StageContents& at(int64_t stage, int64_t chunk) const;

 private:
  void split_evenly(const RunArguments& run);
  void split_by_letters(const RunArguments& run);
  StageContents& mutable_at(int64_t stage, int64_t chunk);

  int64_t stages_;
  int64_t chunks_;
  std::vector<StageContents> contents_;
};

}  // namespace ferry
