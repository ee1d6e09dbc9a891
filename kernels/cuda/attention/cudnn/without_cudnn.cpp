#include <stdexcept>

#include "kernels/cuda/attention/cudnn/cudnn_attention.h"

namespace ferry::kernels::cuda {

std::unique_ptr<CudnnAttention> cudnn_attention(Device&, bool) {
  throw std::runtime_error(
      "this program was built without cuDNN: build it with -D FERRY_CUDNN=ON -D "
      "CUDNN_FRONTEND_INCLUDE_DIR=...");
}

}  // namespace ferry::kernels::cuda
