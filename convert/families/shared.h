// Rows that several families have in common.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/config/codecs.h"
#include "convert/model/family.h"

namespace ferry::shared {

std::vector<Rule> embedding();
std::vector<Rule> attention();  // self_attn.{q,k,v,o}_proj, norms and biases where there are any
std::vector<Rule> latent_attention();     // DeepSeek's
std::vector<Rule> indexer();              // of sparse attention
std::vector<Rule> output_norms();         // of what attention and MLP give
std::vector<Rule> dense_mlp();            // of dense layers: mlp.{gate,up,down}_proj
std::vector<Rule> experts();              // of MoE layers: norm, mlp.gate, mlp.experts.{expert}.*
std::vector<Rule> shared_experts();       // DeepSeek's: mlp.shared_experts.*
std::vector<Rule> gated_shared_expert();  // Qwen's: mlp.shared_expert.*, mlp.shared_expert_gate
std::vector<Rule> head();                 // final norm and output layer

/// DeepSeek's, also of GLM: hub names of the router's bias and of MTP layers, which repeat the
/// embedding and the output layer.
std::vector<Rule> router_bias();
std::vector<Rule> mtp_layers();

/// For every Llama-like family. Without an activation: another row has it.
std::vector<ConfigRow> llama_config(std::optional<Activation> activation = Activation::swiglu);
std::vector<ConfigRow> llama_config_without_rope(
    std::optional<Activation> activation = Activation::swiglu);  // which comes after windows
std::vector<ConfigRow> latent_config();                          // of latent attention
std::vector<ConfigRow> indexer_config();  // of sparse attention, in every layer
std::vector<ConfigRow>
mixture_config();  // DeepSeek's, also of GLM: dense layers first, a shared expert

template <typename T>
std::vector<T> join(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

/// How transformers' class of a family ranks groups of experts: by the sum of that many scores.
struct GroupRank {
  std::string_view family;
  int64_t scores = 1;
  std::string_view words;
};
void warn_of_groups(const Architecture& a, const GroupRank& rank,
                    std::vector<std::string>& warnings);
/// The norms inside the compression have a fixed epsilon in transformers.
void warn_of_latent_norms(const Architecture& a, std::vector<std::string>& warnings);
/// Those of what attention and MLP give, inside the linear modules before them, have one in
/// Megatron Bridge (models/common/te_layers.py).
void warn_of_output_norms(const Architecture& a, std::vector<std::string>& warnings);
/// transformers fixes that of an indexer's keys, too.
void warn_of_index_norm(const Architecture& a, std::vector<std::string>& warnings);

}  // namespace ferry::shared
