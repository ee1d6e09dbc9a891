#include "ckpt/base/dtype.h"

#include <array>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

struct Row {
  DType dtype;
  int8_t bytes;
  bool floating;
  std::string_view safetensors;
  std::string_view torch;
  std::string_view storage;  // empty: PyTorch has no such storage class
};

// In the order of the enumeration, so that a dtype is its row's index.
constexpr std::array<Row, 21> kRows{{
    {DType::boolean, 1, false, "BOOL", "bool", "BoolStorage"},
    {DType::u8, 1, false, "U8", "uint8", "ByteStorage"},
    {DType::i8, 1, false, "I8", "int8", "CharStorage"},
    {DType::u16, 2, false, "U16", "uint16", ""},
    {DType::i16, 2, false, "I16", "int16", "ShortStorage"},
    {DType::u32, 4, false, "U32", "uint32", ""},
    {DType::i32, 4, false, "I32", "int32", "IntStorage"},
    {DType::u64, 8, false, "U64", "uint64", ""},
    {DType::i64, 8, false, "I64", "int64", "LongStorage"},
    {DType::f16, 2, true, "F16", "float16", "HalfStorage"},
    {DType::bf16, 2, true, "BF16", "bfloat16", "BFloat16Storage"},
    {DType::f32, 4, true, "F32", "float32", "FloatStorage"},
    {DType::f64, 8, true, "F64", "float64", "DoubleStorage"},
    {DType::c64, 8, false, "C64", "complex64", "ComplexFloatStorage"},
    {DType::c128, 16, false, "C128", "complex128", "ComplexDoubleStorage"},
    {DType::f8_e4m3, 1, true, "F8_E4M3", "float8_e4m3fn", ""},
    {DType::f8_e5m2, 1, true, "F8_E5M2", "float8_e5m2", ""},
    {DType::f8_e4m3fnuz, 1, true, "F8_E4M3FNUZ", "float8_e4m3fnuz", ""},
    {DType::f8_e5m2fnuz, 1, true, "F8_E5M2FNUZ", "float8_e5m2fnuz", ""},
    {DType::f8_e8m0, 1, true, "F8_E8M0", "float8_e8m0fnu", ""},
    {DType::f4x2, 1, true, "F4", "float4_e2m1fn_x2", ""},
}};

const Row& row(DType dtype) noexcept { return kRows[static_cast<size_t>(dtype)]; }

std::optional<DType> find(std::string_view Row::*column, std::string_view name) noexcept {
  if (name.empty()) return std::nullopt;
  for (const Row& r : kRows) {
    if (r.*column == name) return r.dtype;
  }
  return std::nullopt;
}

bool is_complex(DType dtype) { return dtype == DType::c64 || dtype == DType::c128; }

// Flips the highest bit; types without a negative zero are not supported.
bool has_sign_bit(DType dtype) {
  switch (dtype) {
    case DType::f16:
    case DType::bf16:
    case DType::f32:
    case DType::f64:
    case DType::f8_e4m3:
    case DType::f8_e5m2:
      return true;
    default:
      return is_complex(dtype);
  }
}

}  // namespace

int64_t size_bytes(DType dtype) noexcept { return row(dtype).bytes; }
bool is_floating_point(DType dtype) noexcept { return row(dtype).floating; }
std::string_view safetensors_name(DType dtype) noexcept { return row(dtype).safetensors; }
std::string_view torch_name(DType dtype) noexcept { return row(dtype).torch; }
std::string_view torch_storage_name(DType dtype) noexcept { return row(dtype).storage; }

std::optional<DType> dtype_from_safetensors(std::string_view name) noexcept {
  return find(&Row::safetensors, name);
}
std::optional<DType> dtype_from_torch(std::string_view name) noexcept {
  if (name == "half") return DType::f16;
  if (name == "float") return DType::f32;
  if (name == "double") return DType::f64;
  return find(&Row::torch, name);
}
std::optional<DType> dtype_from_text(std::string_view text) noexcept {
  if (text == "bf16") return DType::bf16;
  if (text == "fp16" || text == "f16") return DType::f16;
  if (text == "fp32" || text == "f32") return DType::f32;
  const std::optional<DType> dtype = dtype_from_torch(text);
  return dtype ? dtype : dtype_from_safetensors(text);
}
std::optional<DType> dtype_from_torch_storage(std::string_view class_name) noexcept {
  return find(&Row::storage, class_name);
}

SignFlips sign_flips(MathBits bits, DType dtype) noexcept {
  const int64_t bytes = size_bytes(dtype);
  if (!is_complex(dtype)) return {bytes, bits.negated, false};
  return {bytes / 2, bits.negated, bits.negated != bits.conjugated};
}

void check_math_bits(MathBits bits, DType dtype, const std::string& what) {
  if (!bits.negated || has_sign_bit(dtype)) return;
  fail(ErrorKind::unsupported,
       "{}: a view of {} that PyTorch has yet to negate (its negative bit is set); save what "
       "resolve_neg() gives",
       what, torch_name(dtype));
}

}  // namespace ferry
