#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {

bool has_weight_decay(std::string_view name, size_t axes, bool decays_qk_norms) {
  if (axes > 1 && !name.ends_with("bias")) return true;
  return decays_qk_norms && (name.find("q_layernorm.") != std::string_view::npos ||
                             name.find("k_layernorm.") != std::string_view::npos);
}

ParameterKind parameter_kind(std::string_view name, size_t axes, bool decays_qk_norms,
                             bool in_expert_optimizer, bool decoupled_embeddings) {
  const bool embedding =
      name == "output_layer.weight" || name == "embedding.word_embeddings.weight";
  return {has_weight_decay(name, axes, decays_qk_norms), in_expert_optimizer,
          decoupled_embeddings && embedding, false};
}

ParameterKind kind_of_group(const Value& settings, const RunArguments& run, bool matrices) {
  Value decay = settings.get("wd_mult");
  if (!decay) decay = settings.get("pre_wd_mult");
  const bool decoupled = settings.get("is_decoupled_lr").boolean().value_or(false) ||
                         (run.decoupled_lr && settings.get("max_lr").real() == run.decoupled_lr);
  return {decay.real().value_or(1) != 0,
          settings.get("is_expert_parallel").boolean().value_or(false), decoupled && !matrices,
          matrices};
}

}  // namespace ferry
