#include "ckpt/base/error.h"
#include "trainer/gpu/gpu_device.h"

namespace ferry {

int gpu_count() noexcept { return 0; }

RankDevice gpu_device(const std::shared_ptr<Group>&, std::shared_ptr<Links>, int, bool) {
  fail(ErrorKind::unsupported,
       "this program was built without CUDA: build it with cmake --preset cuda, or give "
       "--device cpu");
}

}  // namespace ferry
