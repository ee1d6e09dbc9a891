#include "ckpt/megatron/config/nemo_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/megatron/model/args.h"

namespace ferry {
namespace {

// Builds one object, attribute by attribute.
class ArgsBuilder {
 public:
  explicit ArgsBuilder(std::string_view class_name) : args_(draft_.instance(class_name)) {}

  // Over an attribute of that name, if there is one.
  void set(std::string_view name, bool value) { draft_.put(args_, name, draft_.boolean(value)); }
  void set(std::string_view name, int64_t value) { draft_.put(args_, name, draft_.integer(value)); }

  // A scalar, a list of scalars, or a function or class, which is given by its name.
  void copy(std::string_view name, const Value& value) {
    if (is_scalar(value)) return draft_.put(args_, name, value);
    if (value.kind() == ValueKind::list) {
      const Value list = draft_.list();
      for (size_t i = 0; i < value.size(); ++i) {
        if (is_scalar(value[i])) draft_.append(list, value[i]);
      }
      return draft_.put(args_, name, list);
    }
    const auto target = value.get("_target_").string();
    const size_t dot = target ? target->rfind('.') : std::string_view::npos;
    if (dot == std::string_view::npos) return;
    draft_.put(args_, name, draft_.global(*target));
  }

  LoadedValue finish() && { return std::move(draft_).finish(args_); }

 private:
  static bool is_scalar(const Value& value) {
    const ValueKind kind = value.kind();
    return kind == ValueKind::none || kind == ValueKind::boolean || kind == ValueKind::integer ||
           kind == ValueKind::real || kind == ValueKind::string;
  }

