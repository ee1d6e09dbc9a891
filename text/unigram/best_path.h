// The likeliest way to divide a text into tokens of a unigram model (Viterbi).
// Source: Kudo 2018 (arXiv:1804.10959); sentencepiece, src/unigram_model.cc, EncodeOptimized().
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/unicode/utf8.h"
#include "text/unigram/trie.h"

namespace ferry {

inline constexpr double kUnknownPenalty = 10;  // below the least score

/// A step of the path: the token of text[begin, end).
struct PathStep {
  size_t begin = 0, end = 0;
  int32_t id = 0;
};

inline constexpr uint32_t kNowhere = UINT32_MAX;

/// `Stored` is what sums of scores are kept as: float in sentencepiece, double in Hugging Face's
/// tokenizers. `score` gives that of a token of so many bytes, in double. `path` gets the steps in
/// the text's order; a character that is no token has the id `unknown`.
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

}  // namespace ferry
