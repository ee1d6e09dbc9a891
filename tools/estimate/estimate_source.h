// What an estimate is about, as the arguments of a run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry::tool {

struct EstimateSource {
  TrainArguments arguments;  // not complete yet
  std::string what;          // "a config.json of family llama"
  int64_t vocabulary = 0;    // tokens, without padding; 0: not told
  std::vector<std::string> notes;
};

/// `what` is a checkpoint or run folder of any format, a Hugging Face folder or config.json, or a
/// file of arguments (as @FILE; .yaml: a launch configuration, or as --yaml-cfg), or a preset of
/// launches; empty: nothing but `words`, Megatron-LM's
/// arguments, which win where they say something. A Hugging Face model says nothing of a run: bf16,
/// the distributed optimizer and sequences of at most 4096 tokens are taken, and told in the notes.
EstimateSource read_estimate_source(const std::shared_ptr<const FileSystem>& files,
                                    const std::string& what, std::span<const std::string> words);

/// And takes back what a run at other tensor ranks says of its own: shards, expert tensor ranks,
/// sequence parallelism where one rank is left.
void set_tensor_ranks(TrainArguments& arguments, int64_t ranks);

}  // namespace ferry::tool
