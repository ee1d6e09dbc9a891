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
  /// How long NCCL may take to initialize, and to make each communicator.
  std::chrono::seconds patience{120};
  /// GPU memory for reductions, for each of the two lanes.
  size_t temporary_bytes = kGpuSumBytes;
  /// Whether copy engines may move large parts (peer_copies.h). gpu_communicators() enables it
  /// where ranks are threads of one process whose GPUs have peer access.
  bool copies = true;
};

/// Communicators over NCCL for ranks that have a GPU each, threads of one process or processes.
/// `group` and `links` are those of all ranks, which make the same calls. Refers to `kernels`,
/// which must outlive it and all communicators that it made; sets its device's watch.
///
/// **Errors.** io, naming the ranks, if NCCL fails to initialize. When any rank aborts the group,
/// NCCL stops waiting on all ranks within a fraction of a second, and calls that wait for the
/// device or use a communicator throw that rank's error. Errors that NCCL reports later (a broken
/// connection) abort the group. A rank that throws must abort the group before it frees memory that
/// its operations use: Links::withdraw() does.
///
/// Lengths of sends and receives must agree: NCCL does not check them.
///
/// unsupported in a build without NCCL.
MakeCommunicator nccl_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                    kernels::cuda::CudaKernels& kernels,
                                    const NcclOptions& options = {});

/// Chooses by where the ranks compute: NCCL and copies between GPUs where each has its own GPU,
/// otherwise each other's memory (host_communicator()), for threads of one process. unsupported,
/// naming two ranks, where processes share a GPU.
MakeCommunicator gpu_communicators(std::shared_ptr<Group> group, std::shared_ptr<Links> links,
                                   kernels::cuda::CudaKernels& kernels,
                                   const NcclOptions& options = {});

}  // namespace ferry
