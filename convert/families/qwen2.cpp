// Qwen2 and Qwen2.5 (transformers/models/qwen2): Llama with biases on queries, keys and values.
#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family qwen2_family() {
  using A = Architecture;
  Family family;
  family.name = "qwen2";
  family.class_name = "Qwen2ForCausalLM";
  family.traits.qkv_bias = Has::yes;
  family.traits.window = Has::either;
  family.rules = shared::rules(
      {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()});
  family.fields = shared::config_fields();
  family.numbers =
      shared::join<ConfigNumber>(shared::head_dim_number(), shared::layer_window_numbers());
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    shared::write_head_dim_if_unusual(a, config);
    shared::write_layer_windows(a, config);
  };
  family.read_config = [](nlohmann::json& config, A& a) {
    shared::read_head_dim(config, a);
    shared::read_layer_windows(config, a);
  };
  family.defaults = R"({"num_key_value_heads": 32, "max_window_layers": 28})";
  return family;
}

}  // namespace ferry
