// SentencePiece's models: normalized text to the ids of its pieces.
// Source: sentencepiece 0.2.3, src/{bpe,unigram,word,char}_model.cc, and, for unknown text,
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

// State of SentencePiece's unigram model between words of a text.

/// A cache of the best paths of recent words. Scores are summed in float from the text's start, so
/// rounding can decide between nearly equal paths: each entry has the margin by which it beats the
/// alternatives at each step. Not thread-safe.
class PathCache {
 public:
  static constexpr size_t kLongest = 22;  // maximum bytes of a cached word
  static constexpr size_t kIds = 8;

  struct Path {
    float margin = 0;   // minimum over the steps
    float highest = 0;  // the largest absolute value of a score on the path
    std::span<const int32_t> ids;
  };

  PathCache() : entries_(kEntries) {}

  /// Returns false if the word is not cached. `hash` is the word's.
  bool find(std::string_view word, uint64_t hash, Path& path) const {
    const Entry& entry = entries_[hash >> (64 - kBits)];
    if (entry.bytes != word.size() || std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return false;
    }
    path = {entry.margin, entry.highest, {entry.ids, entry.count}};
    return true;
  }
  /// Caches the path of a word of 1 to kLongest bytes with at most kIds steps.
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

  // The best path to the end of a character, and the score of the second best.
  struct Node {
    float score = 0, second = 0;
    uint32_t begin = kNowhere;
    int32_t id = 0;
  };
  std::vector<Node> nodes;
  std::vector<int32_t> word_ids;
  PathCache cache;
};

/// Per-thread state.
struct SentenceState {
  Merger merger;
  PieceCache cache;
  std::vector<int32_t> symbols;
  UnigramState unigram;
};

class SentenceEncoder {
 public:
  virtual ~SentenceEncoder() = default;
  /// Appends the ids of `text`, the normalizer's output. Thread-safe with a separate state per
  /// thread.
  virtual void encode(std::string_view text, SentenceState& state,
                      std::vector<int32_t>& ids) const = 0;
};

/// `model` and `symbols` must outlive the encoder. `space` is the text that replaces a space.
std::unique_ptr<const SentenceEncoder> make_sentence_encoder(const SentencePieceModel& model,
                                                             const UserSymbols& symbols,
                                                             std::string_view space);
std::unique_ptr<const SentenceEncoder> make_bpe_encoder(const SentencePieceModel& model,
                                                        const UserSymbols& symbols,
                                                        std::string_view space);
std::unique_ptr<const SentenceEncoder> make_unigram_encoder(const SentencePieceModel& model,
                                                            std::string_view space);

/// Splits a text into words that no piece crosses.
class SentenceWords {
 public:
  SentenceWords(const SentencePieceModel& model, std::string_view space);

  /// The end of the word that starts at `at`, before the text's end. The whole text is one word if
  /// pieces contain spaces.
  size_t end_of_word(std::string_view text, size_t at) const {
    if (divides_ == Divides::nowhere) return text.size();
    return divides_ == Divides::before_spaces ? next_start(text, at) : next_end(text, at);
  }

 private:
  enum class Divides : uint8_t { nowhere, before_spaces, after_spaces };
  size_t next_start(std::string_view text, size_t at) const;
  size_t next_end(std::string_view text, size_t at) const;

  std::string_view space_;
  Divides divides_;
};

/// Encodes text without a piece: as bytes, or as the unknown piece, several of which are merged.
class UnknownText {
 public:
  explicit UnknownText(const SentencePieceModel& model)
      : unknown_(model.unknown_id), byte_ids_(model.byte_ids) {}
  bool has_bytes() const { return !byte_ids_.empty(); }
  void append(std::string_view text, std::vector<int32_t>& ids) const {
    if (!has_bytes()) return ids.push_back(unknown_);
    for (const char byte : text) ids.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
  }
  /// Merges unknown pieces in a row, from `begin` on.
  void fuse(std::vector<int32_t>& ids, size_t begin) const;

 private:
  int32_t unknown_;
  const std::vector<int32_t>& byte_ids_;
};

}  // namespace ferry
