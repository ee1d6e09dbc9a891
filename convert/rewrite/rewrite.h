// Hugging Face models as Hugging Face models: in another floating-point type, quantised or no
// longer so, in files of another size, as safetensors instead of pickles.
//
// Tensors keep their names; nothing needs to be known of the model's family. What stands next to
// the weights is carried, and config.json says what the weights have become.
#pragma once

#include "ckpt/checkpoint.h"
#include "convert/export.h"
#include "convert/export/export_tensors.h"

namespace ferry {

/// Plans the model `checkpoint` (Format::hugging_face) in its new form; `tokenizer_files` are all
/// files to be carried. A config.json of another folder gets the type of the weights, and loses a
/// quantisation that they do not have. Of the options, those of the vocabulary and the family are
/// ignored. With a dtype, weights of fp8 become values of it, and tensors that are stored wider
/// than most and than it stay as they are: a router's bias in fp32. invalid for options that
/// exclude each other, mismatch for quantised weights without scales, unsupported where weights
/// that are to change are quantised otherwise than as fp8 (convert/model/weight_scales.h).
Export plan_rewrite(const Checkpoint& checkpoint, const ExportOptions& options);

/// The rest of an export whose tensors are filled up from `options.original`: its other tensors,
/// its config.json, its files. `result.plan.source` must be set. mismatch where the original has
/// not all the names and shapes of `tensors`.
void fill_up(const ExportOptions& options, ExportedTensors tensors, Export& result);

}  // namespace ferry
