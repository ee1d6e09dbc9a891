#include <fmt/format.h>

#include <algorithm>

#include "text/bpe/byte_pair_tokenizer.h"
#include "text/hugging_face/added_tokens.h"
#include "text/hugging_face/decoder.h"
#include "text/hugging_face/member.h"
#include "text/hugging_face/model.h"
#include "text/hugging_face/normalizer.h"
#include "text/hugging_face/pre_tokenizer.h"
#include "text/json_file.h"
#include "text/tokenizer_kinds.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

class HuggingFaceTokenizer final : public TextTokenizer {
 public:
  HuggingFaceTokenizer(const nlohmann::json& json, const std::string& path, bool add_special)
      : normalizer_(read_normalizer(member(json, "normalizer"), path)),
        pre_tokenizers_(read_pre_tokenizers(member(json, "pre_tokenizer"), path)),
        model_(read_piece_model(member(json, "model"), pre_tokenizers_.byte_level, path)),
        decoder_(read_decoder(member(json, "decoder"), path)) {
    if (add_special) around_ = read_post_processor(member(json, "post_processor"), path);
    vocab_size_ = model_->vocabulary().end();
    if (json.contains("added_tokens")) read_added_tokens(json["added_tokens"], path);
    for (const std::vector<int32_t>* around : {&around_.before, &around_.after}) {
      for (const int32_t id : *around) vocab_size_ = std::max<int64_t>(vocab_size_, id + 1);
    }
    // Whether there is only one pattern and nothing else that changes text.
    if (pre_tokenizers_.steps.size() == 1) alone_ = pre_tokenizers_.steps[0]->isolates();
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string room;
    text = well_formed(text, room);
    const StatePool<BytePairEncoder::State>::Loan state(states_);
    ids.insert(ids.end(), around_.before.begin(), around_.before.end());
    if (added_.empty()) {
      encode_normalized(text, true, *state, ids);
    } else {
      added_.divide(
          text,
          [&](size_t begin, size_t end) {
            encode_normalized(text.substr(begin, end - begin), begin == 0, *state, ids);
          },
          [&](int32_t id) { ids.push_back(id); });
    }
    ids.insert(ids.end(), around_.after.begin(), around_.after.end());
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> tokens;
    for (const int32_t id : ids) {
      if (const std::string_view token = token_of(id); !token.empty()) tokens.emplace_back(token);
    }
    for (const DecoderStep& step : decoder_) step(tokens);
    std::string text;
    for (const std::string& token : tokens) text += token;
    return text;
  }

  int64_t vocab_size() const noexcept override { return vocab_size_; }
  std::optional<int32_t> end_of_document() const override { return end_of_document_; }
  std::string kind() const override {
    return fmt::format("Hugging Face's {} of {} tokens", model_->kind(), vocab_size_);
  }

  /// Returns false if there is no such token.
  bool set_end_of_document(const std::string& token) {
    const auto added = std::find_if(added_list_.begin(), added_list_.end(),
                                    [&](const AddedToken& a) { return a.content == token; });
    const int32_t id = added != added_list_.end() ? added->id : model_->vocabulary().find(token);
    if (id != Vocabulary::kNone) end_of_document_ = id;
    return id != Vocabulary::kNone;
  }

 private:
  static const nlohmann::json& member(const nlohmann::json& json, const char* name) {
    static const nlohmann::json kNull;
    const auto found = json.find(name);
    return found == json.end() ? kNull : *found;
  }

  std::string_view token_of(int32_t id) const {
    const auto added = std::find_if(added_list_.begin(), added_list_.end(),
                                    [&](const AddedToken& a) { return a.id == id; });
    return added != added_list_.end() ? std::string_view(added->content)
                                      : model_->vocabulary().token(id);
  }

  void read_added_tokens(const nlohmann::json& tokens, const std::string& path) {
    if (!tokens.is_array()) {
      fail(ErrorKind::corrupt, "{}: added_tokens must be an array", path);
    }
    for (const nlohmann::json& json : tokens) {
      const JsonMembers members(json, path, "added_tokens[]");
      AddedToken token;
      token.content = members.text("content");
      if (token.content.empty()) continue;
      token.id = token_id(json.contains("id") ? json["id"] : nlohmann::json(), path, token.content);
      token.single_word = members.flag("single_word", false);
      token.strip_left = members.flag("lstrip", false);
      token.strip_right = members.flag("rstrip", false);
      token.special = members.flag("special", false);
      token.normalized = members.flag("normalized", !token.special);
      // A token that the model has under another id gets that id (tokenizer/added_vocabulary.rs,
      // add_tokens()).
      if (const int32_t id = model_->vocabulary().find(token.content); id != Vocabulary::kNone) {
        token.id = id;
      }
      vocab_size_ = std::max<int64_t>(vocab_size_, token.id + 1);
      added_list_.push_back(token);
      if (token.normalized && normalizer_ != nullptr) {
        bool starts = true;
        normalizer_->apply(token.content, starts);
      }
      (token.normalized ? added_normalized_ : added_).insert(std::move(token));
    }
  }

