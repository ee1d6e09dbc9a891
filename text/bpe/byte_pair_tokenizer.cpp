#include "text/bpe/byte_pair_tokenizer.h"

#include "ckpt/base/error.h"
#include "text/unicode/utf8.h"

namespace ferry {

std::string_view well_formed(std::string_view text, std::string& room) {
  if (text.size() > INT32_MAX) {
    fail(ErrorKind::invalid, "a text of {} bytes exceeds the maximum of {}; split it", text.size(),
         INT32_MAX);
  }
  if (unicode::well_formed_prefix(text) == text.size()) return text;
  room = unicode::replaced_malformed(text);
  return room;
}

BytePairTokenizer::BytePairTokenizer(BytePairParts parts)
    : vocabulary_(std::move(parts.vocabulary)),
      encoder_([&] {
        if (parts.pairs.whole != nullptr) parts.pairs.whole = vocabulary_.get();
        return std::move(parts.pairs);
      }()),
      splitter_(std::move(parts.splitter)),
      end_of_document_(parts.end_of_document),
      vocab_size_(parts.vocab_size),
      kind_(std::move(parts.kind)) {}

void BytePairTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::string room;
  text = well_formed(text, room);
  const StatePool<BytePairEncoder::State>::Loan state(states_);
  for (size_t at = 0; at < text.size();) {
    const Match match = splitter_->find(text, at);
    encoder_.encode(text.substr(match.begin, match.end - match.begin), *state, ids);
    at = match.end;
    if (match.begin == match.end && at < text.size()) {  // an empty match followed by another
      at += unicode::character_at(text.data() + at).bytes;
    }
  }
}

std::string BytePairTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) text += vocabulary_->token(id);
  return text;
}

}  // namespace ferry
