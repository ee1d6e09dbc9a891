#include "convert/check/mtp.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/config_value.h"
#include "convert/language_part.h"

namespace ferry {
namespace {

// DeepSeek's and most others'; Qwen3.5's; those of Inkling and Mellum; Megatron-LM's, which some
// exporters keep; MiniMax's.
constexpr const char* kMtpMembers[] = {"num_nextn_predict_layers", "mtp_num_hidden_layers",
                                       "num_mtp_layers", "mtp_num_layers", "num_mtp_modules"};
constexpr std::string_view kMtpModules[] = {"mtp", "nextn"};  // begins of their names
constexpr std::string_view kDecoders[] = {"model.", "language_model.", "decoder."};
constexpr std::string_view kLayersModule = "layers.";

std::string_view module_at(std::string_view name, size_t begin) {
  return name.substr(begin, name.find('.', begin) - begin);
}

}  // namespace

std::optional<MtpCount> counted_mtp(const nlohmann::json& config) {
  const nlohmann::json& model = language_config(config);
  for (const char* member : kMtpMembers) {
    const int64_t layers = integer_of(model, member, 0);
    if (layers > 0) return MtpCount{member, layers};
  }
  return std::nullopt;
}

std::string_view inside_mtp_layer(std::string_view name, int64_t decoder_layers) {
  for (size_t begin = 0; begin < name.size();) {
    const std::string_view module = module_at(name, begin);
    const size_t next = begin + module.size() + 1;
    if (next >= name.size()) return {};
    const bool is_mtp = std::ranges::any_of(
        kMtpModules, [&](std::string_view start) { return module.starts_with(start); });
    if (is_mtp) {
      std::string_view rest = name.substr(next);
      if (rest.starts_with(kLayersModule)) rest.remove_prefix(kLayersModule.size());
      std::string_view inner;
      return leading_number(rest, &inner) && !inner.empty() ? inner : rest;
    }
    const std::string_view before = name.substr(0, begin);
    const bool is_decoder = begin == 0 || std::ranges::any_of(kDecoders, [&](std::string_view end) {
                              return before.ends_with(end);
                            });
    if (decoder_layers > 0 && is_decoder && name.substr(begin).starts_with(kLayersModule)) {
      std::string_view inner;
      const auto number = leading_number(name.substr(next), &inner);
      return number && *number >= decoder_layers ? inner : std::string_view();
    }
    begin = next;
  }
  return {};
}

void find_missing_mtp(const Catalog& catalog, const nlohmann::json& config, Findings& findings) {
  const auto counted = counted_mtp(config);
  if (!counted) return;
  const int64_t layers = integer_of(language_config(config), "num_hidden_layers", 0);
  if (std::ranges::any_of(catalog.entries, [&](const Entry& entry) {
        return !inside_mtp_layer(entry.name, layers).empty();
      })) {
    return;
  }
  findings.warning(
      "mtp", counted->member,
      fmt::format("config.json counts {} MTP layer{} ({}), but no tensor is of one: transformers "
                  "loads the model without such layers, speculative decoding by them fails",
                  counted->layers, counted->layers == 1 ? "" : "s", counted->member),
      fmt::format("set {} to 0, or take them from the original model (convert with {})",
                  counted->member, option("fill_from", "DIR")));
}

}  // namespace ferry
