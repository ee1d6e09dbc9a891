// A transformer model described neutrally: what Megatron's arguments and config.json both say, in
// different words. Both directions of the conversion go through it, and name rules take their
// sizes and conditions from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace ferry {

enum class Activation : uint8_t {
  swiglu,
  gelu,
  gelu_tanh,
  squared_relu,
  quick_geglu,
  tanh_geglu,  // gated GELU in its tanh form
  xielu,
  other
};
enum class Norm : uint8_t { rms, layer };
enum class Positions : uint8_t { rope, learned, none, other };
enum class RopeScaling : uint8_t { none, linear, llama3, yarn };
/// What a layer is: attention followed by an MLP or a mixture, or one part alone in hybrid models.
enum class LayerKind : uint8_t { transformer, mamba, attention, mlp, mixture };
enum class RouterScore : uint8_t { softmax, sigmoid, other };

/// What the whole model has.
struct ModelSizes {
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t positions = 0;
  int64_t padded_vocab = 0;  // rows of the embedding in Megatron
  int64_t vocab = 0;         // rows in Hugging Face
  bool tied = false;         // the output layer is the embedding
  Norm norm = Norm::rms;
  double norm_eps = 1e-5;
  /// Norms of the hidden state, and of queries and keys, are stored less 1 in Megatron.
  bool zero_centered_norms = false;
  /// Attention and MLP norm what they take, and what they give before it is added.
  bool input_norms = true, output_norms = false;
  bool scales_embedding = false;  // by the root of the hidden size
  /// Those norms are modules of a layer, not parts of the linear modules next to them.
  bool norm_modules = false;
  bool scales_layers = false;  // what a layer gives, by a number of its own
  double logit_cap = 0;        // logits are tanh(logits / this) times this; 0: as they are
  bool linear_bias = false;    // of every linear layer, QKV included
  double init_std = 0.02;
  double hidden_dropout = 0;
  int64_t mtp_layers = 0;  // multi-token prediction
  /// torch_dist numbers layers though they are alike, because the arguments name a kind for each.
  bool numbers_layers = false;
};

struct AttentionSizes {
  int64_t heads = 0;
  int64_t groups = 0;    // query groups; heads when attention is not grouped
  int64_t head_dim = 0;  // of queries and keys; not for latent attention
  bool qkv_bias = false;
  bool qk_norm = false;
  bool norms_all_heads = false;  // at once, where queries and keys are normed
  bool output_gate = false;      // the heads' outputs are multiplied by a sigmoid of the input
  bool sinks = false;  // a learned score for each head, of no key, takes part in the softmax
  double attention_scalar = 0;  // by the root of which scores are divided; 0: head_dim
  double attention_dropout = 0;
  int64_t window = 0;                 // tokens a query sees, itself included; 0: all before it
  std::vector<bool> windowed_layers;  // empty: all, when there is a window

  bool norms_values = false;  // of each head, without weights
  /// Layers without a window may have heads of another size, other groups, and keys for values.
  bool attention_by_kind = false;     // torch_dist stacks attention with and without a window apart
  int64_t full_head_dim = 0;          // of layers without a window; 0: head_dim
  int64_t full_groups = 0;            // likewise; 0: groups
  bool full_keys_are_values = false;  // before they are normed
  int64_t kv_taking_layers = 0;       // the last ones, which take keys and values of an earlier one

  /// MTP layers, which count after the last one, have windows as the first layers do.
  bool has_window(int64_t layer) const {
    return window > 0 && (windowed_layers.empty() ||
                          windowed_layers[static_cast<size_t>(layer) % windowed_layers.size()]);
  }
};

struct LatentAttentionSizes {
  bool mla = false;         // multi-head latent attention
  int64_t q_lora_rank = 0;  // 0: queries are not compressed
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_dim = 0;  // of a head's query and key, without position
  int64_t qk_rope_dim = 0;
  int64_t v_dim = 0;
};

