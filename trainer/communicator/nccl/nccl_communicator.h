// Communicators of ranks on GPUs.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include "ckpt/group/group.h"
#include "kernels/cuda/cuda_kernels.h"
#include "trainer/communicator/communicator.h"
#include "trainer/communicator/links.h"

namespace ferry {

struct NcclOptions {
  /// How long NCCL may take to come up, and to make each communicator.
  std::chrono::seconds patience{120};
  /// Memory of the GPU for what is summed up, in each of the two lanes.
  size_t temporary_bytes = kGpuSumBytes;
  /// Whether copy engines may bring large parts (peer_copies.h). gpu_communicators() lets them
  /// where ranks are threads of one process whose GPUs read each other's memory.
  bool copies = true;
};

/// Communicators over NCCL for ranks that have a GPU each, threads of one process or processes.
/// `group` and `links` are those of all ranks, which call it and what it returns alike. Refers to
/// `kernels`, which outlive it and all communicators that it made; its device's watch is set.
///
/// **Errors.** io, naming the ranks, when NCCL does not come up. When any rank aborts the group,
/// within a fraction of a second NCCL gives up what it waits for on all, and whoever waits for the
/// device, or calls a communicator, throws that rank's error. What NCCL itself reports later (a
/// connection that broke) aborts the group. A rank that throws has to abort the group before
/// memory goes that its operations use: Links::withdraw() does.
///
/// What ranks send must have the length that is expected of it: NCCL does not compare them.
///
/// unsupported in a build without NCCL.
MakeCommunicator nccl_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                    kernels::cuda::CudaKernels& kernels,
                                    const NcclOptions& options = {});

/// The same by where the ranks compute: over NCCL and by copies between GPUs where each has one of
/// its own, else through each other's memory (host_communicator()), which needs them to be threads
/// of one process. unsupported, naming two ranks, where processes share a GPU.
MakeCommunicator gpu_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                   kernels::cuda::CudaKernels& kernels,
                                   const NcclOptions& options = {});

}  // namespace ferry
