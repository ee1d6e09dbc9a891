#include "trainer/data/documents/indexed_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {

namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kBoundariesAt = 26;
constexpr std::array kTypes = {DType::u8,  DType::i8,  DType::i16, DType::i32,
                               DType::i64, DType::f64, DType::f32, DType::u16};

std::string existing(const FileSystem& file_system, const std::string& prefix, const char* suffix) {
  std::string path = prefix + suffix;
  if (file_system.status(path).kind == PathKind::missing) {
    const bool is_folder = file_system.status(prefix).kind == PathKind::folder;
    const bool has_ending = prefix.ends_with(".bin") || prefix.ends_with(".idx");
    const std::string name = has_ending ? prefix.substr(0, prefix.size() - 4) : prefix;
    fail(ErrorKind::not_found,
         "{} does not exist; a dataset is a pair of files, {}.bin and {}.idx, named without the "
         "extensions{}",
         path, name, name,
         is_folder    ? fmt::format(": ferry data config {} lists those in the folder", prefix)
         : has_ending ? "; give " + name
                      : "");
  }
  return path;
}

template <typename Stored>
void widen(std::span<const std::byte> bytes, std::span<int32_t> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    into[i] = static_cast<int32_t>(value);
  }
}

// False when a token is too large.
bool narrow(std::span<const std::byte> bytes, std::span<int32_t> into) {
  for (size_t i = 0; i < into.size(); ++i) {
    int64_t value = 0;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    into[i] = static_cast<int32_t>(value);
    if (into[i] != value) return false;
  }
  return true;
}

}  // namespace

std::optional<DType> token_type_of_code(uint8_t code) noexcept {
  if (code < 1 || code > kTypes.size()) return std::nullopt;
  return kTypes[code - 1u];
}

std::optional<uint8_t> code_of_token_type(DType type) noexcept {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i] == type) return static_cast<uint8_t>(i + 1);
  }
  return std::nullopt;
}

IndexedDataset::IndexedDataset(std::shared_ptr<const FileSystem> file_system, std::string prefix)
    : prefix_(std::move(prefix)),
      index_(*file_system, existing(*file_system, prefix_, ".idx")),
      tokens_(file_system->open(existing(*file_system, prefix_, ".bin"))) {
  parse_header();
}

void IndexedDataset::fail_index(const std::string& problem) const {
  fail(ErrorKind::corrupt, "{}.idx: {}; write it again, or leave the dataset out", prefix_,
       problem);
}

int64_t IndexedDataset::number_at(uint64_t offset) const noexcept {
  int64_t value = 0;
  std::memcpy(&value, index_.bytes().data() + offset, sizeof value);
  return value;
}

void IndexedDataset::parse_header() {
  const std::span<const std::byte> bytes = index_.bytes();
  if (bytes.size() < kIndexHeaderBytes) {
    fail_index(fmt::format("{} bytes are too few for an index header of {} bytes", bytes.size(),
                           kIndexHeaderBytes));
  }
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    fail_index("it does not begin with MMIDIDX, the magic of a token index");
  }
  if (number_at(kVersionAt) != 1) {
    fail(ErrorKind::unsupported, "{}.idx has version {}; only version 1 can be read", prefix_,
         static_cast<uint64_t>(number_at(kVersionAt)));
  }
  const auto code = static_cast<uint8_t>(bytes[kTypeAt]);
  const std::optional<DType> type = token_type_of_code(code);
  if (!type) fail_index(fmt::format("{} is not a token type code (1 to 8)", code));
  type_ = *type;

  // 12 bytes a sequence and 8 a boundary: counts that fit the file cannot overflow below.
  const auto sequences = static_cast<uint64_t>(number_at(kSequencesAt));
  const auto boundaries = static_cast<uint64_t>(number_at(kBoundariesAt));
  const uint64_t room = bytes.size() - kIndexHeaderBytes;
  if (sequences > room / 12 || boundaries > (room - 12 * sequences) / 8) {
    fail_index(fmt::format("{} sequences and {} document boundaries do not fit into its {} bytes",
                           sequences, boundaries, bytes.size()));
  }
  const uint64_t rest = room - 12 * sequences - 8 * boundaries;
  if (rest != 0 && rest != sequences) {
    fail_index(fmt::format("{} bytes follow the last of {} sequences and {} document boundaries",
                           rest, sequences, boundaries));
  }
  has_modes_ = rest != 0;
  offsets_at_ = kIndexHeaderBytes + 4 * sequences;
  boundaries_at_ = offsets_at_ + 8 * sequences;
  boundaries_ = static_cast<int64_t>(boundaries);
  if (boundaries_ < 1) fail_index("it has no document boundary; the first must be 0");
  set_lengths(bytes.data() + kIndexHeaderBytes, static_cast<int64_t>(sequences));
  // Sequences are contiguous: a gap means that tokens are of a wider type.
  const int64_t first_bytes = sequences > 0 ? length(0) * size_bytes(type_) : 0;
  if (sequences > 1 && first_bytes > 0 && offset_bytes(0) == 0 && offset_bytes(1) > first_bytes) {
    fail_index(
        fmt::format("its first sequence has {} tokens of type {}, which are {} bytes, and the "
                    "second begins at byte {}",
                    length(0), torch_name(type_), first_bytes, offset_bytes(1)));
  }
  if (document_begin(0) != 0 || document_begin(documents()) != TokenSource::sequences()) {
    fail_index(fmt::format("its documents have sequences {} to {}, but there are sequences 0 to {}",
                           document_begin(0), document_begin(documents()), sequences));
  }
}