/// Gated delta nets in the place of attention.
struct LinearAttentionSizes {
  std::vector<bool> linear_layers;  // empty: none
  int64_t linear_key_heads = 0;     // also of queries
  int64_t linear_value_heads = 0;
  int64_t linear_key_dim = 0;    // of a head
  int64_t linear_value_dim = 0;  // of a head
  int64_t linear_conv = 0;       // tokens that the convolution before them sees

  /// MTP layers, which count after the last one, are like that.
  bool is_linear(int64_t layer) const {
    if (linear_layers.empty()) return false;
    const auto count = static_cast<int64_t>(linear_layers.size());
    return linear_layers[static_cast<size_t>(layer < count ? layer : count - 1)];
  }
  bool any_linear() const { return std::ranges::count(linear_layers, true) > 0; }
};

/// DeepSeek's sparse attention: an indexer in a layer chooses the tokens that it and those after it
/// attend to, up to the next layer with one.
struct IndexerSizes {
  int64_t index_heads = 0;              // 0: no indexers, attention to all tokens
  int64_t index_dim = 0;                // of a head
  int64_t index_tokens = 0;             // that a query attends to
  int64_t index_every = 1;              // every so many layers have one, after the first ones,
  int64_t index_first = 1;              // as many as this, which all do
  bool index_rope_interleaved = false;  // pairs of elements next to each other are rotated
  double index_norm_eps = 0;            // of the norm of its keys; 0: norm_eps

  bool has_indexer(int64_t layer) const {
    return index_heads > 0 && std::max<int64_t>(layer + 1 - index_first, 0) % index_every == 0;
  }
};

/// Hybrid models, whose layers are Mamba-2 mixers, attention, MLPs and mixtures.
struct HybridSizes {
  std::vector<LayerKind> kinds;  // of all layers, those inside MTP layers last; empty: transformer
  int64_t mtp_inner_layers = 1;  // of each MTP layer
  int64_t mamba_heads = 0;
  int64_t mamba_head_dim = 0;
  int64_t mamba_groups = 0;  // of heads that share B and C
  int64_t mamba_state = 0;   // elements of a head's state for each of its own

  bool is_hybrid() const { return !kinds.empty(); }
  LayerKind kind(int64_t layer) const {
    if (!is_hybrid()) return LayerKind::transformer;
    return kinds[std::min(static_cast<size_t>(layer), kinds.size() - 1)];
  }
  bool any_mamba() const { return std::ranges::count(kinds, LayerKind::mamba) > 0; }
};

struct PositionSettings {
  Positions position_kind = Positions::rope;
  double rotary_fraction = 1;          // of each head's elements, from the first on
  bool rope_interleaved = false;       // pairs of elements next to each other are rotated
  std::vector<bool> unrotated_layers;  // without positions; empty: none
  double rope_theta = 10000;
  double windowed_rope_theta = 0;  // of layers with a window, which are not scaled; 0: as others
  /// In layers without a window, of the pairs of a whole head: the others are as at position 0.
  double full_rotated_pairs = 1;
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  double rope_low_freq_factor = 1;   // llama3
  double rope_high_freq_factor = 4;  // llama3
  int64_t rope_original_positions = 0;
  double rope_beta_fast = 32, rope_beta_slow = 1;   // yarn
  double rope_mscale = 1, rope_mscale_all_dim = 0;  // yarn
  bool rope_truncates = true;                       // yarn: the ramp's bounds are whole numbers

  /// Layers as by AttentionSizes::has_window().
  bool is_rotated(int64_t layer) const {
    return unrotated_layers.empty() ||
           !unrotated_layers[static_cast<size_t>(layer) % unrotated_layers.size()];
  }
};

struct MlpSizes {
  int64_t ffn = 0;                             // of a dense layer's MLP, per half when gated
  Activation activation = Activation::swiglu;  // of experts, too
  double glu_clamp = 0;      // gate is at most, up within plus and minus this; 0: as they are
  double glu_offset = 0;     // added to up before it is multiplied
  bool doubles_ffn = false;  // in layers that take keys and values of an earlier one

  bool gated() const {
    return activation == Activation::swiglu || activation == Activation::quick_geglu ||
           activation == Activation::tanh_geglu;
  }
};

