#include "trainer/communicator/nccl/peer_copies.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace ferry {

using kernels::cuda::check;

// What one rank shows the others. They wait for its events when they have met it, and it records
// them anew when they have met it once more.
struct alignas(64) PeerCopies::Seat {
  const void* x = nullptr;
  cudaEvent_t is_there = nullptr, has_copied = nullptr;
  std::atomic<uint64_t> meetings{0};  // that it has come to
};

// The events stay until the last rank has gone, as some may still have to wait for them.
struct PeerCopies::Table {
  explicit Table(size_t ranks) : seats(ranks) {}
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    for (const Seat& seat : seats) {
      for (cudaEvent_t event : {seat.is_there, seat.has_copied}) {
        if (event != nullptr) (void)cudaEventDestroy(event);
      }
    }
  }

  std::vector<Seat> seats;
};

PeerCopies::PeerCopies(Links& links, int channel, const std::vector<int>& members, int rank,
                       const kernels::cuda::Device& device, Group& group)
    : table_(std::static_pointer_cast<Table>(links.common(
          channel, members.front(), [&] { return std::make_shared<Table>(members.size()); }))),
      rank_(rank),
      device_(device),
      group_(group) {
  device_.enter();
  Seat& own = table_->seats[static_cast<size_t>(rank_)];
  meetings_ = own.meetings.load();  // of another communicator of the channel before
  for (cudaEvent_t* event : {&own.is_there, &own.has_copied}) {
    if (*event != nullptr) continue;
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "making an event");
  }
}

template <typename Use>
void PeerCopies::for_each_other(const Use& use) const {
  const std::vector<Seat>& seats = table_->seats;
  for (size_t i = 0; i < seats.size(); ++i) {
    if (i != static_cast<size_t>(rank_)) use(seats[i]);
  }
}

// Hosts are microseconds apart, as a rule; where one is not, the others leave it the processor.
void PeerCopies::meet() {
  constexpr int kYields = 1000, kLooks = 100;
  ++meetings_;
  table_->seats[static_cast<size_t>(rank_)].meetings.store(meetings_, std::memory_order_release);
  for_each_other([&](const Seat& other) {
    for (int i = 0; other.meetings.load(std::memory_order_acquire) < meetings_; ++i) {
      if (i < kYields) {
        std::this_thread::yield();
        continue;
      }
      if (i % kLooks == 0) group_.check();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

void PeerCopies::begin(cudaStream_t stream, const void* x) {
  Seat& own = table_->seats[static_cast<size_t>(rank_)];
  own.x = x;
  device_.enter();
  check(cudaEventRecord(own.is_there, stream), "recording an event");
  meet();
  for_each_other([&](const Seat& other) {
    check(cudaStreamWaitEvent(stream, other.is_there), "waiting for another GPU");
  });
}

void PeerCopies::copy(cudaStream_t stream, int from, size_t offset, size_t bytes, void* to) const {
  const auto* const x = static_cast<const std::byte*>(table_->seats[static_cast<size_t>(from)].x);
  check(cudaMemcpyAsync(to, x + offset, bytes, cudaMemcpyDeviceToDevice, stream),
        "copying from another GPU");
}

void PeerCopies::end(cudaStream_t stream) {
  check(cudaEventRecord(table_->seats[static_cast<size_t>(rank_)].has_copied, stream),
        "recording an event");
  meet();
  for_each_other([&](const Seat& other) {
    check(cudaStreamWaitEvent(stream, other.has_copied), "waiting for another GPU");
  });
}

}  // namespace ferry
