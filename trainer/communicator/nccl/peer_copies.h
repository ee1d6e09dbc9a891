// Copies between the GPUs of ranks that are threads of one process.
//
// A kernel that moves bytes needs multiprocessors. A matrix product takes all of them until it
// ends, so such a kernel waits for one product and delays the next. Copy engines need none and run
// concurrently with kernels.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "ckpt/group/group.h"
#include "kernels/cuda/device/device.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// One rank's side of copies among the ranks of a communicator, each of which pulls what it needs
/// from the others. All ranks call begin() and end() in the order of their collectives, and both
/// block the host until all ranks have arrived, as host collectives do; neither waits for a GPU.
///
/// When a rank fails, all ranks wait for their GPUs before memory that others copy from is freed
/// (Links::set_drain()). A failing GPU ends the whole process's work.
class PeerCopies {
 public:
  /// For rank `rank` of the ranks `members` of a run, which are threads of this process with peer
  /// access between their GPUs. `channel` as for communicators. Refers to `device` and `group`,
  /// whose error is thrown where another rank fails.
  PeerCopies(Links& links, int channel, const std::vector<int>& members, int rank,
             const kernels::cuda::Device& device, Group& group);

  /// Until end(), operations queued on `stream` see x of all ranks as of their streams' begin().
  /// `starts`, for copy_part(): the byte of x at which each rank's part begins.
  void begin(cudaStream_t stream, const void* x, std::vector<size_t> starts = {});
  /// Copies `bytes` of rank `from`'s x, starting at `offset`.
  void copy(int from, size_t offset, size_t bytes, void* to) const;
  /// Copies `bytes` of rank `from`'s x, starting at this rank's part.
  void copy_part(int from, size_t bytes, void* to) const;
  /// Operations queued on the stream after this may change x: all copies are complete.
  void end();

 private:
  struct Rank;
  struct Table;

  template <typename Use>
  void for_each_other(const Use& use) const;
  void meet();
  Rank& own() const;

  std::shared_ptr<Table> table_;
  size_t rank_;
  const kernels::cuda::Device& device_;
  Group& group_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace ferry
