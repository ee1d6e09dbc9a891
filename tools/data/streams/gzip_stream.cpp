#include <isa-l/igzip_lib.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "tools/data/streams/decoder_input.h"

namespace ferry::tool {
namespace {

constexpr uint8_t kFirstByteOfMember = 0x1f;

const char* inflate_problem(int result) {
  switch (result) {
    case ISAL_INCORRECT_CHECKSUM:
      return "its checksum differs from that of its content";
    case ISAL_UNSUPPORTED_METHOD:
    case ISAL_INVALID_WRAPPER:
      return "what follows its header is not gzip data";
    default:
      return "its compressed data contradict their format";
  }
}

class GzipStream final : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> stream, std::string name)
      : name_(std::move(name)), input_(std::move(stream)) {
    begin_member();
  }

  size_t read_some(std::span<std::byte> into) override {
    state_.next_out = reinterpret_cast<uint8_t*>(into.data());
    state_.avail_out = static_cast<uint32_t>(std::min<size_t>(into.size(), 1u << 30));
    const uint32_t room = state_.avail_out;
    while (state_.avail_out > 0) {
      if (state_.block_state == ISAL_BLOCK_FINISH && !next_member()) break;
      if (state_.avail_in == 0 && !refill() && state_.tmp_out_processed == state_.tmp_out_valid) {
        fail_short(name_, "gzip");
      }
      const int result = isal_inflate(&state_);
      if (result != ISAL_DECOMP_OK && result != ISAL_END_INPUT) {
        if (result == ISAL_INVALID_WRAPPER && !is_first_) fail_trailing(name_, "gzip");
        fail(ErrorKind::corrupt, "{}: {}; it is damaged: get it again", name_,
             inflate_problem(result));
      }
    }
    return room - state_.avail_out;
  }

 private:
  void begin_member() {
    const auto next_in = state_.next_in;
    const auto avail_in = state_.avail_in;
    const auto next_out = state_.next_out;
    const auto avail_out = state_.avail_out;
    isal_inflate_init(&state_);
    state_.crc_flag = ISAL_GZIP;
    state_.next_in = next_in;
    state_.avail_in = avail_in;
    state_.next_out = next_out;
    state_.avail_out = avail_out;
  }

  bool refill() {
    const auto bytes = input_.next();
    state_.next_in = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(bytes.data()));
    state_.avail_in = static_cast<uint32_t>(bytes.size());
    return !bytes.empty();
  }

  // False at the end. Skips zeros after a member, with which tapes and blocks are padded.
  bool next_member() {
    while (true) {
      while (state_.avail_in > 0 && *state_.next_in == 0) ++state_.next_in, --state_.avail_in;
      if (state_.avail_in > 0) break;
      if (!refill()) return false;
    }
    // The decoder would wait for the rest of a header, and a few bytes seem to be cut short.
    if (*state_.next_in != kFirstByteOfMember) fail_trailing(name_, "gzip");
    is_first_ = false;
    begin_member();
    return true;
  }

  std::string name_;
  DecoderInput input_;
  inflate_state state_{};
  bool is_first_ = true;  // member
};

}  // namespace

std::unique_ptr<ByteStream> gzip_stream(std::unique_ptr<ByteStream> stream, std::string name) {
  return std::make_unique<GzipStream>(std::move(stream), std::move(name));
}

}  // namespace ferry::tool
