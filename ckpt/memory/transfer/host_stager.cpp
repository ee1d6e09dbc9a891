#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "ckpt/engine/tiles/buffer.h"
#include "ckpt/memory/region.h"

namespace ferry {
namespace {

constexpr uint64_t kCopyBytes = 4 << 20;  // at once, by a thread

class HostStager final : public Stager {
 public:
  explicit HostStager(int threads) : threads_(thread_count(threads)) {}

  StagingMemory allocate(uint64_t bytes) override {
    const auto buffer = std::make_shared<Buffer>();
    try {
      return {buffer->take(bytes), buffer};
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::exhausted, "no memory to stage a snapshot of {} bytes", bytes);
    }
  }

  void copy(std::span<const StagingCopy> copies, const std::shared_ptr<void>&) override {
    std::vector<StagingCopy> pieces;
    for (const StagingCopy& one : copies) {
      for (uint64_t at = 0; at < one.bytes; at += kCopyBytes) {
        pieces.push_back({one.from + at, one.to + at, std::min(kCopyBytes, one.bytes - at)});
      }
    }
    std::atomic<size_t> next{0};
    const int threads =
        std::min<int>(threads_, static_cast<int>(std::min<size_t>(pieces.size(), 1024)));
    on_threads(threads, [&](int, const std::atomic<bool>& stop) {
      for (size_t i = next++; i < pieces.size() && !stop; i = next++) {
        std::memcpy(pieces[i].to, pieces[i].from, pieces[i].bytes);
      }
    });
  }

 private:
  int threads_;
};

}  // namespace

std::shared_ptr<Stager> host_stager(int threads) { return std::make_shared<HostStager>(threads); }

}  // namespace ferry
