#include "convert/model/rounded_sums.h"

#include <string>
#include <vector>

#include "ckpt/base/cast.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"

namespace ferry {

int64_t rounded_sums(const Catalog& catalog, const Entry& entry, double addend, DType dtype) {
  if (!is_floating_point(entry.dtype)) {
    fail(ErrorKind::mismatch,
         "tensor {} is of {}: the weight of a norm, to which {} is added, is a floating-point one; "
         "the file is damaged or of another model",
         entry.name, torch_name(entry.dtype), addend);
  }
  constexpr int64_t kMostBytes = 64 << 20;  // of the norms of all layers in one tensor
  if (entry.chunks.empty()) return 0;
  if (entry.bytes() > kMostBytes || !can_convert(entry.dtype, DType::f64)) return entry.elements();
  const std::string stored = read_tensor(catalog, entry, kMostBytes);
  const auto count = static_cast<size_t>(entry.elements());
  std::vector<double> sums(count), held(count);
  std::string rounded(count * static_cast<size_t>(size_bytes(dtype)), '\0');
  const auto cast = [&](const void* from, DType from_dtype, void* to, DType to_dtype) {
    convert(static_cast<const std::byte*>(from), size_bytes(from_dtype), from_dtype,
            static_cast<std::byte*>(to), size_bytes(to_dtype), to_dtype,
            static_cast<int64_t>(count));
  };
  cast(stored.data(), entry.dtype, sums.data(), DType::f64);
  for (double& sum : sums) sum += addend;
  cast(sums.data(), DType::f64, rounded.data(), dtype);
  cast(rounded.data(), dtype, held.data(), DType::f64);
  int64_t differ = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool both_are_none = sums[i] != sums[i] && held[i] != held[i];
    differ += sums[i] != held[i] && !both_are_none;
  }
  return differ;
}

}  // namespace ferry
