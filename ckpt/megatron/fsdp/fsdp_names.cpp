#include "ckpt/megatron/fsdp/fsdp_names.h"

#include <string>

#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

bool take_start(std::string_view* text, std::string_view start) {
  if (!text->starts_with(start)) return false;
  text->remove_prefix(start.size());
  return true;
}

std::optional<int64_t> take_dotted_number(std::string_view* text) {
  std::string_view rest;
  const auto number = leading_number(*text, &rest);
  if (number) *text = rest;
  return number;
}

std::string_view without_wrappers(std::string_view name) {
  while (take_start(&name, "module.")) {
  }
  return name;
}

// "<parameter>.<state>"
std::optional<FsdpOptimizerKey> fsdp_key_by_name(FsdpOptimizerKey key, std::string_view rest) {
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == rest.size()) return std::nullopt;
  key.parameter = without_wrappers(rest.substr(0, dot));
  key.state = rest.substr(dot + 1);
  return key;
}

}  // namespace

std::optional<std::string_view> fsdp_parameter(std::string_view key) {
  if (!take_start(&key, "model")) return std::nullopt;
  while (!key.empty() && key.front() >= '0' && key.front() <= '9') key.remove_prefix(1);
  if (!take_start(&key, ".")) return std::nullopt;
  return without_wrappers(key);
}

std::optional<FsdpOptimizerKey> parse_fsdp_optimizer_key(std::string_view text) {
  using Kind = FsdpOptimizerKey::Kind;
  FsdpOptimizerKey key;
  if (!take_start(&text, "optimizer.")) return std::nullopt;
  key.optimizer = take_dotted_number(&text).value_or(0);
  if (take_start(&text, "param_to_group_meta.")) {
    key.kind = Kind::group_by_name;
    return fsdp_key_by_name(key, text);
  }
  if (take_start(&text, "fp32_from_fp16_params.")) {
    key.kind = Kind::master;
    const auto group = take_dotted_number(&text), number = take_dotted_number(&text);
    if (!group || !number || !text.empty()) return std::nullopt;
    key.group = *group;
    key.number = *number;
    return key;
  }
  take_start(&text, "optimizer.");
  if (take_start(&text, "param_groups.")) {
    key.kind = Kind::group;
    const auto group = take_dotted_number(&text);
    if (!group || text.empty()) return std::nullopt;
    key.group = *group;
    key.state = text;
    return key;
  }
  if (!take_start(&text, "state.")) return std::nullopt;
  if (const auto number = take_dotted_number(&text)) {
    key.kind = Kind::state_by_number;
    key.number = *number;
    key.state = text;
    if (text.empty()) return std::nullopt;
    return key;
  }
  return fsdp_key_by_name(key, text);
}

}  // namespace ferry
