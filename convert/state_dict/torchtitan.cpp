#include "convert/state_dict/torchtitan.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

enum class Kind : uint8_t { plain, queries, keys, experts };

// Inside a layer. The first that transformers' model has is meant.
struct TitanRule {
  std::string_view titan;
  std::string_view hugging_face;  // of experts with {} for the number
  Kind kind = Kind::plain;
};

constexpr TitanRule kInLayers[] = {
    {"attention.wq.weight", "self_attn.q_proj.weight", Kind::queries},
    {"attention.wk.weight", "self_attn.k_proj.weight", Kind::keys},
    {"attention.wv.weight", "self_attn.v_proj.weight"},
    {"attention.qkv_linear.wq.weight", "self_attn.q_proj.weight", Kind::queries},
    {"attention.qkv_linear.wk.weight", "self_attn.k_proj.weight", Kind::keys},
    {"attention.qkv_linear.wv.weight", "self_attn.v_proj.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight"},
    {"attention.q_norm.weight", "self_attn.q_norm.weight"},
    {"attention.q_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attention.k_norm.weight", "self_attn.k_norm.weight"},
    {"attention.wq_a.weight", "self_attn.q_a_proj.weight"},
    {"attention.wq_b.weight", "self_attn.q_b_proj.weight"},
    {"attention.wkv_a.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attention.kv_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attention.wkv_b.weight", "self_attn.kv_b_proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight"},
    {"attention_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"moe.router.gate.weight", "mlp.gate.weight"},
    {"moe.expert_bias", "mlp.gate.e_score_correction_bias"},
    {"moe.expert_bias_E", "mlp.gate.e_score_correction_bias"},
    {"moe.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"},
    {"moe.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"},
    {"moe.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"},
    {"moe.experts.w1", "mlp.experts.{}.gate_proj.weight", Kind::experts},
    {"moe.experts.w3", "mlp.experts.{}.up_proj.weight", Kind::experts},
    {"moe.experts.w2", "mlp.experts.{}.down_proj.weight", Kind::experts},
    {"moe.routed_experts.inner_experts.w1_EFD", "mlp.experts.{}.gate_proj.weight", Kind::experts},
    {"moe.routed_experts.inner_experts.w3_EFD", "mlp.experts.{}.up_proj.weight", Kind::experts},
    {"moe.routed_experts.inner_experts.w2_EDF", "mlp.experts.{}.down_proj.weight", Kind::experts},
};

constexpr TitanRule kOutside[] = {{"tok_embeddings.weight", "model.embed_tokens.weight"},
                                  {"norm.weight", "model.norm.weight"},
                                  {"lm_head.weight", "lm_head.weight"},
                                  {"output.weight", "lm_head.weight"}};

constexpr std::string_view kLayers = "layers.";

std::string expert_name(std::string_view pattern, int64_t expert) {
  std::string name(pattern);
  const size_t at = name.find("{}");
  return at == std::string::npos ? name : name.replace(at, 2, std::to_string(expert));
}

[[noreturn]] void refuse(const std::string& name, const Dims& shape, std::string_view what) {
  fail(ErrorKind::mismatch, "tensor {} of shape {}: config.json says {}", name, to_string(shape),
       what);
}

// Rows (head, pair, half) become (head, half, pair).
std::vector<Move> unrotated(const std::string& name, const Dims& shape, int64_t heads) {
  if (shape.size() != 2 || heads < 1 || shape[0] % (2 * heads) != 0) {
    refuse(name, shape, fmt::format("rows of {} heads, in pairs", heads));
  }
  const int64_t head = shape[0] / heads;
  std::vector<Move> moves;
  for (int64_t half = 0; half < 2; ++half) {
    Move move;
    move.in_origin = {half, 0};
    move.out_origin = {half * (head / 2), 0};
    move.loops = {{heads, 0, head, 0, head}, {head / 2, 0, 2, 0, 1}, {shape[1], 1, 1, 1, 1}};
    moves.push_back(std::move(move));
  }
  return moves;
}

Move one_expert(const Dims& shape, int64_t expert) {
  Move move;
  move.in_origin = {expert, 0, 0};
  move.out_origin = {0, 0};
  move.loops = {{shape[1], 1, 1, 0, 1}, {shape[2], 2, 1, 1, 1}};
  return move;
}

}  // namespace

TitanNames::TitanNames(const ReadConfig& config, const std::unordered_set<std::string>& expected)
    : config_(config), expected_(expected) {
  if (config.family->torchtitan == TitanPairs::no_model) return;
  for (const TitanRule& rule : kOutside) names_.insert(std::string(rule.titan));
  for (int64_t layer = 0; layer < config.architecture.layers; ++layer) {
    const std::string number = std::to_string(layer) + ".";
    for (const TitanRule& rule : kInLayers) {
      const std::string theirs = "model.layers." + number + expert_name(rule.hugging_face, 0);
      if (!expected.contains(theirs)) continue;
      names_.insert(std::string(kLayers) + number + std::string(rule.titan));
    }
  }
}

std::vector<TitanTensor> TitanNames::tensors_of(const std::string& name, const Dims& shape) const {
  if (!names_.contains(name)) return {};
  const Architecture& a = config_.architecture;
  for (const TitanRule& rule : kOutside) {
    if (name == rule.titan) {
      return {{std::string(rule.hugging_face), shape, {copy_all(shape)}}};
    }
  }
  const size_t end = name.find('.', kLayers.size()) + 1;
  for (const TitanRule& rule : kInLayers) {
    if (std::string_view(name).substr(end) != rule.titan) continue;
    const std::string begin = "model." + name.substr(0, end);
    if (!expected_.contains(begin + expert_name(rule.hugging_face, 0))) continue;
    const std::string theirs = begin + std::string(rule.hugging_face);
    const bool rotated = config_.family->torchtitan == TitanPairs::adjacent;
    if (rotated && rule.kind == Kind::queries) {
      return {{theirs, shape, unrotated(name, shape, a.heads)}};
    }
    if (rotated && rule.kind == Kind::keys) {
      return {{theirs, shape, unrotated(name, shape, a.groups)}};
    }
    if (rule.kind != Kind::experts) return {{theirs, shape, {copy_all(shape)}}};
    if (shape.size() != 3 || shape[0] != a.experts) {
      refuse(name, shape, fmt::format("{} experts, on the first of three axes", a.experts));
    }
    std::vector<TitanTensor> all;
    for (int64_t expert = 0; expert < shape[0]; ++expert) {
      all.push_back(
          {expert_name(theirs, expert), {shape[1], shape[2]}, {one_expert(shape, expert)}});
    }
    return all;
  }
  return {};
}

}  // namespace ferry
