// Why a model is not of a family: its traits compared with what the family can express.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "convert/model/family.h"

namespace ferry {
namespace {

struct Question {
  Has has;
  bool present;
  std::string_view what;  // "query/key norms (qk_layernorm)"
};

std::string_view words(Activation activation) {
  switch (activation) {
    case Activation::swiglu:
      return "SwiGLU";
    case Activation::gelu:
      return "GELU";
    case Activation::gelu_tanh:
      return "GELU (tanh form)";
    case Activation::squared_relu:
      return "squared ReLU";
    case Activation::quick_geglu:
      return "quick GEGLU";
    case Activation::xielu:
      return "xIELU";
    case Activation::other:
      break;
  }
  return "an unknown activation";
}

std::string_view words(RouterScore score) {
  switch (score) {
    case RouterScore::softmax:
      return "softmax";
    case RouterScore::sigmoid:
      return "sigmoid";
    case RouterScore::other:
      break;
  }
  return "unknown";
}

std::string_view words(Positions positions) {
  switch (positions) {
    case Positions::rope:
      return "rotary";
    case Positions::learned:
      return "learned";
    case Positions::other:
      break;
  }
  return "other";
}

template <typename T>
bool contains(const std::vector<T>& values, T value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

std::vector<std::string> objections(const Family& family, const Architecture& a) {
  const Traits& t = family.traits;
  std::vector<std::string> reasons;
  const auto object = [&](std::string reason) { reasons.push_back(std::move(reason)); };

  if (a.norm != t.norm) {
    object(fmt::format("the model has {} (normalization), {} has {}",
                       a.norm == Norm::rms ? "RMSNorm" : "LayerNorm", family.name,
                       t.norm == Norm::rms ? "RMSNorm" : "LayerNorm"));
  }
  if (!contains(t.activations, a.activation)) {
    object(fmt::format("the model's activation is {}, {} has {}", words(a.activation), family.name,
                       words(t.activations.front())));
  }
  if (a.position_kind != t.positions) {
    object(fmt::format("the model has {} positions (position_embedding_type), {} has {} ones",
                       words(a.position_kind), family.name, words(t.positions)));
  }
  std::vector<Question> questions = {
      {t.mla, a.mla, "latent attention (multi_latent_attention)"},
      {t.moe, a.experts > 0, "experts (num_experts)"},
      {t.qkv_bias, a.qkv_bias && !a.linear_bias, "QKV biases (add_qkv_bias)"},
      {t.linear_bias, a.linear_bias, "biases in all linear layers (add_bias_linear)"},
      {t.qk_norm, a.qk_norm && !a.mla, "query/key norms (qk_layernorm)"},
      {t.tied, a.tied, "an output layer tied to the embedding"},
      {t.window, a.window > 0, "windowed attention (window_size)"},
      {t.mtp, a.mtp_layers > 0, "multi-token prediction layers (mtp_num_layers)"},
      {t.grouped_queries, !a.mla && a.groups != a.heads, "grouped queries (num_query_groups)"},
  };
  if (a.experts > 0 && t.moe != Has::no) {
    const Question of_experts[] = {
        {t.dense_layers, !a.all_moe(), "dense layers among those with experts (moe_layer_freq)"},
        {t.shared_expert, a.shared_ffn > 0,
         "a shared expert (moe_shared_expert_intermediate_size)"},
        {t.shared_gate, a.shared_gate, "a gate on the shared expert (moe_shared_expert_gate)"},
        {t.expert_bias, a.expert_bias,
         "a bias on the router's scores (moe_router_enable_expert_bias)"},
    };
    questions.insert(questions.end(), std::begin(of_experts), std::end(of_experts));
    if (!contains(t.scores, a.router_score)) {
      object(fmt::format("the router's scores are {} (moe_router_score_function), {}'s are {}",
                         words(a.router_score), family.name, words(t.scores.front())));
    }
  }
  for (const Question& question : questions) {
    if (question.has == Has::no && question.present) {
      object(fmt::format("the model has {}, {} has none", question.what, family.name));
    } else if (question.has == Has::yes && !question.present) {
      object(fmt::format("the model lacks {}, {} always has that", question.what, family.name));
    }
  }
  if (family.objections != nullptr) family.objections(a, reasons);
  return reasons;
}

}  // namespace ferry
