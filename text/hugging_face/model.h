// The models of tokenizer.json, which map pieces to ids.
// Source: huggingface/tokenizers, tokenizers/src/models/{bpe,unigram}.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe/byte_pair_encoder.h"
#include "text/bpe/vocabulary.h"

namespace ferry {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  /// Appends the ids of a piece. Thread-safe with a separate state per thread.
  virtual void encode(std::string_view piece, BytePairEncoder::State& state,
                      std::vector<int32_t>& ids) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  /// "BPE" or "unigram".
  virtual std::string kind() const = 0;
};

/// Reads the member `model`. `byte_level`: pieces are bytes, and the model's tokens have GPT-2's
/// notation for bytes. corrupt and unsupported name `path`.
std::unique_ptr<const PieceModel> read_piece_model(const nlohmann::json& model, bool byte_level,
                                                   const std::string& path);
std::unique_ptr<const PieceModel> read_unigram(const nlohmann::json& model, bool byte_level,
                                               const std::string& path);
std::unique_ptr<const PieceModel> read_bpe(const nlohmann::json& model, bool byte_level,
                                           const std::string& path);

/// Appends the ids of a piece, from the cache or from add(piece, ids); with `byte_level` the piece
/// is converted to GPT-2's notation.
template <typename Add>
void encode_cached(std::string_view piece, bool byte_level, BytePairEncoder::State& state,
                   std::vector<int32_t>& ids, const Add& add) {
  if (piece.empty()) return;
  const bool short_enough = piece.size() <= PieceCache::kLongest;
  const uint64_t hash = short_enough ? hash_of_piece(piece) : 0;
  if (short_enough && state.cache.append(piece, hash, ids)) return;
  const size_t before = ids.size();
  if (byte_level) {
    add(to_byte_level(piece), ids);
  } else {
    add(piece, ids);
  }
  if (short_enough) state.cache.keep(piece, hash, std::span(ids).subspan(before));
}

/// The token of a byte for byte fallback: "<0x0A>".
std::string byte_token(unsigned char byte);

}  // namespace ferry
