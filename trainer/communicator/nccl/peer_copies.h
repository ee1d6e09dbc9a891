// Copies between the GPUs of ranks that are threads of one process.
//
// A kernel that moves bytes needs multiprocessors. Beside products, each of which takes all of them
// until it is over, it waits for the end of one, and holds up the blocks of the next. Copy engines
// need none: what they move goes on beside whatever the kernels compute.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "ckpt/group/group.h"
#include "kernels/cuda/device/device.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// One rank's side of copies among the ranks of a communicator, each of which takes from the others
/// what it wants. All ranks begin and end their copies alike, in the order of their collectives,
/// and the host waits in both until all have come there, as it does in collectives of hosts; no GPU
/// is waited for.
///
/// Where a rank fails, those of all wait for their GPUs before memory goes that others copy from
/// (Links::set_drain()). A GPU that breaks down ends the work of all of a process.
class PeerCopies {
 public:
  /// Of rank `rank` of the ranks `members` of a run, which are threads of this process, and whose
  /// GPUs read each other's memory. `channel` as for communicators. Refers to `device` and `group`,
  /// whose error is thrown where another rank fails.
  PeerCopies(Links& links, int channel, const std::vector<int>& members, int rank,
             const kernels::cuda::Device& device, Group& group);

  /// Until end(): what `stream` is asked for finds x of all ranks as it is where their streams come
  /// here.
  void begin(cudaStream_t stream, const void* x);
  /// Brings `bytes` of x of rank `from`, from `offset` on.
  void copy(int from, size_t offset, size_t bytes, void* to) const;
  /// What the stream is asked for from here on may change x: all have what they copy of it.
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
