#include "tools/data/parquet/run_lengths.h"

namespace ferry::tool {

bool RunLengths::begin_run() {
  uint64_t header = 0;
  unsigned shift = 0;
  do {
    if (at_ == bytes_.size() || shift > 56) return false;
    header |= (static_cast<uint64_t>(bytes_[at_]) & 0x7F) << shift;
    shift += 7;
  } while (static_cast<uint64_t>(bytes_[at_++]) >= 0x80);
  is_packed_ = (header & 1) != 0;
  left_ = header >> 1;
  if (is_packed_) {
    // The last group may be cut off after its last number.
    const uint64_t room = (bytes_.size() - at_) * 8;
    if (bits_ > 0 && left_ > room / static_cast<uint64_t>(bits_) + 8) return false;
    left_ *= 8;
    bit_ = 0;
    return true;
  }
  repeated_ = 0;
  for (int i = 0; i < (bits_ + 7) / 8; ++i) {
    if (at_ == bytes_.size()) return false;
    repeated_ |= static_cast<uint32_t>(bytes_[at_++]) << (8 * i);
  }
  return true;
}

bool RunLengths::next(uint32_t& number) {
  while (left_ == 0) {
    if (!begin_run()) return false;
  }
  --left_;
  if (!is_packed_) {
    number = repeated_;
    return true;
  }
  number = 0;
  for (int i = 0; i < bits_; ++i, ++bit_) {
    const size_t byte = at_ + bit_ / 8;
    if (byte >= bytes_.size()) return false;
    number |= (static_cast<uint32_t>(bytes_[byte]) >> (bit_ % 8) & 1u) << i;
  }
  if (left_ == 0) at_ += (bit_ + 7) / 8;
  return true;
}

}  // namespace ferry::tool
