#include "convert/check/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/base/error.h"
#include "convert/config_value.h"
#include "convert/language_part.h"
#include "convert/model/expert_names.h"

namespace ferry {
namespace {

using nlohmann::json;

// Types whose files on the hub are met with experts one by one and fused.
constexpr std::string_view kEither[] = {"qwen3_5_moe", "qwen3_5_moe_text", "qwen4_exp"};

struct RuntimeName {
  std::initializer_list<std::string_view> types;
  std::string_view runtime, hub;  // parts of names; the former begin a name without a first '.'
};
const RuntimeName kRuntimeNames[] = {
    {{"nemotron_h"}, "model.layers.", "backbone.layers."},
    {{"granitemoe", "granitemoeshared", "granitemoehybrid"},
     ".block_sparse_moe.experts.gate_up_proj",
     ".block_sparse_moe.input_linear.weight"},
    {{"granitemoe", "granitemoeshared", "granitemoehybrid"},
     ".block_sparse_moe.experts.down_proj",
     ".block_sparse_moe.output_linear.weight"},
    {{"hy_v3"}, ".mlp.e_score_correction_bias", ".mlp.expert_bias"},
    {{"hy_v3"}, ".mlp.shared_experts.", ".mlp.shared_mlp."},
    {{"ernie4_5_moe"}, ".mlp.gate.moe_statics.", ".mlp.moe_statics."},
    {{"glm5_next", "glm5_next_text"}, ".attn_hc.", ".hc_attn_"},
    {{"glm5_next", "glm5_next_text"}, ".ffn_hc.", ".hc_ffn_"},
    {{"glm5_next", "glm5_next_text"}, ".self_attn.forget_gate.", ".self_attn."},
    {{"glm5_next", "glm5_next_text"}, ".self_attn.conv1d.", ".self_attn.q_conv1d."}};

class Dialect {
 public:
  explicit Dialect(const json& config) {
    for (const json* part : {&config, &language_config(config)}) {
      const std::string type = text_of(*part, "model_type", "");
      if (type.empty() || has_type(types_, type)) continue;
      types_.push_back(type);
      const bool is_either =
          std::ranges::find(kEither, std::string_view(type)) != std::end(kEither);
      if (!is_either && experts_ == nullptr) experts_ = expert_names_of(type);
    }
  }

  /// The name, or the first of those, that the hub has for it; nothing where it is the hub's.
  std::optional<std::string> on_hub(const Entry& entry) const {
    if (experts_ != nullptr) {
      auto parts = experts_in(entry.name, entry.shape, *experts_);
      if (!parts.empty()) return std::move(parts.front().name);
    }
    for (const RuntimeName& each : kRuntimeNames) {
      const bool is_of_type = std::ranges::any_of(
          each.types, [&](std::string_view type) { return has_type(types_, type); });
      const size_t at = is_of_type ? entry.name.find(each.runtime) : std::string::npos;
      if (at == std::string::npos || (at != 0 && !each.runtime.starts_with('.'))) continue;
      std::string name = entry.name;
      return name.replace(at, each.runtime.size(), each.hub);
    }
    return std::nullopt;
  }

 private:
  static bool has_type(const std::vector<std::string>& types, std::string_view type) {
    return std::ranges::find(types, type) != types.end();
  }

  std::vector<std::string> types_;
  const ExpertNames* experts_ = nullptr;
};

}  // namespace

void check_dialect(const Catalog& catalog, const json& config, Loader loader, Findings& findings) {
  if (loader == Loader::transformers) return;
  const Dialect dialect(config);
  size_t count = 0;
  double bytes = 0, all_bytes = 0, largest = 0;
  std::string example, hub;
  for (const Entry& entry : catalog.entries) {
    if (entry.role != Role::model) continue;
    const auto size = static_cast<double>(entry.bytes());
    all_bytes += size;
    const auto name = dialect.on_hub(entry);
    if (!name) continue;
    ++count;
    bytes += size;
    if (size <= largest) continue;
    largest = size;
    example = entry.name;
    hub = *name;
  }
  if (count == 0) return;
  findings.add(
      loader != Loader::any, "names", example,
      fmt::format(
          "{} of {} tensors ({:.0f}% of the bytes) have the names that transformers uses "
          "while a model runs: {}, on the hub {}; engines skip such tensors or stop at them",
          count, catalog.entries.size(), 100 * bytes / std::max(all_bytes, 1.0), example, hub),
      fmt::format("give them the names of the original model (convert with {})",
                  option("fill_from", "ORIGINAL")));
}

}  // namespace ferry
