// Which parameters each block of a transformer has, as tables: the one list that readers, writers,
// converters and the trainer take names, shapes, splits and first values from. A block is a part of
// a layer (attention, MLP, mixture of experts, ...) or of the model outside its layers.
//
// Rows are in the order in which Megatron-LM's modules register their parameters, which is the
// order of the flat gradient buffers (reversed there): a module's own parameters first, then its
// submodules in the order of construction. Checkpoints confirm it for plain attention, dense layers
// and mixtures of experts; for latent attention, the shared expert's gate, latent projections,
// learned softmax offsets, indexers and MTP layers it is derived from the source alone.
//
// Source: megatron/core/transformer/{transformer_layer,attention,multi_latent_attention,mlp,
// multi_token_prediction,
// experimental_attention_variant/dsa}.py, moe/{moe_layer,router,shared_experts,experts}.py,
// extensions/transformer_engine.py; first values: megatron/core/utils.py (init_method_normal,
// scaled_init_method_normal), swiss-ai/Megatron-LM for xIELU.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "ckpt/base/box.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

/// How tensor parallelism splits a parameter. Routed experts are split over the expert-tensor
/// ranks, all else over the tensor ranks.
enum class Split : uint8_t {
  replicated,
  rows,         // axis 0
  gated_rows,   // axis 0 holds gate, then up, each of them split (rows where there is no gate)
  columns,      // axis 1
  latent_rows,  // MLA down-projections: rows, or replicated, as the module was chosen
  head_rows,    // norms of queries and keys: rows where they are over all heads, or replicated
};

/// The values that training starts from.
enum class FirstValues : uint8_t {
  normal,         // standard deviation Architecture::init_std
  scaled_normal,  // the same divided by sqrt(2 x layers): the outputs into the residual stream
  zeros,
  ones,
  xielu_positive,  // before the softplus that gives 0.8
  xielu_negative,  // before the softplus that gives 0.3, to which 0.5 is added
  not_trained,     // of blocks that cannot be trained here
};

/// The extent of an axis, computed from the architecture.
using AxisSize = int64_t (*)(const Architecture&);
/// Whether a layer has something. Layers are numbered as by Architecture::is_moe().
using Condition = bool (*)(const Architecture&, int64_t layer);

/// A part of a parameter's rows that torch_dist stores as a tensor of its own, whose name is the
/// parameter's and this suffix. Each tensor rank holds its rows of all parts, one after another.
struct RowPiece {
  std::string_view suffix;
  AxisSize rows = nullptr;  // null: halves
};

struct ParameterRow {
  /// After the name of the layer; whole outside of layers. Norms are named as Transformer Engine
  /// names them, inside the linear module after them where it has one. Routed experts share a row,
  /// named without the expert's number.
  std::string_view name;
  Split split = Split::replicated;
  FirstValues first_values = FirstValues::normal;
  /// Nothing after the last axis; no axes where Architecture does not describe the parameter, so
  /// that only files which have it do.
  std::array<AxisSize, 3> shape = {};
  Condition when = nullptr;               // null: wherever the block is
  std::string_view separate_norm = {};    // its name where norms are modules of their own
  bool buffer = false;                    // not trained, without optimizer state,
  bool of_model_dtype = false;            // and always fp32, where this does not say otherwise
  bool routed = false;                    // of each routed expert
  std::span<const RowPiece> pieces = {};  // torch_dist always stores it as these; empty: whole

  /// The axes' extents; empty where the architecture does not describe the parameter.
  Dims extents(const Architecture& architecture) const;

  /// The parts as which torch_dist may store it: those above, or gate ("_w") and up ("_v") of gated
  /// rows; empty: it is always whole.
  std::span<const RowPiece> stored_pieces() const;

  /// Whether it is a norm that Megatron stores less 1 where zero_centered_norms says so.
  bool is_zero_centered_norm() const;
};

struct Block {
  std::string_view name;
  Condition when = nullptr;  // null: in every layer
  std::span<const ParameterRow> parameters;
};

/// The blocks of a layer. Alternatives (attention and latent attention, MLP and mixture) follow one
/// another.
std::span<const Block> layer_blocks();

/// Before the layers, before and after the layer inside an MTP layer, and after all layers.
std::span<const ParameterRow> embedding_parameters();
std::span<const ParameterRow> mtp_input_parameters();
std::span<const ParameterRow> mtp_output_parameters();
std::span<const ParameterRow> head_parameters();
/// After those: of the embeddings for each layer.
std::span<const ParameterRow> layer_embedding_parameters();

/// Whether a model has a parameter in a layer. `block`: null outside of layers.
bool has_parameter(const Block* block, const ParameterRow& parameter,
                   const Architecture& architecture, int64_t layer);

}  // namespace ferry
