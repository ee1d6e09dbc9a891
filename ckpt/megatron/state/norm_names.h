// The names that torch_dist checkpoints have for norms, which depend on the modules that a model is
// built of (--transformer-impl).
//
//   layer of             transformer_engine                        local
//   attention, dense     mlp.linear_fc1.layer_norm_                mlp.linear_fc1.layer_norm_
//   attention, experts   pre_mlp_layernorm.                        mlp.linear_fc1.layer_norm_
//   latent, dense        mlp.linear_fc1.layer_norm_                pre_mlp_layernorm.
//   latent, experts      pre_mlp_layernorm.                        pre_mlp_layernorm.
//   latent               self_attention.linear_q_up_proj.layer_norm_    ...q_layernorm.
//   latent               self_attention.linear_kv_up_proj.layer_norm_   ...kv_layernorm.
//   latent, of models with indexers                ...q_layernorm., ...kv_layernorm. in both
//
// The norm before attention has one name in both: self_attention.linear_qkv.layer_norm_, with
// latent attention input_layernorm. It was so from Megatron Core 0.12 on to that of August 2026.
//
// Source: megatron/core/models/gpt/gpt_layer_specs.py (sharded_state_dict_keys_map of
// get_gpt_layer_local_spec and get_gpt_layer_with_transformer_engine_spec), transformer/
// transformer_layer.py (sharded_state_dict).
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/state/run_state.h"

namespace ferry {

class NormNames {
 public:
  /// `names` are those of all tensors of a model, as in a torch_dist checkpoint.
  NormNames(const std::vector<std::string_view>& names, bool transformer_engine);

  /// What these modules call the tensor `name`; `name` itself where it is no such norm.
  std::string of(std::string_view name) const;

 private:
  bool transformer_engine_;
  bool has_indexers_ = false;
  bool has_norm_modules_ = false;                             // in both, under the modules' names
  std::set<std::string, std::less<>> latent_, with_experts_;  // layers, by what names begin with
};

/// Gives norms of the model, and their optimizer state, these modules' names.
void name_norms(RunState& state, bool transformer_engine);

/// The same with the names of the modules that the state is of, for files that name parameters as
/// modules do: rank folders, Megatron-FSDP. The state must have arguments.
void name_norms_by_modules(RunState& state);

/// name_norms(), and the arguments say so: a run for other modules, which register parameters as
/// those do. The state must have arguments.
void choose_modules(RunState& state, bool transformer_engine);

void name_norms(std::vector<ModelTensor>& tensors, bool transformer_engine);

}  // namespace ferry
