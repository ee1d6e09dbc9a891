// Views of memory passed to kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::kernels {

enum class Type : uint8_t { f32, bf16, f16 };

constexpr int64_t size_bytes(Type type) { return type == Type::f32 ? 4 : 2; }

/// Elements of one type, contiguous unless an operation says otherwise. The memory belongs to the
/// caller, is accessible to the operation's device, and is aligned to the elements.
template <typename Void>
struct BasicArray {
  Void* data = nullptr;
  Type type = Type::f32;

  constexpr explicit operator bool() const noexcept { return data != nullptr; }
};

struct Array : BasicArray<void> {
  constexpr Array() = default;
  constexpr Array(void* memory, Type element) : BasicArray{memory, element} {}
  constexpr explicit Array(float* memory) : BasicArray{memory, Type::f32} {}

  /// The elements from index `first` on.
  Array from(int64_t first) const {
    return {static_cast<std::byte*>(data) + first * size_bytes(type), type};
  }
};

struct ConstArray : BasicArray<const void> {
  constexpr ConstArray() = default;
  constexpr ConstArray(const void* memory, Type element) : BasicArray{memory, element} {}
  constexpr ConstArray(const Array& array) : BasicArray{array.data, array.type} {}
  constexpr explicit ConstArray(const float* memory) : BasicArray{memory, Type::f32} {}

  ConstArray from(int64_t first) const {
    return {static_cast<const std::byte*>(data) + first * size_bytes(type), type};
  }
};

/// The destination of a parameter's gradient: an operation adds to it or overwrites it.
struct Gradient {
  Array array;
  bool accumulate = true;

  constexpr Gradient() = default;
  constexpr Gradient(const Array& place, bool add = true) : array(place), accumulate(add) {}
  constexpr explicit operator bool() const noexcept { return static_cast<bool>(array); }
};

}  // namespace ferry::kernels
