// One rank's side of NCCL: its communicators, their streams, and how it all ends.
//
// **Why ranks do not deadlock.** An NCCL operation occupies a part of the GPU until the other ranks
// join it. If running operations can prevent another one from starting, two GPUs can wait for each
// other forever. Here:
//
//  - All collectives and receives of a rank, of all its communicators, share the stream of a lane:
//    they run one after another in the order of the calls, as on hosts, where each completes before
//    it returns. Only sends are not waited for on hosts; here, each neighbour that a rank sends to
//    has its own stream and communicator (of the two), so a send delays only later sends to the
//    same neighbour; and concurrent communicators share a lane of their own. An operation therefore
//    waits for less than on hosts, and any order of operations that terminates there terminates
//    here.
//  - All operations that can run at the same time fit on the GPU: one of the common lane takes at
//    most a third of the multiprocessors, one of the concurrent lane two ninths, and those to each
//    neighbour a ninth; a rank of a trainer has three (the next stage, the previous one, the next
//    part of a sequence). Compute kernels end by themselves.
//  - With the streams of kernels and sums these are seven; one more copies saves, and CUDA gives a
//    process eight queues to the GPU (CUDA_DEVICE_MAX_CONNECTIONS): no two streams share a queue.
//  - Copies from other GPUs (peer_copies.h) replace collectives in their lanes. They, and the hosts
//    that synchronize to start and end them, also wait for each other in the order of hosts.
//  - A connection that is established on first use blocks the host until the other rank joins.
//    Connections between neighbours are therefore used once when they are made; collectives may
//    block the host the first time, and copies each time, as collectives do on hosts.
//  - Waiting for the whole GPU, sends included, would wait for more than on hosts: memory that is
//    allocated and freed within a step is therefore ordered by the kernels' stream
//    (Device::allocate_in_order()), where cudaFree() would wait.
#pragma once

#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ckpt/group/group.h"
#include "kernels/cuda/cuda_kernels.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry {

/// Operations that run one after another, and their memory for reductions.
struct NcclLane {
  cudaStream_t stream = nullptr;
  cudaStream_t sum_stream = nullptr;  // null: sums run on `stream`, too
  std::shared_ptr<void> memory;
  size_t bytes = 0;
  cudaEvent_t summed[2] = {};  // sum_stream has finished with a half

  /// Where sums have their own stream, one half of the memory is filled while the other is summed;
  /// otherwise half 0 is all of it.
  std::byte* temporary(int half) const {
    return static_cast<std::byte*>(memory.get()) + (half == 0 ? size_t{0} : piece_bytes());
  }
  size_t piece_bytes() const { return sum_stream == nullptr ? bytes : bytes / 2 / 256 * 256; }
};

class NcclWorld {
 public:
  using Ticket = Communicator::Ticket;

  NcclWorld(std::shared_ptr<Group> group, kernels::cuda::CudaKernels& kernels,
            const NcclOptions& options);
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  /// First of all, on all ranks: makes the communicator of all ranks.
  void come_up();

  /// Called by the thread of a failed rank before it frees memory: aborts NCCL and returns when the
  /// GPUs of all ranks have finished what was queued, or after some seconds. Does nothing unless
  /// set_drained() was called.
  void drain() noexcept;
  /// The shared counter of worlds that no longer use others' memory.
  void set_drained(std::shared_ptr<std::atomic<int>> drained) { drained_ = std::move(drained); }

  int rank() const noexcept { return group_->rank(); }
  Group& group() noexcept { return *group_; }
  kernels::cuda::Device& device() noexcept { return kernels_.device(); }

  /// The communicator of `members`; null for a lone one. Ranks whose communicators have the same
  /// members share one in each lane. All ranks of the world call it.
  ncclComm_t family(const std::vector<int>& members, bool is_aside = false);
  /// The communicator of all ranks with the same color, ordered by key, limited to this many
  /// multiprocessors; null for NCCL_SPLIT_NOCOLOR. All ranks of the world call it.
  ncclComm_t split(int color, int key, int most_blocks);

  /// The lane of collectives and receives, and that of concurrent communicators.
  const NcclLane& lane() const noexcept { return lane_; }
  const NcclLane& aside();
  /// A new stream for sends to one neighbour.
  cudaStream_t send_stream();
  static constexpr int most_blocks_to_neighbour(int multiprocessors) { return multiprocessors / 9; }

  /// Calls `queue`, which calls NCCL, as one group.
  template <typename Queue>
  void call(const Queue& queue) {
    check();
    const std::lock_guard lock(calls_);
    check();
    check_code(ncclGroupStart());
    try {
      queue();
    } catch (...) {
      (void)ncclGroupEnd();
      throw;
    }
    check_code(ncclGroupEnd());
  }
  /// Unless the call succeeded, throws the group's error, or io with NCCL's message.
  void check_code(ncclResult_t result);
  /// Throws if NCCL was aborted.
  void check();

  /// Makes `stream` wait for all queued kernels.
  void begin(cudaStream_t stream);
  /// A ticket for everything queued on `stream`, and making the kernels wait for it.
  Ticket end(cudaStream_t stream);
  void wait(Ticket ticket);
  /// Makes one stream wait for everything queued on another.
  void follow(cudaStream_t later, cudaStream_t earlier);
  /// Records that the lane's sum_stream has finished with a half of its memory, ...
  static void has_summed(const NcclLane& lane, int half);
  /// ... and makes its stream wait for that.
  static void wait_for_sums(const NcclLane& lane, int half);

 private:
  struct Family {
    std::vector<int> members;
    bool is_aside;
    ncclComm_t communicator;
  };

  NcclLane open_lane(size_t bytes, bool overlaps_sums);

  cudaEvent_t take_event();
  ncclResult_t state_of(ncclComm_t communicator);
  ncclResult_t outcome(ncclComm_t communicator, ncclResult_t returned);
  void exchange_states(ncclResult_t state);
  void watch();
  bool has_failed() noexcept;
  void give_up() noexcept;

  std::shared_ptr<Group> group_;
  kernels::cuda::CudaKernels& kernels_;
  NcclOptions options_;
  int exceptions_;  // in flight at construction
  NcclLane lane_, aside_;
  std::vector<cudaStream_t> send_streams_;
  cudaEvent_t order_ = nullptr;
  std::unordered_map<Ticket, cudaEvent_t> tickets_;
  std::vector<cudaEvent_t> events_;  // not in use by a ticket
  Ticket last_ticket_ = 0;

  std::timed_mutex calls_;                // guards calls of NCCL
  std::deque<ncclComm_t> communicators_;  // the first: of all ranks. NCCL writes into them
  std::vector<Family> families_;
  std::atomic<bool> is_given_up_{false};
  std::shared_ptr<std::atomic<int>> drained_;
  bool has_drained_ = false;
  std::mutex watch_mutex_;
  std::condition_variable watch_changed_;
  bool is_over_ = false;
  std::thread watcher_;
};

}  // namespace ferry
