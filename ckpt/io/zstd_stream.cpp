#include "ckpt/io/zstd_stream.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kInputBytes = 128 << 10;
constexpr size_t kSkipBytes = 64 << 10;
constexpr int kWindowLogMax = 27;

}  // namespace

struct ZstdStream::Decoder {
  Decoder() : stream(ZSTD_createDStream()), input(kInputBytes) {
    if (!stream) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, kWindowLogMax);
  }
  ~Decoder() { ZSTD_freeDStream(stream); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  ZSTD_DStream* stream;
  std::vector<std::byte> input;
  ZSTD_inBuffer buffered{input.data(), 0, 0};
};

ZstdStream::ZstdStream(std::shared_ptr<const ReadableFile> file, uint64_t offset, uint64_t length)
    : file_(std::move(file)), next_(offset), end_(offset + length) {
  what_ = fmt::format("{} at byte {}", file_->path(), offset);
  if (offset > file_->size() || length > file_->size() - offset) {
    fail(ErrorKind::corrupt,
         "{}: a zstd stream of {} bytes is expected but the file has {}; the file is truncated",
         what_, length, file_->size());
  }
  decoder_ = std::make_unique<Decoder>();
}

ZstdStream::~ZstdStream() = default;

bool ZstdStream::refill() {
  ZSTD_inBuffer& buffered = decoder_->buffered;
  if (buffered.pos < buffered.size) return true;
  const auto bytes = static_cast<size_t>(std::min<uint64_t>(kInputBytes, end_ - next_));
  file_->read(next_, std::span(decoder_->input).first(bytes));
  next_ += bytes;
  buffered = {decoder_->input.data(), bytes, 0};
  return bytes > 0;
}

size_t ZstdStream::read_some(std::span<std::byte> into) {
  ZSTD_outBuffer out{into.data(), into.size(), 0};
  while (out.pos < out.size) {
    // Without new input the decoder may still hold output, unless a frame has just ended.
    const bool has_input = refill();
    if (!has_input && between_frames_) break;
    const size_t before_out = out.pos, before_in = decoder_->buffered.pos;
    const size_t result = ZSTD_decompressStream(decoder_->stream, &out, &decoder_->buffered);
    if (ZSTD_isError(result)) {
      const bool too_large = ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge;
      fail(too_large ? ErrorKind::unsupported : ErrorKind::corrupt, "{}: zstd stream: {}{}", what_,
           ZSTD_getErrorName(result),
           too_large ? "; at most 128 MiB are supported" : "; the file is damaged");
    }
    between_frames_ = result == 0;
    if (!has_input && out.pos == before_out && decoder_->buffered.pos == before_in) {
      fail(ErrorKind::corrupt, "{}: the zstd stream ends after {} decoded bytes, within a frame",
           what_, position_ + out.pos);
    }
  }
  position_ += out.pos;
  return out.pos;
}

void ZstdStream::read(std::span<std::byte> into) {
  const size_t requested = into.size();
  const size_t got = read_some(into);
  if (got < requested) {
    fail(ErrorKind::corrupt, "{}: the zstd stream ends at decoded byte {} where {} more are needed",
         what_, position_, requested - got);
  }
}

void ZstdStream::skip(uint64_t bytes) {
  std::vector<std::byte> scratch(static_cast<size_t>(std::min<uint64_t>(bytes, kSkipBytes)));
  while (bytes > 0) {
    const auto step = static_cast<size_t>(std::min<uint64_t>(bytes, scratch.size()));
    read(std::span(scratch).first(step));
    bytes -= step;
  }
}

void ZstdStream::check_to_end(uint64_t most) {
  std::vector<std::byte> scratch(kSkipBytes);
  for (size_t got = scratch.size(); got == scratch.size() && most > 0; most -= got) {
    const auto step = static_cast<size_t>(std::min<uint64_t>(most, scratch.size()));
    got = read_some(std::span(scratch).first(step));
  }
}

}  // namespace ferry
