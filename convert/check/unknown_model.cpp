#include "convert/check/unknown_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "convert/check/embedding.h"
#include "convert/check/final_norm.h"
#include "convert/check/layers.h"
#include "convert/check/mtp.h"
#include "convert/check/stacks.h"
#include "convert/config_value.h"
#include "convert/language_part.h"

namespace ferry {
namespace {

using nlohmann::json;

int64_t first_of(const json& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (const int64_t value = integer_of(config, key, 0); value > 0) return value;
  }
  return 0;
}

// What the first layer of a type lacks, after the layer's number: the norm of what an embedding has
// normalised, the scale of an earlier layer's router, or the norm after experts.
// Source: transformers modeling_modernbert.py, modeling_modernbert_decoder.py, modeling_zaya.py,
// modeling_axk1.py.
std::string_view not_in_the_first_layer_of(std::string_view model_type) {
  if (model_type == "modernbert" || model_type == "modernbert-decoder") return "attn_norm.";
  if (model_type == "axk1") return "post_mlp_layernorm.";
  if (model_type == "zaya") return "mlp.gate.router_states_scale";
  return {};
}

class Comparison {
 public:
  Comparison(const Catalog& catalog, const json& config, bool has_head, Findings& findings)
      : catalog_(catalog),
        whole_config_(config),
        config_(language_config(config)),
        has_head_(has_head),
        findings_(findings) {}

  void run() {
    find_decoder();
    for (const Stack& stack : stacks_) {
      if (&stack != decoder_) compare_with_each_other(stack, {}, {}, findings_);
    }
    if (decoder_ != nullptr) {
      compare_layers();
      find_missing_final_norm(catalog_, *decoder_, text_of(config_, "model_type", ""), findings_);
    }
    compare_embedding();
  }

 private:
  // The stack with as many layers as config.json says, else the largest of several tensors a layer.
  void find_decoder() {
    stacks_ = stacks_of(catalog_);
    for (const char* key : {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_blocks",
                            "num_layers_per_stack", "num_hidden_groups"}) {
      if (const int64_t count = integer_of(config_, key, 0); count > 0) counts_.push_back(count);
    }
    for (const Stack& stack : stacks_) {
      if (stack.layers.begin()->second.size() < 2) continue;
      const bool fits = is_whole(stack);
      const bool is_better = decoder_ == nullptr || fits > is_whole(*decoder_) ||
                             (fits == is_whole(*decoder_) && stack.elements > decoder_->elements);
      if (is_better) decoder_ = &stack;
    }
  }

  bool is_whole(const Stack& stack) const {
    const auto count = static_cast<int64_t>(stack.layers.size());
    const auto counted = counted_mtp(config_);
    const int64_t mtp = counted ? counted->layers : 0;
    return stack.layers.rbegin()->first + 1 == count &&
           std::any_of(counts_.begin(), counts_.end(),
                       [&](int64_t layers) { return count == layers || count == layers + mtp; });
  }

