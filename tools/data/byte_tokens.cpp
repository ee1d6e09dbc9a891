#include "tools/data/byte_tokens.h"

#include <algorithm>
#include <span>
#include <vector>

#include "ckpt/base/error.h"
#include "text/byte_tokenizer.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kPieceOfText = 1 << 20;  // bytes

// The document that is being written.
class OpenDocument {
 public:
  OpenDocument(const ReadableFile& file, const ByteOptions& options, IndexedDatasetWriter& writer,
               ByteTokens& written)
      : file_(file), options_(options), writer_(writer), written_(written) {}

  void add(std::span<const std::byte> text) {
    tokens_.clear();
    tokenizer_.encode({reinterpret_cast<const char*>(text.data()), text.size()}, tokens_);
    add(std::span<const int32_t>(tokens_));
  }

  void end() {
    if (size_ == 0) {
      ++written_.left_out;
      return;
    }
    if (options_.append_eod) add(std::span<const int32_t>(&ByteTokenizer::kEndOfDocument, 1));
    writer_.end_sequence();
    writer_.end_document();
    ++written_.documents;
    written_.tokens += size_;
    size_ = 0;
  }

  bool is_empty() const { return size_ == 0; }

 private:
  void add(std::span<const int32_t> tokens) {
    size_ += std::ssize(tokens);
    if (size_ > INT32_MAX) {
      fail(ErrorKind::invalid,
           "{} has a document of more than {} tokens, which token files cannot hold; {}",
           file_.path(), INT32_MAX,
           options_.lines ? "divide the line" : "divide the file, or give --lines");
    }
    writer_.add_tokens(tokens);
  }

  const ReadableFile& file_;
  const ByteOptions& options_;
  IndexedDatasetWriter& writer_;
  ByteTokens& written_;
  const ByteTokenizer tokenizer_;
  std::vector<int32_t> tokens_;
  int64_t size_ = 0;  // tokens
};

// All but the last line of a piece end in it.
void add_lines(std::span<const std::byte> text, OpenDocument& document) {
  while (true) {
    const auto newline = std::find(text.begin(), text.end(), std::byte{'\n'});
    const auto length = static_cast<size_t>(newline - text.begin());
    document.add(text.first(length));
    if (newline == text.end()) return;
    document.end();
    text = text.subspan(length + 1);
  }
}

}  // namespace

void add_byte_tokens(const ReadableFile& file, const ByteOptions& options,
                     IndexedDatasetWriter& writer, ByteTokens& written,
                     const std::function<void(uint64_t)>& read) {
  OpenDocument document(file, options, writer, written);
  std::vector<std::byte> piece;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(kPieceOfText, file.size() - at));
    file.read(at, piece);
    options.lines ? add_lines(piece, document) : document.add(piece);
    if (read) read(piece.size());
  }
  // No line follows the newline at the end of a file.
  if (!options.lines || !document.is_empty()) document.end();
}

}  // namespace ferry::tool
