// Llama 2, 3 and 3.1 (transformers/models/llama).
#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family llama_family() {
  using A = Architecture;
  Family family;
  family.name = "llama";
  family.class_name = "LlamaForCausalLM";
  family.traits.linear_bias = Has::either;
  family.rules = shared::rules(
      {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()});
  family.fields =
      shared::join<ConfigField>(shared::config_fields(), {{"head_dim", &A::head_dim},
                                                          {"attention_bias", &A::linear_bias},
                                                          {"mlp_bias", &A::linear_bias}});
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_uneven_heads(a, "llama", reasons);
  };
  return family;
}

}  // namespace ferry
