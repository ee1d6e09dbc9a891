#include <fmt/format.h>

#include <algorithm>

#include "text/bpe/byte_pair_tokenizer.h"
#include "text/sentencepiece/sentence_encoder.h"
#include "text/tokenizer_kinds.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

using Type = SentencePiece::Type;

// Each byte that is not part of a character becomes U+FFFD.
void append_bytes(std::string& bytes, std::string& text) {
  for (std::string_view rest = bytes; !rest.empty();) {
    const size_t good = unicode::well_formed_prefix(rest);
    text += rest.substr(0, good);
    rest.remove_prefix(good);
    if (rest.empty()) break;
    text += "\xEF\xBF\xBD";
    rest.remove_prefix(1);
  }
  bytes.clear();
}

void append_with_spaces(std::string_view piece, std::string& text) {
  while (true) {
    const size_t space = piece.find(kEscapedSpace);
    text += piece.substr(0, space);
    if (space == std::string_view::npos) return;
    text += ' ';
    piece.remove_prefix(space + kEscapedSpace.size());
  }
}

class SentencePieceTokenizer final : public TextTokenizer {
 public:
  explicit SentencePieceTokenizer(SentencePieceModel model)
      : model_(std::move(model)),
        symbols_(model_),
        normalizer_(model_.normalization, model_.whitespace_is_suffix, &symbols_, model_.path),
        denormalizer_(model_.denormalization, false, nullptr, model_.path),
        encoder_(make_sentence_encoder(model_, symbols_, normalizer_.space())) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::string room;
    text = well_formed(text, room);
    const std::string normalized = normalizer_.normalized(text);
    const StatePool<SentenceState>::Loan state(states_);
    encoder_->encode(normalized, *state, ids);
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text, bytes;
    bool at_start = true;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) continue;
      const SentencePiece& piece = model_.pieces[static_cast<size_t>(id)];
      if (piece.type == Type::byte) {
        bytes += byte_of(id);
        continue;
      }
      append_bytes(bytes, text);
      at_start = at_start && text.empty();
      if (piece.type != Type::control) append_piece(piece, at_start, text);
    }
    append_bytes(bytes, text);
    return model_.denormalization.charsmap.empty() ? text : denormalizer_.normalized(text);
  }

  int64_t vocab_size() const noexcept override {
    return static_cast<int64_t>(model_.pieces.size());
  }
  std::optional<int32_t> end_of_document() const override {
    return model_.end_id >= 0 ? std::optional(model_.end_id) : std::nullopt;
  }
  std::string kind() const override {
    constexpr const char* kKinds[] = {"unigram model", "BPE", "words", "characters"};
    return fmt::format("SentencePiece's {} of {} pieces", kKinds[static_cast<int>(model_.kind) - 1],
                       vocab_size());
  }

 private:
  char byte_of(int32_t id) const {
    const auto found = std::find(model_.byte_ids.begin(), model_.byte_ids.end(), id);
    return static_cast<char>(found - model_.byte_ids.begin());
  }

  // `at_start`: whether the space before the text has not been removed yet.
  void append_piece(const SentencePiece& piece, bool& at_start, std::string& text) const {
    const SentenceNormalization& form = model_.normalization;
    if (piece.type == Type::unknown) {
      text += model_.unknown_surface;
    } else {
      std::string_view rest = piece.text;
      bool had_space = false;
      if (at_start && (form.add_dummy_prefix || form.remove_extra_whitespaces)) {
        had_space = rest.starts_with(kEscapedSpace);
        if (had_space) rest.remove_prefix(kEscapedSpace.size());
        had_space = had_space && !form.remove_extra_whitespaces;
      }
      append_with_spaces(rest, text);
      at_start = at_start && !had_space;
    }
    at_start = at_start && text.empty();
  }

  SentencePieceModel model_;
  UserSymbols symbols_;
  SentenceNormalizer normalizer_, denormalizer_;
  std::unique_ptr<const SentenceEncoder> encoder_;
  mutable StatePool<SentenceState> states_;
};

}  // namespace

std::unique_ptr<const TextTokenizer> open_sentencepiece_tokenizer(const FileSystem& file_system,
                                                                  const std::string& path) {
  return std::make_unique<SentencePieceTokenizer>(read_sentencepiece_model(file_system, path));
}

}  // namespace ferry
