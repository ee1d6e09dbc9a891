// Tokenizer files: found, listed for copying, and read as far as config.json needs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/convert.h"
#include "convert/special_tokens.h"

namespace ferry {

struct Tokenizer {
  std::vector<CopiedFile> files;
  /// generation_config.json, where it lies beside them; one of `files`, which it alone does not
  /// make a tokenizer.
  bool has_generation_config = false;
  std::optional<int64_t> vocab;  // one more than the largest token id
  /// As generation_config.json says, else by the texts in tokenizer_config.json and
  /// special_tokens_map.json.
  SpecialTokens special;
  bool tells_special = false;  // one of those is there
  std::vector<std::string> warnings;
};

/// True for names that files of a tokenizer have: "tokenizer.json", "tokenization_foo.py".
bool is_tokenizer_file(std::string_view name);

/// Fills in from a tokenizer's files what `tokens` lacks, and warns of what stays unknown.
void complete_tokens(SpecialTokens& tokens, const Tokenizer& tokenizer,
                     std::vector<std::string>& warnings);

/// The tokenizer in a folder; no files when there is none. generation_config.json is read alone,
/// too.
Tokenizer tokenizer_beside(const FileSystem& files, const std::string& folder);

/// The tokenizer in `folder`, or, when that is empty, the one that the run keeps: `tokenizer/`
/// in or beside the iteration, or in NeMo's context. No files when there is none; not_found when
/// `folder` was given and holds none. Files that do not parse are copied, with a warning.
Tokenizer find_tokenizer(const FileSystem& files, const Checkpoint& checkpoint,
                         const std::string& folder);

}  // namespace ferry
