// One transformer layer: attention and MLP, each behind a norm and beside a residual connection.
#pragma once

#include <optional>
#include <variant>

#include "ckpt/megatron/model/architecture.h"
#include "trainer/model/attention/attention.h"
#include "trainer/model/attention/latent_attention.h"
#include "trainer/model/mixture/moe.h"
#include "trainer/model/norm.h"

namespace ferry {

/// How a model's layers are computed on this rank.
struct ModelOptions {
  kernels::Type type = kernels::Type::f32;
  int64_t tensor_ranks = 1;
  ExpertSplit experts;
  RouterOptions router;
  /// How many tokens further on are predicted: one by each prediction layer, or all by the only
  /// one, again and again.
  int64_t predictions = 0;
};

class Layer {
 public:
  struct Saved {
    NormLayer::Saved attention_norm, mlp_norm;
    kernels::Array attention_input;  // normalised, [own rows, hidden]; null: not kept
    std::variant<Attention::Saved, LatentAttention::Saved> attention;
    kernels::Array middle;     // behind the attention's residual connection
    kernels::Array mlp_input;  // normalised; null: not kept
    std::variant<Mlp::Saved, Moe::Saved> mlp;
  };

  /// Number `layer` of the model; `prefix` is "decoder.layers.<layer>".
  Layer(const ParameterSet& parameters, const std::string& prefix, const Architecture& architecture,
        int64_t layer, const ModelOptions& options, kernels::Kernels& kernels);

  /// y = layer(x); both [own rows, hidden].
  Saved forward(Pass& pass, kernels::ConstArray x, kernels::Array y) const;
  /// The same in two parts, so that a layer's norm adds up what the layer before gave. x is the
  /// input or, of an open sum, becomes it; `change` [own rows, hidden], which may be the sum's, is
  /// overwritten.
  Saved forward(Pass& pass, const OpenSum& input, kernels::Array x, kernels::Array change) const;
  OpenSum output(const Saved& saved, kernels::ConstArray change) const {
    return {saved.middle, change, place(DropoutPart::behind_mlp)};
  }
  /// `d` is the gradient of y, then that of x.
  void backward(Pass& pass, const Saved& saved, kernels::ConstArray x, kernels::Array d) const;

  /// Null where the layer is dense.
  const Moe* experts() const { return std::get_if<Moe>(&mlp_); }

 private:
  kernels::ConstArray normed(Pass& pass, const NormLayer& norm, kernels::ConstArray x,
                             kernels::ConstArray kept) const;
  NormLayer::Saved norm_of_sum(Pass& pass, const NormLayer& norm, const OpenSum& open,
                               kernels::Array sum, kernels::Array y) const;
  NormRows rows(const Pass& pass) const { return {pass.own_rows()}; }
  uint64_t place(DropoutPart part) const { return dropout_place(layer_, part); }

  NormLayer attention_norm_, mlp_norm_;
  std::variant<Attention, LatentAttention> attention_;
  std::variant<Mlp, Moe> mlp_;
  int64_t hidden_ = 0, layer_ = 0;
};

}  // namespace ferry
