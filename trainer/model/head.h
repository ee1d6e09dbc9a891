// The final norm, the output layer with the loss, and multi-token prediction (MTP).
#pragma once

#include <string>
#include <vector>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/embedding.h"
#include "trainer/model/layer.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"

namespace ferry {

// The output layer and the loss.

/// Computes the loss and, if a backward pass follows, its gradients by blocks of rows: the logits,
/// which would be the largest array, never exist as a whole.
class OutputLayer {
 public:
  OutputLayer() = default;
  OutputLayer(const ParameterSet& parameters, const Architecture& architecture,
              int64_t tensor_ranks);

  /// x is [own rows, hidden]. Sets dx, of the same shape, if the targets have loss weights.
  /// `logits`: if set, logits are stored there.
  void forward(Pass& pass, const Targets& targets, kernels::ConstArray x, kernels::Array dx,
               kernels::Array logits = {}) const;

 private:
  void forward_block(Pass& pass, const Targets& targets, int64_t first, int64_t rows,
                     kernels::ConstArray x, kernels::Array dx, kernels::Array kept) const;
  void shared_cross_entropy(Pass& pass, int64_t rows, const int32_t* labels, const float* weight,
                            kernels::Array logits, float* loss) const;

  Parameter weight_;
  int64_t hidden_ = 0, columns_ = 0;
};

// Multi-token prediction: layers after the last one that predict further tokens.
//
// Source: DeepSeek-AI 2024 (DeepSeek-V3, section 2.2); megatron/core/transformer/
// multi_token_prediction.py.

/// Takes the hidden states of the previous layer and the embeddings of the tokens that it predicts:
/// normalizes both and passes their concatenation through a linear layer, a transformer layer and a
/// norm.
class PredictionLayer {
 public:
  struct Saved {
    kernels::Array embedded;      // [own rows, hidden]
    kernels::Array concatenated;  // normalized, with the hidden states: [own rows, 2 · hidden]
    kernels::Array joined;        // output of the linear layer, [own rows, hidden]
    kernels::Array output;        // of the transformer layer
    NormLayer::Saved embedding_norm, hidden_norm, final_norm;
    Layer::Saved layer;
  };

  /// Prediction layer number `number`, from 0.
  PredictionLayer(const ParameterSet& parameters, const Architecture& architecture, int64_t number,
                  const ModelOptions& options, kernels::Kernels& kernels);

  /// x is the output of the previous layer; all are [own rows, hidden].
  Saved forward(Pass& pass, const int32_t* tokens, kernels::ConstArray x, kernels::Array y) const;
  /// Sets dx.
  void backward(Pass& pass, const int32_t* tokens, const Saved& saved, kernels::ConstArray x,
                kernels::ConstArray dy, kernels::Array dx) const;

  const Layer& layer() const noexcept { return layer_; }

 private:
  Embedding::Input embedded(const int32_t* tokens) const { return {tokens, nullptr, number_ + 1}; }

  Embedding embedding_;
  NormLayer embedding_norm_, hidden_norm_, final_norm_;
  ReplicatedLinear linear_;
  Layer layer_;
  int64_t hidden_, number_;
};

/// All prediction layers in sequence, or one applied repeatedly. Each application has its own loss,
/// computed by the model's output layer.
class Predictions {
 public:
  struct Saved {
    struct Step {
      kernels::Array output, doutput;  // [own rows, hidden]
      PredictionLayer::Saved layer;
    };
    std::vector<Step> steps;
  };

  Predictions() = default;
  Predictions(const ParameterSet& parameters, const Architecture& architecture,
              const ModelOptions& options, kernels::Kernels& kernels);

  explicit operator bool() const noexcept { return depths_ > 0; }
  const std::vector<PredictionLayer>& layers() const noexcept { return layers_; }

  /// x [own rows, hidden] are the model's normalized hidden states.
  Saved forward(Pass& pass, const MicroBatch& batch, const OutputLayer& output,
                kernels::ConstArray x) const;
  /// Adds to dx.
  void backward(Pass& pass, const MicroBatch& batch, const Saved& saved, kernels::ConstArray x,
                kernels::Array dx) const;

 private:
  bool is_again(size_t depth) const noexcept { return depth >= layers_.size(); }
  const PredictionLayer& layer(size_t depth) const { return layers_[is_again(depth) ? 0 : depth]; }
  Pass pass_of(const Pass& pass, size_t depth) const;

  std::vector<PredictionLayer> layers_;
  size_t depths_ = 0;
  int64_t hidden_ = 0;
};

class Head {
 public:
  struct Saved {
    NormLayer::Saved norm;
    kernels::Array normed;   // kept if prediction layers need it
    kernels::Array dnormed;  // gradient of the norm's output, [own rows, hidden]
    Predictions::Saved predictions;
  };

  Head() = default;
  Head(const ParameterSet& parameters, const Architecture& architecture,
       const ModelOptions& options, kernels::Kernels& kernels);

  Saved forward(Pass& pass, const MicroBatch& batch, kernels::ConstArray x) const;
  /// dx is set.
  void backward(Pass& pass, const MicroBatch& batch, const Saved& saved, kernels::ConstArray x,
                kernels::Array dx) const;

  const Predictions& predictions() const noexcept { return predictions_; }

 private:
  NormLayer norm_;
  OutputLayer output_;
  Predictions predictions_;
  int64_t hidden_ = 0;
};

}  // namespace ferry
