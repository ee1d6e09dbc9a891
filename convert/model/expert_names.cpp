#include "convert/model/expert_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "ckpt/core/recipe_cutter.h"

namespace ferry {
namespace {

constexpr std::string_view kExpertsPart = "experts.";
constexpr std::string_view kWeight = ".weight", kScales = "_scale_inv";
constexpr std::string_view kGateAndUp = "gate_up_proj", kUp = "up_proj", kDown = "down_proj";
constexpr int64_t kMostExperts = 1 << 16;  // of a layer: more is not a model's

constexpr ExpertNames kKinds[] = {
    {".mlp.", ".mlp.", "gate_proj", "up_proj", "down_proj"},
    {".mlp.", ".block_sparse_moe.", "w1", "w3", "w2"},
    {".feed_forward.", ".feed_forward.", "gate_proj", "up_proj", "down_proj"},
    {".feed_forward.", ".feed_forward.", "w1", "w3", "w2"},
    {".mixer.", ".mixer.", "", "up_proj", "down_proj"}};

// Parts of names on the hub, and what transformers makes of them: of mixtral and its like, phimoe,
// nemotron_h, hy_v3, ernie4_5_moe and granitemoe.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {".block_sparse_moe.", ".mlp."},
    {".block_sparse_moe.gate.", ".mlp.router."},
    {"backbone.", "model."},
    {".mlp.router.gate.", ".mlp.gate."},
    {".mlp.expert_bias", ".mlp.e_score_correction_bias"},
    {".mlp.shared_mlp.", ".mlp.shared_experts."},
    {".mlp.moe_statics.", ".mlp.gate.moe_statics."},
    {".block_sparse_moe.input_linear.weight", ".block_sparse_moe.experts.gate_up_proj"},
    {".block_sparse_moe.output_linear.weight", ".block_sparse_moe.experts.down_proj"},
    {".block_sparse_moe.router.layer.", ".block_sparse_moe.router."}};

constexpr std::string_view kTransposed[] = {"qwen3_vl_moe", "qwen3_vl_moe_text", "llama4",
                                            "llama4_text", "gpt_oss"};

struct TypesOfKind {
  const ExpertNames* names;
  std::vector<std::string_view> types;
};

const std::vector<TypesOfKind>& types_of_kinds() {
  static const std::vector<TypesOfKind> all = {
      {&kKinds[0],
       {"afmoe",
        "bailing_hybrid",
        "cohere2_moe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4_moe_lite",
        "glm4v_moe",
        "glm4v_moe_text",
        "glm5_next",
        "glm5_next_text",
        "glm_moe_dsa",
        "hunyuan_v1_moe",
        "hy_v3",
        "kimi_k2",
        "kimi_k25",
        "laguna",
        "longcat_flash",
        "mellum",
        "mimo_v2_flash",
        "olmoe",
        "qwen2_moe",
        "qwen3_5_moe",
        "qwen3_5_moe_text",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_omni_moe",
        "qwen3_omni_moe_text",
        "qwen3_omni_moe_thinker",
        "sarvam",
        "solar_open"}},
      {&kKinds[1], {"kimi_linear", "minimax", "minimax_m2", "mixtral"}},
      {&kKinds[2], {"jamba"}},
      {&kKinds[3], {"lfm2_moe"}},
      {&kKinds[4], {"nemotron_h"}}};
  return all;
}

// What a fused tensor holds of an expert, in the order of its rows.
std::vector<std::string_view> fused_in(std::string_view end, const ExpertNames& names) {
  if (end == kDown) return {names.down};
  if (end == kGateAndUp && !names.gate.empty()) return {names.gate, names.up};
  if (end == kUp && names.gate.empty()) return {names.up};
  return {};
}

// The name, and those that the other side of transformers' renaming may give it.
std::vector<std::string> spellings_of(const std::string& name) {
  std::vector<std::string> result = {name};
  for (const auto& [hub, runtime] : kRenamed) {
    for (const auto& [from, to] : {std::pair(hub, runtime), {runtime, hub}}) {
      const size_t at = name.rfind(from);
      const bool begins = !from.starts_with('.');  // the outermost module
      if (at == std::string::npos || (begins && at != 0)) continue;
      result.push_back(name);
      result.back().replace(at, from.size(), to);
    }
  }
  return result;
}

// Nothing where `name` is not of one expert.
std::optional<ExpertPlace> expert_place(const std::string& name, const ExpertNames& names) {
  const std::string module = fmt::format("{}{}", names.module, kExpertsPart);
  const size_t at = name.rfind(module);
  if (at == std::string::npos || !name.ends_with(kWeight)) return std::nullopt;
  ExpertPlace place;
  const char* const begin = name.data() + at + module.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), place.expert);
  if (error != std::errc() || *end != '.' || place.expert < 0) return std::nullopt;
  std::string_view part(end + 1, static_cast<size_t>(name.data() + name.size() - end - 1));
  part.remove_suffix(std::min(part.size(), kWeight.size()));
  for (const std::string_view fused : {kGateAndUp, kUp, kDown}) {
    const auto parts = fused_in(fused, names);
    const auto found = std::ranges::find(parts, part);
    if (found == parts.end()) continue;
    place.fused =
        fmt::format("{}{}{}{}", name.substr(0, at), names.fused_module, kExpertsPart, fused);
    place.half = found - parts.begin();
    place.halves = static_cast<int64_t>(parts.size());
    return place;
  }
  return std::nullopt;
}

}  // namespace

