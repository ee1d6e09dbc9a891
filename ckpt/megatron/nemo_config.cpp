#include "ckpt/megatron/nemo_config.h"

#include <nlohmann/json.hpp>

#include "ckpt/core/draft.h"

namespace ferry {
namespace {

// Builds one object, attribute by attribute.
class ArgsBuilder {
 public:
  explicit ArgsBuilder(std::string_view class_name) : drafts_(1) {
    drafts_[0].kind = ValueKind::object;
    drafts_[0].text = class_name;
  }

  void set(std::string_view name, DraftValue value) {
    const uint32_t key = add(DraftValue::of_string(name));
    const uint32_t node = add(std::move(value));
    drafts_[0].pairs.emplace_back(key, node);
  }
  void set(std::string_view name, bool value) { set(name, DraftValue::of_boolean(value)); }
  void set(std::string_view name, int64_t value) { set(name, DraftValue::of_integer(value)); }

  // A scalar, a list of scalars, or a function or class, which stands as its name.
  void copy(std::string_view name, const Value& value) {
    DraftValue draft;
    if (draft_scalar(value, &draft)) return set(name, std::move(draft));
    if (value.kind() == ValueKind::list) {
      draft.kind = ValueKind::list;
      for (size_t i = 0; i < value.size(); ++i) {
        DraftValue item;
        if (draft_scalar(value[i], &item)) draft.items.push_back(add(std::move(item)));
      }
      return set(name, std::move(draft));
    }
    if (const auto target = value.get("_target_").string()) {
      draft.kind = ValueKind::global;
      draft.text = *target;
      set(name, std::move(draft));
    }
  }

  LoadedValue finish() const {
    auto document = make_document(drafts_);
    const Value root = document->root();
    return {std::move(document), root};
  }

 private:
  uint32_t add(DraftValue draft) {
    drafts_.push_back(std::move(draft));
    return static_cast<uint32_t>(drafts_.size() - 1);
  }

  std::vector<DraftValue> drafts_;
};

// activation_func and gated_linear_unit together are one of Megatron-LM's flags.
void set_activation(ArgsBuilder& args, const Value& config) {
  std::string_view function = config.get("activation_func").get("_target_").string().value_or("");
  function = function.substr(function.find_last_of('.') + 1);
  const bool gated = config.get("gated_linear_unit").boolean().value_or(false);
  args.set("swiglu", gated && function == "silu");
  args.set("squared_relu", function == "squared_relu");
  args.set("openai_gelu", !gated && (function == "openai_gelu" || function == "gelu_impl"));
  args.set("quick_geglu", gated && function == "quick_gelu");
}

void set_sizes(ArgsBuilder& args, const Value& config) {
  const auto number = [&](std::string_view name) { return config.get(name).integer().value_or(0); };
  const int64_t heads = number("num_attention_heads"), hidden = number("hidden_size");
  if (number("kv_channels") == 0 && heads > 0) args.set("kv_channels", hidden / heads);
  const int64_t groups = number("num_query_groups");
  if (groups == 0 && heads > 0) args.set("num_query_groups", heads);
  args.set("group_query_attention", groups > 0 && groups != heads);
  const bool sane = hidden > 0 && hidden <= (int64_t{1} << 40);
  if (number("ffn_hidden_size") == 0 && sane) args.set("ffn_hidden_size", 4 * hidden);
  if (number("seq_length") > 0) args.set("max_position_embeddings", number("seq_length"));
}

}  // namespace

LoadedValue args_from_nemo_model(const Value& model) {
  const Value config = model.get("config");
  if (config.kind() != ValueKind::dict) return {};
  ArgsBuilder args(config.get("_target_").string().value_or("nemo.GPTConfig"));
  for (size_t i = 0; i < config.pair_count(); ++i) {
    const auto name = config.pair_key(i).string();
    if (name && !name->starts_with('_')) args.copy(*name, config.pair_value(i));
  }
  // Later entries of a name win, so these stand over the configuration's own.
  args.copy("num_experts", config.get("num_moe_experts"));
  args.copy("norm_epsilon", config.get("layernorm_epsilon"));
  args.set("untie_embeddings_and_output_weights",
           !config.get("share_embeddings_and_output_weights").boolean().value_or(true));
  args.set("apply_layernorm_1p",
           config.get("layernorm_zero_centered_gamma").boolean().value_or(false));
  if (const Value factor = config.get("scale_factor")) {
    args.set("use_rope_scaling", true);
    args.copy("rope_scaling_factor", factor);
  }
  set_activation(args, config);
  set_sizes(args, config);
  return args.finish();
}

ParallelLayout layout_from_nemo_io(std::string_view json) {
  ParallelLayout layout;
  const auto root = nlohmann::json::parse(json, nullptr, false);
  if (!root.is_object() || !root.contains("objects") || !root["objects"].is_object()) return layout;
  for (const auto& object : root["objects"]) {
    const auto class_name = nlohmann::json::json_pointer("/type/name");
    if (!object.is_object() || !object.contains(class_name) ||
        object[class_name] != "MegatronStrategy" || !object.contains("items")) {
      continue;
    }
    for (const auto& item : object["items"]) {
      const bool is_pair = item.is_array() && item.size() == 2 && item[0].is_string() &&
                           item[1].is_object() && item[1].contains("value") &&
                           item[1]["value"].is_number_integer();
      if (!is_pair) continue;
      const std::string& name = item[0].get_ref<const std::string&>();
      const auto is = [&](const char* wanted) {
        return name == std::string("Attr(name='") + wanted + "')";
      };
      const int64_t value = item[1]["value"].get<int64_t>();
      if (is("tensor_model_parallel_size")) layout.tensor = value;
      if (is("pipeline_model_parallel_size")) layout.pipeline = value;
      if (is("virtual_pipeline_model_parallel_size")) layout.virtual_pipeline = value;
      if (is("context_parallel_size")) layout.context = value;
      if (is("expert_model_parallel_size")) layout.expert = value;
      if (is("expert_tensor_parallel_size")) layout.expert_tensor = value;
    }
  }
  return layout;
}

}  // namespace ferry
