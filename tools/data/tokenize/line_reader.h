// Texts cut into pieces of whole lines, in order, in bounded memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/streams/byte_stream.h"
#include "tools/data/tokenize/text_inputs.h"

namespace ferry::tool {

/// Where a piece begins: what has been read before it needs not be read again.
struct TextPosition {
  uint64_t range = 0;  // number of the range
  uint64_t byte = 0;   // of its input's text, decompressed
  int64_t line = 0;    // lines before it, of all ranges
  int64_t line_of_range = 0;
};

struct TextPiece {
  size_t input = 0;
  TextPosition begin, end;
  bool is_document = false;  // the whole of a file
  std::string text;          // whole lines, the last perhaps without newline
};

/// exhausted: the line, or the document, from byte `at` of a text on is longer than `limit`.
[[noreturn]] void fail_too_long(const TextInput& input, uint64_t at, uint64_t limit);

struct LineReaderOptions {
  uint64_t longest_line = 64 << 20;             // bytes, or of a file that is a document
  uint64_t piece_bytes = 256 << 10;             // pieces have about as many
  std::vector<std::string> columns = {"text"};  // of Parquet files: members of their lines
};

class LineReader {
 public:
  /// Begins at a position that one before gave. `bytes_read` counts stored bytes; `stop` ends
  /// waiting for a pipe (cancelled).
  LineReader(std::shared_ptr<const FileSystem> file_system, const std::vector<TextInput>& inputs,
             std::vector<InputRange> ranges, const LineReaderOptions& options,
             const TextPosition& from, std::atomic<uint64_t>& bytes_read,
             const std::atomic<bool>& stop);

  /// The next piece; false at the end. exhausted for a line that is too long to be read whole (of
  /// the others the piece's user has to take care); as decompressed().
  bool next(TextPiece& piece);

 private:
  const TextInput& input() const { return inputs_[ranges_[range_].input]; }
  void open_range();
  void end_range();
  void open_at(uint64_t byte);
  bool read_more(std::string& text);
  bool read_piece(TextPiece& piece);

  std::shared_ptr<const FileSystem> file_system_;
  const std::vector<TextInput>& inputs_;
  std::vector<InputRange> ranges_;
  LineReaderOptions options_;
  std::atomic<uint64_t>& bytes_read_;
  const std::atomic<bool>& stop_;
  std::unique_ptr<ByteStream> stream_;
  size_t range_ = 0;
  uint64_t at_ = 0;     // text's byte where rest_ begins
  uint64_t until_ = 0;  // lines that begin from here on are others'
  int64_t line_ = 0, line_of_range_ = 0;
  std::string rest_;  // read, and not given yet
  std::optional<TextPosition> from_;
};

}  // namespace ferry::tool
