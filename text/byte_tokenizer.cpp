#include "text/byte_tokenizer.h"

#include <algorithm>

namespace ferry {

void ByteTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  ids.resize(before + text.size());
  std::transform(text.begin(), text.end(), ids.begin() + static_cast<ptrdiff_t>(before),
                 [](char byte) { return static_cast<unsigned char>(byte); });
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id >= 0 && id < kEndOfDocument) text += static_cast<char>(id);
  }
  return text;
}

}  // namespace ferry
