// The final norm, the output layer and the loss, and the layers that predict tokens further on.
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

/// Computes the loss by blocks of rows, and where a backward pass follows at once its gradients:
/// the logits, which would be the largest of all arrays, are never there as a whole.
class OutputLayer {
 public:
  OutputLayer() = default;
  OutputLayer(const ParameterSet& parameters, const Architecture& architecture,
              int64_t tensor_ranks);

  /// Of `x` [own rows, hidden]. Sets dx, the same, where the targets' losses have weights.
  /// `logits`: where they are to be kept.
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

// Layers behind the last one that predict tokens further on (multi-token prediction).
//
// Source: DeepSeek-AI 2024 (DeepSeek-V3, section 2.2); megatron/core/transformer/
// multi_token_prediction.py.

/// From the hidden states of the layer before and the embeddings of the tokens that it was to
/// predict: norms of both, beside each other through a linear and a transformer layer to a norm.
class PredictionLayer {
 public:
  struct Saved {
    kernels::Array embedded;      // [own rows, hidden]
    kernels::Array concatenated;  // norms of these and of the hidden states, [own rows, 2 · hidden]
    kernels::Array joined;        // by the linear, [own rows, hidden]
    kernels::Array output;        // of the transformer layer
    NormLayer::Saved embedding_norm, hidden_norm, final_norm;
    Layer::Saved layer;
  };

  /// Number `number` of the prediction layers.
  PredictionLayer(const ParameterSet& parameters, const Architecture& architecture, int64_t number,
                  const ModelOptions& options, kernels::Kernels& kernels);

  /// x is what the layer before gave; all are [own rows, hidden].
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

/// All of them, one behind the other, or one behind itself several times. Each time there is a loss
/// of its own, computed by the model's output layer.
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

  /// x [own rows, hidden] are the model's normalised hidden states.
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
    kernels::Array normed;   // where prediction layers start from it
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
