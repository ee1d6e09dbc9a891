// Ministral 3 (transformers/models/ministral3): Mistral with YaRN, whose queries may be scaled by
// their positions.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family ministral3_family() {
  Family family = mistral_family();
  family.name = "ministral3";
  family.class_name = "Ministral3ForCausalLM";
  family.config = shared::join(
      {family.config,
       {codec::zero_of_rope("llama_4_scaling_beta",
                            "queries are multiplied by a factor that grows with their position")}});
  family.defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                        "rope_scaling": {"rope_type": "yarn", "rope_theta": 1000000.0,
                                         "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                         "original_max_position_embeddings": 16384,
                                         "mscale": 1.0, "mscale_all_dim": 1.0,
                                         "llama_4_scaling_beta": 0.1}})";
  return family;
}

}  // namespace ferry
