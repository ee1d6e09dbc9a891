// What a run takes from the files of a tokenizer.
#include "trainer/language/tokenizer_facts.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "trainer/language/options.h"

namespace ferry {
namespace {

constexpr const char* kTokenizer = R"({"added_tokens": [
    {"id": 3, "content": "<s>", "special": true}, {"id": 5, "content": "</s>", "special": true}],
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<s>": 3, "c": 4}, "merges": []}})";

class Tokenizers : public testing::Test {
 protected:
  Tokenizers() { files_.create_folder("tokenizer"); }

  std::optional<TokenizerFacts> facts(const char* type, const char* model,
                                      const char* vocab_file = "") {
    TrainArguments arguments;
    arguments.tokenizer_type = type;
    arguments.tokenizer_model = model;
    arguments.vocab_file = vocab_file;
    return tokenizer_facts(files_, arguments);
  }
  TokenizerFacts hugging_face() { return facts("HuggingFaceTokenizer", "tokenizer").value(); }

  MemoryFileSystem files_;
};

TEST_F(Tokenizers, OfHuggingFaceCountAddedTokensOnce) {
  files_.put("tokenizer/tokenizer.json", kTokenizer);
  EXPECT_EQ(hugging_face().tokens, 6);
  EXPECT_EQ(hugging_face().end_of_document, std::nullopt);
  EXPECT_EQ(hugging_face().padding, std::nullopt);
  // A role for a token that is there, and roles for two that are not.
  files_.put("tokenizer/tokenizer_config.json",
             R"({"eos_token": {"content": "</s>", "special": true}, "pad_token": "<pad>",
                 "unk_token": null, "additional_special_tokens": ["<s>", "<more>"]})");
  EXPECT_EQ(hugging_face().tokens, 8);
  EXPECT_EQ(hugging_face().end_of_document, 5);
  EXPECT_EQ(hugging_face().padding, 6);
  files_.put("tokenizer/tokenizer_config.json",
             R"({"added_tokens_decoder": {"6": {"content": "<6>"}, "5": {"content": "</s>"}},
                 "eos_token": "<6>", "pad_token": {"content": "ab"}})");
  EXPECT_EQ(hugging_face().tokens, 7);
  EXPECT_EQ(hugging_face().end_of_document, 6);
  EXPECT_EQ(hugging_face().padding, 2);
  files_.put("tokenizer/tokenizer_config.json", R"({"sep_token": "</s>", "cls_token": "<s>"})");
  EXPECT_EQ(hugging_face().end_of_document, 5);
}

TEST_F(Tokenizers, OfHuggingFaceMayBeListsOfPieces) {
  files_.put("tokenizer/tokenizer.json",
             R"({"added_tokens": [{"id": 0, "content": "<pad>"}],
                 "model": {"type": "Unigram", "vocab": [["<pad>", 0.0], ["a", -1.5]]}})");
  EXPECT_EQ(hugging_face().tokens, 2);
}

TEST_F(Tokenizers, OfHuggingFaceMayBeInTheOldFiles) {
  files_.put("tokenizer/vocab.json", R"({"a": 0, "b": 1})");
  files_.put("tokenizer/added_tokens.json", R"({"<pad>": 2})");
  EXPECT_EQ(hugging_face().tokens, 3);
}

TEST_F(Tokenizers, OfGpt2AreAVocabularyFile) {
  files_.put("gpt2-vocab.json", R"({"a": 0, "b": 1, "<|endoftext|>": 2})");
  const auto found = facts("GPT2BPETokenizer", "", "gpt2-vocab.json");
  EXPECT_EQ(found->tokens, 3);
  EXPECT_EQ(found->end_of_document, 2);
}

// A field of a protobuf message that is shorter than 128 bytes.
std::string protobuf_field(char key, const std::string& text) {
  return std::string{key, static_cast<char>(text.size())} + text;
}

// A SentencePiece model: pieces of a text, a score and a type, then its trainer's settings.
TEST_F(Tokenizers, OfSentencePieceAreItsPieces) {
  constexpr char kNormal = 1, kUnknown = 2, kControl = 3;
  const auto piece = [](const std::string& text, char type) {
    return protobuf_field(
        '\x0a', protobuf_field('\x0a', text) + std::string("\x15\x00\x00\x80\x3f\x18", 6) + type);
  };
  const std::string model = piece("<unk>", kUnknown) + piece("<s>", kControl) +
                            piece("</s>", kControl) + piece("<end>", kNormal);
  const auto with = [&](const std::string& field, const std::string& name) {
    return model +
           protobuf_field('\x12', field + std::string(1, static_cast<char>(name.size())) + name);
  };
  const auto with_end = [&](const std::string& name) { return with("\xfa\x02", name); };
  for (const char* type :
       {"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"}) {
    files_.put("a.model", model);
    EXPECT_EQ(facts(type, "a.model")->tokens, 4);
    EXPECT_EQ(facts(type, "a.model")->end_of_document, 2);
    files_.put("a.model", with_end("<s>"));
    EXPECT_EQ(facts(type, "a.model")->end_of_document, 1);
    files_.put("a.model", with_end("<end>"));  // which is not a control symbol
    EXPECT_EQ(facts(type, "a.model")->tokens, 4);
    EXPECT_EQ(facts(type, "a.model")->end_of_document, std::nullopt);
    EXPECT_EQ(facts(type, "a.model")->padding, std::nullopt);
    files_.put("a.model", model + piece("<pad>", kControl));
    EXPECT_EQ(facts(type, "a.model")->padding, 4);
    files_.put("a.model", model + piece("<pad>", kNormal));
    EXPECT_EQ(facts(type, "a.model")->padding, std::nullopt);
    files_.put("a.model", with("\x82\x03", "<s>"));
    EXPECT_EQ(facts(type, "a.model")->padding, 1);
  }
}

