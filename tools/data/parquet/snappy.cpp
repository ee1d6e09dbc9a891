#include "tools/data/parquet/snappy.h"

#include <cstdint>
#include <cstring>

namespace ferry::tool {
namespace {

// A little-endian number of 1 to 4 bytes, which must be there.
uint32_t little_endian(const std::byte* bytes, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= static_cast<uint32_t>(bytes[i]) << (8 * i);
  return value;
}

class SnappyReader {
 public:
  SnappyReader(std::span<const std::byte> bytes, std::span<std::byte> into)
      : bytes_(bytes), into_(into) {}

  bool run() {
    if (!read_length()) return false;
    while (at_ < bytes_.size()) {
      const auto tag = static_cast<uint8_t>(bytes_[at_++]);
      if (!((tag & 3) == 0 ? literal(tag >> 2) : copy(tag))) return false;
    }
    return done_ == into_.size();
  }

 private:
  bool read_length() {
    uint64_t length = 0;
    for (unsigned shift = 0; shift < 35; shift += 7) {
      if (at_ == bytes_.size()) return false;
      const auto next = static_cast<uint64_t>(bytes_[at_++]);
      length |= (next & 0x7F) << shift;
      if (next < 0x80) return length == into_.size();
    }
    return false;
  }

  bool literal(uint32_t code) {
    uint64_t length = uint64_t{code} + 1;
    if (code >= 60) {
      const size_t more = code - 59;
      if (bytes_.size() - at_ < more) return false;
      length = uint64_t{little_endian(bytes_.data() + at_, more)} + 1;
      at_ += more;
    }
    if (length > bytes_.size() - at_ || length > into_.size() - done_) return false;
    std::memcpy(into_.data() + done_, bytes_.data() + at_, length);
    at_ += length;
    done_ += length;
    return true;
  }

  bool copy(uint8_t tag) {
    constexpr size_t kMore[] = {0, 1, 2, 4};
    const size_t more = kMore[tag & 3];
    if (bytes_.size() - at_ < more) return false;
    size_t offset = little_endian(bytes_.data() + at_, more), length = (tag >> 2) + 1u;
    at_ += more;
    if ((tag & 3) == 1) {
      length = 4 + (tag >> 2 & 7u);
      offset |= static_cast<size_t>(tag >> 5) << 8;
    }
    if (offset == 0 || offset > done_ || length > into_.size() - done_) return false;
    std::byte* to = into_.data() + done_;
    if (offset >= length) {
      std::memcpy(to, to - offset, length);
    } else {
      for (size_t i = 0; i < length; ++i)
        to[i] = (to - offset)[i];  // what it copies comes up as it goes
    }
    done_ += length;
    return true;
  }

  std::span<const std::byte> bytes_;
  std::span<std::byte> into_;
  size_t at_ = 0, done_ = 0;
};

}  // namespace

bool uncompress_snappy(std::span<const std::byte> bytes, std::span<std::byte> into) {
  return SnappyReader(bytes, into).run();
}

}  // namespace ferry::tool
