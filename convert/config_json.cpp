#include "convert/config_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ferry {
namespace {

using nlohmann::json;

json id_or_null(std::optional<int64_t> id) { return id ? json(*id) : json(); }

json ids(const std::vector<int64_t>& ids) {
  if (ids.empty()) return json();
  return ids.size() == 1 ? json(ids.front()) : json(ids);
}

}  // namespace

// Source: Megatron-LM gpt_builders.py, which leaves both factors out when it makes the model.
void report_differences(const Family& family, const Architecture& a,
                        std::vector<std::string>& warnings) {
  constexpr double kFixedFactor = 8;
  // Megatron Bridge's layers with scaled embeddings take it.
  const bool linear = a.rope_scaling == RopeScaling::linear && !a.scales_embedding;
  if (linear || (a.rope_scaling == RopeScaling::llama3 && a.rope_factor != kFixedFactor)) {
    warnings.push_back(fmt::format(
        "positions are scaled by {}, but Megatron-LM's pretrain_gpt.py does not hand {} on to the "
        "model, which then {}: add it in gpt_builders.py to compute the same",
        a.rope_factor, linear ? "--rotary-seq-len-interpolation-factor" : "--rope-scaling-factor",
        linear ? "does not scale them" : "scales them by 8"));
  }
  if (family.differences != nullptr) family.differences(a, warnings);
}

json members_json(const Family& family, const Architecture& a) {
  json config = json::object();
  for (const ConfigRow& row : family.config) {
    if (row.write) row.write(a, config);
  }
  return config;
}

json config_json(const Family& family, const Architecture& a, DType dtype,
                 const SpecialTokens& tokens, std::vector<std::string>& warnings) {
  json config = {{"architectures", {family.class_name}},
                 {"model_type", family.name},
                 {"dtype", torch_name(dtype)},
                 {"torch_dtype", torch_name(dtype)},
                 {"use_cache", true},
                 {"bos_token_id", id_or_null(tokens.bos)},
                 {"eos_token_id", ids(tokens.eos)},
                 {"pad_token_id", id_or_null(tokens.pad)}};
  config.update(members_json(family, a));
  const bool expects_mtp = std::ranges::count(family.expected_mtp_layers, a.layers) > 0;
  if (a.mtp_layers > 0 && !expects_mtp && family.mtp_prefix.empty()) {
    warnings.push_back(fmt::format(
        "transformers looks for prediction layers at layer {} only: it will call those of this "
        "model, from layer {} on, unexpected and ignore them",
        fmt::join(family.expected_mtp_layers, " or "), a.layers));
  }
  report_differences(family, a, warnings);
  return config;
}

json generation_config_json(const SpecialTokens& tokens) {
  json config = {{"_from_model_config", true}};
  if (tokens.bos) config["bos_token_id"] = *tokens.bos;
  if (!tokens.eos.empty()) config["eos_token_id"] = ids(tokens.eos);
  if (tokens.pad) config["pad_token_id"] = *tokens.pad;
  return config;
}

}  // namespace ferry
