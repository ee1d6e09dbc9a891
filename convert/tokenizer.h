// Tokenizer files and what else goes with a model: found, listed for copying, and read as far as
// config.json needs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/checkpoint.h"
#include "convert/carried_files.h"
#include "convert/export.h"
#include "convert/special_tokens.h"

namespace ferry {

struct Tokenizer {
  std::vector<CopiedFile> files;       // the tokenizer's and all others that go with the model
  bool found = false;                  // files of a tokenizer are among them
  bool has_generation_config = false;  // generation_config.json is
  std::optional<int64_t> vocab;        // one more than the largest token id
  /// As generation_config.json says, else by the texts in tokenizer_config.json and
  /// special_tokens_map.json.
  SpecialTokens special;
  bool names_special = false;           // one of those is there
  std::vector<std::string> unreadable;  // files that are not valid JSON; warnings name them, too
  std::vector<std::string> warnings;
};

/// True for paths inside a folder that files of a tokenizer have: "tokenizer.json",
/// "tokenization_foo.py", "tiktoken.model", "additional_chat_templates/tool.jinja".
bool is_tokenizer_file(std::string_view path);

/// Fills in from a tokenizer's files what `tokens` lacks, and warns of what stays unknown.
void complete_tokens(SpecialTokens& tokens, const Tokenizer& tokenizer,
                     std::vector<std::string>& warnings);

/// The files that go with the model of `folder` (carried_files.h), without those of its folders
/// where `top_only`. Where `tokenizer_folder` is given, the tokenizer of that in place of its own,
/// and its generation_config.json and processors where `folder` has none: not_found when it holds
/// no tokenizer.
CarriedFiles files_of_model(const FileSystem& files, const std::string& folder,
                            const std::string& tokenizer_folder, bool top_only = false);

/// Files that do not parse are copied, with a warning.
Tokenizer read_tokenizer(const FileSystem& files, std::vector<CopiedFile> found);

/// The same of the files that a run keeps: in `tokenizer/` in or next to the iteration, or in
/// NeMo's context. No files when there are none.
Tokenizer find_tokenizer(const FileSystem& files, const Checkpoint& checkpoint,
                         const std::string& tokenizer_folder);

}  // namespace ferry
