#include "tools/data/tokenize/line_reader.h"

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/data/parquet/parquet_stream.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr size_t kReadBytes = 256 << 10;

std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

}  // namespace

void fail_too_long(const TextInput& input, uint64_t at, uint64_t limit) {
  const bool is_document = input.format == TextFormat::text;
  fail(
      ErrorKind::exhausted,
      "{}: the {} from byte {} on has more than {}, the limit of --max-line; give a larger one (it "
      "takes some ten times as much memory), or leave the {} out",
      input.path, is_document ? "document" : "line", at, human_bytes(limit),
      is_document ? "file" : "line");
}

LineReader::LineReader(std::shared_ptr<const FileSystem> file_system,
                       const std::vector<TextInput>& inputs, std::vector<InputRange> ranges,
                       const LineReaderOptions& options, const TextPosition& from,
                       std::atomic<uint64_t>& bytes_read, const std::atomic<bool>& stop)
    : file_system_(std::move(file_system)),
      inputs_(inputs),
      ranges_(std::move(ranges)),
      options_(options),
      bytes_read_(bytes_read),
      stop_(stop),
      range_(from.range),
      line_(from.line),
      line_of_range_(from.line_of_range),
      from_(from) {
  for (size_t r = 0; r < std::min(range_, ranges_.size()); ++r) {
    const InputRange& done = ranges_[r];
    bytes_read_ += std::min(done.end, inputs_[done.input].bytes) - done.begin;
  }
}

// At `byte` of the text.
void LineReader::open_at(uint64_t byte) {
  const TextInput& text = input();
  if (!text.is_file) {
    stream_ = decompressed(counted(pipe_stream(text.path, &stop_), bytes_read_), text.path);
  } else {
    const auto file = file_system_->open(text.path);
    const uint64_t size = file->size(), begin = text.can_seek ? std::min(byte, size) : 0;
    if (text.is_parquet) {
      stream_ = parquet_stream(file, options_.columns, bytes_read_);
    } else {
      stream_ = counted(file_stream(file, begin, size), bytes_read_);
      if (!text.can_seek) stream_ = decompressed(std::move(stream_), text.path);
    }
    at_ = begin;
  }
  std::vector<std::byte> passed(kReadBytes);
  while (at_ < byte) {
    if (stop_) fail(ErrorKind::cancelled, "stopped");
    const size_t bytes =
        stream_->read_some(std::span(passed).first(std::min<uint64_t>(kReadBytes, byte - at_)));
    if (bytes == 0) return;
    at_ += bytes;
  }
}

void LineReader::open_range() {
  const InputRange& range = ranges_[range_];
  at_ = 0;
  rest_.clear();
  until_ = range.end;
  if (from_ && from_->byte > range.begin) {
    open_at(from_->byte);
  } else if (range.begin == 0) {
    open_at(0);
    read_more(rest_);
    at_ += rest_.size() - without_byte_order_mark(rest_).size();
    rest_ = without_byte_order_mark(rest_);
  } else {
    // A line that began before belongs to the part before.
    open_at(range.begin - 1);
    size_t newline = std::string::npos;
    while (newline == std::string::npos) {
      at_ += rest_.size();
      rest_.clear();
      if (!read_more(rest_)) break;
      newline = rest_.find('\n');
    }
    const size_t before = newline == std::string::npos ? rest_.size() : newline + 1;
    at_ += before;
    rest_.erase(0, before);
  }
  from_.reset();
}

// False at the end of the text.
bool LineReader::read_more(std::string& text) {
  const size_t before = text.size();
  text.resize(before + kReadBytes);
  const size_t bytes = stream_->read_some(std::as_writable_bytes(std::span(text)).subspan(before));
  text.resize(before + bytes);
  return bytes > 0;
}

// False when the range holds no more.
bool LineReader::read_piece(TextPiece& piece) {
  piece.is_document = input().format == TextFormat::text;
  std::string& text = piece.text;
  text.clear();
  text.swap(rest_);
  if (at_ >= until_) return false;
  bool more = true;
  size_t line_begin = 0, searched = 0;  // of the last line, and of what was looked through
  while (true) {
    if (!piece.is_document) {
      const size_t newline = std::string_view(text).substr(searched).rfind('\n');
      if (newline != std::string_view::npos) line_begin = searched + newline + 1;
      searched = text.size();
    }
    if (text.size() - line_begin > options_.longest_line) {
      fail_too_long(input(), at_ + line_begin, options_.longest_line);
    }
    if (!more) break;
    if (line_begin >= options_.piece_bytes) break;
    if (line_begin > 0 && at_ + line_begin >= until_) break;
    more = read_more(text);
  }
  size_t length = more ? line_begin : text.size();
  if (at_ + length > until_) {  // the first line that begins at until_ or later
    const size_t newline = text.find('\n', until_ - at_ - 1);
    if (newline != std::string::npos) length = std::min(length, newline + 1);
  }
  rest_.assign(text, length);
  text.resize(length);
  return length > 0 || (piece.is_document && at_ == 0);
}

bool LineReader::next(TextPiece& piece) {
  while (range_ < ranges_.size()) {
    if (!stream_) open_range();
    piece.input = ranges_[range_].input;
    piece.begin = {range_, at_, line_, line_of_range_};
    if (!read_piece(piece)) {
      end_range();
      continue;
    }
    at_ += piece.text.size();
    const auto newlines = std::count(piece.text.begin(), piece.text.end(), '\n');
    const int64_t lines = piece.is_document ? 1 : newlines + (piece.text.ends_with('\n') ? 0 : 1);
    line_ += lines;
    line_of_range_ += lines;
    if (piece.is_document) end_range();
    piece.end = {range_, at_, line_, line_of_range_};
    return true;
  }
  return false;
}

void LineReader::end_range() {
  ++range_;
  at_ = 0;
  line_of_range_ = 0;
  stream_.reset();
}

}  // namespace ferry::tool
