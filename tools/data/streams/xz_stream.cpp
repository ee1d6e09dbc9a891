#include <lzma.h>

#include <new>

#include "ckpt/base/error.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kMostDecoderBytes = 256 << 20;  // `xz -9` needs 65 MiB

class XzStream final : public ByteStream {
 public:
  XzStream(std::unique_ptr<ByteStream> stream, std::string name)
      : name_(std::move(name)), input_(std::move(stream)) {
    if (lzma_stream_decoder(&decoder_, kMostDecoderBytes, LZMA_CONCATENATED) != LZMA_OK) {
      throw std::bad_alloc();
    }
  }
  ~XzStream() override { lzma_end(&decoder_); }

  size_t read_some(std::span<std::byte> into) override {
    decoder_.next_out = reinterpret_cast<uint8_t*>(into.data());
    decoder_.avail_out = into.size();
    while (decoder_.avail_out > 0 && !ended_) {
      if (decoder_.avail_in == 0 && action_ == LZMA_RUN) {
        const auto bytes = input_.next();
        decoder_.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
        decoder_.avail_in = bytes.size();
        if (bytes.empty()) action_ = LZMA_FINISH;
      }
      const lzma_ret result = lzma_code(&decoder_, action_);
      ended_ = result == LZMA_STREAM_END;
      if (result != LZMA_OK && result != LZMA_STREAM_END) fail_code(result);
    }
    return into.size() - decoder_.avail_out;
  }

 private:
  [[noreturn]] void fail_code(lzma_ret result) const {
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
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> xz_stream(std::unique_ptr<ByteStream> stream, std::string name) {
  return std::make_unique<XzStream>(std::move(stream), std::move(name));
}

}  // namespace ferry::tool
