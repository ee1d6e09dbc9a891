// Byte-pair encoding over bytes, as used by GPT-2, Llama 3, Qwen, DeepSeek, Tekken and tiktoken.
// Source: Sennrich, Haddow, Birch 2016 (arXiv:1508.07909); Radford et al. 2019 (bytes).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "text/bpe/merger.h"
#include "text/bpe/vocabulary.h"

namespace ferry {

// A cache of the ids of recent pieces: few pieces make up most of a text.

/// A table of fixed size, whose entries are replaced by newer ones. Not thread-safe.
class PieceCache {
 public:
  static constexpr size_t kLongest = 30;  // maximum bytes of a cached piece

  PieceCache() : entries_(kEntries) {}

  /// Appends the ids of a cached piece; returns false if it is not cached. `hash` is the piece's.
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
  /// Caches the ids of a piece of 1 to kLongest bytes, unless there are too many.
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

struct BytePairs {
  MergeTable merges{0};
  bool one_pair = true;  // Merger::merge()
  /// The symbol of each byte; -1 if it has none: such bytes become `unknown`, or are dropped.
  std::array<int32_t, 256> byte_symbols{};
  std::optional<int32_t> unknown;
  bool fuse_unknown = false;  // several in a row become one
  /// The id of each symbol; empty if symbols are ids.
  std::vector<int32_t> ids;
  /// Pieces in this vocabulary are one token, without merging.
  const Vocabulary* whole = nullptr;
};

class BytePairEncoder {
 public:
  explicit BytePairEncoder(BytePairs pairs) : pairs_(std::move(pairs)) {}

  /// Per-thread state.
  struct State {
    Merger merger;
    PieceCache cache;
    std::vector<int32_t> symbols;
  };

  /// Appends the ids of a piece.
  void encode(std::string_view piece, State& state, std::vector<int32_t>& ids) const {
    if (piece.empty()) return;
    if (piece.size() > PieceCache::kLongest) return merge(piece, state, ids);
    const uint64_t hash = hash_of_piece(piece);
    if (state.cache.append(piece, hash, ids)) return;
    const size_t before = ids.size();
    merge(piece, state, ids);
    state.cache.keep(piece, hash, std::span(ids).subspan(before));
  }

 private:
  void merge(std::string_view piece, State& state, std::vector<int32_t>& ids) const;

  BytePairs pairs_;
};

/// A pool of per-thread states.
template <typename State>
class StatePool {
 public:
  class Loan {
   public:
    explicit Loan(StatePool& pool) : pool_(pool), state_(pool.take()) {}
    ~Loan() { pool_.give_back(std::move(state_)); }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    State& operator*() const { return *state_; }
    State* operator->() const { return state_.get(); }

   private:
    StatePool& pool_;
    std::unique_ptr<State> state_;
  };

 private:
  std::unique_ptr<State> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        auto state = std::move(free_.back());
        free_.pop_back();
        return state;
      }
    }
    return std::make_unique<State>();
  }
  void give_back(std::unique_ptr<State> state) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(state));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<State>> free_;
};

}  // namespace ferry
