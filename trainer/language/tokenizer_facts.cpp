#include "trainer/language/tokenizer_facts.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/protobuf.h"
#include "convert/json_scalars.h"

namespace ferry {

namespace {

constexpr uint64_t kMostTokenizerBytes = uint64_t{256} << 20;  // of a file

using JsonPath = std::vector<std::string>;

// Reads a vocabulary from Hugging Face's files.
class HuggingFaceVocabulary {
 public:
  explicit HuggingFaceVocabulary(const FileSystem& files) : files_(files) {}

  // tokenizer.json: model.vocab is {token: id} or, for Unigram models, [[token, score], ...].
  void read_tokenizer(const std::string& path) {
    int64_t unigram = 0, added = 0;
    read(path, [&](const JsonPath& at, const std::string* text, std::optional<int64_t> number) {
      if (at.size() >= 3 && at[0] == "model" && at[1] == "vocab") {
        if (at.size() == 3 && number) add(at[2], *number);
        if (at.size() == 4 && at[2] == "[]" && text != nullptr) add(*text, unigram++);
      } else if (at.size() == 3 && at[0] == "added_tokens") {
        if (at[2] == "id" && number) added = *number;
        if (at[2] == "content" && text != nullptr) add(*text, added);
      }
    });
  }

  // vocab.json, added_tokens.json: {token: id}.
  void read_ids(const std::string& path) {
    read(path, [&](const JsonPath& at, const std::string*, std::optional<int64_t> number) {
      if (at.size() == 1 && number) add(at[0], *number);
    });
  }

  // tokenizer_config.json, special_tokens_map.json: special tokens are part of the vocabulary even
  // if missing there, after all others.
  void read_roles(const std::string& path) {
    read(path, [&](const JsonPath& at, const std::string* text, std::optional<int64_t>) {
      if (text == nullptr || at.empty()) return;
      const bool is_content = at.back() == "content";
      if (at[0] == "added_tokens_decoder" && at.size() == 3 && is_content) {
        added_.push_back(*text);
      } else if (is_list_of_tokens(at[0])) {
        const bool is_one = at.size() == 2 || (at.size() == 3 && is_content);
        if (is_one && at[1] == "[]") added_.push_back(*text);
      } else if (is_role(at[0]) && (at.size() == 1 || (at.size() == 2 && is_content))) {
        set_role(at[0], *text);
      }
    });
  }

  void set_role(const std::string& role, const std::string& token) {
    added_.push_back(token);
    roles_[role] = token;
  }

  TokenizerFacts facts() {
    for (const std::string& token : added_) add(token, next_);
    TokenizerFacts facts;
    facts.tokens = static_cast<int64_t>(ids_.size());
    facts.end_of_document = id_of(roles_.contains("eos_token") ? "eos_token" : "sep_token");
    facts.padding = id_of("pad_token");
    return facts;
  }

 private:
  static bool is_role(std::string_view name) {
    constexpr std::string_view kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};
    return std::ranges::find(kRoles, name) != std::end(kRoles);
  }
  static bool is_list_of_tokens(std::string_view name) {
    return name == "additional_special_tokens" || name == "extra_special_tokens";
  }

  std::optional<int64_t> id_of(const std::string& role) const {
    const auto token = roles_.find(role);
    if (token == roles_.end()) return std::nullopt;
    const auto found = ids_.find(token->second);
    if (found == ids_.end()) return std::nullopt;  // too many tokens to give it an id
    return found->second;
  }

  void add(const std::string& token, int64_t id) {
    if (id < 0 || id >= std::numeric_limits<int32_t>::max()) return;
    if (ids_.emplace(token, id).second) next_ = std::max(next_, id + 1);
  }

  void read(const std::string& path, JsonScalars::Visit visit) {
    const std::string text = read_file(files_, path, kMostTokenizerBytes);
    JsonScalars handler(std::move(visit));
    if (!nlohmann::json::sax_parse(text, &handler)) {
      fail(ErrorKind::corrupt, "{}: is not valid JSON", path);
    }
  }

