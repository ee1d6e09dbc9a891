#include "ckpt/base/error.h"
#include "text/byte_tokenizer.h"
#include "text/tokenizer.h"
#include "text/tokenizer_kinds.h"

namespace ferry {
namespace {

void require_option(const std::string& value, const std::string& type, const char* option) {
  if (value.empty()) fail(ErrorKind::invalid, "a {} needs {}", type, option);
}

}  // namespace

bool is_sentencepiece(std::string_view tokenizer_type) {
  return tokenizer_type == "SentencePieceTokenizer" ||
         tokenizer_type == "GPTSentencePieceTokenizer" || tokenizer_type == "Llama2Tokenizer";
}

std::unique_ptr<const TextTokenizer> open_tokenizer(const FileSystem& file_system,
                                                    const TokenizerChoice& choice) {
  if (choice.type == "bytes") return std::make_unique<ByteTokenizer>();
  if (choice.type == "GPT2BPETokenizer") {
    require_option(choice.vocab_file, choice.type, "--vocab-file");
    require_option(choice.merge_file, choice.type, "--merge-file");
    return open_gpt2_tokenizer(file_system, choice.vocab_file, choice.merge_file);
  }
  if (choice.type == "HuggingFaceTokenizer") {
    require_option(choice.model, choice.type, "--tokenizer-model");
    return open_hugging_face_tokenizer(file_system, choice.model, choice.add_special);
  }
  if (choice.type == "TikTokenizer") {
    require_option(choice.model, choice.type, "--tokenizer-model");
    require_option(choice.pattern, choice.type, "the name of a pattern (--tiktoken-pattern)");
    return open_tiktoken_tokenizer(file_system, choice.model, choice.pattern);
  }
  if (is_sentencepiece(choice.type)) {
    require_option(choice.model, choice.type, "--tokenizer-model");
    return open_sentencepiece_tokenizer(file_system, choice.model);
  }
  fail(ErrorKind::unsupported,
       "tokenizer type '{}' is not supported; supported are bytes, GPT2BPETokenizer, "
       "HuggingFaceTokenizer, SentencePieceTokenizer (also GPTSentencePieceTokenizer, "
       "Llama2Tokenizer) and TikTokenizer",
       choice.type);
}

}  // namespace ferry
