#include "convert/model/constant.h"

#include "ckpt/base/cast.h"

namespace ferry {

std::string constant_bytes(double value, DType dtype, int64_t count) {
  const auto size = static_cast<size_t>(size_bytes(dtype));
  std::string bytes(static_cast<size_t>(count) * size, '\0');
  convert(reinterpret_cast<const std::byte*>(&value), 0, DType::f64,
          reinterpret_cast<std::byte*>(bytes.data()), static_cast<int64_t>(size), dtype, count);
  return bytes;
}

}  // namespace ferry
