#include <lzma.h>

#include <new>

#include "ckpt/base/error.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

constexpr uint8_t kFirstByteOfStream = 0xfd;
constexpr uint64_t kMostDecoderBytes = 256 << 20;  // `xz -9` needs 65 MiB

class XzStream final : public ByteStream {
 public:
  XzStream(std::unique_ptr<ByteStream> stream, std::string name)
      : name_(std::move(name)), input_(std::move(stream)) {
    begin_stream();
  }
  ~XzStream() override { lzma_end(&decoder_); }

  size_t read_some(std::span<std::byte> into) override {
    decoder_.next_out = reinterpret_cast<uint8_t*>(into.data());
    decoder_.avail_out = into.size();
    while (decoder_.avail_out > 0 && !ended_) {
      if (decoder_.avail_in == 0 && action_ == LZMA_RUN) refill();
      const lzma_ret result = lzma_code(&decoder_, action_);
      if (result == LZMA_STREAM_END) {
        ended_ = !next_stream();
      } else if (result != LZMA_OK) {
        fail_code(result);
      }
    }
    return into.size() - decoder_.avail_out;
  }

 private:
  // One stream at a time: liblzma does not report the end of each of several.
  void begin_stream() {
    if (lzma_stream_decoder(&decoder_, kMostDecoderBytes, 0) != LZMA_OK) throw std::bad_alloc();
  }

  void refill() {
    const auto bytes = input_.next();
    decoder_.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
    decoder_.avail_in = bytes.size();
    if (bytes.empty()) action_ = LZMA_FINISH;
  }

  // False at the end. Streams are padded with zeros, by fours.
  bool next_stream() {
    size_t zeros = 0;
    while (true) {
      for (; decoder_.avail_in > 0 && *decoder_.next_in == 0; ++zeros) {
        ++decoder_.next_in, --decoder_.avail_in;
      }
      if (decoder_.avail_in > 0 || action_ == LZMA_FINISH) break;
      refill();
    }
    if (zeros % 4 != 0) fail_code(LZMA_DATA_ERROR);
    if (decoder_.avail_in == 0) return false;
    // The decoder would wait for the rest of a header, and a few bytes seem to be cut short.
    if (*decoder_.next_in != kFirstByteOfStream) fail_trailing(name_, "xz");
    is_first_ = false;
    begin_stream();
    return true;
  }

  [[noreturn]] void fail_code(lzma_ret result) const {
    if (result == LZMA_FORMAT_ERROR && !is_first_) fail_trailing(name_, "xz");
    if (result == LZMA_BUF_ERROR) fail_short(name_, "xz");
    if (result == LZMA_MEM_ERROR) throw std::bad_alloc();
    if (result == LZMA_MEMLIMIT_ERROR || result == LZMA_OPTIONS_ERROR) {
      fail(ErrorKind::unsupported,
           "{} needs a decoder of more than {} MiB, or filters that liblzma does not know; give it "
           "through a pipe: xz -dc {} | ferry data tokenize --input - ...",
           name_, kMostDecoderBytes >> 20, name_);
    }
    fail(ErrorKind::corrupt, "{}: its xz data contradict their format; it is damaged: get it again",
         name_);
  }

  std::string name_;
  DecoderInput input_;
  lzma_stream decoder_ = LZMA_STREAM_INIT;
  lzma_action action_ = LZMA_RUN;
  bool ended_ = false, is_first_ = true;  // stream
};

}  // namespace

std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> stream, std::string name) {
  return std::make_unique<XzStream>(std::move(stream), std::move(name));
}

}  // namespace ferry::tool
