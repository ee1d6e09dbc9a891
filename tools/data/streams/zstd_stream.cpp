#include <zstd.h>
#include <zstd_errors.h>

#include <new>

#include "ckpt/base/error.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

constexpr int kLargestWindowLog = 27;  // 128 MiB: what `zstd --ultra` needs

class ZstdByteStream final : public ByteStream {
 public:
  ZstdByteStream(std::unique_ptr<ByteStream> stream, std::string name)
      : name_(std::move(name)), input_(std::move(stream)), decoder_(ZSTD_createDStream()) {
    if (!decoder_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(decoder_.get(), ZSTD_d_windowLogMax, kLargestWindowLog);
  }

  size_t read_some(std::span<std::byte> into) override {
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos < out.size) {
      if (buffered_.pos == buffered_.size) {
        const auto bytes = input_.next();
        buffered_ = {bytes.data(), bytes.size(), 0};
      }
      const bool has_input = buffered_.pos < buffered_.size;
      if (!has_input && between_frames_) break;
      const size_t before = out.pos;
      const size_t result = ZSTD_decompressStream(decoder_.get(), &out, &buffered_);
      if (ZSTD_isError(result)) fail_damaged(result);
      between_frames_ = result == 0;
      has_whole_frame_ = has_whole_frame_ || between_frames_;
      if (!has_input && out.pos == before && !between_frames_) fail_short(name_, "zstd");
    }
    return out.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DStream* decoder) const { ZSTD_freeDStream(decoder); }
  };

  [[noreturn]] void fail_damaged(size_t result) const {
    if (ZSTD_getErrorCode(result) == ZSTD_error_frameParameter_windowTooLarge) {
      fail(ErrorKind::unsupported,
           "{} needs a window of more than 128 MiB (zstd --long); give it through a pipe: zstd -dc "
           "--long=31 {} | ferry data tokenize --input - ...",
           name_, name_);
    }
    if (ZSTD_getErrorCode(result) == ZSTD_error_prefix_unknown && has_whole_frame_) {
      fail_trailing(name_, "zstd");
    }
    fail(ErrorKind::corrupt, "{}: {}; it is damaged: get it again", name_,
         ZSTD_getErrorName(result));
  }

  std::string name_;
  DecoderInput input_;
  std::unique_ptr<ZSTD_DStream, Free> decoder_;
  ZSTD_inBuffer buffered_{nullptr, 0, 0};
  bool between_frames_ = true, has_whole_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> zstd_stream(std::unique_ptr<ByteStream> stream, std::string name) {
  return std::make_unique<ZstdByteStream>(std::move(stream), std::move(name));
}

}  // namespace ferry::tool
