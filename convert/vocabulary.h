// The true size of a vocabulary that Megatron padded.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/format/pickle/values/value.h"
#include "convert/export.h"
#include "convert/tokenizer.h"

namespace ferry {

/// Rows of the embedding to keep, out of `padded_rows`: as `options` say, else as the tokenizer and
/// the arguments do; all of them, with a warning, when nobody knows. invalid for impossible
/// options, and for a size that would cut tokens which arguments or tokenizer know.
int64_t true_vocabulary(const Value& args, const Tokenizer& tokenizer, int64_t padded_rows,
                        const ExportOptions& options, std::vector<std::string>& warnings);

}  // namespace ferry
