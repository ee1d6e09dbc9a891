#include "tools/data/tokenize/encode_piece.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/base/utf8.h"

namespace ferry::tool {
namespace {

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Newlines in the first bytes of a file.
int64_t count_newlines(const FileSystem& file_system, const std::string& path, uint64_t bytes) {
  const auto file = file_system.open(path);
  std::vector<std::byte> piece;
  int64_t count = 0;
  for (uint64_t at = 0; at < bytes; at += piece.size()) {
    piece.resize(std::min<uint64_t>(1 << 20, bytes - at));
    file->read(at, piece);
    count += std::count(piece.begin(), piece.end(), std::byte{'\n'});
  }
  return count;
}

}  // namespace

void EncodeCounts::add(const EncodeCounts& other) {
  lines += other.lines;
  blank += other.blank;
  bad += other.bad;
  characters += other.characters;
  tokens += other.tokens;
  empty += other.empty;
  for (const BadLine& one : other.first_bad) {
    if (first_bad.size() < kBadLinesShown) first_bad.push_back(one);
  }
}

PieceEncoder::PieceEncoder(const TextTokenizer& tokenizer, const EncodeOptions& options,
                           const std::vector<TextInput>& inputs, const FileSystem& file_system)
    : tokenizer_(tokenizer),
      options_(options),
      inputs_(inputs),
      file_system_(file_system),
      fields_(options.keys) {}

EncodedPiece PieceEncoder::encode(const TextPiece& piece) {
  EncodedPiece encoded;
  encoded.end = piece.end;
  if (piece.is_document) {
    if (EncodedDocuments* const documents = documents_of(piece.begin.line, encoded)) {
      encode_line(piece, piece.text, 0, *documents);
    }
    return encoded;
  }
  std::string_view text = piece.text;
  for (int64_t line = 0; !text.empty(); ++line) {
    const size_t newline = text.find('\n');
    const size_t length = newline == std::string_view::npos ? text.size() : newline + 1;
    if (EncodedDocuments* const documents = documents_of(piece.begin.line + line, encoded)) {
      encode_line(piece, text.substr(0, length), line, *documents);
    }
    text.remove_prefix(length);
  }
  return encoded;
}

// Where a line's documents go; null: its partition is not to be encoded.
EncodedDocuments* PieceEncoder::documents_of(int64_t line, EncodedPiece& encoded) const {
  const int64_t partition = line % options_.partitions;
  const int64_t end = options_.end_partition ? options_.end_partition->load() : options_.partitions;
  if (partition < options_.first_partition || partition >= end) return nullptr;
  EncodedDocuments& documents = encoded.partitions[partition];
  documents.of_keys.resize(options_.keys.size());
  return &documents;
}

// What is wrong with a line; empty: nothing.
std::string PieceEncoder::problem_of(const TextPiece& piece, std::string_view line) {
  if (inputs_[piece.input].format != TextFormat::json_lines) {
    return utf8_prefix(line, false) == line.size() ? "" : "it is not UTF-8";
  }
  std::string problem = fields_.read(line);
  if (!problem.empty() || !options_.sentences) return problem;
  for (size_t k = 0; k < options_.keys.size(); ++k) {
    if (fields_.fields()[k].is_list) continue;
    return fmt::format("\"{}\" is not a list of sentences, which --split-sentences needs",
                       options_.keys[k]);
  }
  return {};
}

void PieceEncoder::encode_line(const TextPiece& piece, std::string_view line, int64_t line_of_piece,
                               EncodedDocuments& encoded) {
  if (line.size() > options_.longest_line) {
    const auto before = static_cast<uint64_t>(line.data() - piece.text.data());
    fail_too_long(inputs_[piece.input], piece.begin.byte + before, options_.longest_line);
  }
  EncodeCounts& counts = encoded.counts;
  counts.characters += count_characters(line);
  if (!piece.is_document && is_blank(line)) {
    ++counts.blank;
    return;
  }
  if (const std::string problem =
          problem_of(piece, piece.is_document ? line : without_line_end(line));
      !problem.empty()) {
    const bool shown = !options_.skip_bad || counts.first_bad.size() < kBadLinesShown;
    const std::string place = shown ? place_of(piece, line.data(), line_of_piece) : "";
    if (!options_.skip_bad) {
      fail(ErrorKind::corrupt, "{}: {}; correct it, or give --skip-bad to leave such {} out", place,
           problem, piece.is_document ? "files" : "lines");
    }
    if (shown) counts.first_bad.push_back({place, problem});
    ++counts.bad;
    return;
  }
  ++counts.lines;
  if (inputs_[piece.input].format == TextFormat::json_lines) {
    for (size_t k = 0; k < options_.keys.size(); ++k) {
      const FieldTexts& field = fields_.fields()[k];
      if (field.is_list) {
        add_document(k, field.texts, encoded);
      } else {
        add_document(k, {field.texts.at(0)}, encoded);
      }
    }
  } else {
    add_document(0, {piece.is_document ? line : without_line_end(line)}, encoded);
  }
}

void PieceEncoder::add_document(size_t key, const std::vector<std::string_view>& texts,
                                EncodedDocuments& encoded) {
  StoredDocuments& documents = encoded.of_keys[key];
  int32_t sequences = 0;
  for (const std::string_view text : texts) {
    ids_.clear();
    tokenizer_.encode(text, ids_);
    if (ids_.empty()) continue;
    documents.add_sequence(ids_, options_.type);
    encoded.counts.tokens += std::ssize(ids_);
    ++sequences;
  }
  if (sequences == 0) ++encoded.counts.empty;
  if (sequences > 0 && options_.append_eod) {
    const int32_t end = *tokenizer_.end_of_document();
    documents.extend_last(std::span(&end, 1), options_.type);
    ++encoded.counts.tokens;
  }
  documents.sequences.push_back(sequences);
}

std::string PieceEncoder::place_of(const TextPiece& piece, const char* begin,
                                   int64_t line_of_piece) const {
  const TextInput& input = inputs_[piece.input];
  const std::string name = input.path == "-" ? "standard input" : input.path;
  if (piece.is_document) return name;
  int64_t line = piece.begin.line_of_range + line_of_piece;
  if (input.can_seek) {  // a part, or a run that goes on, may not have read it from its beginning
    const auto bytes = static_cast<uint64_t>(begin - piece.text.data());
    line = count_newlines(file_system_, input.path, piece.begin.byte + bytes);
  }
  return fmt::format("{}, {} {}", name, input.is_parquet ? "row" : "line", line + 1);
}

}  // namespace ferry::tool
