// What `ferry convert` does with a Hugging Face model for Megatron-LM: plan the import, write it as
// the release of a run folder.
#pragma once

#include "tools/convert/convert_job.h"

namespace ferry::tool {

/// `options.to` is one of Megatron-LM's formats. As convert().
ConvertReport convert_to_megatron(const ConvertOptions& options);

}  // namespace ferry::tool
