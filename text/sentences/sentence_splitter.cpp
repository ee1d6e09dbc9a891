#include "text/sentences/sentence_splitter.h"

#include <algorithm>
#include <optional>

#include "text/sentences/punkt_words.h"
#include "text/sentences/python_characters.h"
#include "text/unicode/utf8.h"

namespace ferry {
namespace {

using python::is_space;

constexpr size_t kMostCharacters = 1'000'000;
constexpr std::u32string_view kClosing = U"\"')]}\u2018\u2019\u201C\u201D\u00AB\u00BB";

// Characters [begin, end); none where begin is not below.
struct CharacterRange {
  size_t begin = 0, end = 0;
};

// Where a sentence may end, and what stands behind.
struct Candidate {
  size_t begin = 0, end = 0;   // of the match: what belongs to the sentence ends there
  size_t behind_end = 0;       // of what was looked at behind it
  std::optional<size_t> next;  // where the next word begins, unless punctuation follows
};

size_t skip_space(std::u32string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

size_t skip_word(std::u32string_view text, size_t at) {
  while (at < text.size() && !is_space(text[at])) ++at;
  return at;
}

// The first candidate from `at` on.
std::optional<Candidate> next_candidate(std::u32string_view text, size_t at) {
  for (; at + 1 < text.size(); ++at) {
    if (!ends_sentences(text[at])) continue;
    if (is_no_word_character(text[at + 1])) return Candidate{at, at + 1, at + 2, std::nullopt};
    const size_t word = skip_space(text, at + 1);
    if (word == at + 1 || word == text.size()) continue;
    return Candidate{at, at + 1, skip_word(text, word), word};
  }
  return std::nullopt;
}

// The same where white space stays: a candidate is a word up to its last . ? or !, and what is
// white behind.
std::optional<Candidate> next_candidate_with_space(std::u32string_view text, size_t at) {
  while (true) {
    at = skip_space(text, at);
    if (at == text.size()) return std::nullopt;
    const size_t end = skip_word(text, at);
    for (size_t last = end; last > at; --last) {
      if (!ends_sentences(text[last - 1])) continue;
      const size_t behind = skip_space(text, last);
      if (behind == text.size()) continue;
      if (is_no_word_character(text[behind])) {
        return Candidate{at, behind, behind + 1, std::nullopt};
      }
      return Candidate{at, behind, skip_word(text, behind), behind};
    }
    at = end;
  }
}

// Calls `take` with each candidate that does not overlap the next one, and with the text around it
// that decides: from the beginning of its word to the end of the next.
class CandidateScan {
 public:
  CandidateScan(std::u32string_view text, bool keep_newlines)
      : text_(text), keep_newlines_(keep_newlines) {}

  template <typename Take>
  void run(const Take& take) {
    CharacterRange word;  // before the candidate
    std::optional<Candidate> last;
    size_t at = 0;
    while (const auto found =
               keep_newlines_ ? next_candidate_with_space(text_, at) : next_candidate(text_, at)) {
      const CharacterRange before{begin_of_word(word, found->begin), found->begin};
      if (last && word.end <= before.begin) take(*last, context(word, *last));
      last = found;
      word = before;
      at = found->end;
    }
    if (last) take(*last, context(word, *last));
  }

 private:
  // Behind the last white space of ASCII since the candidate before. One that stands right there is
  // not seen, as in the original.
  size_t begin_of_word(const CharacterRange& word, size_t end) const {
    for (size_t i = end; i > word.end + 1; --i) {
      if (python::is_ascii_space(text_[i - 1])) return i;
    }
    return word.begin;
  }
  std::u32string context(const CharacterRange& word, const Candidate& candidate) const {
    std::u32string text(text_.substr(word.begin, word.end - word.begin));
    return text.append(text_.substr(candidate.begin, candidate.behind_end - candidate.begin));
  }

  std::u32string_view text_;
  bool keep_newlines_;
};

// Of what begins a sentence but closes the one before: how many characters close, and how many with
// the white space behind.
std::pair<size_t, size_t> closing_length(std::u32string_view text) {
  for (size_t n = 1; n <= text.size() && kClosing.find(text[n - 1]) != std::u32string::npos; ++n) {
    if (n == text.size()) return {n, n};
    if (is_space(text[n])) return {n, skip_space(text, n)};
    if (text.substr(n).starts_with(U"--")) return {n, n};
  }
  return {0, 0};
}

std::vector<CharacterRange> realigned(std::u32string_view text,
                                      const std::vector<CharacterRange>& sentences) {
  std::vector<CharacterRange> moved;
  size_t taken = 0;  // from the beginning of a sentence, by the one before
  for (size_t i = 0; i < sentences.size(); ++i) {
    const CharacterRange one{sentences[i].begin + taken, sentences[i].end};
    taken = 0;
    if (i + 1 < sentences.size() && sentences[i + 1].begin < sentences[i + 1].end) {
      const CharacterRange& next = sentences[i + 1];
      const auto [closing, all] = closing_length(text.substr(next.begin, next.end - next.begin));
      if (closing > 0) {
        moved.push_back({one.begin, next.begin + closing});
        taken = all;
        continue;
      }
    }
    if (one.begin < one.end) moved.push_back(one);
  }
  return moved;
}

std::vector<CharacterRange> sentences_of(std::u32string_view text, bool keep_newlines,
                                         const PunktParameters& parameters) {
  std::vector<CharacterRange> sentences;
  size_t begin = 0;
  CandidateScan(text, keep_newlines)
      .run([&](const Candidate& candidate, const std::u32string& context) {
        if (!has_sentence_end(context, parameters)) return;
        sentences.push_back({begin, candidate.end});
        begin = candidate.next.value_or(candidate.end);
      });
  size_t end = text.size();
  while (end > 0 && python::is_str_space(text[end - 1])) --end;
  sentences.push_back({begin, end});
  return realigned(text, sentences);
}

}  // namespace

void SentenceSplitter::split(std::string_view text,
                             std::vector<std::string_view>& sentences) const {
  const std::u32string characters = characters_of(text);
  size_t byte = 0, character = 0;  // of the same place
  const auto byte_of = [&](size_t wanted) {
    if (wanted < character) byte = character = 0;  // sentences seldom go back
    for (; character < wanted; ++character) {
      byte += unicode::character_at(text.data() + byte).bytes;
    }
    return byte;
  };
  for (size_t from = 0; from < characters.size(); from += kMostCharacters) {
    const std::u32string_view piece = std::u32string_view(characters).substr(from, kMostCharacters);
    for (const CharacterRange& one : sentences_of(piece, keep_newlines_, parameters_)) {
      const size_t begin = byte_of(from + one.begin),
                   end = byte_of(from + std::max(one.begin, one.end));
      sentences.push_back(text.substr(begin, end - begin));
    }
  }
}

}  // namespace ferry
