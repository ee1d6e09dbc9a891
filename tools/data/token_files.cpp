#include "tools/data/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/lock_record.h"

namespace ferry::tool {
namespace {

constexpr std::array kSuffixes = {".bin", ".idx"};
constexpr uint64_t kPieceBytes = 4 << 20;

// Counts a kind of problem and keeps the words of the first.
class Finding {
 public:
  explicit Finding(std::string more) : more_(std::move(more)) {}

  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (count_++ == 0) text_ = fmt::format(format, std::forward<Args>(args)...);
  }
  void report(std::vector<std::string>& list) const {
    if (count_ == 1) list.push_back(text_);
    if (count_ > 1) list.push_back(fmt::format("{}; {} {} in all", text_, count_, more_));
  }

 private:
  std::string more_, text_;
  int64_t count_ = 0;
};

template <typename Stored, typename Use>
void use_tokens(std::span<const std::byte> bytes, int64_t first, const Use& use) {
  for (size_t i = 0; i < bytes.size() / sizeof(Stored); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    use(first + static_cast<int64_t>(i), static_cast<int64_t>(value));
  }
}

// use(place in PREFIX.bin, token) of all tokens.
template <typename Use>
void for_each_token(const IndexedDataset& dataset, const Watch& watch, const Use& use) {
  const auto item = static_cast<uint64_t>(size_bytes(dataset.type()));
  const uint64_t total = dataset.token_bytes() / item * item;
  std::vector<std::byte> bytes;
  for (uint64_t at = 0; at < total; at += bytes.size()) {
    if (watch.cancel && *watch.cancel) fail(ErrorKind::cancelled, "stopped");
    bytes.resize(std::min(kPieceBytes, total - at));
    dataset.token_file().read(at, bytes);
    const auto first = static_cast<int64_t>(at / item);
    switch (dataset.type()) {
      case DType::u8:
        use_tokens<uint8_t>(bytes, first, use);
        break;
      case DType::i8:
        use_tokens<int8_t>(bytes, first, use);
        break;
      case DType::i16:
        use_tokens<int16_t>(bytes, first, use);
        break;
      case DType::u16:
        use_tokens<uint16_t>(bytes, first, use);
        break;
      case DType::i32:
        use_tokens<int32_t>(bytes, first, use);
        break;
      case DType::i64:
        use_tokens<int64_t>(bytes, first, use);
        break;
      default:
        return;  // floats, which are not tokens
    }
    if (watch.progress) watch.progress({at + bytes.size(), total});
  }
}

int64_t document_length(const IndexedDataset& dataset, int64_t document) {
  const int64_t begin = dataset.document_begin(document),
                end = dataset.document_begin(document + 1);
  if (begin < 0 || begin > end || end > dataset.sequences()) {
    fail(ErrorKind::corrupt,
         "{}.idx: document {} has sequences {} to {}, and there are {}; see "
         "'ferry data check'",
         dataset.prefix(), document, begin, end, dataset.sequences());
  }
  int64_t tokens = 0;
  for (int64_t i = begin; i < end; ++i) tokens += dataset.length(i);
  return tokens;
}

void check_sequences(const IndexedDataset& dataset, TokenFilesCheck& check) {
  Finding negative("sequences are so"), misplaced("sequences are so"), outside("sequences are so");
  Finding empty("sequences are so");
  const int64_t item = size_bytes(dataset.type());
  const auto bytes = static_cast<int64_t>(dataset.token_bytes());
  int64_t end = 0;  // of the sequence before
  for (int64_t i = 0; i < dataset.sequences(); ++i) {
    const int64_t length = dataset.length(i), begin = dataset.offset_bytes(i);
    if (length < 0) {
      negative.add("sequence {} has {} tokens", i, length);
      continue;
    }
    if (length == 0) empty.add("sequence {} has no token", i);
    if (begin != end) {
      misplaced.add("sequence {} begins at byte {}, and the one before it ends at {}", i, begin,
                    end);
    }
    if (begin < 0 || begin > bytes || length * item > bytes - begin) {
      outside.add("sequence {} of {} tokens, from byte {}, is outside the {} bytes of {}", i,
                  length, begin, bytes, dataset.name());
      end =
          static_cast<int64_t>(static_cast<uint64_t>(begin) + static_cast<uint64_t>(length * item));
      continue;
    }
    end = begin + length * item;
    check.tokens += length;
  }
  for (const Finding* finding : {&negative, &misplaced, &outside}) finding->report(check.problems);
  empty.report(check.notes);
  if (check.problems.empty() && end != bytes) {
    check.problems.push_back(
        fmt::format("{} has {} bytes after the last sequence", dataset.name(), bytes - end));
  }
}

void check_documents(const IndexedDataset& dataset, TokenFilesCheck& check) {
  Finding disorder("documents are so"), empty("documents are so");
  for (int64_t d = 0; d < dataset.documents(); ++d) {
    const int64_t begin = dataset.document_begin(d), end = dataset.document_begin(d + 1);
    if (begin < 0 || begin > end || end > dataset.sequences()) {
      disorder.add("document {} has sequences {} to {}, and there are {}", d, begin, end,
                   dataset.sequences());
    } else if (begin == end) {
      empty.add("document {} is empty", d);
    }
  }
  disorder.report(check.problems);
  empty.report(check.notes);
}

}  // namespace

std::string prefix_of(const std::string& path) {
  for (const char* suffix : kSuffixes) {
    if (path.ends_with(suffix)) return path.substr(0, path.size() - 4);
  }
  return path;
}

