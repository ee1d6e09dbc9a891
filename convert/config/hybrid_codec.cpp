// Kinds of layers of hybrid models in config.json.
#include <algorithm>
#include <optional>

#include "ckpt/megatron/model/hybrid_layers.h"
#include "convert/config/codecs.h"
#include "convert/config_value.h"

namespace ferry::codec {
namespace {

using nlohmann::json;
using A = Architecture;

constexpr const char *kList = "layers_block_type", *kPattern = "hybrid_override_pattern",
                     *kMtpList = "mtp_layers_block_type",
                     *kMtpPattern = "mtp_hybrid_override_pattern",
                     *kMtpCount = "num_nextn_predict_layers", *kCount = "num_hidden_layers";

struct KindName {
  std::string_view name, older;
  LayerKind kind;
};
constexpr KindName kNames[] = {{"linear_attention", "mamba", LayerKind::mamba},
                               {"full_attention", "attention", LayerKind::attention},
                               {"mlp", "mlp", LayerKind::mlp},
                               {"moe", "moe", LayerKind::mixture}};

json names_of(const std::vector<LayerKind>& kinds) {
  json names = json::array();
  for (const LayerKind kind : kinds) {
    const auto* found = std::ranges::find(kNames, kind, &KindName::kind);
    if (found != std::end(kNames)) names.push_back(found->name);
  }
  return names;
}

// Nothing where the list names another kind; also the older names become today's.
std::optional<std::vector<LayerKind>> kinds_of(json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<LayerKind> kinds;
  for (json& name : list) {
    const auto* found = std::ranges::find_if(
        kNames, [&](const KindName& each) { return name == each.name || name == each.older; });
    if (found == std::end(kNames)) return std::nullopt;
    name = found->name;
    kinds.push_back(found->kind);
  }
  return kinds;
}

// The list's kinds, else the pattern's; none where neither says any.
std::vector<LayerKind> read_kinds(json& config, const char* list, const char* pattern) {
  if (const auto found = config.find(list); found != config.end() && !found->is_null()) {
    return kinds_of(*found).value_or(std::vector<LayerKind>());
  }
  const std::string text = text_of(config, pattern, "");
  if (text.find_first_not_of("M*-E") != std::string::npos) return {};
  std::vector<LayerKind> kinds = parse_hybrid_pattern(text).decoder;
  if (!text.empty()) config[list] = names_of(kinds);
  return kinds;
}

std::string text_of_kinds(const std::vector<LayerKind>& kinds) {
  HybridPattern pattern;
  pattern.decoder = kinds;
  return pattern.text();
}

void read(json& config, A& a) {
  HybridPattern pattern;
  pattern.decoder = read_kinds(config, kList, kPattern);
  pattern.mtp = read_kinds(config, kMtpList, kMtpPattern);
  const int64_t predictions = integer_of(config, kMtpCount, 0);
  pattern.mtp_layers = std::clamp<int64_t>(predictions, 0, kMaxLayers);
  if (pattern.mtp.empty()) pattern.mtp_layers = 0;
  constexpr size_t kMostLayers = 2 * kMaxLayers;
  const size_t layers = pattern.decoder.size() + pattern.mtp.size() * pattern.mtp_layers;
  if (layers > kMostLayers) pattern = {};
  set_layers(pattern, a);
  if (pattern.mtp_layers > 0) return;
  for (const char* key : {kMtpList, kMtpPattern}) config.erase(key);
}

void write(const A& a, json& config) {
  const HybridPattern pattern = pattern_of(a);
  config[kCount] = a.layers;
  config[kList] = names_of(pattern.decoder);
  config[kPattern] = text_of_kinds(pattern.decoder);
  config[kMtpCount] = pattern.mtp_layers;
  if (pattern.mtp_layers == 0) return;
  config[kMtpList] = names_of(pattern.mtp);
  config[kMtpPattern] = text_of_kinds(pattern.mtp);
}

}  // namespace

ConfigRow hybrid_layers() {
  return {.keys = {kList, kPattern, kMtpList, kMtpPattern, kMtpCount, kCount},
          .nullable = {kList, kPattern, kMtpList, kMtpPattern, kCount},
          .numbers = {{.key = kMtpCount, .most = kMaxLayers}, {.key = kCount, .least = 1}},
          .size = &A::layers,
          .read = read,
          .write = write,
          .read_tensors =
              [](const HasParameter& has, A& a) {
                if (has("mtp.layers.{mtp}.eh_proj.weight", a.layers)) return;
                HybridPattern pattern = pattern_of(a);
                pattern.mtp_layers = 0;
                pattern.mtp.clear();
                set_layers(pattern, a);
              },
          .unsupported =
              [](const A& a, std::string_view, std::vector<std::string>& reasons) {
                if (!a.is_hybrid())
                  reasons.emplace_back("the model's layers are not of several kinds");
              }};
}

}  // namespace ferry::codec
