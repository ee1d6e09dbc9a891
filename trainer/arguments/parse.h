// Parses command lines, argument files and YAML files into TrainArguments.
//
// Later arguments override earlier ones. @FILE and --args-file FILE insert the words of a file;
// --yaml-cfg FILE inserts the arguments in it.
//
// Source: Megatron-LM megatron/training/arguments.py (parse_args: no abbreviations), Python's
// argparse (--flag=value, negative numbers as values).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

/// Parses the words after the program's name. invalid for an unknown name (the message suggests the
/// nearest), or a missing or impossible value; unsupported for what Megatron-LM has but this
/// trainer does not.
TrainArguments parse_arguments(std::span<const std::string> words, const FileSystem& files);

/// Splits text as a shell does: blanks, '...', "...", backslash, # to the end of the line. `path`
/// is for messages.
std::vector<std::string> split_words(std::string_view text, std::string_view path);

/// One sentence about arguments that were given and are ignored; empty if there are none.
/// `on_gpus`: ranks compute on GPUs.
std::string no_effect_note(const TrainArguments& arguments, bool on_gpus = false);

/// One sentence if --attention-backend fused was given but, for these arguments, cuDNN can compute
/// none of the attention of a run on GPUs; empty otherwise.
std::string unfused_note(const TrainArguments& arguments, bool on_gpus);

}  // namespace ferry
