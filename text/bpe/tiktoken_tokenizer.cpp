#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "ckpt/base/error.h"
#include "text/base64.h"
#include "text/json_file.h"
#include "text/tokenizer_kinds.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestRanks = uint64_t{256} << 20;  // bytes
constexpr size_t kLongestToken = 4096;                   // bytes

void read_rank_line(std::string_view line, int64_t number, const std::string& path,
                    Vocabulary& vocabulary) {
  const size_t space = line.find(' ');
  int32_t rank = -1;
  const char* end = line.data() + line.size();
  const auto read = space == std::string_view::npos
                        ? std::from_chars_result{line.data(), std::errc::invalid_argument}
                        : std::from_chars(line.data() + space + 1, end, rank);
  const std::optional<std::string> token =
      space == std::string_view::npos ? std::nullopt : from_base64(line.substr(0, space));
  if (read.ec != std::errc() || read.ptr != end || rank < 0 || rank > kLargestTokenId || !token ||
      token->empty() || token->size() > kLongestToken) {
    fail(ErrorKind::corrupt,
         "{}: line {} must be a token in base64, a space and its rank; found '{}'", path, number,
         line.substr(0, 80));
  }
  if (vocabulary.find(*token) != Vocabulary::kNone || !vocabulary.token(rank).empty()) {
    fail(ErrorKind::corrupt, "{}: line {} repeats a token or a rank: '{}'", path, number,
         line.substr(0, 80));
  }
  vocabulary.insert(*token, rank);
}

}  // namespace

BytePairs byte_pairs_by_rank(const Vocabulary& vocabulary, const std::string& path) {
  BytePairs pairs;
  for (size_t byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    pairs.byte_symbols[byte] = vocabulary.find({&character, 1});
    if (pairs.byte_symbols[byte] == Vocabulary::kNone) {
      fail(ErrorKind::corrupt,
           "{}: the byte 0x{:02x} has no token, so not every text can be encoded", path, byte);
    }
  }
  struct Pair {
    int32_t left, right, both;
  };
  std::vector<Pair> found;
  for (int32_t id = 0; id < vocabulary.end(); ++id) {
    const std::string_view token = vocabulary.token(id);
    for (size_t at = 1; at < token.size(); ++at) {
      const int32_t left = vocabulary.find(token.substr(0, at));
      if (left == Vocabulary::kNone) continue;
      const int32_t right = vocabulary.find(token.substr(at));
      if (right != Vocabulary::kNone) found.push_back({left, right, id});
    }
  }
  pairs.merges = MergeTable(found.size());
  for (const Pair& pair : found) pairs.merges.insert(pair.left, pair.right, pair.both, pair.both);
  pairs.whole = &vocabulary;
  return pairs;
}

std::unique_ptr<const TextTokenizer> open_tiktoken_tokenizer(const FileSystem& file_system,
                                                             const std::string& path,
                                                             const std::string& pattern) {
  const std::string text = read_file(file_system, path, kLargestRanks);
  auto vocabulary = std::make_unique<Vocabulary>();
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (!line.empty()) read_rank_line(line, number, path, *vocabulary);
    at = end + 1;
  }
  BytePairParts parts;
  parts.pairs = byte_pairs_by_rank(*vocabulary, path);
  parts.splitter =
      make_splitter(tiktoken_pattern(pattern), PatternSyntax::rust, "the pattern for " + path);
  parts.vocab_size = vocabulary->end();
  parts.kind = fmt::format("tiktoken's byte-level BPE of {} tokens", vocabulary->size());
  parts.vocabulary = std::move(vocabulary);
  return std::make_unique<BytePairTokenizer>(std::move(parts));
}

}  // namespace ferry
