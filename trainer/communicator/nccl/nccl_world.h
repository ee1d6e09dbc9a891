// One rank's side of NCCL: its communicators, the streams that they run on, and how all of it ends.
//
// **Why ranks do not wait for each other in a circle.** An operation of NCCL occupies a part of the
// GPU until the other ranks' operations meet it. Where operations under way on a GPU can keep
// another one from beginning, two GPUs can wait for each other for ever. Here:
//
//  - All collectives and receives of a rank, of all its communicators, share the stream of a lane:
//    they run one after another in the order in which they are asked for. That is how they run on
//    hosts, where each is over when it returns. Only sends are not waited for there; here, each
//    neighbour that a rank sends to has a stream and a communicator (of the two) of its own, so
//    that a send holds up nothing but later sends to the same neighbour; and communicators that are
//    set aside share a lane of their own. An operation waits for less than it does on hosts,
//    therefore, and ranks whose order of operations comes to an end there come to one here.
//  - What may be under way at once fits on the GPU at once: one operation of the common lane takes
//    at most a third of the multiprocessors, one of those set aside two ninths, and those to each
//    neighbour a ninth; a rank of a trainer has three (the next stage, the one before, the next
//    part of a sequence). Kernels that compute end by themselves.
//  - These are seven streams with that of the kernels and that of sums, one more copies what is
//    saved, and CUDA gives a process eight queues to the GPU (CUDA_DEVICE_MAX_CONNECTIONS): no
//    stream waits behind another one in the same queue.
//  - Copies from other GPUs (peer_copies.h) take the places of collectives in their lanes. They
//    wait for each other in the order of hosts, too, and so do the hosts that meet to begin and to
//    end them.
//  - A connection that is made when it is first used makes the host wait for the other rank. Those
//    between neighbours are therefore used once when they are made; collectives may make the host
//    wait the first time, and copies each time, as collectives do on hosts.
//  - A host that waited for all of its GPU, sends included, would wait for more than hosts do: what
//    is taken and given back within a step is therefore ordered by the kernels' stream
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

/// Operations that run one after another, and memory for what they sum up.
struct NcclLane {
  cudaStream_t stream = nullptr;
  cudaStream_t sum_stream = nullptr;  // null: sums run on `stream`, too
  std::shared_ptr<void> memory;
  size_t bytes = 0;
  cudaEvent_t summed[2] = {};  // what sum_stream was asked for has used a half

  /// Where sums have a stream of their own, one half of the memory is filled while the other is
  /// summed up; else half 0 is all of it.
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

  /// Before anything else, by all ranks: brings up the communicator of all of them.
  void come_up();

  /// By the thread of a rank that has failed, before its memory goes: gives up NCCL, and returns
  /// when the GPU has done what it was asked for, and those of all ranks have; one that does not
  /// come within some seconds is not waited for. Nothing where set_drained() was not called.
  void drain() noexcept;
  /// The count of worlds that are done with the memory of others, which is the same of all ranks.
  void set_drained(std::shared_ptr<std::atomic<int>> drained) { drained_ = std::move(drained); }

  int rank() const noexcept { return group_->rank(); }
  Group& group() noexcept { return *group_; }
  kernels::cuda::Device& device() noexcept { return kernels_.device(); }

  /// The communicator of `members`; null for a lone one. Ranks whose communicators have the same
  /// members share one in each lane. All ranks of the world call it.
  ncclComm_t family(const std::vector<int>& members, bool is_aside = false);
  /// The communicator of all ranks that give the same color, by rising key, which takes at most so
  /// many multiprocessors; null for NCCL_SPLIT_NOCOLOR. All ranks of the world call it.
  ncclComm_t split(int color, int key, int most_blocks);

  /// Of collectives and receives; and that of communicators that are set aside.
  const NcclLane& lane() const noexcept { return lane_; }
  const NcclLane& aside();
  /// A new one for sends to one neighbour.
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
  /// Throws the group's error, else io with NCCL's words, unless the call succeeded.
  void check_code(ncclResult_t result);
  /// Throws when NCCL was given up.
  void check();

  /// Makes `stream` wait for all that the kernels were asked for.
  void begin(cudaStream_t stream);
  /// A ticket of all that `stream` was asked for, and making the kernels wait for it.
  Ticket end(cudaStream_t stream);
  void wait(Ticket ticket);
  /// Makes one stream wait for what the other was asked for.
  void follow(cudaStream_t later, cudaStream_t earlier);
  /// What the lane's sum_stream was asked for has used a half of its memory, ...
  static void has_summed(const NcclLane& lane, int half);
  /// ... which its stream waits for.
  static void wait_for_sums(const NcclLane& lane, int half);

 private:
  struct Family {
    std::vector<int> members;
    bool is_aside;
    ncclComm_t communicator;
  };

  NcclLane open_lane(size_t bytes, bool sums_beside);

  cudaEvent_t take_event();
  ncclResult_t state_of(ncclComm_t communicator);
  ncclResult_t outcome(ncclComm_t communicator, ncclResult_t returned);
  void tell_states(ncclResult_t state);
  void watch();
  bool has_failed() noexcept;
  void give_up() noexcept;

  std::shared_ptr<Group> group_;
  kernels::cuda::CudaKernels& kernels_;
  NcclOptions options_;
  int exceptions_;  // that were under way when it was made
  NcclLane lane_, aside_;
  std::vector<cudaStream_t> send_streams_;
  cudaEvent_t order_ = nullptr;
  std::unordered_map<Ticket, cudaEvent_t> tickets_;
  std::vector<cudaEvent_t> events_;  // that no ticket has
  Ticket last_ticket_ = 0;

  std::timed_mutex calls_;                // of NCCL
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
