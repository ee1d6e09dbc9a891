// Documents as token files hold them, before they are written: threads make them, one writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"

namespace ferry {

struct StoredDocuments {
  std::vector<std::byte> tokens;
  std::vector<int32_t> lengths;    // of sequences, in tokens
  std::vector<int32_t> sequences;  // of each document

  /// A sequence more. Errors as those of append_stored(); invalid for 2^31 tokens or more.
  void add_sequence(std::span<const int32_t> ids, DType type);
  /// Those of `other`, of the same type, after these.
  void append(const StoredDocuments& other);
  /// More tokens of the last sequence.
  void extend_last(std::span<const int32_t> ids, DType type);
};

/// Appends tokens in the form of a type. invalid for one that it cannot hold; unsupported for a
/// type that no tokens are of.
void append_stored(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes);

}  // namespace ferry
