#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "text/bpe/vocabulary.h"
#include "text/hugging_face/byte_tokens.h"
#include "text/hugging_face/member.h"
#include "text/hugging_face/model.h"
#include "text/json_file.h"
#include "text/trie.h"
#include "text/unicode/utf8.h"

namespace ferry {

// The most likely segmentation of a text by a unigram model (Viterbi).
// Source: Kudo 2018 (arXiv:1804.10959); sentencepiece, src/unigram_model.cc, EncodeOptimized().

inline constexpr double kUnknownPenalty = 10;  // below the lowest score

/// A step of the path: the token of text[begin, end).
struct PathStep {
  size_t begin = 0, end = 0;
  int32_t id = 0;
};

inline constexpr uint32_t kNowhere = UINT32_MAX;

/// `Stored` is the type of sums of scores: float in sentencepiece, double in Hugging Face's
/// tokenizers. `score` returns the score of a token with this many bytes, in double. `path` gets
/// the steps in text order; a character that is not a token has the id `unknown`.
template <typename Stored, typename Score>
void find_best_path(std::string_view text, const Trie& trie, Score score, Stored unknown_score,
                    int32_t unknown, std::vector<PathStep>& path) {
  struct Node {
    Stored score = 0;
    uint32_t begin = kNowhere;
    int32_t id = 0;
  };
  std::vector<Node> ends(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const size_t character = unicode::character_at(text.data() + at).bytes;
    const Stored here = ends[at].score;
    bool is_token = false;
    trie.prefixes(text.substr(at), [&](size_t bytes, int32_t id) {
      Node& node = ends[at + bytes];
      const double candidate = score(id, bytes) + here;
      if (node.begin == kNowhere || candidate > node.score) {
        node = {static_cast<Stored>(candidate), static_cast<uint32_t>(at), id};
      }
      is_token = is_token || bytes == character;
    });
    if (!is_token) {
      Node& node = ends[at + character];
      const Stored candidate = unknown_score + here;
      if (node.begin == kNowhere || candidate > node.score) {
        node = {candidate, static_cast<uint32_t>(at), unknown};
      }
    }
    at += character;
  }
  path.clear();
  for (size_t end = text.size(); end > 0; end = ends[end].begin) {
    path.push_back({ends[end].begin, end, ends[end].id});
  }
  for (size_t i = 0, j = path.size(); i + 1 < j; ++i) std::swap(path[i], path[--j]);
}

namespace {

// Parses a score as serde_json does, which divides the digits as an integer by a power of ten: not
// always the nearest double. The last bit of sums of scores can decide between paths.
double as_read(double score) {
  char text[64];
  const auto end =
      std::to_chars(text, text + sizeof text, std::abs(score), std::chars_format::scientific).ptr;
  uint64_t digits = 0;
  int exponent = 0, power = 0;
  const char* at = text;
  bool fraction = false;
  for (; at < end && *at != 'e'; ++at) {
    if (*at == '.') {
      fraction = true;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(*at - '0');
      exponent -= fraction ? 1 : 0;
    }
  }
  if (at + 2 < end) std::from_chars(at + (at[1] == '+' ? 2 : 1), end, power);
  exponent += power;
  if (exponent < -300 || exponent > 300) return score;
  const double ten = std::pow(10.0, std::abs(exponent));
  const auto value = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? value / ten : value * ten, score);
}

class UnigramModel final : public PieceModel {
 public:
  UnigramModel(const nlohmann::json& json, bool byte_level, const std::string& path)
      : byte_level_(byte_level), path_(path) {
    const JsonMembers model(json, path, "model");
    double least = std::numeric_limits<double>::infinity();
    const nlohmann::json& vocab = model.array("vocab");
    if (vocab.size() > kLargestTokenId) model.refuse("vocab", "shorter");
    for (const nlohmann::json& entry : vocab) {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() ||
          !entry[1].is_number()) {
        fail(ErrorKind::corrupt, "{}: model.vocab[{}] must be a token and its score, found {}",
             path, scores_.size(), entry.dump(-1, ' ', true).substr(0, 80));
      }
      const auto token = entry[0].get<std::string>();
      const auto id = static_cast<int32_t>(scores_.size());
      scores_.push_back(as_read(entry[1].get<double>()));
      least = std::min(least, scores_.back());
      if (token.empty()) continue;
      if (vocabulary_.find(token) != Vocabulary::kNone) {
        fail(ErrorKind::corrupt, "{}: model.vocab has the token '{}' twice", path, token);
      }
      vocabulary_.insert(token, id);
    }
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    for (int32_t id = 0; id < vocabulary_.end(); ++id) {
      if (!vocabulary_.token(id).empty()) tokens.emplace_back(vocabulary_.token(id), id);
    }
    trie_ = Trie(std::move(tokens));
    unknown_score_ = least - kUnknownPenalty;
    if (model.has("unk_id")) {
      unknown_ = token_id(json["unk_id"], path, "unk_id");
      if (static_cast<size_t>(unknown_) >= scores_.size()) model.refuse("unk_id", "a token's id");
    }
    if (model.flag("byte_fallback", false)) bytes_.emplace(vocabulary_);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  std::string kind() const override { return "unigram model"; }

  void encode(std::string_view piece, BytePairEncoder::State& state,
              std::vector<int32_t>& ids) const override {
    encode_cached(piece, byte_level_, state, ids,
                  [&](std::string_view whole, auto& to) { add_path(whole, to); });
  }

 private:
  void add_path(std::string_view piece, std::vector<int32_t>& ids) const {
    std::vector<PathStep> path;
    find_best_path<double>(
        piece, trie_, [&](int32_t id, size_t) { return scores_[static_cast<size_t>(id)]; },
        unknown_score_, unknown_, path);
    for (size_t i = 0; i < path.size(); ++i) {
      const size_t begin = path[i].begin;
      if (path[i].id == unknown_) {  // several in a row become one
        while (i + 1 < path.size() && path[i + 1].id == unknown_) ++i;
        add_unknown(piece.substr(begin, path[i].end - begin), ids);
      } else {
        ids.push_back(path[i].id);
      }
    }
  }

  void add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
    if (const int32_t id = vocabulary_.find(text); id != Vocabulary::kNone) {
      ids.push_back(id);
      return;
    }
    if (bytes_ && bytes_->append(text, ids)) return;
    if (unknown_ == Vocabulary::kNone) {
      fail(ErrorKind::corrupt, "{}: the model has no unk_id, and '{}' has no token", path_, text);
    }
    ids.push_back(unknown_);
  }

  Vocabulary vocabulary_;
  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_ = Vocabulary::kNone;
  bool byte_level_;
  std::optional<ByteTokens> bytes_;  // with byte_fallback
  std::string path_;
};

}  // namespace

std::unique_ptr<const PieceModel> read_unigram(const nlohmann::json& model, bool byte_level,
                                               const std::string& path) {
  return std::make_unique<UnigramModel>(model, byte_level, path);
}

}  // namespace ferry
