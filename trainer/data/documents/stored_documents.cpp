#include "trainer/data/documents/stored_documents.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

template <typename Stored>
void append_as(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes) {
  const auto fits = [](int32_t id) { return std::in_range<Stored>(id); };
  if (!std::all_of(ids.begin(), ids.end(), fits)) {
    const int32_t id = *std::find_if_not(ids.begin(), ids.end(), fits);
    fail(ErrorKind::invalid,
         "the token {} does not fit into tokens of type {}; choose a larger one", id,
         torch_name(type));
  }
  const size_t before = bytes.size();
  bytes.resize(before + ids.size() * sizeof(Stored));
  std::byte* const into = bytes.data() + before;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto value = static_cast<Stored>(ids[i]);
    std::memcpy(into + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

void append_stored(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes) {
  switch (type) {
    case DType::u8:
      return append_as<uint8_t>(ids, type, bytes);
    case DType::i8:
      return append_as<int8_t>(ids, type, bytes);
    case DType::i16:
      return append_as<int16_t>(ids, type, bytes);
    case DType::u16:
      return append_as<uint16_t>(ids, type, bytes);
    case DType::i32:
      return append_as<int32_t>(ids, type, bytes);
    case DType::i64:
      return append_as<int64_t>(ids, type, bytes);
    default:
      fail(ErrorKind::unsupported, "values of type {} are no tokens", torch_name(type));
  }
}

void StoredDocuments::add_sequence(std::span<const int32_t> ids, DType type) {
  lengths.push_back(0);
  extend_last(ids, type);
}

void StoredDocuments::append(const StoredDocuments& other) {
  tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.end());
  lengths.insert(lengths.end(), other.lengths.begin(), other.lengths.end());
  sequences.insert(sequences.end(), other.sequences.begin(), other.sequences.end());
}

void StoredDocuments::extend_last(std::span<const int32_t> ids, DType type) {
  if (ids.size() > static_cast<size_t>(INT32_MAX - lengths.back())) {
    fail(ErrorKind::invalid, "a sequence has {} tokens; token files hold sequences of {} at most",
         static_cast<size_t>(lengths.back()) + ids.size(), INT32_MAX);
  }
  append_stored(ids, type, tokens);
  lengths.back() += static_cast<int32_t>(ids.size());
}

}  // namespace ferry
