#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {

ParameterKind parameter_kind(std::string_view name, size_t axes, bool in_expert_optimizer,
                             bool decoupled_embeddings) {
  const bool embedding =
      name == "output_layer.weight" || name == "embedding.word_embeddings.weight";
  return {axes > 1 && !name.ends_with("bias"), in_expert_optimizer,
          decoupled_embeddings && embedding, false};
}

ParameterKind kind_of_group(const Value& settings, const Value& args, bool matrices) {
  Value decay = settings.get("wd_mult");
  if (!decay) decay = settings.get("pre_wd_mult");
  const auto own_rate = args.get("decoupled_lr").real();
  const bool decoupled = settings.get("is_decoupled_lr").boolean().value_or(false) ||
                         (own_rate && settings.get("max_lr").real() == own_rate);
  return {decay.real().value_or(1) != 0,
          settings.get("is_expert_parallel").boolean().value_or(false), decoupled && !matrices,
          matrices};
}

}  // namespace ferry
