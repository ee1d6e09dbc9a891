#include "ckpt/memory/transfer/pieced_snapshot.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
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
