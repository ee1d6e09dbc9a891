// Derives arguments from others and checks that they are consistent, before anything is allocated.
//
// Source: Megatron-LM megatron/training/arguments.py (validate_args), vocab_utils.py,
// core/transformer/transformer_config.py, core/parallel_state.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/arguments/train_arguments.h"

namespace ferry {

// What arguments depend on of how the processes of a run were launched.

struct Launch {
  std::string launcher;  // "mpirun", "srun"; empty: a single process
  int64_t world_size = 1, rank = 0;

  /// Ranks are threads of this process.
  bool is_alone() const { return world_size == 1; }
};

/// Fills in missing arguments and checks sizes. invalid, naming the numbers that do not fit and
/// ones that would; unsupported for combinations that this trainer does not have. `notes` gets a
/// sentence for each argument that was given and changed. Idempotent.
void complete_arguments(TrainArguments& arguments, const Launch& launch,
                        std::vector<std::string>& notes);

/// Once the tokenizer is known: sets padded_vocab_size, or checks it if it was given or adopted
/// from a checkpoint. invalid if it is too small.
void complete_vocabulary(TrainArguments& arguments, int64_t tokens);

/// Number of ranks that hold the same expert parameters.
int64_t expert_data_parallel_size(const TrainArguments& arguments);

/// Whether fp32 master weights are kept as the 16 bits that bf16 drops.
bool keeps_remainders(const TrainArguments& arguments);

/// The limit of a rank's staging memory for saves, in bytes; empty: what its host has.
std::optional<uint64_t> staging_bytes(const TrainArguments& arguments);

// The steps of complete_arguments(), in order.
void complete_model(TrainArguments& arguments, std::vector<std::string>& notes);
void complete_ranks(TrainArguments& arguments, const Launch& launch,
                    std::vector<std::string>& notes);
void complete_training(TrainArguments& arguments, std::vector<std::string>& notes);
void complete_run(TrainArguments& arguments, std::vector<std::string>& notes);

}  // namespace ferry
