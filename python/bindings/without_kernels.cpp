// estimate() is the trainer's plan, and brings the trainer's loop along, which this module never
// enters. Without the kernels that the loop would call, the module needs neither OpenMP nor a
// library for matrix products.
#include <stdexcept>

#include "kernels/host_products.h"
#include "kernels/kernels.h"

namespace ferry::kernels {

std::unique_ptr<Kernels> cpu_kernels(int /*threads*/) {
  throw std::logic_error("the module for Python has no kernels");
}

bool bf16_instructions_unused() { return false; }

}  // namespace ferry::kernels
