// Layers that Megatron-LM does not build from arguments: the layer specs of programs around it,
// which a run's configuration names.
//
// Source: Megatron Bridge models/{minimax_m2,olmoe,gemma,exaone/exaone4}/*_provider.py,
// models/gemma/modeling_gemma4.py; mcore-bridge model/gpts/{minimax_m2,olmoe}.py, whose runs name
// the model's type instead.
#pragma once

#include <string_view>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

struct LayerSpec {
  std::string_view function = {};  // with its module
  std::string_view model_type = {};
  bool input_norms = true;
  bool output_norms = false;
  bool norms_all_heads = false;
  bool scales_embedding = false;
  /// Gemma 4's: norms that are modules, or norms of a mixture's parts; attention stored by kind,
  /// values that are normed, scores that are not divided, layers with a factor.
  bool norm_modules = false, norms_parts = false;
  bool attention_by_kind = false;
  /// The class of the models' configuration in Megatron Bridge, where that does not name the
  /// function.
  std::string_view provider = {};
  bool expert_bias = false;  // of its models

  void apply(Architecture& architecture) const;
};

/// The argument that names it.
inline constexpr std::string_view kLayerSpec = "transformer_layer_spec";

/// Nothing where the arguments name none, or one that builds the layers of Megatron-LM.
const LayerSpec* layer_spec_of(const Value& args);

/// That of a model, without a function where Megatron-LM builds its layers. Nothing where no
/// program does.
const LayerSpec* layer_spec_of(const Architecture& architecture);

}  // namespace ferry
