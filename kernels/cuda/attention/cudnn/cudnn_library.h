// cuDNN, found as the program runs: it starts where there is none.
#pragma once

namespace ferry::kernels::cuda {

/// Loads the library unless that is done, and lets the frontend find its functions. Used by any
/// thread. Throws std::runtime_error where the library is not found or too old, saying what to do.
void load_cudnn();

}  // namespace ferry::kernels::cuda
