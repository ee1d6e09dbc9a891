// Hugging Face's tokenizer.json.
// Source: huggingface/tokenizers 0.23, tokenizers/src/tokenizer/mod.rs.
#pragma once

#include "text/tokenizer.h"

namespace ferry {

/// `model` is the file or the folder that it lies in. `add_special`: what the post-processor puts
/// around a text is put there. The end of a document is the eos_token of tokenizer_config.json
/// beside it.
std::unique_ptr<const TextTokenizer> open_hugging_face_tokenizer(const FileSystem& file_system,
                                                                 const std::string& model,
                                                                 bool add_special);

}  // namespace ferry
