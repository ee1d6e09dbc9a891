// One transformer layer: attention and MLP, each preceded by a norm and with a residual connection.
#pragma once

#include <optional>
#include <variant>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/attention/attention.h"
#include "trainer/model/attention/latent_attention.h"
#include "trainer/model/mixture/moe.h"
#include "trainer/model/norm.h"

namespace ferry {

/// Options of a model's layers on this rank.
struct ModelOptions {
  kernels::Type type = kernels::Type::f32;
  int64_t tensor_ranks = 1;
  ExpertSplit experts;
  RouterOptions router;
  /// Number of further tokens predicted: one by each prediction layer, or all by a single repeated
  /// one.
  int64_t predictions = 0;
};

class Layer {
 public:
  struct Saved {
    NormLayer::Saved attention_norm, mlp_norm;
    kernels::Array attention_input;  // normalized, [own rows, hidden]; null: not kept
    std::variant<Attention::Saved, LatentAttention::Saved> attention;
    kernels::Array middle;     // after the attention's residual connection
    kernels::Array mlp_input;  // normalized; null: not kept
    std::variant<Mlp::Saved, Moe::Saved> mlp;
  };

  /// Layer `layer` of the model; `prefix` is "decoder.layers.<layer>".
  Layer(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
        int64_t layer, const ModelOptions& options, kernels::Kernels& kernels);

  /// y = layer(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// The same in two parts, so that a layer's first norm can add the previous layer's residual. x
  /// is the input or, for a pending residual, is set to it; `change` [own rows, hidden], which may
  /// be the residual's, is overwritten.
  Saved forward(Pass& pass, const PendingResidual& input, kernels::Array x,
                kernels::Array change) const;
  PendingResidual output(const Saved& saved, kernels::ConstArray change) const {
    return {saved.middle, change, place(DropoutPart::after_mlp)};
  }
  /// `d` is the gradient of y, then that of x.
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::Array d) const;

  /// Null if the layer is dense.
  const Moe* experts() const { return std::get_if<Moe>(&mlp_); }

 private:
  kernels::ConstArray normed(Pass& pass, const NormLayer& norm, kernels::ConstArray x,
                             kernels::ConstArray kept) const;
  NormLayer::Saved norm_of_sum(Pass& pass, const NormLayer& norm, const PendingResidual& open,
                               kernels::Array sum, kernels::Array y) const;
  NormRows rows(const Pass& pass) const { return {pass.own_rows()}; }
  uint64_t place(DropoutPart part) const { return dropout_place(layer_, part); }

  NormLayer attention_norm_, mlp_norm_;
  std::variant<Attention, LatentAttention> attention_;
  std::variant<Mlp, Moe> mlp_;
  int64_t hidden_ = 0, layer_ = 0;
};

}  // namespace ferry
