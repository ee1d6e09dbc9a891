#include "text/sentencepiece/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "ckpt/base/error.h"
#include "ckpt/base/protobuf.h"
#include "text/bpe/vocabulary.h"
#include "text/json_file.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestModel = uint64_t{512} << 20;  // bytes
constexpr size_t kLongestPiece = 7999;                   // bytes
constexpr std::string_view kNull("\0", 1);

using Field = ProtobufMessage::Field;
using Type = SentencePiece::Type;

bool is_true(const Field& field) { return field.value != 0; }

void set_text(const Field& field, std::string& text) {
  if (field.kind == Field::Kind::text) text = field.text;
}

// Unknown fields of other versions are ignored.
SentencePiece read_piece(std::string_view bytes, const std::string& path, size_t id) {
  SentencePiece piece;
  const std::string what = fmt::format("{}: piece {}", path, id);
  ProtobufMessage message(bytes, what);
  while (const auto field = message.next()) {
    if (field->number == 1) {
      set_text(*field, piece.text);
    } else if (field->number == 2 && field->kind == Field::Kind::four_bytes) {
      piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    } else if (field->number == 3 && field->kind == Field::Kind::varint) {
      if (field->value < 1 || field->value > 6) {
        fail(ErrorKind::unsupported, "{} has the unknown type {}", what, field->value);
      }
      piece.type = static_cast<Type>(field->value);
    }
  }
  return piece;
}

void read_trainer(std::string_view bytes, SentencePieceModel& model) {
  constexpr uint64_t kModelType = 3, kSuffix = 24, kByteFallback = 35, kUnknownSurface = 44,
                     kEndPiece = 47;
  const std::string what = model.path + ": trainer_spec";
  ProtobufMessage message(bytes, what);
  while (const auto field = message.next()) {
    if (field->number == kModelType) {
      if (field->value < 1 || field->value > 4) {
        fail(ErrorKind::unsupported, "{}: models of type {} are not supported", model.path,
             field->value);
      }
      model.kind = static_cast<SentencePieceModel::Kind>(field->value);
    } else if (field->number == kSuffix) {
      model.whitespace_is_suffix = is_true(*field);
    } else if (field->number == kByteFallback) {
      model.byte_fallback = is_true(*field);
    } else if (field->number == kUnknownSurface) {
      set_text(*field, model.unknown_surface);
    } else if (field->number == kEndPiece && !field->text.empty()) {
      set_text(*field, model.end_piece);
    }
  }
}

void read_normalization(std::string_view bytes, const std::string& what,
                        SentenceNormalization& normalization) {
  constexpr uint64_t kCharsmap = 2, kDummyPrefix = 3, kRemove = 4, kEscape = 5;
  ProtobufMessage message(bytes, what);
  while (const auto field = message.next()) {
    if (field->number == kCharsmap) set_text(*field, normalization.charsmap);
    if (field->number == kDummyPrefix) normalization.add_dummy_prefix = is_true(*field);
    if (field->number == kRemove) normalization.remove_extra_whitespaces = is_true(*field);
    if (field->number == kEscape) normalization.escape_whitespaces = is_true(*field);
  }
}

void check_piece(const SentencePieceModel& model, size_t id, Vocabulary& of_text,
                 Vocabulary& others) {
  const SentencePiece& piece = model.pieces[id];
  const auto refuse = [&](const std::string& problem) {
    const size_t shown = std::min<size_t>({80, piece.text.size(), piece.text.find('\0')});
    fail(ErrorKind::corrupt, "{}: piece {} ('{}') {}", model.path, id, piece.text.substr(0, shown),
         problem);
  };
  if (piece.text.empty()) refuse("is empty");
  if (piece.text.size() > kLongestPiece) {
    refuse(fmt::format("has {} bytes, more than {}", piece.text.size(), kLongestPiece));
  }
  if (piece.text.find('\0') != std::string::npos) refuse("has a zero byte");
  if (unicode::well_formed_prefix(piece.text) != piece.text.size()) refuse("is not UTF-8");
  if (!std::isfinite(piece.score)) refuse("has no finite score");
  // BPE merges ignore the types of pieces.
  Vocabulary& known =
      piece.is_of_text() || model.kind == SentencePieceModel::Kind::bpe ? of_text : others;
  if (const int32_t before = known.find(piece.text); before != Vocabulary::kNone) {
    refuse(fmt::format("is the same as piece {}", before));
  }
  known.insert(piece.text, static_cast<int32_t>(id));
}

