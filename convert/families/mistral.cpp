// Mistral 7B (transformers/models/mistral): Llama with windowed attention in all layers.
#include <nlohmann/json.hpp>

#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {

Family mistral_family() {
  using A = Architecture;
  Family family;
  family.name = "mistral";
  family.class_name = "MistralForCausalLM";
  family.traits.window = Has::either;
  family.rules = shared::rules(
      {shared::embedding(), shared::attention(), shared::dense_mlp(), shared::head()});
  family.fields = shared::join<ConfigField>(shared::config_fields(), {{"head_dim", &A::head_dim}});
  family.numbers = shared::window_number();
  family.write_config = [](const A& a, nlohmann::json& config, std::vector<std::string>&) {
    shared::write_window(a, config);
  };
  family.read_config = shared::read_window;
  family.defaults = R"({"num_key_value_heads": 8, "sliding_window": 4096})";
  family.objections = [](const A& a, std::vector<std::string>& reasons) {
    shared::object_partial_window(a, "mistral", reasons);
  };
  return family;
}

}  // namespace ferry