int64_t IndexedDataset::document_begin(int64_t document) const noexcept {
  return number_at(boundaries_at_ + 8 * static_cast<uint64_t>(document));
}

int64_t IndexedDataset::offset_bytes(int64_t sequence) const noexcept {
  return number_at(offsets_at_ + 8 * static_cast<uint64_t>(sequence));
}

void IndexedDataset::check_end() const {
  const int64_t last = sequences() - 1;
  if (last >= 0) place_of(last, 0, length(last));
}

uint64_t IndexedDataset::place_of(int64_t sequence, int64_t offset, int64_t count) const {
  if (sequence < 0 || sequence >= sequences()) {
    fail(ErrorKind::invalid, "{} has {} sequences, no sequence {}", prefix_, sequences(), sequence);
  }
  if (offset < 0 || offset > length(sequence) || count > length(sequence) - offset) {
    fail_index(fmt::format("sequence {} has {} tokens, no tokens {} to {}", sequence,
                           length(sequence), offset, offset + count));
  }
  const auto item = static_cast<uint64_t>(size_bytes(type_));
  const int64_t begin = offset_bytes(sequence);
  const uint64_t need = item * static_cast<uint64_t>(offset + count);
  if (begin < 0 || need > token_bytes() || static_cast<uint64_t>(begin) > token_bytes() - need) {
    fail_index(fmt::format("sequence {} of {} tokens, from byte {}, exceeds the {} bytes of {}.bin",
                           sequence, length(sequence), begin, token_bytes(), prefix_));
  }
  return static_cast<uint64_t>(begin) + item * static_cast<uint64_t>(offset);
}

void IndexedDataset::read(int64_t sequence, int64_t offset, std::span<int32_t> into) const {
  if (into.empty()) return;
  const uint64_t from = place_of(sequence, offset, static_cast<int64_t>(into.size()));
  if (type_ == DType::i32) return tokens_->read(from, std::as_writable_bytes(into));
  std::vector<std::byte> bytes(static_cast<size_t>(size_bytes(type_)) * into.size());
  tokens_->read(from, bytes);
  switch (type_) {
    case DType::u16:
      return widen<uint16_t>(bytes, into);
    case DType::u8:
      return widen<uint8_t>(bytes, into);
    case DType::i8:
      return widen<int8_t>(bytes, into);
    case DType::i16:
      return widen<int16_t>(bytes, into);
    case DType::i64:
      if (narrow(bytes, into)) return;
      fail(ErrorKind::corrupt, "{}.bin: sequence {} has a token that does not fit in 32 bits",
           prefix_, sequence);
    default:
      fail(ErrorKind::unsupported, "{}.bin holds {} values, which are not tokens", prefix_,
           torch_name(type_));
  }
}

namespace {

template <typename Stored>
void append_as(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes) {
  const auto fits = [](int32_t id) { return std::in_range<Stored>(id); };
  if (!std::all_of(ids.begin(), ids.end(), fits)) {
    const int32_t id = *std::find_if_not(ids.begin(), ids.end(), fits);
    fail(ErrorKind::invalid,
         "the token {} does not fit into tokens of type {}; choose a larger one", id,
         torch_name(type));
  }
  const size_t before = bytes.size();
  bytes.resize(before + ids.size() * sizeof(Stored));
  std::byte* const into = bytes.data() + before;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto value = static_cast<Stored>(ids[i]);
    std::memcpy(into + i * sizeof value, &value, sizeof value);
  }
}

}  // namespace

void append_stored(std::span<const int32_t> ids, DType type, std::vector<std::byte>& bytes) {
  switch (type) {
    case DType::u8:
      return append_as<uint8_t>(ids, type, bytes);
    case DType::i8:
      return append_as<int8_t>(ids, type, bytes);
    case DType::i16:
      return append_as<int16_t>(ids, type, bytes);
    case DType::u16:
      return append_as<uint16_t>(ids, type, bytes);
    case DType::i32:
      return append_as<int32_t>(ids, type, bytes);
    case DType::i64:
      return append_as<int64_t>(ids, type, bytes);
    default:
      fail(ErrorKind::unsupported, "values of type {} are not tokens", torch_name(type));
  }
}

void StoredDocuments::add_sequence(std::span<const int32_t> ids, DType type) {
  lengths.push_back(0);
  extend_last(ids, type);
}

void StoredDocuments::append(const StoredDocuments& other) {
  tokens.insert(tokens.end(), other.tokens.begin(), other.tokens.end());
  lengths.insert(lengths.end(), other.lengths.begin(), other.lengths.end());
  sequences.insert(sequences.end(), other.sequences.begin(), other.sequences.end());
}

void StoredDocuments::extend_last(std::span<const int32_t> ids, DType type) {
  if (ids.size() > static_cast<size_t>(INT32_MAX - lengths.back())) {
    fail(ErrorKind::invalid, "a sequence has {} tokens; token files hold sequences of at most {}",
         static_cast<size_t>(lengths.back()) + ids.size(), INT32_MAX);
  }
  append_stored(ids, type, tokens);
  lengths.back() += static_cast<int32_t>(ids.size());
}

}  // namespace ferry
