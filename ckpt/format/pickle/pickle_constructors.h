// The constructors that a pickle may name and that the parser understands without calling them.
#pragma once

#include <cstdint>
#include <string_view>

namespace ferry {

enum PickleConstructor : int {
  kUnknownConstructor,
  kDictConstructor,
  kDefaultDictConstructor,
  kSetConstructor,
  kSizeConstructor,
  kEncodeConstructor,
  kBytesConstructor,
  kByteArrayConstructor,
  kAttribute,
  kReconstructor,
  kTensorV1,
  kTensorV2,
  kTensorV3,
  kParameter,
  kTensorFromType,
};

/// By "module.name".
PickleConstructor pickle_constructor(std::string_view name) noexcept;

}  // namespace ferry
