#include "trainer/loop/rank_setup.h"

#include <utility>

namespace ferry {

RankDevice host_device(std::shared_ptr<Links> links, int threads) {
  RankDevice device;
  device.kernels = kernels::cpu_kernels(threads);
  device.make_communicator = host_communicators(std::move(links), *device.kernels);
  return device;
}

}  // namespace ferry
