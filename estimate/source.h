// The model and run that an estimate is about, as the arguments of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/megatron/model/architecture.h"
#include "trainer/arguments/argument_row.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

struct EstimateSource {
  TrainArguments arguments;  // not complete yet
  std::string what;          // "a config.json of family llama"
  int64_t vocabulary = 0;    // tokens, without padding; 0: unknown
  /// The model, where something describes it: it may have what the arguments have no words for.
  std::optional<Architecture> model;
  std::vector<std::string> notes;
};

/// `model` and `words` as in EstimateOptions.
EstimateSource read_estimate_source(const std::shared_ptr<const FileSystem>& files,
                                    const std::string& model, std::span<const std::string> words);

/// Replaces what `words`, Megatron-LM's arguments, name.
void take_words(EstimateSource& source, std::span<const std::string> words,
                const FileSystem& files);

/// Whether an argument says something about the size of a model or run, not about places or times.
bool is_of_size(const ArgumentRow& row);

/// Sets the number of tensor ranks and resets what depends on it: shards, expert tensor ranks, and
/// sequence parallelism where one rank is left.
void set_tensor_ranks(TrainArguments& arguments, int64_t ranks);

}  // namespace ferry