  Draft draft_;
  Value args_;
};

// activation_func and gated_linear_unit together are one of Megatron-LM's flags.
void set_activation(ArgsBuilder& args, const Value& config) {
  const Value activation = config.get("activation_func");  // a name, or a function to import
  std::string_view function =
      activation.string().value_or(activation.get("_target_").string().value_or(""));
  function = function.substr(function.find_last_of('.') + 1);
  const bool gated = config.get("gated_linear_unit").boolean().value_or(false);
  args.set("swiglu", gated && function == "silu");
  args.set("squared_relu", function == "squared_relu");
  args.set("openai_gelu", !gated && (function == "openai_gelu" || function == "gelu_impl"));
  args.set("quick_geglu", gated && function == "quick_gelu");
  args.set("bias_gelu_fusion", !gated && function == "gelu" &&
                                   config.get("bias_activation_fusion").boolean().value_or(false));
}

void set_sizes(ArgsBuilder& args, const Value& config, int64_t sequence) {
  const auto number = [&](std::string_view name) { return config.get(name).integer().value_or(0); };
  const int64_t heads = number("num_attention_heads"), hidden = number("hidden_size");
  if (number("kv_channels") == 0 && heads > 0) args.set("kv_channels", hidden / heads);
  const int64_t groups = number("num_query_groups");
  if (groups == 0 && heads > 0) args.set("num_query_groups", heads);
  args.set("group_query_attention", groups > 0 && groups != heads);
  const bool sane = hidden > 0 && hidden <= (int64_t{1} << 40);
  if (number("ffn_hidden_size") == 0 && sane) args.set("ffn_hidden_size", 4 * hidden);
  if (sequence > 0) args.set("max_position_embeddings", sequence);
}

// The model's configuration is written before the strategy puts its sizes into it.
void set_layout(ArgsBuilder& args, const ParallelLayout& layout) {
  const auto set = [&](std::string_view name, int64_t size) {
    if (size > 0) args.set(name, size);
  };
  set("tensor_model_parallel_size", layout.tensor);
  set("pipeline_model_parallel_size", layout.pipeline);
  set("virtual_pipeline_model_parallel_size", layout.virtual_pipeline);
  set("context_parallel_size", layout.context);
  set("expert_model_parallel_size", layout.expert);
  set("expert_tensor_parallel_size", layout.expert_tensor);
  set("world_size", layout.world_size);
}

using Json = nlohmann::json;

// fiddle writes an object as {"type", "items": [["Attr(name='x')", value], ...], "metadata"}; its
// class is the type, or, for a Config, what the metadata's fn_or_cls names.
const Json* attribute(const Json& object, std::string_view name) {
  const std::string attribute = fmt::format("Attr(name='{}')", name);
  if (!object.is_object() || !object.contains("items") || !object["items"].is_array()) return {};
  for (const Json& item : object["items"]) {
    if (item.is_array() && item.size() == 2 && item[0] == attribute) return &item[1];
  }
  return nullptr;
}

std::string name_of(const Json* type) {
  if (!type || !type->is_object()) return {};
  const auto name = type->find("name");
  return name != type->end() && name->is_string() ? name->get<std::string>() : std::string();
}

std::string class_of(const Json& objects, const Json& object) {
  if (!object.is_object()) return {};
  const auto type = object.find("type"), metadata = object.find("metadata");
  const std::string direct = type == object.end() ? "" : name_of(&*type);
  const bool is_config = direct == "Config" || direct == "Partial";
  if (!is_config || metadata == object.end() || !metadata->is_object()) return direct;
  const auto key = metadata->find("key");
  if (key == metadata->end() || !key->is_string()) return direct;
  const auto target = objects.find(key->get<std::string>());
  return target == objects.end() ? direct : name_of(attribute(*target, "fn_or_cls"));
}

// A positive integer that is written down; 0 otherwise.
int64_t size_of(const Json& object, std::string_view name) {
  const Json* leaf = attribute(object, name);
  if (!leaf || !leaf->is_object()) return 0;
  const auto value = leaf->find("value");
  if (value == leaf->end() || !value->is_number_integer()) return 0;
  const auto size = value->get<int64_t>();
  return size > 0 && size < (int64_t{1} << 31) ? size : 0;
}

void read_strategy(const Json& object, ParallelLayout& layout) {
  const auto size = [&](std::string_view name) {
    return std::max<int64_t>(size_of(object, name), 1);
  };
  layout.tensor = size("tensor_model_parallel_size");
  layout.pipeline = size("pipeline_model_parallel_size");
  layout.virtual_pipeline = size_of(object, "virtual_pipeline_model_parallel_size");
  layout.context = size("context_parallel_size");
  layout.expert = size("expert_model_parallel_size");
  layout.expert_tensor = size_of(object, "expert_tensor_parallel_size");
}

}  // namespace

LoadedValue args_from_nemo_model(const Value& model, const ParallelLayout& layout) {
  return args_from_provider(model.get("config"), layout);
}

LoadedValue args_from_provider(const Value& config, const ParallelLayout& layout) {
  if (config.kind() != ValueKind::dict) return {};
  const Value nested = config.get("transformer");
  const Value transformer = nested.kind() == ValueKind::dict ? nested : config;
  const std::string_view named = config.get("_target_").string().value_or("");
  ArgsBuilder args(named.find('.') == std::string_view::npos ? "nemo.GPTConfig" : named);
  for (const Value& fields : {transformer, config}) {
    for (size_t i = 0; i < fields.pair_count(); ++i) {
      const auto name = fields.pair_key(i).string();
      if (name && !name->starts_with('_')) args.copy(*name, fields.pair_value(i));
    }
  }
  args.copy("num_experts", transformer.get("num_moe_experts"));
  args.copy("norm_epsilon", transformer.get("layernorm_epsilon"));
  args.copy("rotary_seq_len_interpolation_factor", config.get("seq_len_interpolation_factor"));
  args.set("untie_embeddings_and_output_weights",
           !config.get("share_embeddings_and_output_weights").boolean().value_or(true));
  args.set("apply_layernorm_1p",
           transformer.get("layernorm_zero_centered_gamma").boolean().value_or(false));
  if (const Value factor = config.get("scale_factor")) {
    args.set("use_rope_scaling", true);
    args.copy("rope_scaling_factor", factor);
  }
  if (config.get("rope_scaling").boolean().value_or(false)) args.set("use_rope_scaling", true);
  set_activation(args, transformer);
  set_sizes(args, transformer, config.get("seq_length").integer().value_or(0));
  set_layout(args, layout);
  return std::move(args).finish();
}

ParallelLayout layout_from_nemo_io(std::string_view json) {
  ParallelLayout layout;
  const Json root = Json::parse(json, nullptr, false);
  if (!root.is_object() || !root.contains("objects") || !root["objects"].is_object()) return layout;
  const Json& objects = root["objects"];
  for (const Json& object : objects) {
    const std::string name = class_of(objects, object);
    if (name == "MegatronStrategy") read_strategy(object, layout);
    if (name == "Trainer") {
      const int64_t nodes = std::max<int64_t>(size_of(object, "num_nodes"), 1);
      layout.world_size = nodes * size_of(object, "devices");
    }
  }
  layout.data = data_parallel_size(layout);
  return layout;
}

}  // namespace ferry
