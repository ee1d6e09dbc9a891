// Pipeline splits by letters, as --pipeline-model-parallel-layout takes them.
//
// Source: megatron/core/transformer/pipeline_parallel_layer_layout.py (parse_str_to_list).
#pragma once

#include <string_view>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// As parse_stage_letters() of run_arguments.h, with an error of `kind`, which names the character
/// that cannot be and the grammar.
StageLetters parse_stage_letters(std::string_view text, ErrorKind kind);

}  // namespace ferry