const ExpertNames* expert_names_of(std::string_view model_type) {
  for (const TypesOfKind& kind : types_of_kinds()) {
    if (std::ranges::find(kind.types, model_type) != kind.types.end()) return kind.names;
  }
  return nullptr;
}

std::optional<bool> are_experts_transposed(std::string_view model_type) {
  if (expert_names_of(model_type) != nullptr) return false;
  const bool known = std::ranges::find(kTransposed, model_type) != std::end(kTransposed);
  return known ? std::optional(true) : std::nullopt;
}

std::vector<ExpertPart> experts_in(const std::string& name, const Dims& shape,
                                   const ExpertNames& names) {
  const std::string module = fmt::format("{}{}", names.fused_module, kExpertsPart);
  const size_t at = name.rfind(module);
  if (at == std::string::npos || shape.size() != 3) return {};
  std::string_view end = std::string_view(name).substr(at + module.size());
  const bool is_scales = end.ends_with(kScales);
  if (is_scales) end.remove_suffix(kScales.size());
  const auto parts = fused_in(end, names);
  if (parts.empty()) return {};
  const auto halves = static_cast<int64_t>(parts.size());
  if (shape[0] < 1 || shape[0] > kMostExperts || shape[1] % halves != 0) return {};
  const int64_t rows = shape[1] / halves;
  std::vector<ExpertPart> result;
  for (int64_t expert = 0; expert < shape[0]; ++expert) {
    for (int64_t half = 0; half < halves; ++half) {
      result.push_back(
          {fmt::format("{}{}{}{}.{}{}{}", name.substr(0, at), names.module, kExpertsPart, expert,
                       parts[static_cast<size_t>(half)], kWeight, is_scales ? kScales : ""),
           {{expert, half * rows, 0}, {1, rows, shape[2]}}});
    }
  }
  return result;
}

std::optional<OtherForm> other_form(const std::string& name, const Dims& shape,
                                    const std::function<bool(const std::string&)>& has) {
  for (std::string& spelled : spellings_of(name)) {
    for (const ExpertNames& names : kKinds) {
      auto parts = experts_in(spelled, shape, names);
      if (!parts.empty() && has(parts.front().name)) return OtherForm{std::move(parts), {}, {}};
      auto place = expert_place(spelled, names);
      if (place && has(place->fused)) return OtherForm{{}, std::move(place), {}};
    }
    if (spelled != name && has(spelled)) return OtherForm{{}, {}, std::move(spelled)};
  }
  return std::nullopt;
}

Recipe recipe_of_part(const Recipe& whole, const Dims& shape, const Box& box) {
  Shard shard;
  shard.box = box;
  Recipe part = RecipeCutter(whole, shape).cut(shard);
  for (Move& move : part.moves) {
    move.out_origin.erase(move.out_origin.begin());
    std::erase_if(move.loops, [](const Loop& loop) { return loop.out_axis == 0; });
    for (Loop& loop : move.loops) --loop.out_axis;
  }
  for (Box& zeros : part.zeros) {
    zeros.offset.erase(zeros.offset.begin());
    zeros.size.erase(zeros.size.begin());
  }
  return part;
}

}  // namespace ferry