  void encode_normalized(std::string_view text, bool starts, BytePairEncoder::State& state,
                         std::vector<int32_t>& ids) const {
    std::string room;
    if (normalizer_ != nullptr) {
      room = text;
      normalizer_->apply(room, starts);
      text = room;
    }
    if (added_normalized_.empty()) return encode_pieces(text, starts, state, ids);
    added_normalized_.divide(
        text,
        [&](size_t begin, size_t end) {
          encode_pieces(text.substr(begin, end - begin), starts && begin == 0, state, ids);
        },
        [&](int32_t id) { ids.push_back(id); });
  }

  void encode_pieces(std::string_view text, bool starts, BytePairEncoder::State& state,
                     std::vector<int32_t>& ids) const {
    if (text.empty()) return;
    if (alone_ != nullptr) return encode_isolated(text, state, ids);
    TextPieces pieces;
    pieces.pieces.push_back({text, starts});
    for (const auto& step : pre_tokenizers_.steps) step->apply(pieces);
    for (const TextPiece& piece : pieces.pieces) model_->encode(piece.text, state, ids);
  }

  void encode_isolated(std::string_view text, BytePairEncoder::State& state,
                       std::vector<int32_t>& ids) const {
    for (size_t done = 0, at = 0; done < text.size();) {
      const Match match = alone_->find(text, at);
      if (match.begin > done) model_->encode(text.substr(done, match.begin - done), state, ids);
      model_->encode(text.substr(match.begin, match.end - match.begin), state, ids);
      done = match.end;
      at = match.end > match.begin || match.end >= text.size()
               ? match.end
               : match.end + unicode::character_at(text.data() + match.end).bytes;
    }
  }

  std::unique_ptr<const Normalizer> normalizer_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<const PieceModel> model_;
  std::vector<DecoderStep> decoder_;
  AroundText around_;
  AddedTokens added_, added_normalized_;
  std::vector<AddedToken> added_list_;
  const Splitter* alone_ = nullptr;
  int64_t vocab_size_ = 0;
  std::optional<int32_t> end_of_document_;
  mutable StatePool<BytePairEncoder::State> states_;
};

// The eos_token of tokenizer_config.json: a string, or an object with its content.
std::string end_token(const FileSystem& file_system, const std::string& path) {
  if (file_system.status(path).kind != PathKind::file) return "";
  const nlohmann::json json = read_json(file_system, path);
  const JsonMembers members(json, path, "tokenizer_config");
  if (!members.has("eos_token")) return "";
  return json["eos_token"].is_object() ? members.member("eos_token").text("content")
                                       : members.text("eos_token");
}

}  // namespace

std::unique_ptr<const TextTokenizer> open_hugging_face_tokenizer(const FileSystem& file_system,
                                                                 const std::string& model,
                                                                 bool add_special) {
  const bool is_folder = file_system.status(model).kind == PathKind::folder;
  const std::string path = is_folder ? join(model, "tokenizer.json") : model;
  if (file_system.status(path).kind == PathKind::missing) {
    fail(ErrorKind::not_found,
         "{} does not exist; --tokenizer-model must be a tokenizer.json or a folder with one (for "
         "a model on a hub, download its tokenizer.json first)",
         path);
  }
  const nlohmann::json json = read_json(file_system, path);
  if (!json.is_object() || !json.contains("model")) {
    fail(ErrorKind::corrupt, "{} has no member 'model', so it is not a tokenizer.json", path);
  }
  auto tokenizer = std::make_unique<HuggingFaceTokenizer>(json, path, add_special);
  const std::string config = join(split_path(path).parent, "tokenizer_config.json");
  const std::string end = end_token(file_system, config);
  if (!end.empty() && !tokenizer->set_end_of_document(end)) {
    fail(ErrorKind::mismatch, "{} names the eos_token '{}', which {} lacks", config, end, path);
  }
  return tokenizer;
}

}  // namespace ferry
