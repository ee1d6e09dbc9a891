#include "ckpt/memory/region.h"

#include "ckpt/base/checked.h"

namespace ferry {

template <typename Byte>
uint64_t checked_bytes(const BasicRegion<Byte>& region) {
  if (!is_inside(region.shard, region.shape)) {
    fail(ErrorKind::invalid, "tensor {}: the part {} is not inside its shape {}", region.name,
         to_string(region.shard), to_string(region.shape));
  }
  element_count(region.shape, region.name);
  const int64_t bytes =
      checked_multiply(region.shard.elements(region.name), size_bytes(region.dtype), region.name);
  if (bytes > 0 && !region.data) {
    fail(ErrorKind::invalid, "tensor {}: {} bytes are expected, and no memory is given",
         region.name, bytes);
  }
  return static_cast<uint64_t>(bytes);
}

template uint64_t checked_bytes(const Region&);
template uint64_t checked_bytes(const ConstRegion&);

}  // namespace ferry
