// The models of SentencePiece: normalised text to the ids of its pieces.
// Source: sentencepiece 0.2.3, src/{bpe,unigram,word,char}_model.cc, and of what is unknown
// src/sentencepiece_processor.cc.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe/byte_pair_encoder.h"
#include "text/bpe/merger.h"
#include "text/sentencepiece/sentence_normalizer.h"

namespace ferry {

// What SentencePiece's unigram model keeps between words of a text.

/// The best paths of words that came lately. Scores add up in float from the text's start on, so
/// that rounding may decide between paths that are nearly as good: each has by how much it is
/// better than what else ends where one of its steps does. Not for several threads at once.
class PathCache {
 public:
  static constexpr size_t kLongest = 22;  // bytes of a word that is kept
  static constexpr size_t kIds = 8;

  struct Path {
    float margin = 0;   // of the least certain step
    float highest = 0;  // the greatest absolute value of a score on the way
    std::span<const int32_t> ids;
  };

  PathCache() : entries_(kEntries) {}

  /// Nothing where the word is not kept. `hash` is the word's.
  bool find(std::string_view word, uint64_t hash, Path& path) const {
    const Entry& entry = entries_[hash >> (64 - kBits)];
    if (entry.bytes != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return false;
    }
    path = {entry.margin, entry.highest, {entry.ids, entry.count}};
    return true;
  }
  /// Keeps the path of a word of 1 to kLongest bytes, of at most kIds steps.
  void keep(std::string_view word, uint64_t hash, const Path& path) {
    Entry& entry = entries_[hash >> (64 - kBits)];
    entry.bytes = static_cast<uint8_t>(word.size());
    entry.count = static_cast<uint8_t>(path.ids.size());
    entry.margin = path.margin;
    entry.highest = path.highest;
    std::memcpy(entry.word, word.data(), word.size());
    std::memcpy(entry.ids, path.ids.data(), path.ids.size_bytes());
  }

 private:
  static constexpr size_t kBits = 15, kEntries = size_t{1} << kBits;
  struct alignas(64) Entry {
    float margin = 0, highest = 0;
    uint8_t bytes = 0, count = 0;
    char word[kLongest];
    int32_t ids[kIds];
  };

  std::vector<Entry> entries_;
};

struct UnigramState {
  static constexpr uint32_t kNowhere = UINT32_MAX;

  // The best way to the end of a character, and the score of the second best.
  struct Node {
    float score = 0, second = 0;
    uint32_t begin = kNowhere;
    int32_t id = 0;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> word_ids;
  PathCache cache;
};

/// What one thread needs.
struct SentenceState {
  Merger merger;
  PieceCache cache;
  std::vector<int32_t> symbols;
  UnigramState unigram;
};

class SentenceEncoder {
 public:
  virtual ~SentenceEncoder() = default;
  /// Appends the ids of `text`, which the normalizer gave. Safe from several threads, each with a
  /// state of its own.
  virtual void encode(std::string_view text, SentenceState& state,
                      std::vector<int32_t>& ids) const = 0;
};

/// `model` and `symbols` must outlive the encoder. `space` is what stands for a space in texts.
std::unique_ptr<const SentenceEncoder> make_sentence_encoder(const SentencePieceModel& model,
                                                             const UserSymbols& symbols,
                                                             std::string_view space);
std::unique_ptr<const SentenceEncoder> make_bpe_encoder(const SentencePieceModel& model,
                                                        const UserSymbols& symbols,
                                                        std::string_view space);
std::unique_ptr<const SentenceEncoder> make_unigram_encoder(const SentencePieceModel& model,
                                                            std::string_view space);

/// Divides a text into words that no piece of the model reaches over.
class SentenceWords {
 public:
  SentenceWords(const SentencePieceModel& model, std::string_view space);

  /// The end of the word that begins at `at`, before the text's end. The whole text is one where
  /// pieces have spaces inside.
  size_t end_of_word(std::string_view text, size_t at) const {
    if (divides_ == Divides::nowhere) return text.size();
    return divides_ == Divides::before_spaces ? next_start(text, at) : next_end(text, at);
  }

 private:
  enum class Divides : uint8_t { nowhere, before_spaces, behind_spaces };
  size_t next_start(std::string_view text, size_t at) const;
  size_t next_end(std::string_view text, size_t at) const;

  std::string_view space_;
  Divides divides_;
};

/// Appends what a model does with a text that has no piece: its bytes, or the unknown piece, which
/// stands once for several in a row.
class UnknownText {
 public:
  explicit UnknownText(const SentencePieceModel& model)
      : unknown_(model.unknown_id), byte_ids_(model.byte_ids) {}
  bool has_bytes() const { return !byte_ids_.empty(); }
  void append(std::string_view text, std::vector<int32_t>& ids) const {
    if (!has_bytes()) return ids.push_back(unknown_);
    for (const char byte : text) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  /// Leaves one of several unknown pieces in a row, from `begin` on.
  void fuse(std::vector<int32_t>& ids, size_t begin) const;

 private:
  int32_t unknown_;
  const std::vector<int32_t>& byte_ids_;
};

}  // namespace ferry