TEST_F(Tokenizers, OfMegatronsTiktokenFilesAreAlwaysTheSame) {
  const auto found = facts("TikTokenizer", "vocabulary.json");
  EXPECT_EQ(found->tokens, 131072);
  EXPECT_EQ(found->end_of_document, 2);
  EXPECT_EQ(found->padding, 4);
  EXPECT_FALSE(facts("TikTokenizer", "cl100k_base.tiktoken"));
}

TEST_F(Tokenizers, ThatAreDamagedAreReported) {
  const auto problem = [&](const char* type, const char* model) -> std::string {
    try {
      facts(type, model);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  for (const std::string bytes : {"", "text", "\x0a\x7f", "\x0a"}) {
    files_.put("a.model", bytes);
    EXPECT_THAT(problem("SentencePieceTokenizer", "a.model"),
                testing::HasSubstr("is not a SentencePiece model"));
  }
  EXPECT_THAT(problem("HuggingFaceTokenizer", "tokenizer"), testing::HasSubstr("neither"));
  files_.put("tokenizer/tokenizer.json", "{");
  EXPECT_THAT(problem("HuggingFaceTokenizer", "tokenizer"), testing::HasSubstr("JSON"));
}

TEST_F(Tokenizers, WithoutFilesHaveNoFacts) {
  EXPECT_FALSE(facts("NullTokenizer", ""));
  EXPECT_FALSE(facts("HuggingFaceTokenizer", "meta-llama/Llama-3.1-8B"));
  EXPECT_FALSE(facts("GPT2BPETokenizer", ""));
}

TEST_F(Tokenizers, AreAdoptedUnlessArgumentsSay) {
  files_.put("gpt2-vocab.json", R"({"a": 0, "<|endoftext|>": 1, "b": 2})");
  TrainArguments arguments;
  arguments.tokenizer_type = "GPT2BPETokenizer";
  arguments.vocab_file = "gpt2-vocab.json";
  adopt_tokenizer(files_, arguments);
  EXPECT_EQ(arguments.vocab_size, 3);
  EXPECT_EQ(arguments.end_of_document, 1);
  arguments.vocab_size = 7;
  arguments.eod_mask_loss = true;
  arguments.end_of_document.reset();
  adopt_tokenizer(files_, arguments);
  EXPECT_EQ(arguments.vocab_size, 7);
  EXPECT_EQ(arguments.end_of_document, 1);
}

// Files that nothing needs may be elsewhere.
TEST_F(Tokenizers, MayBeElsewhereWhereArgumentsSayAll) {
  TrainArguments arguments;
  arguments.tokenizer_type = "HuggingFaceTokenizer";
  arguments.tokenizer_model = "tokenizer";  // an empty folder
  EXPECT_THROW(adopt_tokenizer(files_, arguments), Error);
  arguments.vocab_size = 7;
  EXPECT_NO_THROW(adopt_tokenizer(files_, arguments));
  arguments.eod_mask_loss = true;
  EXPECT_THROW(adopt_tokenizer(files_, arguments), Error);
}

// As Megatron-LM has it: what pads has no loss, unless it ends documents, too.
TEST_F(Tokenizers, PaddingIsNotLearntUnlessItHasAnotherMeaning) {
  files_.put("tokenizer/tokenizer.json", kTokenizer);
  const auto padding = [&](const char* roles, bool may_be_ambiguous) {
    files_.put("tokenizer/tokenizer_config.json", roles);
    TrainArguments arguments;
    arguments.tokenizer_type = "HuggingFaceTokenizer";
    arguments.tokenizer_model = "tokenizer";
    arguments.null_tokenizer_pad_id = 3;  // of another tokenizer
    arguments.allow_ambiguous_pad_tokens = may_be_ambiguous;
    adopt_tokenizer(files_, arguments);
    return data_options(arguments).masks.padding;
  };
  for (const bool may_be_ambiguous : {false, true}) {
    EXPECT_EQ(padding(R"({"eos_token": "</s>"})", may_be_ambiguous), -1);
    EXPECT_EQ(padding(R"({"eos_token": "</s>", "pad_token": "ab"})", may_be_ambiguous), 2);
    EXPECT_EQ(padding(R"({"eos_token": "</s>", "pad_token": "</s>"})", may_be_ambiguous),
              may_be_ambiguous ? 5 : -1);
  }
  TrainArguments arguments;
  arguments.tokenizer_type = "NullTokenizer";
  arguments.vocab_size = 10;
  arguments.null_tokenizer_pad_id = 8;
  EXPECT_EQ(data_options(arguments).masks.padding, 8);
  arguments.null_tokenizer_pad_id = 9;
  EXPECT_EQ(data_options(arguments).masks.padding, -1);
}

}  // namespace
}  // namespace ferry
