// What a SentencePiece model's file says.
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

  /// Whether text can become it: it is no unknown token, control symbol or byte.
  bool is_of_text() const {
    return type == Type::normal || type == Type::user_defined || type == Type::unused;
  }
};

/// How text is changed before it is divided, and after it was put together.
struct SentenceNormalization {
  std::string charsmap;  // precompiled
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

struct SentencePieceModel {
  enum class Kind : uint8_t { unigram = 1, bpe, word, character };

  std::string path;  // of its file
  Kind kind = Kind::unigram;
  std::vector<SentencePiece> pieces;  // by id
  bool byte_fallback = false;         // what has no piece becomes its bytes
  bool whitespace_is_suffix = false;  // pieces end with it, not begin
  std::string end_piece = "</s>";
  std::string unknown_surface = " \xE2\x81\x87 ";
  SentenceNormalization normalization, denormalization;

  int32_t unknown_id = -1;        // of the piece; -1 where there is none
  int32_t end_id = -1;            // the same, of end_piece
  std::vector<int32_t> byte_ids;  // of each byte; empty without byte_fallback
};

/// corrupt, naming the file and the piece, for what sentencepiece would not load.
SentencePieceModel read_sentencepiece_model(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
