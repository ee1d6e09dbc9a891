// What Megatron-LM's saved arguments say about a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

/// Parallel sizes out of an argparse.Namespace (or a dict of the same names); 0 where it has none.
/// The data-parallel size follows from the others.
ParallelLayout layout_from_args(const Value& args);

/// world_size / (tensor x pipeline x context) when that divides; 0 otherwise. A size of 0 counts
/// as 1.
int64_t data_parallel_size(const ParallelLayout& layout);

/// A function that arguments name, as itself or as text: "megatron.core.activations.fast_gelu";
/// empty where `value` is neither. Lives as long as the value's document.
std::string_view function_name(const Value& value);

/// The release of Megatron Core that has just these arguments, as far as they show it: "Megatron
/// Core 0.15", "Megatron Core 0.20 or later", "Megatron Core 0.11 or earlier"; empty without args.
std::string release_from_args(const Value& args);

}  // namespace ferry
