#include "text/sentencepiece/sentence_encoder.h"

#include <algorithm>

#include "text/bpe/vocabulary.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

// Pieces that are words, or characters, by text.
class WholePieces {
 public:
  explicit WholePieces(const SentencePieceModel& model) : unknown_(model) {
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencePiece& piece = model.pieces[id];
      if (piece.is_of_text() && piece.type != SentencePiece::Type::unused) {
        pieces_.insert(piece.text, static_cast<int32_t>(id));
      }
    }
  }
  void append(std::string_view text, std::vector<int32_t>& ids) const {
    const int32_t id = pieces_.find(text);
    if (id == Vocabulary::kNone) return unknown_.append(text, ids);
    ids.push_back(id);
  }
  void fuse(std::vector<int32_t>& ids, size_t begin) const { unknown_.fuse(ids, begin); }

 private:
  Vocabulary pieces_;
  UnknownText unknown_;
};

class WordEncoder final : public SentenceEncoder {
 public:
  explicit WordEncoder(const SentencePieceModel& model) : pieces_(model) {}
  void encode(std::string_view text, SentenceState&, std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(kEscapedSpace, at + 1), text.size());
      pieces_.append(text.substr(at, end - at), ids);
      at = end;
    }
    pieces_.fuse(ids, before);
  }

 private:
  WholePieces pieces_;
};

class CharacterEncoder final : public SentenceEncoder {
 public:
  CharacterEncoder(const SentencePieceModel& model, const UserSymbols& symbols)
      : pieces_(model), symbols_(symbols) {}
  void encode(std::string_view text, SentenceState&, std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    for (size_t at = 0; at < text.size();) {
      size_t bytes = symbols_.longest_at(text.substr(at));
      if (bytes == 0) bytes = unicode::character_at(text.data() + at).bytes;
      pieces_.append(text.substr(at, bytes), ids);
      at += bytes;
    }
    pieces_.fuse(ids, before);
  }

 private:
  WholePieces pieces_;
  const UserSymbols& symbols_;
};

}  // namespace

void UnknownText::fuse(std::vector<int32_t>& ids, size_t begin) const {
  if (has_bytes()) return;
  const auto first = ids.begin() + static_cast<ptrdiff_t>(begin);
  ids.erase(std::unique(first, ids.end(),
                        [&](int32_t a, int32_t b) { return a == unknown_ && b == unknown_; }),
            ids.end());
}

SentenceWords::SentenceWords(const SentencePieceModel& model, std::string_view space)
    : space_(space), divides_(Divides::nowhere) {
  bool before = true, after = true;  // whether no piece has a space and another character so
  for (const SentencePiece& piece : model.pieces) {
    if (!piece.is_of_text()) continue;
    const std::string_view text = piece.text;
    size_t run_end = 0;
    for (size_t at = text.find(space); at < text.size(); at = text.find(space, run_end)) {
      before = before && at == run_end;
      run_end = at + space.size();
      after = after && (run_end == text.size() || text.substr(run_end).starts_with(space));
    }
  }
  if (before || after) divides_ = before ? Divides::before_spaces : Divides::after_spaces;
}

size_t SentenceWords::next_start(std::string_view text, size_t at) const {
  while (text.substr(at).starts_with(space_)) at += space_.size();
  return std::min(text.find(space_, at), text.size());
}

size_t SentenceWords::next_end(std::string_view text, size_t at) const {
  at = std::min(text.find(space_, at), text.size());
  while (text.substr(at).starts_with(space_)) at += space_.size();
  return at;
}

std::unique_ptr<const SentenceEncoder> make_sentence_encoder(const SentencePieceModel& model,
                                                             const UserSymbols& symbols,
                                                             std::string_view space) {
  switch (model.kind) {
    case SentencePieceModel::Kind::unigram:
      return make_unigram_encoder(model, space);
    case SentencePieceModel::Kind::bpe:
      return make_bpe_encoder(model, symbols, space);
    case SentencePieceModel::Kind::word:
      return std::make_unique<WordEncoder>(model);
    case SentencePieceModel::Kind::character:
      break;
  }
  return std::make_unique<CharacterEncoder>(model, symbols);
}

}  // namespace ferry
