// EXAONE 4 (transformers/models/exaone4): Qwen3's attention, norms of what attention and MLP give
// instead of what they take. Where some layers have a window, the others have no positions.
#include "convert/config/layer_values.h"
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using A = Architecture;

ConfigRow windows() {
  ConfigRow row = codec::window_by_kind(4, "sliding_window_pattern");
  row.read = [read = row.read](nlohmann::json& config, A& a) {
    const bool has_window = !config.value("sliding_window", nlohmann::json()).is_null();
    read(config, a);
    a.unrotated_layers = a.windowed_layers;
    a.unrotated_layers.flip();
    if (has_window && a.window == 0) {  // that no layer has: none has positions
      a.unrotated_layers = layer_values(a, [](int64_t) { return true; });
    }
  };
  row.write = [write = row.write](const A& a, nlohmann::json& config) {
    write(a, config);
    if (a.window == 0 && a.unrotated_layers.empty()) config["sliding_window"] = nullptr;
  };
  return row;
}

}  // namespace

Family exaone4_family() {
  return {
      .name = "exaone4",
      .class_name = "Exaone4ForCausalLM",
      .rules = shared::join({shared::embedding(), shared::attention(), shared::output_norms(),
                             shared::dense_mlp(), shared::head()}),
      .config =
          shared::join({shared::llama_config(),
                        {codec::or_null(codec::plain("head_dim", &A::head_dim)),
                         codec::implied(&A::qk_norm, true), codec::implied(&A::input_norms, false),
                         codec::implied(&A::output_norms, true), windows()}}),
      .defaults = R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 32, "sliding_window": 4096})",
      .differences = shared::warn_of_output_norms};
}

}  // namespace ferry
