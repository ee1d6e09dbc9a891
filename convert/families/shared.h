// Rows that several families have in common.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convert/model/family.h"

namespace ferry::shared {

/// Concatenation, in order.
std::vector<Rule> rules(std::initializer_list<std::vector<Rule>> groups);

std::vector<Rule> embedding();
std::vector<Rule> attention();  // self_attn.{q,k,v,o}_proj, norms and biases where there are any
std::vector<Rule> latent_attention();  // DeepSeek's
std::vector<Rule> dense_mlp();         // of dense layers: mlp.{gate,up,down}_proj
std::vector<Rule> experts();           // of MoE layers: norm, mlp.gate, mlp.experts.{expert}.*
std::vector<Rule> shared_experts();    // DeepSeek's: mlp.shared_experts.*
std::vector<Rule> head();              // final norm and output layer

std::vector<ConfigField> config_fields();  // of every Llama-like family
std::vector<ConfigField> latent_fields();  // DeepSeek's

std::vector<ConfigNumber> head_dim_number();       // of read_head_dim()
std::vector<ConfigNumber> window_number();         // of read_window()
std::vector<ConfigNumber> layer_window_numbers();  // of read_layer_windows()
std::vector<ConfigNumber> dense_layer_number();    // of read_dense_layers()
std::vector<ConfigNumber> latent_numbers();        // of read_latent()

template <typename T>
std::vector<T> join(std::vector<T> first, const std::vector<T>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Objections and config entries that several families have in common.
void object_router(const Architecture& a, std::string_view family, bool renormalises,
                   std::vector<std::string>& reasons);
void object_partial_window(const Architecture& a, std::string_view family,
                           std::vector<std::string>& reasons);
void object_uneven_heads(const Architecture& a, std::string_view family,
                         std::vector<std::string>& reasons);
// Each writer beside its reader, which gives the architecture back and rewords `config` as the
// writer would.
void write_head_dim_if_unusual(const Architecture& a, nlohmann::json& config);
void read_head_dim(nlohmann::json& config, Architecture& a);
void write_window(const Architecture& a, nlohmann::json& config);
void read_window(nlohmann::json& config, Architecture& a);
void write_layer_windows(const Architecture& a, nlohmann::json& config);
void read_layer_windows(nlohmann::json& config, Architecture& a);
void write_dense_layers(const Architecture& a, nlohmann::json& config);
void read_dense_layers(nlohmann::json& config, Architecture& a);
void write_latent(const Architecture& a, nlohmann::json& config);
void read_latent(nlohmann::json& config, Architecture& a);
/// Whether tokens may go to experts of some groups only.
bool limits_groups(const Architecture& a);
/// How transformers' class of a family ranks groups of experts: by the sum of that many scores.
struct GroupRank {
  std::string_view family;
  int64_t scores = 1;
  std::string_view words;
};
void warn_of_latent(const Architecture& a, const GroupRank& rank,
                    std::vector<std::string>& warnings);
void object_latent(const Architecture& a, std::string_view family,
                   std::vector<std::string>& reasons);

}  // namespace ferry::shared