bool is_folder_of_tokens(const FileSystem& file_system, const std::string& path) {
  return file_system.status(path).kind == PathKind::folder &&
         file_system.status(path + ".idx").kind != PathKind::file;
}

std::vector<std::string> prefixes_of(const FileSystem& file_system,
                                     const std::vector<std::string>& paths) {
  std::vector<std::string> prefixes;
  for (const std::string& path : paths) {
    if (!is_folder_of_tokens(file_system, path)) {
      prefixes.push_back(prefix_of(path));
      continue;
    }
    const size_t before = prefixes.size();
    for (const std::string& name : file_system.list(path)) {
      if (parse_aside(name)) continue;  // of one that is being written, or was left by a kill
      if (name.ends_with(".idx")) prefixes.push_back(prefix_of(join(path, name)));
    }
    if (prefixes.size() == before) {
      fail(ErrorKind::not_found,
           "the folder {} holds no .idx file; give a prefix, or a folder of "
           "token files",
           path);
    }
  }
  return prefixes;
}

std::shared_ptr<const IndexedDataset> open_tokens(const std::string& path) {
  const auto files = posix_file_system();
  const std::string prefix = prefix_of(path);
  if (is_folder_of_tokens(*files, path)) {
    const std::vector<std::string> prefixes = prefixes_of(*files, {path});
    fail(ErrorKind::invalid, "{} is a folder; give one of the {} pairs in it: {}", path,
         prefixes.size(), prefixes.front());
  }
  const bool is_other_file = prefix == path && files->status(path).kind == PathKind::file &&
                             files->status(path + ".idx").kind == PathKind::missing;
  if (is_other_file) {
    fail(ErrorKind::invalid,
         "{} is not a token file (PREFIX.bin with PREFIX.idx), which ferry data tokenize makes of "
         "texts",
         path);
  }
  return std::make_shared<IndexedDataset>(posix_file_system(), prefix_of(path));
}

int64_t count_all_tokens(const IndexedDataset& dataset) {
  int64_t tokens = 0;
  for (int64_t i = 0; i < dataset.sequences(); ++i) tokens += dataset.length(i);
  return tokens;
}

LengthSummary summarize_lengths(const IndexedDataset& dataset) {
  LengthSummary summary;
  std::vector<int64_t> lengths(static_cast<size_t>(dataset.documents()));
  for (size_t d = 0; d < lengths.size(); ++d) {
    lengths[d] = document_length(dataset, static_cast<int64_t>(d));
    const auto power = static_cast<size_t>(
        std::bit_width(static_cast<uint64_t>(std::max<int64_t>(lengths[d], 0))));
    if (power >= summary.powers_of_two.size()) summary.powers_of_two.resize(power + 1);
    ++summary.powers_of_two[power];
  }
  if (lengths.empty()) return summary;
  std::sort(lengths.begin(), lengths.end());
  summary.least = lengths.front();
  summary.most = lengths.back();
  for (size_t q = 0; q < kQuantiles.size(); ++q) {
    const auto last = static_cast<double>(lengths.size() - 1);
    summary.quantiles[q] = lengths[static_cast<size_t>(kQuantiles[q] * last)];
  }
  return summary;
}

std::optional<int64_t> largest_token(const IndexedDataset& dataset, const Watch& watch) {
  std::optional<int64_t> largest;
  int64_t most = INT64_MIN;
  for_each_token(dataset, watch, [&](int64_t, int64_t token) { most = std::max(most, token); });
  if (most != INT64_MIN) largest = most;
  return largest;
}

std::vector<int32_t> first_tokens(const IndexedDataset& dataset, int64_t document, int64_t most) {
  if (document < 0 || document >= dataset.documents()) {
    fail(ErrorKind::invalid, "{} has documents 0 to {}, and no document {}", dataset.prefix(),
         dataset.documents() - 1, document);
  }
  std::vector<int32_t> tokens;
  for (int64_t i = dataset.document_begin(document); i < dataset.document_begin(document + 1);
       ++i) {
    const int64_t left = most - std::ssize(tokens);
    if (left <= 0 || i < 0 || i >= dataset.sequences()) break;
    const size_t begin = tokens.size();
    tokens.resize(begin + static_cast<size_t>(std::clamp<int64_t>(dataset.length(i), 0, left)));
    dataset.read(i, 0, std::span(tokens).subspan(begin));
  }
  return tokens;
}

TokenFilesCheck check_token_files(const IndexedDataset& dataset,
                                  std::optional<int64_t> vocabulary_size, const Watch& watch) {
  TokenFilesCheck check;
  check.documents = dataset.documents();
  check_sequences(dataset, check);
  check_documents(dataset, check);
  if (is_floating_point(dataset.type())) {
    check.problems.push_back(
        fmt::format("its values are {}, which are not tokens", torch_name(dataset.type())));
  }
  if (dataset.has_modes()) check.notes.push_back("it has modes of a multimodal dataset");
  Finding wrong("tokens are so");
  const int64_t limit = vocabulary_size.value_or(int64_t{INT32_MAX} + 1);
  for_each_token(dataset, watch, [&](int64_t place, int64_t token) {
    if (token >= 0 && token < limit) return;
    wrong.add("token {} of {} is {}, and the vocabulary has 0 to {}", place, dataset.name(), token,
              limit - 1);
  });
  wrong.report(check.problems);
  return check;
}

}  // namespace ferry::tool
