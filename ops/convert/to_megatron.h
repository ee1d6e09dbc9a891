// A Hugging Face model, or a state dict of another program, as a run folder of Megatron-LM.
#pragma once

#include <memory>

#include "ops/convert.h"
#include "ops/output/write_output.h"

namespace ferry {

/// Plans what convert() writes where `options.to` is one of Megatron-LM's formats, and fills
/// `report` as far as that is known before it is written.
Work plan_for_megatron(const std::shared_ptr<const FileSystem>& file_system,
                       const ConvertOptions& options, ConvertReport& report);

}  // namespace ferry
