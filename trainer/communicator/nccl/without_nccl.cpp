#include "ckpt/base/error.h"
#include "trainer/communicator/nccl/nccl_communicator.h"

namespace ferry {

MakeCommunicator nccl_communicators(std::shared_ptr<Group>, std::shared_ptr<Links>,
                                    kernels::cuda::CudaKernels&, const NcclOptions&) {
  fail(ErrorKind::unsupported,
       "this program was built without NCCL, which ranks on several GPUs need: rebuild with NCCL's "
       "development files installed, or run all ranks as threads of one process on one GPU");
}

}  // namespace ferry
