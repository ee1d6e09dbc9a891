// Small numbers as Parquet packs them: runs of one number, and groups of eight of some bits each.
//
// Source: apache/parquet-format, Encodings.md (RLE / bit-packing hybrid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ferry::tool {

class RunLengths {
 public:
  RunLengths() = default;
  /// `bits` of [0, 32]: of a number.
  RunLengths(std::span<const std::byte> bytes, int bits) : bytes_(bytes), bits_(bits) {}

  /// False when there is no more, or the bytes end in the middle.
  bool next(uint32_t& number);

 private:
  bool begin_run();

  std::span<const std::byte> bytes_;
  int bits_ = 0;
  size_t at_ = 0;
  uint64_t left_ = 0;  // numbers of the run
  bool is_packed_ = false;
  uint32_t repeated_ = 0;
  uint64_t bit_ = 0;  // of a packed run: from at_ on
};

}  // namespace ferry::tool
