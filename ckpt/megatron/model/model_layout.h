// How a model is spread over ranks: which box of which tensor a rank owns, in the order in which
// its modules register their parameters. Readers and writers of all of Megatron-LM's formats cut
// and place tensors by it.
//
// Tensors are named and shaped as in a torch_dist checkpoint: stacked layers
// (`decoder.layers.<suffix>`, layer axis first) or one tensor a layer, an expert axis after it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

struct ModelTensor {
  std::string name;
  Dims shape;
  DType dtype = DType::f32;
};

struct RankCoordinates {
  int64_t tensor = 0;
  int64_t expert_tensor = 0;
  int64_t expert = 0;
  int64_t stage = 0;
  int64_t chunk = 0;  // virtual stage
};

/// A rank's parameter: the elements of its shards, one shard after another. Each is a box of a
/// tensor, named by its position among the model's.
struct LocalParameter {
  std::vector<Shard> shards;
  int64_t elements = 0;
  int64_t layer = -1;   // in the decoder, or among the MTP layers; -1: outside of them
  int64_t expert = -1;  // number in the model
  int axes = 0;         // of the local tensor
  DType dtype = DType::f32;
  bool trainable = true;
  bool routed_expert = false;
  bool shared_embedding = false;  // a flat buffer gives it a bucket of its own
  bool first_copy = true;         // false: another rank, or the first stage, holds the same
};

/// What Megatron-LM builds today from these arguments.
ModuleChoice default_modules(const RunArguments& run);

class ModelLayout {
 public:
  /// unsupported when a tensor's name is not known, mismatch when its shape contradicts the
  /// arguments.
  ModelLayout(std::vector<ModelTensor> tensors, const RunArguments& run);
  /// For a model that is not Megatron-LM's: every rank holds every tensor whole, registered in the
  /// order given. `run.pipeline` is 1.
  static ModelLayout replicated(std::vector<ModelTensor> tensors, const RunArguments& run);

  const std::vector<ModelTensor>& tensors() const noexcept { return tensors_; }
  const RunArguments& run() const noexcept { return run_; }
  const PipelineLayout& pipeline() const noexcept { return pipeline_; }
  bool has_experts() const noexcept { return has_experts_; }
  bool has_attention_norms() const noexcept { return has_attention_norms_; }
  bool has_latent_down() const noexcept { return has_latent_down_; }
  bool has_expert_biases() const noexcept { return has_expert_biases_; }

  /// The parameters of one model chunk of one rank, in order of registration, buffers included.
  /// mismatch when a tensor cannot be split over the ranks.
  std::vector<LocalParameter> parameters(const RankCoordinates& rank,
                                         const ModuleChoice& choice) const;

 private:
  struct LayerTensor {
    uint32_t tensor = 0;
    int prefix_axes = 0;  // layer axis, expert axis
    int64_t place = -1;   // on the layer axis; -1: there is none
    NamedParameter parameter;
  };
  using Layer = std::vector<LayerTensor>;
  class Builder;

  enum class Kind : uint8_t { megatron, replicated };

  ModelLayout(std::vector<ModelTensor> tensors, const RunArguments& run, Kind kind);

  void add(uint32_t tensor);
  bool add_layer_tensor(uint32_t tensor, std::string_view name, std::vector<Layer>& layers,
                        int64_t count);
  std::optional<LayerTensor> describe(uint32_t tensor, std::string_view suffix, bool mtp);

  std::vector<ModelTensor> tensors_;
  Kind kind_ = Kind::megatron;
  RunArguments run_;
  PipelineLayout pipeline_;
  std::vector<Layer> decoder_, mtp_;
  int64_t word_embeddings_ = -1, output_weight_ = -1;
  std::vector<uint32_t> embeddings_, final_norm_, output_, layer_embeddings_;  // in order
  bool has_experts_ = false, has_attention_norms_ = false, has_latent_down_ = false,
       has_expert_biases_ = false;
};

}  // namespace ferry
