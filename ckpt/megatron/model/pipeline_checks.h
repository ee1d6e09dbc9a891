// Whether Megatron-LM would take a pipeline as it is asked for, and what it would take.
//
// Source: megatron/core/transformer/pipeline_parallel_layer_layout.py (validate_layer_layout),
// transformer_config.py (__post_init__); models/gpt/experimental_attention_variant_module_specs.py
// (_validate_dsa_index_share_pipeline_split).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ckpt/megatron/model/pipeline_layout.h"
#include "ckpt/megatron/model/run_arguments.h"

namespace ferry {

/// "1, 2, 4 and 8 fit": the numbers from `least` to `most` that fit, a dozen at most; "none fits".
std::string those_that_fit(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits);

/// For a run without stage letters: layers share out evenly over the stages, those on the first and
/// last aside, and each stage's over its virtual stages. invalid, naming the number that does not
/// fit, those that would, and uneven stages that would.
void check_stages(const RunArguments& run);

/// Letters of `pipeline` x virtual stages: one embedding first, one loss last, multi-token
/// prediction together, after the decoder and in a last virtual stage. invalid, saying which rule
/// is broken. How many layers there are PipelineLayout checks.
void check_stage_letters(const StageLetters& stages, int64_t pipeline);

/// Where layers attend to the tokens that an earlier layer's indexer chose: no stage, or virtual
/// stage, begins with such a layer, since choices do not travel between stages. invalid, naming the
/// layer, those that have an indexer, and stages that begin with these.
void check_indexers(const RunArguments& run, const PipelineLayout& stages);

}  // namespace ferry
