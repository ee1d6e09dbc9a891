#include "ckpt/megatron/rank_folders/parameter_kind.h"

namespace ferry {

ParameterKind parameter_kind(std::string_view name, size_t axes, bool in_expert_optimizer,
                             bool decoupled_embeddings) {
  const bool embedding =
      name == "output_layer.weight" || name == "embedding.word_embeddings.weight";
  return {axes > 1 && !name.ends_with("bias"), in_expert_optimizer,
          decoupled_embeddings && embedding};
}

}  // namespace ferry
