// The memory of one rank: its parameters, their gradients, and the optimizer state that it keeps.
//
// Parameters are in flat buffers like those of Megatron-LM's distributed optimizer
// (ckpt/megatron/optimizer/buckets), with and without that optimizer, so that training, saving and
// loading share one definition of what a data rank keeps.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/megatron/optimizer/buckets/model_buffers.h"
#include "ckpt/memory/region.h"
#include "kernels/kernels.h"
#include "trainer/model/parameters.h"
#include "trainer/model/pass/pass.h"
#include "trainer/parallel/grid.h"

namespace ferry {

struct ModelStateOptions {
  kernels::Type gradient_type = kernels::Type::f32;
  bool distributed_optimizer = false;  // state is sharded over data-parallel ranks
  bool sequence_parallel = false;
  bool latent_attention = false;
  bool decays_qk_norms = false;  // apply weight decay to query and key norms
  /// Kinds of optimizer state other than fp32 parameters, named as in checkpoints: exp_avg,
  /// exp_avg_sq.
  std::vector<std::string> kinds;
  std::vector<kernels::Type> kind_types = {};  // of their elements; missing ones are fp32
  /// Keep only 16 bits of a bf16 model's fp32 parameters: the others are the model's own
  /// (kernels/optimizer.h, ParameterRun::remainder).
  bool remainders = false;
};

/// A run of a parameter whose optimizer state this rank keeps.
struct StateRun {
  BufferShard shard;
  int64_t elements = 0;
  kernels::Array value, gradient;      // in the rank's buffers
  float* master = nullptr;             // fp32; `value` itself if that is fp32
  int16_t* remainder = nullptr;        // combined with `value` it is fp32, instead of `master`
  std::vector<kernels::Array> states;  // by kind
  std::string name;                    // of the tensor in checkpoints
  bool decays = true;                  // weight decay applies
  bool is_input_or_output = false;     // word embeddings or output layer
  bool counts = true;                  // false: a duplicate, excluded from norms and checkpoints
};

/// Observes passes: a bucket's gradients are reduced as soon as they are complete, during the rest
/// of the backward pass, and parameters are gathered during the next forward pass, which waits for
/// those that it reads next. On hosts each transfer completes when it is started.
class ModelState final : public PassWatcher {
 public:
  /// All memory is allocated here; parameters are zero.
  ModelState(const ModelLayout& layout, const BufferChoice& choice, Grid& grid,
             kernels::Kernels& kernels, ModelStateOptions options);
  ~ModelState() override;

  /// Parameters of a virtual stage of this rank.
  const ParameterSet& parameters(int64_t chunk) const;
  const std::vector<StateRun>& runs() const noexcept { return runs_; }
  /// Buckets of parameters, in the order in which passes need them, and the part of runs() in each.
  size_t buckets() const noexcept { return by_use_.size(); }
  std::span<const StateRun> runs_of(size_t bucket) const;

  /// Before a step's first backward pass: marks gradients as the last step's until an operation
  /// sets them.
  void begin_gradients();
  /// Reduces the gradients that were not reduced during passes. Afterwards the gradients of runs()
  /// are complete.
  void reduce_gradients();
  /// Calls update(bucket) for each bucket in order, and sends the changed parameters to all data
  /// ranks.
  void update_parameters(const std::function<void(size_t bucket)>& update);
  /// Must be called before anything but an observed pass reads parameters.
  void wait_for_parameters();
  void before_forward(int64_t chunk, int64_t part) override;
  void after_backward(int64_t chunk, int64_t part) override;
  /// Sets the master weights from the parameters.
  void copy_to_masters();
  /// Sets the parameters from the master weights, and gathers them.
  void copy_from_masters();

  /// The rank's regions of the model, to load and to save, and of the optimizer state.
  std::vector<Region> model_regions() const;
  /// With remainders, only these are saved of the master weights; for loading, the parameters are
  /// part of the state, too.
  enum class Purpose { save, load };
  std::vector<Region> optimizer_regions(Purpose purpose) const;
  /// The master weights as regions of the model's own tensors, for loading.
  std::vector<Region> main_weight_regions() const;

  struct Bytes {
    int64_t parameters = 0, gradients = 0, optimizer = 0;
  };
  Bytes bytes() const noexcept { return bytes_; }
  int64_t parameter_count() const noexcept { return parameter_count_; }  // of this rank

 private:
  struct Buffer;
  struct Bucket;

  void add_buffer(ModelBuffer layout, bool experts);
  void add_runs(Buffer& buffer);
  void add_parameters(int64_t chunk);
  bool is_partial(const std::string& name) const;
  void order_buckets();
  void complete_gradients(Bucket& bucket);
  void reduce(Bucket& bucket, Communicator& peers);
  void gather(Bucket& bucket);
  void wait_for(Bucket& bucket);
  Region region_of(const StateRun& run, std::string name, const kernels::Array& data) const;
  Region remainders_of(const StateRun& run, std::string name) const;
  void add_masters(const StateRun& run, const std::string& name,
                   std::vector<Region>& regions) const;
  void add_states(const StateRun& run, std::vector<Region>& regions) const;

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
  std::vector<Held> held_;       // in order of registration, buffers included
  std::vector<Bucket*> by_use_;  // of all buffers
  int64_t coming_ = 0;           // buckets whose parameters are being gathered
  Bytes bytes_;
  int64_t parameter_count_ = 0;
};

}  // namespace ferry
