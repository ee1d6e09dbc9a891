// The model configurations of NeMo 2 and Megatron Bridge in the words of Megatron-LM's arguments.
//
// Source: nemo/collections/llm/gpt/model/base.py (GPTConfig), megatron/core/transformer/
// transformer_config.py, megatron/training/arguments.py (core_transformer_config_from_args).
#pragma once

#include <cstdint>
#include <string_view>

#include "ckpt/checkpoint.h"
#include "ckpt/format/pickle/values/value.h"

namespace ferry {

inline constexpr uint64_t kMostConfigBytes = uint64_t{16} << 20;  // of a configuration file

/// `model` is the parsed context/model.yaml. An object of the configuration's class: its fields,
/// the arguments that follow from them, and the parallel sizes of `layout` that are known. none
/// when there is no configuration in it.
LoadedValue args_from_nemo_model(const Value& model, const ParallelLayout& layout);

/// The same of a configuration itself: NeMo's GPTConfig, Megatron Bridge's GPTModelProvider, or its
/// GPTModelConfig with the transformer's fields in a part of their own.
LoadedValue args_from_provider(const Value& config, const ParallelLayout& layout);

/// Parallel sizes of the MegatronStrategy in a context/io.json (fiddle's serialization of the
/// trainer context), and the world size of its Trainer; zeros when there is none, or when the text
/// is not such JSON.
ParallelLayout layout_from_nemo_io(std::string_view json);

}  // namespace ferry
