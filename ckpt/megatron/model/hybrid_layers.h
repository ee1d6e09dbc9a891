// The layers of Megatron-LM's hybrid models, as a text of one letter a layer: M Mamba, * attention,
// - MLP, E mixture of experts; "|" between pipeline stages, "/" before the layers inside each MTP
// layer ("ME*E|ME*E/*E").
//
// Source: megatron/core/models/hybrid/hybrid_layer_allocation.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

struct HybridPattern {
  std::vector<LayerKind> decoder;
  std::vector<LayerKind> mtp;  // inside each MTP layer
  int64_t mtp_layers = 0;
  std::vector<int64_t> stage_layers;  // of the decoder; empty: the text does not say

  std::string text() const;
};

/// unsupported for layers of other kinds and when MTP layers differ.
HybridPattern parse_hybrid_pattern(std::string_view text);

/// What the arguments of a run say, whichever release spelled them; nothing: it is not a hybrid.
std::optional<HybridPattern> hybrid_pattern(const Value& args);

/// The layers of a model, and a model of these layers.
HybridPattern pattern_of(const Architecture& architecture);
void set_layers(const HybridPattern& pattern, Architecture& architecture);

/// The MLPs of a GPT that computes what a hybrid model of these layers does: mlp or mixture, where
/// they and attention take turns. Nothing for other layers.
std::optional<LayerKind> mlp_of_gpt(const std::vector<LayerKind>& kinds);

/// A parameter's name ("decoder.final_layernorm.weight") as hybrid models call it on disk.
std::string hybrid_spelling(std::string name);

}  // namespace ferry
