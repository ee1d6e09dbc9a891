// Byte tokens, used for text without other tokens: "<0x0A>".
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe/vocabulary.h"
#include "text/hugging_face/model.h"

namespace ferry {

class ByteTokens {
 public:
  explicit ByteTokens(const Vocabulary& vocabulary) {
    for (size_t byte = 0; byte < ids_.size(); ++byte) {
      ids_[byte] = vocabulary.find(byte_token(static_cast<unsigned char>(byte)));
    }
  }
  /// Appends the tokens of a text's bytes; returns false, without appending, if a byte has none.
  bool append(std::string_view text, std::vector<int32_t>& ids) const {
    const auto id_of = [&](char byte) { return ids_[static_cast<unsigned char>(byte)]; };
    const auto is_known = [&](char byte) { return id_of(byte) != Vocabulary::kNone; };
    if (!std::all_of(text.begin(), text.end(), is_known)) return false;
    for (const char byte : text) ids.push_back(id_of(byte));
    return true;
  }

 private:
  std::array<int32_t, 256> ids_{};
};

}  // namespace ferry
