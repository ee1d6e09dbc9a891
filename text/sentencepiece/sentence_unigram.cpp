#include <algorithm>
#include <cmath>
#include <limits>

#include "text/bpe/vocabulary.h"
#include "text/sentencepiece/sentence_encoder.h"
#include "text/trie.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

constexpr float kUnknownBelowLeast = 10;
constexpr float kLargestSum = 100000;  // above which sums restart at zero

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Node = UnigramState::Node;

class SentenceUnigram final : public SentenceEncoder {
 public:
  SentenceUnigram(const SentencePieceModel& model, std::string_view space)
      : model_(model), unknown_(model), words_(model, space), no_piece_(model.unknown_id) {
    using Type = SentencePiece::Type;
    float least = std::numeric_limits<float>::max();
    scores_.reserve(model.pieces.size());
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    for (const SentencePiece& piece : model.pieces) {
      const auto id = static_cast<int32_t>(scores_.size());
      const double of_symbol = 0.1 * (static_cast<double>(piece.text.size()) - 1);
      scores_.push_back(piece.type == Type::user_defined ? static_cast<float>(of_symbol)
                                                         : piece.score);
      if (piece.type == Type::normal) least = std::min(least, piece.score);
      if (piece.type == Type::normal || piece.type == Type::user_defined) {
        pieces.emplace_back(piece.text, id);
      }
    }
    trie_ = Trie(std::move(pieces));
    unknown_score_ = least - kUnknownBelowLeast;
  }

  void encode(std::string_view text, SentenceState& state,
              std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    float sum = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t end = words_.end_of_word(text, at);
      encode_word(text.substr(at, end - at), state.unigram, sum, ids);
      at = end;
    }
    unknown_.fuse(ids, before);
  }

 private:
  float score_of(int32_t id) const {
    return id == no_piece_ ? unknown_score_ : scores_[static_cast<size_t>(id)];
  }

  // `sum` is the score before the word, and is set to that at its end.
  void encode_word(std::string_view word, UnigramState& state, float& sum,
                   std::vector<int32_t>& ids) const {
    if (std::abs(sum) > kLargestSum) sum = 0;
    const bool short_enough = word.size() <= PathCache::kLongest;
    const uint64_t hash = short_enough ? hash_of_piece(word) : 0;
    PathCache::Path path;
    if (short_enough && state.cache.find(word, hash, path) && is_certain(path, word, sum)) {
      for (const int32_t id : path.ids) sum += score_of(id);
      ids.insert(ids.end(), path.ids.begin(), path.ids.end());
      return;
    }
    const float before = sum;
    const bool began_again = find_path(word, state, sum);
    if (take_path(word, state) && unknown_.has_bytes()) return append_path(word, state, ids);
    ids.insert(ids.end(), state.word_ids.begin(), state.word_ids.end());
    if (!short_enough || began_again || state.word_ids.size() > PathCache::kIds) return;
    path = measured_path(word, before, state);
    if (path.margin > 0) state.cache.keep(word, hash, path);
  }

  // The maximum rounding error of sums on a word's path if none exceeds `largest`: half a unit in
  // the last place each.
  static float rounding(std::string_view word, float largest) {
    return (static_cast<float>(word.size()) + 2) * largest * std::numeric_limits<float>::epsilon();
  }

  // Whether rounding cannot change the best path.
  static bool is_certain(const PathCache::Path& path, std::string_view word, float sum) {
    const float largest = std::abs(sum) + path.highest;
    return largest < kLargestSum - 1 && path.margin > rounding(word, largest);
  }

  // Exactly as sentencepiece computes it. Returns true if sums restarted.
  bool find_path(std::string_view word, UnigramState& state, float& sum) const {
    std::vector<Node>& nodes = state.nodes;
    nodes.assign(word.size() + 1, {});
    nodes[0].score = sum;
    size_t reached = 0;
    bool began_again = false;
    for (size_t at = 0; at < word.size();) {
      const size_t character = unicode::character_at(word.data() + at).bytes;
      if (std::abs(nodes[at].score) > kLargestSum) {
        begin_again(nodes, at, reached);
        began_again = true;
      }
      const float here = nodes[at].score;
      bool is_piece = false;
      const auto offer = [&](size_t bytes, int32_t id, float score) {
        reached = std::max(reached, at + bytes);
        Node& node = nodes[at + bytes];
        const float candidate = score + here;
        if (node.begin == UnigramState::kNowhere) {
          node = {candidate, -kInfinity, static_cast<uint32_t>(at), id};
        } else if (candidate > node.score) {
          node = {candidate, node.score, static_cast<uint32_t>(at), id};
        } else {
          node.second = std::max(node.second, candidate);
        }
      };
      trie_.prefixes(word.substr(at), [&](size_t bytes, int32_t id) {
        offer(bytes, id, scores_[static_cast<size_t>(id)]);
        is_piece = is_piece || bytes == character;
      });
      if (!is_piece) offer(character, no_piece_, unknown_score_);
      at += character;
    }
    sum = nodes.back().score;
    return began_again;
  }

  // Sets state.word_ids to the ids of the best path; returns true if a step is a character without
  // a piece.
  bool take_path(std::string_view word, UnigramState& state) const {
    bool has_unknown = false;
    state.word_ids.clear();
    for (size_t end = word.size(); end > 0; end = state.nodes[end].begin) {
      has_unknown = has_unknown || state.nodes[end].id == no_piece_;
      state.word_ids.push_back(state.nodes[end].id);
    }
    std::reverse(state.word_ids.begin(), state.word_ids.end());
    return has_unknown;
  }

  // The path and its certainty.
  static PathCache::Path measured_path(std::string_view word, float before,
                                       const UnigramState& state) {
    float margin = kInfinity, highest = 0;
    for (size_t end = word.size(); end > 0; end = state.nodes[end].begin) {
      margin = std::min(margin, state.nodes[end].score - state.nodes[end].second);
    }
    for (const Node& node : state.nodes) {
      if (node.begin == UnigramState::kNowhere) continue;
      highest = std::max(highest, std::abs(node.score - before));
    }
    highest += 1;
    return {margin - 2 * rounding(word, std::abs(before) + highest), highest, state.word_ids};
  }

  static void begin_again(std::vector<Node>& nodes, size_t at, size_t reached) {
    const float offset = nodes[at].score;
    for (size_t i = at; i <= std::max(at, reached); ++i) {
      if (i == at || nodes[i].begin != UnigramState::kNowhere) nodes[i].score -= offset;
    }
  }

  void append_path(std::string_view word, const UnigramState& state,
                   std::vector<int32_t>& ids) const {
    for (const int32_t id : state.word_ids) {
      const size_t bytes = id == no_piece_ ? unicode::character_at(word.data()).bytes
                                           : model_.pieces[static_cast<size_t>(id)].text.size();
      if (id == no_piece_) {
        unknown_.append(word.substr(0, bytes), ids);
      } else {
        ids.push_back(id);
      }
      word.remove_prefix(bytes);
    }
  }

  const SentencePieceModel& model_;
  UnknownText unknown_;
  SentenceWords words_;
  int32_t no_piece_;
  Trie trie_;
  std::vector<float> scores_;  // by id
  float unknown_score_;
};

}  // namespace

std::unique_ptr<const SentenceEncoder> make_unigram_encoder(const SentencePieceModel& model,
                                                            std::string_view space) {
  return std::make_unique<SentenceUnigram>(model, space);
}

}  // namespace ferry
