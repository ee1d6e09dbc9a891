// A piece of text as the documents of token files: what preprocess_data.py makes of each line.
//
// Source: tools/preprocess_data.py of Megatron-LM (Encoder.encode).
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "tools/data/tokenize/json_fields.h"
#include "tools/data/tokenize/line_reader.h"
#include "trainer/data/documents/indexed_dataset.h"

namespace ferry::tool {

struct EncodeOptions {
  std::vector<std::string> keys = {"text"};
  bool append_eod = false;
  bool sentences = false;  // values are lists, of one sentence an element
  bool skip_bad = false;
  uint64_t longest_line = 64 << 20;  // bytes
  DType type = DType::u16;
  int64_t partitions = 1;  // a line belongs to that of its number's remainder
  /// Lines of partitions in [first, end) are encoded. The end may be lowered meanwhile.
  int64_t first_partition = 0;
  const std::atomic<int64_t>* end_partition = nullptr;  // null: partitions
};

/// A line that was left out, and why.
struct BadLine {
  std::string place;  // "data.jsonl, line 17"
  std::string problem;
};
inline constexpr size_t kBadLinesShown = 5;

/// What was met so far.
struct EncodeCounts {
  int64_t lines = 0;               // or files that are documents
  int64_t blank = 0;               // lines of white space
  int64_t bad = 0;                 // lines that were left out for what is wrong with them
  int64_t characters = 0;          // code points, newlines included
  int64_t tokens = 0, empty = 0;   // of all keys; documents without a token
  std::vector<BadLine> first_bad;  // kBadLinesShown at most

  void add(const EncodeCounts& other);
};

struct EncodedDocuments {
  std::vector<StoredDocuments> of_keys;
  EncodeCounts counts;
};

struct EncodedPiece {
  TextPosition end;
  std::map<int64_t, EncodedDocuments> partitions;  // by number; those that it has lines of
};

/// For one thread.
class PieceEncoder {
 public:
  PieceEncoder(const TextTokenizer& tokenizer, const EncodeOptions& options,
               const std::vector<TextInput>& inputs, const FileSystem& file_system);

  /// corrupt, with file and line, for the first line that is bad, unless these are skipped. What a
  /// token file cannot hold (a document of 2^31 tokens, a token too large for its type): invalid.
  /// exhausted for a line that is too long.
  EncodedPiece encode(const TextPiece& piece);

 private:
  EncodedDocuments* documents_of(int64_t line, EncodedPiece& encoded) const;
  void encode_line(const TextPiece& piece, std::string_view line, int64_t line_of_piece,
                   EncodedDocuments& encoded);
  void add_document(size_t key, const std::vector<std::string_view>& texts,
                    EncodedDocuments& encoded);
  std::string problem_of(const TextPiece& piece, std::string_view line);
  std::string place_of(const TextPiece& piece, const char* begin, int64_t line_of_piece) const;

  const TextTokenizer& tokenizer_;
  const EncodeOptions& options_;
  const std::vector<TextInput>& inputs_;
  const FileSystem& file_system_;
  JsonFields fields_;
  std::vector<int32_t> ids_;
};

}  // namespace ferry::tool
