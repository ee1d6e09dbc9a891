#include "ckpt/io/zstd_encoder.h"

#include <zstd.h>

#include <algorithm>
#include <new>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr size_t kGrowBytes = 128 << 10;  // of the output at once

size_t checked(size_t result) {
  if (ZSTD_isError(result)) {
    fail(ErrorKind::internal, "zstd cannot compress: {}", ZSTD_getErrorName(result));
  }
  return result;
}

}  // namespace

ZstdEncoder::ZstdEncoder(int level) : context_(ZSTD_createCCtx()) {
  if (!context_) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, level);
  ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
}

ZstdEncoder::~ZstdEncoder() { ZSTD_freeCCtx(context_); }

void ZstdEncoder::begin(uint64_t bytes) {
  checked(ZSTD_CCtx_reset(context_, ZSTD_reset_session_only));
  checked(ZSTD_CCtx_setPledgedSrcSize(context_, bytes));
  bytes_left_ = bytes;
}

void ZstdEncoder::add(std::span<const std::byte> bytes, std::string& to) {
  if (bytes.size() > bytes_left_) fail(ErrorKind::internal, "more bytes than the zstd frame has");
  bytes_left_ -= bytes.size();
  const ZSTD_EndDirective directive = bytes_left_ == 0 ? ZSTD_e_end : ZSTD_e_continue;
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (bool more = true; more;) {
    const size_t before = to.size();
    to.resize(before + kGrowBytes);
    ZSTD_outBuffer out{to.data() + before, kGrowBytes, 0};
    const size_t left = checked(ZSTD_compressStream2(context_, &out, &in, directive));
    to.resize(before + out.pos);
    more = directive == ZSTD_e_end ? left > 0 : in.pos < in.size;
  }
}

uint64_t ZstdEncoder::memory_bytes(int level) {
  // A context takes its memory with the first byte of a frame, by the frame's size.
  ZstdEncoder encoder(level);
  encoder.begin(uint64_t{1} << 40);
  std::string output;
  encoder.add(std::as_bytes(std::span("x", 1)), output);
  return ZSTD_sizeof_CCtx(encoder.context_);
}

}  // namespace ferry
