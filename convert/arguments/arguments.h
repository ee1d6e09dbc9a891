// Megatron's arguments as an Architecture and back, and what of either the other side cannot
// express.
//
// Source: Megatron-LM megatron/training/arguments.py, argument_utils.py
// (core_transformer_config_from_args), megatron/core/transformer/transformer_config.py.
#pragma once

#include <string>
#include <vector>

#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/megatron/model/architecture.h"

namespace ferry {

struct ReadArguments {
  Architecture architecture;          // padded_vocab as the arguments say; vocab 0 when they do not
  std::vector<std::string> problems;  // change what the model computes; nothing can express them
  std::vector<std::string> warnings;  // lost in Hugging Face, without effect on the logits
};

/// `path` is for messages. mismatch when there are no arguments, or when they lack a size that a
/// transformer needs or hold an impossible one.
ReadArguments read_arguments(const Value& args, const std::string& path);

struct WrittenArguments {
  std::vector<std::string> problems;  // change what the model computes; Megatron has no words
  /// What the command line must say in addition to --use-checkpoint-args, which leaves it out:
  /// "--qk-layernorm", "--norm-epsilon 1e-06".
  std::vector<std::string> flags;
};

/// Puts the arguments that make `architecture` into `args`, an argparse.Namespace of `draft`.
/// read_arguments() gives the architecture back.
WrittenArguments write_arguments(const Architecture& architecture, Draft& draft, const Value& args);

}  // namespace ferry