struct MixtureSizes {
  int64_t experts = 0;  // 0: all layers are dense
  int64_t experts_per_token = 0;
  int64_t expert_ffn = 0;
  int64_t expert_width = 0;  // what routed experts take and give; 0: the hidden size
  int64_t shared_ffn = 0;    // 0: no shared expert
  bool shared_gate = false;
  std::vector<bool> moe_layers;  // one a layer, when there are experts; MTP layers may follow
  RouterScore router_score = RouterScore::softmax;
  bool router_pre_softmax = false;  // scores are not renormalised over the chosen experts
  bool expert_bias = false;
  double router_scale = 0;    // 0: none
  int64_t router_groups = 0;  // 0: experts are not grouped
  int64_t router_groups_per_token = 0;
  double aux_loss_coeff = 0;
  /// Router, routed experts and shared expert each norm what they take, and the experts what they
  /// give; the router scales what it takes and what it gives.
  bool norms_parts = false;

  /// MTP layers, which count after the last one, are like that.
  bool is_moe(int64_t layer) const {
    if (experts == 0 || moe_layers.empty()) return false;
    const auto count = static_cast<int64_t>(moe_layers.size());
    return moe_layers[static_cast<size_t>(layer < count ? layer : count - 1)];
  }
  bool all_moe() const { return experts > 0 && std::ranges::count(moe_layers, false) == 0; }
  /// Whether tokens may go to experts of some groups only.
  bool limits_groups() const {
    return experts > 0 && router_groups > 0 && router_groups_per_token > 0 &&
           router_groups_per_token < router_groups;
  }
};

/// Embeddings of tokens for each layer, which it takes after its MLP.
struct LayerEmbeddingSizes {
  int64_t layer_embedding = 0;        // elements of a token for a layer; 0: there are none
  int64_t layer_embedding_vocab = 0;  // tokens that have them
};

/// How gate and up are stored: rows alternate in blocks of this many on each tensor rank that they
/// were saved by; 0: [gate; up], on however many.
struct GluRows {
  int64_t dense_glu_block = 0, expert_glu_block = 0, shared_glu_block = 0;
  int64_t glu_ranks = 1, expert_glu_ranks = 1;  // those ranks
};

/// A struct a block, so that what is about one block takes that alone. Their members are the
/// architecture's own, so that a table of (spelling, pointer to member) reads and writes them.
struct Architecture : ModelSizes,
                      AttentionSizes,
                      LatentAttentionSizes,
                      LinearAttentionSizes,
                      HybridSizes,
                      IndexerSizes,
                      PositionSettings,
                      MlpSizes,
                      MixtureSizes,
                      LayerEmbeddingSizes,
                      GluRows {
  /// Layers of the decoder and inside MTP layers.
  int64_t all_layers() const { return layers + mtp_layers * mtp_inner_layers; }
  /// The part of a head, without latent attention, from which the frequencies of rotary positions
  /// are computed. As many elements are rotated, or one more where this is odd.
  int64_t rotary_part() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_fraction);
  }
  int64_t rotary_dim() const { return (rotary_part() + 1) / 2 * 2; }

  bool takes_kv(int64_t layer) const {
    return kv_taking_layers > 0 && layer < layers && layer >= layers - kv_taking_layers;
  }
  bool keys_are_values(int64_t layer) const { return full_keys_are_values && !has_window(layer); }
  /// The same model with that layer's sizes for those of all layers: what a block's shapes are
  /// functions of.
  Architecture in_layer(int64_t layer) const {
    Architecture a = *this;
    if (!has_window(layer) && full_head_dim > 0) a.head_dim = full_head_dim;
    if (!has_window(layer) && full_groups > 0) a.groups = full_groups;
    if (doubles_ffn && takes_kv(layer) && kv_taking_layers < layers) a.ffn *= 2;
    return a;
  }
  bool differs_by_layer() const { return full_head_dim > 0 || full_groups > 0 || doubles_ffn; }
};

}  // namespace ferry
