#include "trainer/communicator/nccl/peer_copies.h"

#include <utility>

#include "ckpt/base/error.h"
#include "trainer/communicator/thread_barrier.h"

namespace ferry {

using kernels::cuda::check;

// What one rank shares with the others. They wait for its event after the ranks have synchronized,
// and it records the event again after they have synchronized once more.
struct PeerCopies::Rank {
  const void* x = nullptr;
  std::vector<size_t> starts;  // of the ranks' parts of x
  cudaEvent_t is_there = nullptr, has_copied = nullptr;
};

// The events are kept until the last rank is gone, because others may still wait for them.
struct PeerCopies::Table {
  explicit Table(size_t count) : ranks(count), barrier(count) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    for (const Rank& rank : ranks) {
      for (cudaEvent_t event : {rank.is_there, rank.has_copied}) {
        if (event != nullptr) (void)cudaEventDestroy(event);
      }
    }
  }

  std::vector<Rank> ranks;
  ThreadBarrier barrier;
};

PeerCopies::PeerCopies(Links& links, int channel, const std::vector<int>& members, int rank,
                       const kernels::cuda::Device& device, Group& group)
    : table_(std::static_pointer_cast<Table>(
          links.common(channel, members, [&] { return std::make_shared<Table>(members.size()); }))),
      rank_(static_cast<size_t>(rank)),
      device_(device),
      group_(group) {
  if (!table_) fail(ErrorKind::internal, "ranks of several processes copy from each other");
  device_.enter();
  for (cudaEvent_t* event : {&own().is_there, &own().has_copied}) {
    if (*event != nullptr) continue;  // of a communicator before
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  }
}

PeerCopies::Rank& PeerCopies::own() const { return table_->ranks[rank_]; }

template <typename Use>
void PeerCopies::for_each_other(const Use& use) const {
  for (size_t other = 0; other < table_->ranks.size(); ++other) {
    if (other != rank_) use(other);
  }
}

void PeerCopies::meet() {
  table_->barrier.arrive_and_wait(rank_, [&] { group_.check(); });
}

void PeerCopies::begin(cudaStream_t stream, const void* x, std::vector<size_t> starts) {
  stream_ = stream;
  own().x = x;
  own().starts = std::move(starts);
  device_.enter();
  check(cudaEventRecord(own().is_there, stream_), "recording an event");
  meet();
  for_each_other([&](size_t other) {
    check(cudaStreamWaitEvent(stream_, table_->ranks[other].is_there), "waiting for another GPU");
  });
}

void PeerCopies::copy(int from, size_t offset, size_t bytes, void* to) const {
  const auto* const x = static_cast<const std::byte*>(table_->ranks[static_cast<size_t>(from)].x);
  check(cudaMemcpyAsync(to, x + offset, bytes, cudaMemcpyDeviceToDevice, stream_),
        "copying from another GPU");
}

void PeerCopies::copy_part(int from, size_t bytes, void* to) const {
  copy(from, table_->ranks[static_cast<size_t>(from)].starts[rank_], bytes, to);
}

void PeerCopies::end() {
  check(cudaEventRecord(own().has_copied, stream_), "recording an event");
  meet();
  for_each_other([&](size_t other) {
    check(cudaStreamWaitEvent(stream_, table_->ranks[other].has_copied), "waiting for another GPU");
  });
}

}  // namespace ferry
