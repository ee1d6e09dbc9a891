// The memory of one rank: its parameters, their gradients, and the optimizer state that it keeps.
//
// Parameters lie in flat buffers as Megatron-LM's distributed optimizer has them
// (ckpt/megatron/optimizer/buckets), with and without that optimizer: what data rank r keeps of a
// buffer is one question for training, saving and loading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/memory/region.h"
#include "kernels/kernels.h"
#include "trainer/model/parameters.h"
#include "trainer/parallel/grid.h"

namespace ferry {

struct ModelStateOptions {
  kernels::Type gradient_type = kernels::Type::f32;
  bool distributed_optimizer = false;  // state is shared by the data-parallel ranks
  bool sequence_parallel = false;
  bool latent_attention = false;
  /// Kinds of state beside the fp32 parameters, as checkpoints name them: exp_avg, exp_avg_sq.
  std::vector<std::string> kinds;
};

/// A run of a parameter whose optimizer state this rank keeps.
struct StateRun {
  BufferShard shard;
  int64_t elements = 0;
  kernels::Array value, gradient;   // in the rank's buffers
  float* master = nullptr;          // fp32; `value` itself where that is fp32
  std::vector<float*> states;       // by kind
  std::string name;                 // of the checkpoint's tensor
  int axes = 0;                     // of the rank's parameter
  bool is_input_or_output = false;  // the embeddings of words, or the output layer
  bool counts = true;  // false: another rank has the same; left out of norms and checkpoints
};

class ModelState {
 public:
  /// All memory is allocated here; parameters are zero.
  ModelState(const ModelLayout& layout, const BufferChoice& choice, Grid& grid,
             kernels::Kernels& kernels, ModelStateOptions options);
  ~ModelState();

  /// Of a virtual stage of this rank.
  const ParameterSet& parameters(int64_t chunk) const;
  const std::vector<StateRun>& runs() const noexcept { return runs_; }

  void clear_gradients();
  /// Sums gradients over all ranks that computed a part of them. Afterwards those of runs() are
  /// complete.
  void reduce_gradients();
  /// Gives all data ranks the parameters that the owners of their runs have changed.
  void gather_parameters();
  /// Sets the fp32 copies from the parameters.
  void copy_to_masters();
  /// Sets the parameters from the fp32 copies, and gathers them.
  void copy_from_masters();

  /// What the rank holds of the model, and of the optimizer state: to load and to save.
  std::vector<Region> model_regions() const;
  std::vector<Region> optimizer_regions() const;
  /// The fp32 copies, as parts of the model's own tensors: to load.
  std::vector<Region> main_weight_regions() const;

  struct Bytes {
    int64_t parameters = 0, gradients = 0, optimizer = 0;
  };
  Bytes bytes() const noexcept { return bytes_; }
  int64_t parameter_count() const noexcept { return parameter_count_; }  // of this rank

 private:
  struct Buffer;

  void add_buffer(ModelBuffer layout, bool experts);
  void add_runs(Buffer& buffer);
  void add_parameters(int64_t chunk);
  bool is_partial(const std::string& name) const;
  Region region_of(const StateRun& run, std::string name, float* data) const;

  const ModelLayout& layout_;
  BufferChoice choice_;
  Grid& grid_;
  kernels::Kernels& kernels_;
  ModelStateOptions options_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<ParameterSet> parameters_;  // by chunk
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<StateRun> runs_;
  struct Held {
    LocalParameter parameter;
    kernels::Array value;
  };
  std::vector<Held> held_;  // in order of registration, buffers included
  std::vector<Parameter> partial_, tied_;
  Bytes bytes_;
  int64_t parameter_count_ = 0;
};

}  // namespace ferry
