// Element types of tensors, as safetensors and PyTorch spell them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ferry {

enum class DType : uint8_t {
  boolean,
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  u64,
  i64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  f8_e4m3,
  f8_e5m2,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f8_e8m0,
  f4x2,  // two 4-bit floats a byte: one element here is one byte, as in PyTorch
};

/// Bytes of one element.
int64_t size_bytes(DType dtype) noexcept;

/// safetensors' spelling ("BF16"). C128 has none in safetensors and is spelled "C128"; f4x2 is
/// "F4".
std::string_view safetensors_name(DType dtype) noexcept;
std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept;

/// PyTorch's spelling without its module ("bfloat16").
std::string_view torch_name(DType dtype) noexcept;
std::optional<DType> dtype_from_torch(std::string_view name) noexcept;

/// As people write it: PyTorch's or safetensors' spelling, or "bf16", "fp16", "f16", "half",
/// "fp32", "f32".
std::optional<DType> dtype_from_text(std::string_view text) noexcept;

/// PyTorch's legacy storage class ("BFloat16Storage" -> bf16).
std::optional<DType> dtype_from_torch_storage(std::string_view class_name) noexcept;
std::string_view torch_storage_name(DType dtype) noexcept;  // empty for types that have none

bool is_floating_point(DType dtype) noexcept;

/// Which bits of an fp32 element are meant.
enum class FloatHalf : uint8_t {
  whole,
  upper,  // as bf16, so that with the lower half added to its bits it is the element again
  lower,  // 16 bits, as i16
};

/// Elements that are not numbers; each half of a complex one counts.
struct NonFinite {
  int64_t nan = 0, infinite = 0;

  bool any() const noexcept { return nan > 0 || infinite > 0; }
};

/// What PyTorch leaves undone in a view: conj(), and the negation that comes with its imaginary
/// part, are bits of the tensor, and its storage has the elements as they were before.
///
/// Source: torch/_utils.py (set_tensor_metadata), aten/src/ATen/ConjugateFallback.cpp and
/// NegateFallback.cpp.
struct MathBits {
  bool conjugated = false;
  bool negated = false;

  bool any() const noexcept { return conjugated || negated; }
};

/// The parts of an element of a dtype (two of a complex number, real and imaginary, else one) whose
/// sign is another than the stored one.
struct SignFlips {
  int64_t part_bytes = 0;
  bool first = false, second = false;
};
SignFlips sign_flips(MathBits bits, DType dtype) noexcept;

/// unsupported, naming `what`, for elements whose sign is not a bit of theirs.
void check_math_bits(MathBits bits, DType dtype, const std::string& what);

}  // namespace ferry
