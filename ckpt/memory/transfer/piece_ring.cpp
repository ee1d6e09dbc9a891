#include "ckpt/memory/transfer/piece_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ferry {
namespace {

// Smaller pieces take a device longer to begin than to copy.
constexpr uint64_t kLeastPieceBytes = 4 << 10;
constexpr uint64_t kMostPieceBytes = 16 << 20;

uint64_t piece_bytes(uint64_t all, int pieces) {
  const uint64_t bytes = std::clamp(all / static_cast<uint64_t>(std::max(1, pieces)),
                                    std::min(all, kLeastPieceBytes), kMostPieceBytes);
  return bytes < kStagedAlignmentBytes ? bytes
                                       : bytes / kStagedAlignmentBytes * kStagedAlignmentBytes;
}

}  // namespace

PieceRing::PieceRing(std::shared_ptr<Stager> stager, std::shared_ptr<void> moment,
                     std::span<std::byte> memory, int pieces)
    : stager_(std::move(stager)),
      moment_(std::move(moment)),
      piece_bytes_(piece_bytes(memory.size(), pieces)),
      pieces_(memory.size() / piece_bytes_) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    pieces_[i].bytes = memory.subspan(i * piece_bytes_, piece_bytes_);
  }
}

void PieceRing::read(uint32_t number, std::span<const std::byte> region, uint64_t offset,
                     std::span<std::byte> into) {
  while (!into.empty()) {
    const uint64_t first = offset / piece_bytes_ * piece_bytes_;
    const uint64_t bytes = std::min<uint64_t>(into.size(), first + piece_bytes_ - offset);
    Piece& piece = take(number, region, first);
    std::memcpy(into.data(), piece.bytes.data() + (offset - first), bytes);
    release(piece);
    offset += bytes;
    into = into.subspan(bytes);
  }
}

// A thread uses one piece at a time: however few there are, one comes free.
PieceRing::Piece& PieceRing::take(uint32_t number, std::span<const std::byte> region,
                                  uint64_t first) {
  std::unique_lock lock(mutex_);
  Piece* piece = nullptr;
  for (;;) {
    piece = find(number, first);
    if (piece != nullptr && piece->is_filled) {
      ++piece->users;
      return *piece;
    }
    // One that another thread fills at the moment is waited for, and else a free one.
    if (piece == nullptr && (piece = oldest_unused()) != nullptr) break;
    changed_.wait(lock);
  }
  piece->region = number;
  piece->first = first;
  piece->users = 1;
  piece->is_filled = false;
  piece->is_filling = true;
  lock.unlock();
  try {
    fill(*piece, region.subspan(first, std::min<uint64_t>(piece_bytes_, region.size() - first)));
  } catch (...) {
    lock.lock();
    piece->users = 0;
    piece->is_filling = false;
    changed_.notify_all();
    throw;
  }
  lock.lock();
  piece->is_filling = false;
  piece->is_filled = true;
  changed_.notify_all();
  return *piece;
}

PieceRing::Piece* PieceRing::find(uint32_t number, uint64_t first) {
  const auto found = std::ranges::find_if(pieces_, [&](const Piece& piece) {
    return (piece.is_filled || piece.is_filling) && piece.region == number && piece.first == first;
  });
  return found == pieces_.end() ? nullptr : &*found;
}

PieceRing::Piece* PieceRing::oldest_unused() {
  Piece* oldest = nullptr;
  for (Piece& piece : pieces_) {
    if (piece.users == 0 && (oldest == nullptr || piece.last_used < oldest->last_used)) {
      oldest = &piece;
    }
  }
  return oldest;
}

void PieceRing::fill(Piece& piece, std::span<const std::byte> from) {
  const StagingCopy copy{from.data(), piece.bytes.data(), from.size()};
  const std::lock_guard lock(copying_);
  stager_->copy({&copy, 1}, moment_);
}

void PieceRing::release(Piece& piece) {
  const std::lock_guard lock(mutex_);
  piece.last_used = ++uses_;
  if (--piece.users == 0) changed_.notify_all();
}

}  // namespace ferry
