// The models of SentencePiece: normalised text to the ids of its pieces.
// Source: sentencepiece 0.2.3, src/{bpe,unigram,word,char}_model.cc, and of what is unknown
// src/sentencepiece_processor.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe/merger.h"
#include "text/bpe/piece_cache.h"
#include "text/sentencepiece/sentence_normalizer.h"
#include "text/sentencepiece/unigram_state.h"

namespace ferry {

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
