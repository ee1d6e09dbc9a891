#include <algorithm>
#include <cmath>
#include <limits>

#include "text/bpe/vocabulary.h"
#include "text/sentencepiece/sentence_encoder.h"
#include "text/unicode/utf8.h"
#include "text/unigram/trie.h"

namespace ferry {
namespace {

constexpr float kUnknownBelowLeast = 10;
constexpr float kLargestSum = 100000;  // from which sums begin at zero again

using Node = UnigramState::Node;
using ExactNode = UnigramState::ExactNode;

class SentenceUnigram final : public SentenceEncoder {
 public:
  SentenceUnigram(const SentencePieceModel& model, std::string_view space)
      : model_(model), unknown_(model), words_(model, space), no_piece_(model.unknown_id) {
    using Type = SentencePiece::Type;
    float least = std::numeric_limits<float>::max();
    scores_.reserve(model.pieces.size());
    for (const SentencePiece& piece : model.pieces) {
      const auto id = static_cast<int32_t>(scores_.size());
      const double of_symbol = 0.1 * (static_cast<double>(piece.text.size()) - 1);
      scores_.push_back(piece.type == Type::user_defined ? static_cast<float>(of_symbol)
                                                         : piece.score);
      if (piece.type == Type::normal) least = std::min(least, piece.score);
      if (piece.type == Type::normal || piece.type == Type::user_defined) {
        trie_.insert(piece.text, id);
      }
    }
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

  // `sum` is the score of what stands before the word, and then that of the word's end.
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
    const bool has_unknown = find_path(word, state, sum);
    append_path(word, state, ids);
    if (short_enough && state.word_ids.size() <= PathCache::kIds &&
        !(has_unknown && unknown_.has_bytes())) {
      keep_path(word, hash, state);
    }
  }

  // Whether rounding cannot make another path the best. Each of at most `bytes` sums is off by half
  // a unit in the last place, of both paths.
  static bool is_certain(const PathCache::Path& path, std::string_view word, float sum) {
    const float largest = std::abs(sum) + path.highest;
    const float steps = static_cast<float>(word.size()) + 2;
    return largest < kLargestSum - 1 &&
           path.margin > steps * largest * std::numeric_limits<float>::epsilon();
  }

  // As the peer does it to the last bit. Puts the ids of the steps into state.word_ids; true where
  // one is of a character without a piece.
  bool find_path(std::string_view word, UnigramState& state, float& sum) const {
    std::vector<Node>& nodes = state.nodes;
    nodes.assign(word.size() + 1, {});
    nodes[0].score = sum;
    size_t reached = 0;
    for (size_t at = 0; at < word.size();) {
      const size_t character = unicode::character_at(word.data() + at).bytes;
      if (std::abs(nodes[at].score) > kLargestSum) begin_again(nodes, at, reached);
      const float here = nodes[at].score;
      bool is_piece = false;
      const auto offer = [&](size_t bytes, int32_t id, float score) {
        reached = std::max(reached, at + bytes);
        Node& node = nodes[at + bytes];
        const float candidate = score + here;
        if (node.begin == UnigramState::kNowhere || candidate > node.score) {
          node = {candidate, static_cast<uint32_t>(at), id};
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
    bool has_unknown = false;
    state.word_ids.clear();
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      has_unknown = has_unknown || nodes[end].id == no_piece_;
      state.word_ids.push_back(nodes[end].id);
    }
    std::reverse(state.word_ids.begin(), state.word_ids.end());
    return has_unknown;
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

  // Keeps the word's path with how certain it is, where it is the best without rounding, too.
  void keep_path(std::string_view word, uint64_t hash, UnigramState& state) const {
    std::vector<ExactNode>& nodes = state.exact_nodes;
    nodes.assign(word.size() + 1, {});
    double highest = 0;
    for (size_t at = 0; at < word.size();) {
      const size_t character = unicode::character_at(word.data() + at).bytes;
      const double here = nodes[at].best;
      highest = std::max(highest, std::abs(here));
      bool is_piece = false;
      const auto offer = [&](size_t bytes, int32_t id, double score) {
        ExactNode& node = nodes[at + bytes];
        const double candidate = score + here;
        if (node.begin == UnigramState::kNowhere) {
          node = {candidate, -std::numeric_limits<double>::infinity(), static_cast<uint32_t>(at),
                  id};
        } else if (candidate > node.best) {
          node = {candidate, node.best, static_cast<uint32_t>(at), id};
        } else {
          node.second = std::max(node.second, candidate);
        }
      };
      trie_.prefixes(word.substr(at), [&](size_t bytes, int32_t id) {
        offer(bytes, id, static_cast<double>(scores_[static_cast<size_t>(id)]));
        is_piece = is_piece || bytes == character;
      });
      if (!is_piece) offer(character, no_piece_, static_cast<double>(unknown_score_));
      at += character;
    }
    highest = std::max(highest, std::abs(nodes.back().best));
    double margin = std::numeric_limits<double>::infinity();
    size_t step = state.word_ids.size();
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      if (step == 0 || state.word_ids[--step] != nodes[end].id) return;
      margin = std::min(margin, nodes[end].best - nodes[end].second);
    }
    constexpr float kBelow = 0.999F;  // what float makes of it is no more than it is
    state.cache.keep(
        word, hash,
        {kBelow * static_cast<float>(margin), static_cast<float>(highest) + 1, state.word_ids});
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
