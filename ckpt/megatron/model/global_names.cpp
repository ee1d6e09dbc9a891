#include "ckpt/megatron/model/global_names.h"

#include <algorithm>
#include <map>
#include <set>

#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

constexpr std::string_view kLayerNames = "decoder.layers.";

}  // namespace

GlobalName global_name(std::string_view local, bool stacked) {
  GlobalName global;
  global.name = local;
  std::string_view rest;
  if (local.starts_with(kLayerNames)) {
    const auto layer = leading_number(local.substr(kLayerNames.size()), &rest);
    global.layer = layer.value_or(-1);
    global.layer_axis = layer && stacked;
    if (global.layer_axis) global.name = std::string(kLayerNames) + std::string(rest);
  }
  const size_t experts = global.name.find(kRoutedExperts);
  if (experts == std::string::npos) return global;
  const size_t number = experts + kRoutedExperts.size();
  if (const auto expert = leading_number(std::string_view(global.name).substr(number), &rest)) {
    global.expert = *expert;
    global.expert_axis = true;
    global.name = global.name.substr(0, number) + std::string(rest);
  }
  return global;
}

bool layers_are_alike(const std::vector<std::string>& names) {
  std::map<int64_t, std::set<std::string>> suffixes;
  for (const std::string& name : names) {
    GlobalName global = global_name(name, true);
    if (global.layer >= 0) suffixes[global.layer].insert(std::move(global.name));
  }
  return std::all_of(suffixes.begin(), suffixes.end(),
                     [&](const auto& layer) { return layer.second == suffixes.begin()->second; });
}

}  // namespace ferry
