// What follows from arguments, and whether they fit together: before anything is allocated.
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

// The processes of a run, as far as its arguments depend on them.

struct Launch {
  std::string launcher;  // "mpirun", "srun"; empty: nothing started several
  int64_t world_size = 1, rank = 0;

  /// Ranks are threads of this process.
  bool is_alone() const { return world_size == 1; }
};

/// Fills in what was left out and checks sizes. invalid, naming the numbers that do not fit and
/// those that would; unsupported for a combination that this trainer does not have. What was
/// changed although it was given is told in `notes`, one sentence each. A second call changes
/// nothing.
void complete_arguments(TrainArguments& arguments, const Launch& launch,
                        std::vector<std::string>& notes);

/// Once the tokenizer is known: padded_vocab_size, unless it was given or adopted from a
/// checkpoint, where it is checked. invalid when it is too small.
void settle_vocabulary(TrainArguments& arguments, int64_t tokens);

/// Ranks that hold the same parameters of experts.
int64_t expert_data_parallel_size(const TrainArguments& arguments);

/// Whether fp32 copies of parameters are kept as what bf16 leaves of them, 16 bits.
bool keeps_remainders(const TrainArguments& arguments);

/// Most bytes that a rank takes to copy aside what it saves; nothing: as many as its host has.
std::optional<uint64_t> staging_bytes(const TrainArguments& arguments);

// Its parts, in their order.
void complete_model(TrainArguments& arguments, std::vector<std::string>& notes);
void complete_ranks(TrainArguments& arguments, const Launch& launch,
                    std::vector<std::string>& notes);
void complete_training(TrainArguments& arguments, std::vector<std::string>& notes);
void complete_run(TrainArguments& arguments, std::vector<std::string>& notes);

}  // namespace ferry
