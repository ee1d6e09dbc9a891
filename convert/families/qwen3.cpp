// Qwen3 (transformers/models/qwen3): Llama with norms on queries and keys of each head.
#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen3_family() {
  using A = Architecture;
  Family family;
  family.name = "qwen3";
  family.class_name = "Qwen3ForCausalLM";
  family.traits.qk_norm = Has::yes;
  family.traits.window = Has::either;
  family.rules = shared::rules(
      {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()});
  family.fields = shared::join<ConfigField>(shared::config_fields(), {{"head_dim", &A::head_dim}});
  family.numbers = shared::layer_window_numbers();
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    config["attention_bias"] = false;
    shared::write_layer_windows(a, config);
  };
  family.read_config = shared::read_layer_windows;
  family.defaults = R"({"num_key_value_heads": 32, "head_dim": 128, "max_window_layers": 28})";
  return family;
}

}  // namespace ferry