// The byte of a piece such as "<0x0A>"; -1 otherwise.
int byte_of_piece(std::string_view text) {
  for (int byte = 0; byte < 256; ++byte) {
    if (text == fmt::format("<0x{:02X}>", byte)) return byte;
  }
  return -1;
}

void index_piece(SentencePieceModel& model, size_t id) {
  const SentencePiece& piece = model.pieces[id];
  const auto number = static_cast<int32_t>(id);
  if (piece.type == Type::unknown) {
    if (model.unknown_id >= 0) {
      fail(ErrorKind::corrupt, "{}: the pieces {} and {} are both of type unknown", model.path,
           model.unknown_id, id);
    }
    model.unknown_id = number;
  } else if (piece.type == Type::control) {
    if (piece.text == model.end_piece) model.end_id = number;
  } else if (piece.type == Type::byte) {
    const int byte = model.byte_fallback ? byte_of_piece(piece.text) : -1;
    if (byte < 0) {
      fail(ErrorKind::corrupt, "{}: piece {} ('{}') is for a byte, {}", model.path, id,
           piece.text.substr(0, 80),
           model.byte_fallback ? "and names none" : "though byte_fallback is false");
    }
    model.byte_ids[static_cast<size_t>(byte)] = number;
  }
}

void check_model(SentencePieceModel& model) {
  if (model.pieces.empty()) fail(ErrorKind::corrupt, "{}: not a SentencePiece model", model.path);
  if (model.byte_fallback) model.byte_ids.assign(256, -1);
  Vocabulary of_text, others;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece& piece = model.pieces[id];
    // Some programs write the byte zero as an additional unused piece next to <0x00>.
    if (piece.text == kNull && (model.byte_fallback || piece.type == Type::unused)) {
      piece.type = Type::unused;
      continue;
    }
    check_piece(model, id, of_text, others);
    index_piece(model, id);
  }
  if (model.unknown_id < 0 && !model.byte_fallback) {
    fail(ErrorKind::corrupt, "{}: there is no piece of type unknown", model.path);
  }
  for (size_t byte = 0; byte < model.byte_ids.size(); ++byte) {
    if (model.byte_ids[byte] < 0) {
      fail(ErrorKind::corrupt, "{}: byte_fallback is true, but the byte 0x{:02X} has no piece",
           model.path, byte);
    }
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(const FileSystem& file_system,
                                            const std::string& path) {
  constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
  const std::string bytes = read_file(file_system, path, kLargestModel);
  SentencePieceModel model;
  model.path = path;
  const std::string what = path + ": not a SentencePiece model";
  ProtobufMessage message(bytes, what);
  while (const auto field = message.next()) {
    if (field->kind != Field::Kind::text) continue;
    if (field->number == kPieces) {
      if (model.pieces.size() > kLargestTokenId) {
        fail(ErrorKind::corrupt, "{}: has more than {} pieces", path, kLargestTokenId);
      }
      model.pieces.push_back(read_piece(field->text, path, model.pieces.size()));
    } else if (field->number == kTrainer) {
      read_trainer(field->text, model);
    } else if (field->number == kNormalizer) {
      read_normalization(field->text, path + ": normalizer_spec", model.normalization);
    } else if (field->number == kDenormalizer) {
      read_normalization(field->text, path + ": denormalizer_spec", model.denormalization);
    }
  }
  check_model(model);
  return model;
}

}  // namespace ferry
