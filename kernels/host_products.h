// How the processor's matrix products are computed in this program.
#pragma once

namespace ferry::kernels {

/// Whether this processor has instructions for bf16 that the program's library does not use: bf16
/// becomes fp32, which takes several times as long (cpu/products/blis_products.cpp).
bool bf16_instructions_unused();

}  // namespace ferry::kernels
