// Copies between the GPUs of ranks that are threads of one process.
//
// A kernel that moves bytes needs multiprocessors. Beside products, each of which takes all of them
// until it is over, it waits for the end of one, and holds up the blocks of the next. Copy engines
// need none: what they move goes on beside whatever the kernels compute.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ckpt/group/group.h"
#include "kernels/cuda/device/device.h"
#include "trainer/communicator/links.h"

namespace ferry {

/// One rank's side of copies among the ranks of a communicator, each of which takes from the others
/// what it wants. All ranks begin and end their copies alike, as they do collectives, and the host
/// waits in both until all have come there; no GPU is waited for. No stream waits for anything that
/// was not queued before, so that ranks on GPUs cannot wait for each other in a circle.
class PeerCopies {
 public:
  /// Of rank `rank` of the ranks `members` of a run, which are threads of this process, and whose
  /// GPUs read each other's memory. `channel` as for communicators. Refers to `device` and `group`,
  /// whose error is thrown where another rank fails.
  PeerCopies(Links& links, int channel, const std::vector<int>& members, int rank,
             const kernels::cuda::Device& device, Group& group);

  /// What `stream` is asked for from here on finds x of all ranks as it is where their streams come
  /// here.
  void begin(cudaStream_t stream, const void* x);
  /// Brings `bytes` of x of rank `from`, from `offset` on.
  void copy(cudaStream_t stream, int from, size_t offset, size_t bytes, void* to) const;
  /// What `stream` is asked for from here on may change x: all have what they copy of it.
  void end(cudaStream_t stream);

 private:
  struct Seat;
  struct Table;

  template <typename Use>
  void for_each_other(const Use& use) const;
  void meet();

  std::shared_ptr<Table> table_;
  int rank_;
  const kernels::cuda::Device& device_;
  Group& group_;
  uint64_t meetings_ = 0;
};

}  // namespace ferry