  void compare_layers() {
    if (!counts_.empty() && !is_whole(*decoder_)) {
      const int64_t layers = counts_.front();
      std::string missing;
      for (int64_t i = 0; i < std::min<int64_t>(layers, 100000); ++i) {
        if (!decoder_->layers.contains(i))
          missing += (missing.empty() ? "" : ", ") + std::to_string(i);
      }
      constexpr size_t kMost = 60;
      if (missing.size() > kMost) missing = missing.substr(0, kMost) + "...";
      findings_.problem(missing.empty() ? "left_over" : "missing", decoder_->prefix,
                        fmt::format("{}: there are {} layers; config.json has {}{}",
                                    decoder_->prefix, decoder_->layers.size(), layers,
                                    missing.empty() ? "" : "; missing: " + missing));
    }
    std::vector<std::string> kinds;
    for (const char* of_layers : {"layer_types", "indexer_types"}) {
      const auto types = config_.find(of_layers);
      if (types == config_.end() || !types->is_array()) continue;
      kinds.resize(std::max(kinds.size(), types->size()));
      for (size_t i = 0; i < types->size(); ++i) {
        const json& type = (*types)[i];
        kinds[i] += type.is_string() ? type.get<std::string>() + " " : "";
      }
    }
    const int64_t experts = first_of(
        config_, {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
    const int64_t others = first_of(config_, {"zero_expert_num"});
    compare_with_each_other(
        *decoder_, kinds, not_in_the_first_layer_of(text_of(config_, "model_type", "")), findings_);
    compare_experts(*decoder_, experts, experts + others, findings_);
  }

  void compare_embedding() {
    const Entry* found = embedding_of(catalog_);
    const int64_t rows = first_of(config_, {"vocab_size"});
    if (found == nullptr) return miss_embedding(rows);
    const int64_t columns = first_of(
        config_, {"word_embed_proj_dim", "embedding_size", "hidden_size", "n_embd", "d_model"});
    const Dims expected = {rows, columns};
    const bool too_small = found->shape[0] < rows;  // some have rows for tokens of other kinds
    const bool fits = columns == 0 || found->shape[1] == columns;
    if (too_small || !fits) {
      findings_.problem("shape", found->name,
                        fmt::format("{}: has shape {}; config.json says {}", found->name,
                                    to_string(found->shape), to_string(expected)));
    } else if (rows > 0 && found->shape[0] > rows) {
      findings_.warning("shape", found->name,
                        fmt::format("{}: has {} rows; config.json's vocab_size is {}", found->name,
                                    found->shape[0], rows));
    }
    if (has_head_ && rows > 0 && is_untied()) compare_head(*found, rows);
  }

  // Whatever its name is: one of text has as many rows as tokens, and where the output layer is
  // another tensor, there are two of those.
  void miss_embedding(int64_t rows) {
    if (!has_head_ || decoder_ == nullptr || rows == 0) return;
    const auto of_tokens = std::ranges::count_if(catalog_.entries, [&](const Entry& entry) {
      return entry.shape.size() > 1 && std::ranges::max(entry.shape) >= rows;
    });
    if (of_tokens > (is_untied() ? 1 : 0)) return miss_embedding_unless_tied();
    findings_.problem(
        "missing", "the embedding",
        fmt::format("the embedding is missing: {} of the tensors {} {} rows",
                    is_untied() ? "no two" : "none", is_untied() ? "have" : "has", rows));
  }

  // Where config.json does not say whether the output layer is the embedding, its class does.
  void miss_embedding_unless_tied() {
    const bool has_output_layer = std::ranges::any_of(catalog_.entries, [](const Entry& entry) {
      return entry.name.ends_with(kOutputLayerName) && entry.shape.size() == 2;
    });
    if (!has_output_layer || whole_config_.contains("tie_word_embeddings") ||
        config_.contains("tie_word_embeddings")) {
      return;
    }
    findings_.warning("missing", "the embedding",
                      fmt::format("the embedding is missing, unless {} also serves as one; "
                                  "config.json does not say (tie_word_embeddings)",
                                  kOutputLayerName));
  }

  // In a model of several parts, the outermost configuration decides.
  bool is_untied() const {
    const auto tied = whole_config_.find("tie_word_embeddings");
    return tied != whole_config_.end() && *tied == false;
  }

  void compare_head(const Entry& embedding, int64_t rows) {
    const bool has_another =
        std::any_of(catalog_.entries.begin(), catalog_.entries.end(), [&](const Entry& entry) {
          return &entry != &embedding && entry.shape.size() == 2 &&
                 entry.shape[0] >= std::min(rows, embedding.shape[0]);
        });
    if (has_another) return;
    findings_.problem(
        "missing", "the output layer",
        fmt::format("the output layer is missing: config.json says that it is not the embedding "
                    "(tie_word_embeddings is false), and no tensor but {} has {} rows",
                    embedding.name, rows));
  }

  const Catalog& catalog_;
  const json& whole_config_;
  const json& config_;
  bool has_head_;
  Findings& findings_;
  std::vector<Stack> stacks_;
  const Stack* decoder_ = nullptr;
  std::vector<int64_t> counts_;  // of layers, as members of config.json have them
};

}  // namespace

void compare_with_config(const Catalog& catalog, const nlohmann::json& config, bool has_head,
                         Findings& findings) {
  Comparison(catalog, config, has_head, findings).run();
}

}  // namespace ferry
