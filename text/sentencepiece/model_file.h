// Reads SentencePiece model files.
// Source: sentencepiece 0.2.3, src/sentencepiece_model.proto, src/model_interface.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

struct SentencePiece {
  enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
  std::string text;
  float score = 0;
  Type type = Type::normal;

  /// Whether text can be encoded as it: not an unknown token, control symbol or byte.
  bool is_of_text() const {
    return type == Type::normal || type == Type::user_defined || type == Type::unused;
  }
};

/// Normalization before text is split, and denormalization after decoding.
struct SentenceNormalization {
  std::string charsmap;  // precompiled
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

struct SentencePieceModel {
  enum class Kind : uint8_t { unigram = 1, bpe, word, character };

  std::string path;  // of its file
  Kind kind = Kind::unigram;
  std::vector<SentencePiece> pieces;  // by id
  bool byte_fallback = false;         // text without a piece becomes bytes
  bool whitespace_is_suffix = false;  // pieces end with whitespace, not start
  std::string end_piece = "</s>";
  std::string unknown_surface = " \xE2\x81\x87 ";
  SentenceNormalization normalization, denormalization;

  int32_t unknown_id = -1;        // -1 if there is none
  int32_t end_id = -1;            // of end_piece; likewise
  std::vector<int32_t> byte_ids;  // by byte; empty without byte_fallback
};

/// corrupt, naming the file and the piece, for models that sentencepiece would not load.
SentencePieceModel read_sentencepiece_model(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
