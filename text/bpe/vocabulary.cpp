#include "text/bpe/vocabulary.h"

namespace ferry {

size_t Vocabulary::place_of(std::string_view token, uint64_t hash) const {
  const size_t mask = places_.size() - 1;
  size_t at = hash >> 32 & mask;
  while (places_[at].id != kNone && (places_[at].hash != static_cast<uint32_t>(hash) ||
                                     tokens_[static_cast<size_t>(places_[at].id)] != token)) {
    at = (at + 1) & mask;
  }
  return at;
}

int32_t Vocabulary::find(std::string_view token) const {
  return places_.empty() ? kNone : places_[place_of(token, hash_of_piece(token))].id;
}

void Vocabulary::insert(std::string_view token, int32_t id) {
  if (2 * (count_ + 1) > places_.size()) grow();
  const uint64_t hash = hash_of_piece(token);
  const size_t at = place_of(token, hash);
  if (places_[at].id != kNone) return;
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = token;
  places_[at] = {static_cast<uint32_t>(hash), id};
  ++count_;
}

void Vocabulary::grow() {
  std::vector<Place> before(places_.empty() ? 1024 : 2 * places_.size());
  before.swap(places_);
  for (const Place& place : before) {
    if (place.id == kNone) continue;
    const std::string& token = tokens_[static_cast<size_t>(place.id)];
    places_[place_of(token, hash_of_piece(token))] = place;
  }
}

}  // namespace ferry
