// The tests' devices are those of the processor.
#include "kernels/cpu/targets/targets.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {

std::vector<Device> devices() {
  std::vector<Device> all;
  for (const auto& target : targets_of_processor()) {
    for (const int threads : {1, 3}) {
      all.push_back({std::string(target.name) + " " + std::to_string(threads),
                     std::unique_ptr<Kernels>(target.new_kernels(threads))});
    }
  }
  return all;
}

double product_slack() { return 1; }

std::unique_ptr<Kernels> one_device(int threads) { return cpu_kernels(threads); }

}  // namespace ferry::kernels
