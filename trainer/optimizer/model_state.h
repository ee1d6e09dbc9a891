// The memory of one rank: its parameters, their gradients, and the optimizer state that it keeps.
//
// Parameters lie in flat buffers as Megatron-LM's distributed optimizer has them
// (ckpt/megatron/optimizer/buckets), with and without that optimizer: what data rank r keeps of a
// buffer is one question for training, saving and loading.
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
  bool distributed_optimizer = false;  // state is shared by the data-parallel ranks
  bool sequence_parallel = false;
  bool latent_attention = false;
  bool decays_qk_norms = false;  // weight decay of norms of queries and keys
  /// Kinds of state beside the fp32 parameters, as checkpoints name them: exp_avg, exp_avg_sq.
  std::vector<std::string> kinds;
  std::vector<kernels::Type> kind_types = {};  // of their elements; fp32 where there are fewer
  /// Of the fp32 parameters of a bf16 model, keep 16 bits: the others are the model's own
  /// (kernels/optimizer.h, ParameterRun::remainder).
  bool remainders = false;
};

/// A run of a parameter whose optimizer state this rank keeps.
struct StateRun {
  BufferShard shard;
  int64_t elements = 0;
  kernels::Array value, gradient;      // in the rank's buffers
  float* master = nullptr;             // fp32; `value` itself where that is fp32
  int16_t* remainder = nullptr;        // with which `value` makes fp32, in place of `master`
  std::vector<kernels::Array> states;  // by kind
  std::string name;                    // of the checkpoint's tensor
  bool decays = true;                  // weight decay is for it
  bool is_input_or_output = false;     // the embeddings of words, or the output layer
  bool counts = true;  // false: another rank has the same; left out of norms and checkpoints
};

/// Watches passes: the gradients of a bucket are on their way to the other ranks as soon as they
/// are complete, beside the rest of the backward pass, and parameters come back beside the next
/// forward pass, which waits for those that it reads next. On hosts each transfer is over when it
/// is asked for.
class ModelState final : public PassWatcher {
 public:
  /// All memory is allocated here; parameters are zero.
  ModelState(const ModelLayout& layout, const BufferChoice& choice, Grid& grid,
             kernels::Kernels& kernels, ModelStateOptions options);
  ~ModelState() override;

  /// Of a virtual stage of this rank.
  const ParameterSet& parameters(int64_t chunk) const;
  const std::vector<StateRun>& runs() const noexcept { return runs_; }
  /// Buckets of parameters, in the order in which passes need them, and what of runs() is of each.
  size_t buckets() const noexcept { return by_use_.size(); }
  std::span<const StateRun> runs_of(size_t bucket) const;

  /// Before a step's first backward pass: what gradients hold from now on is the last step's, until
  /// an operation sets them.
  void begin_gradients();
  /// Sums gradients over all ranks that computed a part of them: those that no pass has told to be
  /// complete. Afterwards those of runs() are complete.
  void reduce_gradients();
  /// Calls update(bucket) for each, in their order, and gives all data ranks what it has changed of
  /// its runs.
  void update_parameters(const std::function<void(size_t bucket)>& update);
  /// Before anything but a watched pass looks at parameters.
  void wait_for_parameters();
  void before_forward(int64_t chunk, int64_t part) override;
  void after_backward(int64_t chunk, int64_t part) override;
  /// Sets the fp32 copies from the parameters.
  void copy_to_masters();
  /// Sets the parameters from the fp32 copies, and gathers them.
  void copy_from_masters();

  /// What the rank holds of the model, to load and to save, and of the optimizer state.
  std::vector<Region> model_regions() const;
  /// Where parameters have remainders, these are all that is saved of the fp32 copies; to load, the
  /// parameters are a part of the state, too.
  enum class Purpose { save, load };
  std::vector<Region> optimizer_regions(Purpose purpose) const;
  /// The fp32 copies, as parts of the model's own tensors: to load.
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
  void reduce(Bucket& bucket, Communicator& fellows);
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
  int64_t coming_ = 0;           // of them, whose parameters are on their way
  Bytes bytes_;
  int64_t parameter_count_ = 0;
};

}  // namespace ferry
