#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "text/bpe/byte_pair_tokenizer.h"
#include "text/bpe/vocabulary.h"
#include "text/json_file.h"
#include "text/split/splitters.h"
#include "text/tokenizer_kinds.h"

namespace ferry {
namespace {

constexpr uint64_t kLargestMerges = uint64_t{256} << 20;  // bytes

// The tokens of vocab.json, in its notation.
Vocabulary read_gpt2_vocabulary(const FileSystem& file_system, const std::string& path) {
  const nlohmann::json json = read_json(file_system, path);
  if (!json.is_object())
    fail(ErrorKind::corrupt, "{} is not an object of tokens and their ids", path);
  Vocabulary vocabulary;
  for (const auto& [token, id] : json.items()) vocabulary.insert(token, token_id(id, path, token));
  return vocabulary;
}

// Symbols are the texts in merges and the vocabulary, in order of first occurrence; a text that the
// vocabulary lacks has the id 0, as in Megatron-LM.
class Gpt2Symbols {
 public:
  explicit Gpt2Symbols(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  int32_t of(std::string_view text) {
    int32_t symbol = symbols_.find(text);
    if (symbol != Vocabulary::kNone) return symbol;
    symbol = symbols_.end();
    symbols_.insert(text, symbol);
    ids_.push_back(std::max(0, vocabulary_.find(text)));
    return symbol;
  }
  std::vector<int32_t> take_ids() { return std::move(ids_); }

 private:
  const Vocabulary& vocabulary_;
  Vocabulary symbols_;
  std::vector<int32_t> ids_;
};

// The first line is a comment, and whatever follows the last newline is ignored.
void read_gpt2_merges(const FileSystem& file_system, const std::string& path, Gpt2Symbols& symbols,
                      BytePairs& pairs) {
  const std::string text = read_file(file_system, path, kLargestMerges);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  pairs.merges = MergeTable(static_cast<size_t>(lines));
  size_t at = text.find('\n');
  int32_t rank = 0;
  while (at != std::string::npos) {
    const size_t end = text.find('\n', at + 1);
    if (end == std::string::npos) break;
    std::string_view line(text.data() + at + 1, end - at - 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorKind::corrupt, "{}: line {} is not two texts separated by a space: '{}'", path,
           rank + 2, line.substr(0, 80));
    }
    const int32_t left = symbols.of(line.substr(0, space));
    const int32_t right = symbols.of(line.substr(space + 1));
    const int32_t both =
        symbols.of(std::string(line.substr(0, space)) + std::string(line.substr(space + 1)));
    pairs.merges.insert(left, right, rank++, both);
    at = end;
  }
}

}  // namespace

std::unique_ptr<const TextTokenizer> open_gpt2_tokenizer(const FileSystem& file_system,
                                                         const std::string& vocab_file,
                                                         const std::string& merge_file) {
  const Vocabulary written = read_gpt2_vocabulary(file_system, vocab_file);
  if (written.size() == 0) fail(ErrorKind::corrupt, "{} has no token", vocab_file);
  BytePairParts parts;
  Gpt2Symbols symbols(written);
  for (size_t byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    parts.pairs.byte_symbols[byte] = symbols.of(to_byte_level({&character, 1}));
  }
  read_gpt2_merges(file_system, merge_file, symbols, parts.pairs);
  parts.pairs.one_pair = parts.pairs.merges.symbols_have_one_pair();
  parts.pairs.ids = symbols.take_ids();
  const int32_t end = written.find("<|endoftext|>");
  if (end != Vocabulary::kNone) parts.end_of_document = end;
  auto vocabulary = std::make_unique<Vocabulary>();
  for (int32_t id = 0; id < written.end(); ++id) {
    const std::string_view token = written.token(id);
    if (!token.empty()) vocabulary->insert(from_byte_level(token).value_or(std::string(token)), id);
  }
  parts.vocabulary = std::move(vocabulary);
  parts.splitter = make_gpt2_splitter(unicode::Version::v18);
  parts.vocab_size = written.end();
  parts.kind = fmt::format("GPT-2's byte-level BPE of {} tokens", written.size());
  return std::make_unique<BytePairTokenizer>(std::move(parts));
}

}  // namespace ferry
