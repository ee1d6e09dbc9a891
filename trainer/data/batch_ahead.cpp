#include "trainer/data/batch_ahead.h"

#include <utility>

namespace ferry {

void BatchAhead::drop() noexcept {
  if (reading_.valid()) reading_.wait();
  reading_ = {};
}

void BatchAhead::take(const Place& place, const Place& next, Batch& batch) {
  if (reading_.valid() && place_ == place) {
    reading_.get();
    std::swap(batch, batch_);
  } else {
    drop();
    read_(place, batch);
  }
  place_ = next;
  reading_ = std::async(std::launch::async, [this] { read_(place_, batch_); });
}

}  // namespace ferry
