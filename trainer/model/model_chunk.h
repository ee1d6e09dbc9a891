// The part of a language model on one pipeline stage or virtual stage.
#pragma once

#include <vector>

#include "ckpt/megatron/model/pipeline_layout.h"
#include "trainer/model/embedding.h"
#include "trainer/model/head.h"
#include "trainer/model/layer.h"

namespace ferry {

class ModelChunk {
 private:
  // A layer, or several that are recomputed together (recompute.h).
  struct Block {
    int64_t first = 0, end = 0;
    bool is_repeated = false;
    kernels::Array input;
    struct Step {
      kernels::Array input;
      Layer::Saved saved;
    };
    std::vector<Step> steps;  // empty if recomputed
  };

 public:
  /// What a micro-batch's forward pass keeps for its backward pass, in pass.kept.
  struct Saved {
    std::vector<Block> blocks;
    kernels::Array output;  // of the last layer
    Head::Saved head;
  };

  ModelChunk(const ParameterSet& parameters, const Architecture& architecture,
             const StageContents& contents, const ModelOptions& options, kernels::Kernels& kernels);

  /// The mixtures of all layers in order, for their counts.
  std::vector<const Moe*> experts() const;

  bool is_first() const noexcept { return contents_.first; }
  bool is_last() const noexcept { return contents_.last; }
  /// Elements sent to the next chunk, and of their gradient.
  int64_t boundary_elements(const Pass& pass) const { return pass.own_rows() * hidden_; }

  /// `input` [own rows, hidden] is the previous chunk's output, kept until the backward pass;
  /// ignored by the first chunk. Sets output [own rows, hidden] or, in the last chunk, adds to the
  /// loss_sum of the batch's targets.
  Saved forward(Pass& pass, const MicroBatch& batch, kernels::ConstArray input,
                kernels::Array output) const;
  /// `d` [own rows, hidden] is the gradient of the output (ignored by the last chunk), and is set
  /// to that of the input.
  void backward(Pass& pass, const MicroBatch& batch, const Saved& saved, kernels::Array d) const;

 private:
  std::vector<Block::Step> forward_block(Pass& pass, const Block& block,
                                         kernels::Array output) const;

  StageContents contents_;
  kernels::Type type_;
  int64_t hidden_;
  Embedding embedding_;
  std::vector<Layer> layers_;
  Head head_;
};

}  // namespace ferry
