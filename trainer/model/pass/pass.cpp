#include "trainer/model/pass/pass.h"

#include <algorithm>

#include "ckpt/base/error.h"

namespace ferry {

namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

void* Arena::take_bytes(int64_t bytes) {
  const int64_t begin = used_;
  used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  peak_ = std::max(peak_, used_);
  if (!memory_) return nullptr;
  if (used_ > bytes_) {
    fail(ErrorKind::internal, "a pass needs {} bytes of an arena of {}", used_, bytes_);
  }
  return static_cast<std::byte*>(memory_.get()) + begin;
}

}  // namespace ferry
