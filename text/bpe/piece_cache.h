// The ids of pieces that came lately: few pieces make most of a text.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/bpe/vocabulary.h"

namespace ferry {

/// A table of fixed size, whose entries give way to newer ones. Not for several threads at once.
class PieceCache {
 public:
  static constexpr size_t kLongest = 30;  // bytes of a piece that is kept

  PieceCache() : entries_(kEntries) {}

  /// Appends the ids of a piece that is kept. `hash` is the piece's.
  bool append(std::string_view piece, uint64_t hash, std::vector<int32_t>& ids) const {
    const Entry& entry = entries_[hash >> (64 - kBits)];
    if (entry.bytes != piece.size() || std::memcmp(entry.piece, piece.data(), piece.size()) != 0) {
      return false;
    }
    const size_t before = ids.size();
    ids.resize(before + entry.count);
    std::memcpy(ids.data() + before, entry.ids, entry.count * sizeof(int32_t));
    return true;
  }
  /// Keeps the ids of a piece of 1 to kLongest bytes, where there are not too many.
  void keep(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.size() > kIds) return;
    Entry& entry = entries_[hash >> (64 - kBits)];
    entry.bytes = static_cast<uint8_t>(piece.size());
    entry.count = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.piece, piece.data(), piece.size());
    std::memcpy(entry.ids, ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kBits = 15, kEntries = size_t{1} << kBits, kIds = 8;
  struct alignas(64) Entry {
    uint8_t bytes = 0, count = 0;
    char piece[kLongest];
    int32_t ids[kIds];
  };

  std::vector<Entry> entries_;
};

}  // namespace ferry
