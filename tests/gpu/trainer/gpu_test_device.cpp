#include <algorithm>
#include <utility>

#include "tests/trainer/test_device.h"
#include "trainer/gpu/gpu_device.h"

namespace ferry::test {

// Several ranks may share a GPU.
RankDevice test_device(const std::shared_ptr<Group>& group, std::shared_ptr<Links> links) {
  return gpu_device(group, std::move(links), group->rank() % std::max(1, gpu_count()));
}

}  // namespace ferry::test
