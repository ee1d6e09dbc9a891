#include "ckpt/memory/transfer/pieced_snapshot.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "ckpt/base/error.h"

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

namespace {

constexpr uint64_t kLeastRingBytes = 64 << 10;
constexpr uint64_t kMostRingBytes = 256 << 20;
// A tile reads from two places at most in turn (elements and their remainders), and the next one
// goes on in the same piece or in another.
constexpr int kPiecesPerThread = 4;

uint64_t ring_bytes(uint64_t memory) {
  return std::clamp(memory / 4, std::min(memory, kLeastRingBytes), kMostRingBytes);
}

// A region whose first bytes were copied aside; the others are as they pass through the ring.
class PiecedRegion final : public ReadableFile {
 public:
  PiecedRegion(PieceRing& ring, uint32_t number, const std::string& tensor,
               std::span<const std::byte> bytes, std::span<const std::byte> copied)
      : ring_(ring),
        number_(number),
        name_("memory for tensor " + tensor),
        bytes_(bytes),
        copied_(copied) {}

  const std::string& path() const noexcept override { return name_; }
  uint64_t size() const noexcept override { return bytes_.size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    if (offset > bytes_.size() || into.size() > bytes_.size() - offset) {
      fail(ErrorKind::internal, "{}: {} bytes at {} of {} are asked for", name_, into.size(),
           offset, bytes_.size());
    }
    if (offset < copied_.size()) {
      const auto here = into.first(std::min<uint64_t>(into.size(), copied_.size() - offset));
      std::memcpy(here.data(), copied_.data() + offset, here.size());
      offset += here.size();
      into = into.subspan(here.size());
    }
    ring_.read(number_, bytes_, offset, into);
  }

 private:
  PieceRing& ring_;
  uint32_t number_;
  std::string name_;
  std::span<const std::byte> bytes_, copied_;
};

// By rising size: what is small would pass in many short pieces.
std::vector<uint32_t> by_size(const std::vector<uint64_t>& bytes) {
  std::vector<uint32_t> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return bytes[a] < bytes[b]; });
  return order;
}

}  // namespace

PiecedSnapshot::PiecedSnapshot(const std::shared_ptr<Stager>& stager,
                               const std::shared_ptr<void>& moment, std::span<std::byte> memory,
                               std::vector<ConstRegion>& regions, int threads,
                               std::function<void()> copied)
    : ring_(stager, moment, memory.first(ring_bytes(memory.size())), kPiecesPerThread * threads),
      files_(regions.size()),
      copied_(std::move(copied)) {
  std::span<std::byte> room = memory.subspan(ring_bytes(memory.size()));
  std::vector<uint64_t> bytes;
  for (const ConstRegion& region : regions) bytes.push_back(checked_bytes(region));
  std::vector<StagingCopy> copies;
  for (const uint32_t number : by_size(bytes)) {
    if (bytes[number] == 0) continue;
    ConstRegion& region = regions[number];
    const auto here = room.first(std::min<uint64_t>(room.size(), bytes[number]));
    if (!here.empty()) copies.push_back({region.data, here.data(), here.size()});
    if (here.size() == bytes[number]) {
      region.data = here.data();
    } else {
      files_[number] = std::make_shared<PiecedRegion>(ring_, number, region.name,
                                                      std::span(region.data, bytes[number]), here);
    }
    const uint64_t used =
        (here.size() + kStagedAlignmentBytes - 1) / kStagedAlignmentBytes * kStagedAlignmentBytes;
    room = room.subspan(std::min<uint64_t>(used, room.size()));
  }
  stager->copy(copies, moment);
}

std::shared_ptr<const ReadableFile> PiecedSnapshot::file(uint32_t region) const {
  return region < files_.size() ? files_[region] : nullptr;
}

}  // namespace ferry
