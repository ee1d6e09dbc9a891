#include <algorithm>
#include <bit>
#include <unordered_map>

#include "text/bpe/merger.h"
#include "text/bpe/vocabulary.h"
#include "text/sentencepiece/sentence_encoder.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

// Ranks of scores, the highest first; negative zero is below zero.
class ScoreRanks {
 public:
  explicit ScoreRanks(const SentencePieceModel& model) {
    for (const SentencePiece& piece : model.pieces) keys_.push_back(key(piece.score));
    std::sort(keys_.begin(), keys_.end());
    keys_.erase(std::unique(keys_.begin(), keys_.end()), keys_.end());
  }
  int32_t of(float score) const {
    return static_cast<int32_t>(std::lower_bound(keys_.begin(), keys_.end(), key(score)) -
                                keys_.begin());
  }

 private:
  static uint32_t key(float score) {
    const auto bits = std::bit_cast<uint32_t>(score);
    return (bits & 0x80000000) != 0 ? bits : ~bits & 0x7FFFFFFF;
  }
  std::vector<uint32_t> keys_;
};

// Symbols are pieces, by id, then characters that are not pieces but occur in some, then one for
// all other characters.
class SentenceBpe final : public SentenceEncoder {
 public:
  SentenceBpe(const SentencePieceModel& model, const UserSymbols& symbols, std::string_view space)
      : model_(model),
        user_symbols_(symbols),
        unknown_(model),
        words_(model, space),
        other_(static_cast<int32_t>(model.pieces.size())) {
    using Type = SentencePiece::Type;
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencePiece& piece = model.pieces[id];
      if (!piece.is_of_text() || piece.text[0] == '\0') continue;
      symbols_.insert(piece.text, static_cast<int32_t>(id));
      has_unused_ = has_unused_ || piece.type == Type::unused;
    }
    int32_t next = other_ + 1;
    for (const SentencePiece& piece : model.pieces) {
      if (!piece.is_of_text()) continue;
      for (size_t at = 0; at < piece.text.size();) {
        const size_t bytes = unicode::character_at(piece.text.data() + at).bytes;
        const std::string_view character = std::string_view(piece.text).substr(at, bytes);
        if (symbols_.find(character) == Vocabulary::kNone) symbols_.insert(character, next++);
        at += bytes;
      }
    }
    insert_merges();
    for (int byte = 0; byte < 0x80; ++byte) {
      const char character = static_cast<char>(byte);
      ascii_[static_cast<size_t>(byte)] = symbol_of({&character, 1});
    }
  }

  void encode(std::string_view text, SentenceState& state,
              std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    if (has_unused_) {
      merge_all(text, state, ids);
    } else {
      for (size_t at = 0; at < text.size();) {
        const size_t end = words_.end_of_word(text, at);
        encode_word(text.substr(at, end - at), state, ids);
        at = end;
      }
    }
    unknown_.fuse(ids, before);
  }

 private:
  void insert_merges() {
    struct Pair {
      int32_t left, right, both;
    };
    std::vector<Pair> pairs;
    const auto may_merge = [&](int32_t symbol) {
      return symbol != Vocabulary::kNone &&
             (symbol > other_ ||
              model_.pieces[static_cast<size_t>(symbol)].type != SentencePiece::Type::user_defined);
    };
    for (int32_t id = 0; id < other_; ++id) {
      const SentencePiece& piece = model_.pieces[static_cast<size_t>(id)];
      const std::string_view text = piece.text;
      if (symbols_.find(text) != id || !may_merge(id)) continue;
      for (size_t at = 1; at < text.size(); ++at) {
        if (unicode::continues(text[at])) continue;
        const int32_t left = symbols_.find(text.substr(0, at));
        if (!may_merge(left)) continue;
        const int32_t right = symbols_.find(text.substr(at));
        if (may_merge(right)) pairs.push_back({left, right, id});
      }
    }
    const ScoreRanks ranks(model_);
    merges_ = MergeTable(pairs.size());
    for (const Pair& pair : pairs) {
      const float score = model_.pieces[static_cast<size_t>(pair.both)].score;
      merges_.insert(pair.left, pair.right, ranks.of(score), pair.both);
    }
  }

  int32_t symbol_of(std::string_view character) const {
    const int32_t symbol = symbols_.find(character);
    return symbol == Vocabulary::kNone ? other_ : symbol;
  }

  void encode_word(std::string_view word, SentenceState& state, std::vector<int32_t>& ids) const {
    const bool short_enough = word.size() <= PieceCache::kLongest;
    const uint64_t hash = short_enough ? hash_of_piece(word) : 0;
    if (short_enough && state.cache.append(word, hash, ids)) return;
    const size_t before = ids.size();
    set_symbols(word, state.symbols);
    state.merger.merge(merges_, true, state.symbols);
    for (const int32_t symbol : state.symbols) append_symbol(symbol, word, ids);
    if (short_enough) state.cache.keep(word, hash, std::span(ids).subspan(before));
  }

  void set_symbols(std::string_view text, std::vector<int32_t>& symbols) const {
    symbols.clear();
    for (size_t at = 0; at < text.size();) {
      if (const size_t bytes = user_symbols_.longest_at(text.substr(at)); bytes > 0) {
        symbols.push_back(symbols_.find(text.substr(at, bytes)));
        at += bytes;
        continue;
      }
      if (const auto byte = static_cast<unsigned char>(text[at]); byte < 0x80) {
        symbols.push_back(ascii_[byte]);
        ++at;
        continue;
      }
      const size_t bytes = unicode::character_at(text.data() + at).bytes;
      symbols.push_back(symbol_of(text.substr(at, bytes)));
      at += bytes;
    }
  }

  // Removes the symbol's text from the start of `rest`.
  void append_symbol(int32_t symbol, std::string_view& rest, std::vector<int32_t>& ids) const {
    const bool is_piece = symbol < other_;
    const size_t bytes = is_piece ? model_.pieces[static_cast<size_t>(symbol)].text.size()
                                  : unicode::character_at(rest.data()).bytes;
    if (is_piece) {
      ids.push_back(symbol);
    } else {
      unknown_.append(rest.substr(0, bytes), ids);
    }
    rest.remove_prefix(bytes);
  }

  // Unused pieces take part in merges and are split again at the end, into the last pair of the
  // text that could form them.
  void merge_all(std::string_view text, SentenceState& state, std::vector<int32_t>& ids) const {
    MadeOf made_of;
    set_symbols(text, state.symbols);
    state.merger.merge(merges_, state.symbols, [&](const Merge& merge) {
      if (is_unused(merge.symbol)) made_of[merge.symbol] = merge.pair;
    });
    for (const int32_t symbol : state.symbols) append_used(symbol, made_of, 0, text, ids);
  }

  using MadeOf = std::unordered_map<int32_t, uint64_t>;

  void append_used(int32_t symbol, const MadeOf& made_of, int depth, std::string_view& rest,
                   std::vector<int32_t>& ids) const {
    constexpr int kDeepest = 100;
    if (!is_unused(symbol) || depth > kDeepest) return append_symbol(symbol, rest, ids);
    const auto pair = made_of.find(symbol);
    if (pair == made_of.end()) {
      const size_t bytes = model_.pieces[static_cast<size_t>(symbol)].text.size();
      unknown_.append(rest.substr(0, bytes), ids);
      rest.remove_prefix(bytes);
      return;
    }
    append_used(static_cast<int32_t>(pair->second >> 32), made_of, depth + 1, rest, ids);
    append_used(static_cast<int32_t>(pair->second), made_of, depth + 1, rest, ids);
  }

  bool is_unused(int32_t symbol) const {
    return symbol < other_ &&
           model_.pieces[static_cast<size_t>(symbol)].type == SentencePiece::Type::unused;
  }

  const SentencePieceModel& model_;
  const UserSymbols& user_symbols_;
  UnknownText unknown_;
  SentenceWords words_;
  int32_t other_;
  Vocabulary symbols_;
  MergeTable merges_{0};
  std::array<int32_t, 128> ascii_{};
  bool has_unused_ = false;
};

}  // namespace

std::unique_ptr<const SentenceEncoder> make_bpe_encoder(const SentencePieceModel& model,
                                                        const UserSymbols& symbols,
                                                        std::string_view space) {
  return std::make_unique<SentenceBpe>(model, symbols, space);
}

}  // namespace ferry