  const FileSystem& files_;
  std::unordered_map<std::string, int64_t> ids_;
  int64_t next_ = 0;                                    // after the largest id
  std::vector<std::string> added_;                      // possibly known already
  std::unordered_map<std::string, std::string> roles_;  // eos_token, pad_token, ... to token
};

// ModelProto: pieces = 1 (text = 1, type = 3), trainer_spec = 2: TrainerSpec: eos_piece = 47,
// pad_piece = 48. The end-of-document and padding tokens are the pieces of that text, if they are
// control symbols.
TokenizerFacts sentence_piece_facts(const FileSystem& files, const std::string& path) {
  constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kText = 1, kType = 3, kControl = 3;
  constexpr uint64_t kEnd = 47, kPadding = 48;
  const std::string bytes = read_file(files, path, kMostTokenizerBytes);
  const std::string what = path + ": is not a SentencePiece model";
  TokenizerFacts facts;
  std::string end = "</s>", padding = "<pad>";
  std::unordered_map<std::string, int64_t> controls;
  ProtobufMessage model(bytes, what);
  while (const auto field = model.next()) {
    if (field->kind != ProtobufMessage::Field::Kind::text) continue;
    ProtobufMessage inner(field->text, what);
    if (field->number == kPieces) {
      std::string_view text;
      uint64_t type = 0;
      while (const auto one = inner.next()) {
        if (one->number == kText) text = one->text;
        if (one->number == kType) type = one->value;
      }
      if (type == kControl) controls.emplace(text, facts.tokens);
      ++facts.tokens;
    } else if (field->number == kTrainerSpec) {
      while (const auto one = inner.next()) {
        if (one->number == kEnd && !one->text.empty()) end = one->text;
        if (one->number == kPadding && !one->text.empty()) padding = one->text;
      }
    }
  }
  if (facts.tokens == 0) fail(ErrorKind::corrupt, "{}", what);
  const auto control = [&](const std::string& text) -> std::optional<int64_t> {
    const auto found = controls.find(text);
    if (found == controls.end()) return std::nullopt;
    return found->second;
  };
  facts.end_of_document = control(end);
  facts.padding = control(padding);
  return facts;
}

TokenizerFacts hugging_face_facts(const FileSystem& files, const std::string& folder) {
  const auto there = [&](const char* name) {
    return files.status(join(folder, name)).kind == PathKind::file;
  };
  HuggingFaceVocabulary vocabulary(files);
  if (there("tokenizer.json")) {
    vocabulary.read_tokenizer(join(folder, "tokenizer.json"));
  } else if (there("vocab.json")) {
    vocabulary.read_ids(join(folder, "vocab.json"));
    if (there("added_tokens.json")) vocabulary.read_ids(join(folder, "added_tokens.json"));
  } else {
    fail(ErrorKind::not_found,
         "--tokenizer-model {}: contains neither tokenizer.json nor vocab.json to read the "
         "vocabulary size from; give --vocab-size",
         folder);
  }
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    if (there(name)) vocabulary.read_roles(join(folder, name));
  }
  return vocabulary.facts();
}

}  // namespace

std::optional<TokenizerFacts> tokenizer_facts(const FileSystem& files, const TrainArguments& a) {
  const std::string& type = a.tokenizer_type;
  if (type == "HuggingFaceTokenizer") {
    // The name of a model on a hub is not a folder.
    if (files.status(a.tokenizer_model).kind != PathKind::folder) return std::nullopt;
    return hugging_face_facts(files, a.tokenizer_model);
  }
  if (type == "GPT2BPETokenizer" && !a.vocab_file.empty()) {
    HuggingFaceVocabulary vocabulary(files);
    vocabulary.read_ids(a.vocab_file);
    vocabulary.set_role("eos_token", "<|endoftext|>");
    return vocabulary.facts();
  }
  // Its own file format, entries {"rank": ..., "token_bytes": ...}, after 1000 fixed tokens: <unk>,
  // <s>, </s>, <mask>, <pad>, ...
  if (type == "TikTokenizer" && a.tokenizer_model.ends_with(".json")) {
    return TokenizerFacts{.tokens = 131072, .end_of_document = 2, .padding = 4};
  }
  const bool has_pieces = type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" ||
                          type == "Llama2Tokenizer";
  if (!has_pieces || a.tokenizer_model.empty()) return std::nullopt;
  return sentence_piece_facts(files, a.tokenizer_model);
}

void adopt_tokenizer(const FileSystem& files, TrainArguments& a) {
  const bool needs_end = a.reset_position_ids || a.reset_attention_mask || a.eod_mask_loss;
  try {
    const auto facts = tokenizer_facts(files, a);
    if (!facts) return;
    if (!a.vocab_size) a.vocab_size = facts->tokens;
    a.end_of_document = facts->end_of_document;
    a.padding = facts->padding;
  } catch (const Error& error) {
    const bool may_be_elsewhere = error.kind() == ErrorKind::not_found;
    if (!may_be_elsewhere || !a.vocab_size || needs_end) throw;
  }
}

}  // namespace ferry
