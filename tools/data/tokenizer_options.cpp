#include "tools/data/tokenizer_options.h"

#include <fmt/format.h>

#include "ckpt/io/file_system.h"
#include "tools/terminal/text.h"

namespace ferry::tool {

void add_tokenizer_options(Command& command, TokenizerChoice& choice, bool required) {
  Option type = command
                    .add_option("--tokenizer-type", choice.type,
                                "GPT2BPETokenizer, HuggingFaceTokenizer, SentencePieceTokenizer, "
                                "Llama2Tokenizer, TikTokenizer; or bytes")
                    .type_name("TYPE");
  if (required) type.required();
  command
      .add_option("--tokenizer-model", choice.model,
                  "tokenizer.json or its folder, a SentencePiece .model, a tiktoken file")
      .type_name("PATH");
  command.add_option("--vocab-file", choice.vocab_file, "GPT-2's vocab.json").type_name("FILE");
  command.add_option("--merge-file", choice.merge_file, "GPT-2's merges.txt").type_name("FILE");
  command
      .add_option("--tiktoken-pattern", choice.pattern,
                  "Pattern that splits text for a tiktoken file: r50k, p50k, cl100k, o200k, "
                  "llama3, or a regular expression")
      .type_name("NAME");
  command.add_flag(
      "--no-special-tokens", [&choice] { choice.add_special = false; },
      "Do not add the special tokens that the tokenizer puts around a text");
}

std::string training_options(const TokenizerChoice& choice, int64_t vocab_size) {
  std::string text;
  const auto add = [&](const char* flag, const std::string& value) {
    if (value.empty()) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", flag, shell_word(value));
  };
  // Training reads some files itself. Of others it has to know the number of tokens.
  const SplitPath path = split_path(choice.model);
  const bool is_tokenizer_json = path.name == "tokenizer.json";
  const bool is_json = path.name.ends_with(".json");
  const bool is_bytes = choice.type == "bytes";
  bool is_known = !is_bytes;
  if (choice.type == "HuggingFaceTokenizer") is_known = is_tokenizer_json || !is_json;
  if (choice.type == "TikTokenizer") is_known = is_json;
  std::string model = choice.model;
  if (is_tokenizer_json) model = path.parent.empty() ? "." : path.parent;
  add("--tokenizer-type", is_bytes ? "NullTokenizer" : choice.type);
  add("--tokenizer-model", model);
  add("--vocab-file", choice.vocab_file);
  add("--merge-file", choice.merge_file);
  if (!is_known) add("--vocab-size", std::to_string(vocab_size));
  return text;
}

}  // namespace ferry::tool
