#include "tools/data/tokenizer_options.h"

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
                  "How a tiktoken file divides text: r50k, p50k, cl100k, o200k, llama3, or a "
                  "regular expression")
      .type_name("NAME");
  command.add_flag(
      "--no-special-tokens", [&choice] { choice.add_special = false; },
      "Without the tokens that the tokenizer's file puts around a text");
}

}  // namespace ferry::tool
