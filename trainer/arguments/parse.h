// Command lines, argument files and YAML files as TrainArguments.
//
// What comes later overrides what came before. A word @FILE, and --args-file FILE, stand for the
// words of that file; --yaml-cfg FILE for the arguments that it names.
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

/// The words after the program's name. invalid for a name that is not known (with the nearest one),
/// for a missing or impossible value; unsupported for what Megatron-LM has and this trainer has
/// not.
TrainArguments parse_arguments(std::span<const std::string> words, const FileSystem& files);

/// Words as a shell splits them: blanks between, '...', "...", backslash, # to the end of the line.
/// `path` is for messages.
std::vector<std::string> split_words(std::string_view text, std::string_view path);

/// One sentence about arguments that were given and mean nothing here; empty when there are none.
/// `on_gpus`: ranks compute on them.
std::string no_effect_note(const TrainArguments& arguments, bool on_gpus = false);

/// One sentence where --attention-backend fused was given and cuDNN computes none of the attention
/// of a run on GPUs, by what the arguments say; empty otherwise.
std::string unfused_note(const TrainArguments& arguments, bool on_gpus);

}  // namespace ferry
