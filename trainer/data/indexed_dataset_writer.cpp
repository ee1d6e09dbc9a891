#include "trainer/data/indexed_dataset_writer.h"

#include <algorithm>
#include <string_view>

#include "ckpt/base/checked.h"

namespace ferry {
namespace {

constexpr size_t kPieceBytes = 4 << 20;

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

// Writes pieces one after another.
class Appender {
 public:
  explicit Appender(WritableFile& file) : file_(file) {}
  void add(std::span<const std::byte> bytes) {
    file_.write(at_, bytes);
    at_ += bytes.size();
  }

 private:
  WritableFile& file_;
  uint64_t at_ = 0;
};

template <typename Stored>
std::vector<std::byte> narrowed(std::span<const int32_t> tokens, const std::string& prefix) {
  std::vector<std::byte> bytes(tokens.size() * sizeof(Stored));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!std::in_range<Stored>(tokens[i])) {
      fail(ErrorKind::invalid,
           "the token {} does not fit into {}.bin, whose tokens are of {} bytes; choose a larger "
           "type",
           tokens[i], prefix, sizeof(Stored));
    }
    const auto value = static_cast<Stored>(tokens[i]);
    std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
  }
  return bytes;
}

std::vector<std::byte> stored(std::span<const int32_t> tokens, DType type,
                              const std::string& prefix) {
  switch (type) {
    case DType::u8:
      return narrowed<uint8_t>(tokens, prefix);
    case DType::i8:
      return narrowed<int8_t>(tokens, prefix);
    case DType::i16:
      return narrowed<int16_t>(tokens, prefix);
    case DType::u16:
      return narrowed<uint16_t>(tokens, prefix);
    case DType::i32:
      return narrowed<int32_t>(tokens, prefix);
    case DType::i64:
      return narrowed<int64_t>(tokens, prefix);
    default:
      fail(ErrorKind::unsupported, "{}.bin holds {} values, which are no tokens", prefix,
           torch_name(type));
  }
}

// Of sequences that lie one after another, the first at byte 0.
std::vector<int64_t> running_offsets(std::span<const int32_t> lengths, int64_t item) {
  std::vector<int64_t> offsets(lengths.size());
  int64_t offset = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    offsets[i] = offset;
    offset += lengths[i] * item;
  }
  return offsets;
}

}  // namespace

DType token_type_for(int64_t vocabulary_size) noexcept {
  return vocabulary_size < 65500 ? DType::u16 : DType::i32;
}

void IndexedDatasetWriter::check_target(const FileSystem& file_system, const std::string& prefix,
                                        bool overwrite) {
  if (const std::string folder = split_path(prefix).parent;
      file_system.status(folder).kind != PathKind::folder) {
    fail(ErrorKind::not_found, "the folder {} of {} does not exist; create it first", folder,
         prefix);
  }
  for (const char* suffix : {".idx", ".bin"}) {
    const PathKind kind = file_system.status(prefix + suffix).kind;
    if (kind == PathKind::missing || (overwrite && kind == PathKind::file)) continue;
    if (overwrite) fail(ErrorKind::invalid, "{}{} is no file; choose another name", prefix, suffix);
    fail(ErrorKind::invalid, "{}{} exists; choose another name, or give --overwrite to replace it",
         prefix, suffix);
  }
}

IndexedDatasetWriter::IndexedDatasetWriter(std::shared_ptr<const FileSystem> file_system,
                                           std::string prefix, DType type, bool overwrite)
    : file_system_(std::move(file_system)),
      prefix_(std::move(prefix)),
      type_(type),
      overwrite_(overwrite) {
  if (!code_of_token_type(type)) {
    fail(ErrorKind::invalid, "token files cannot hold {} values", torch_name(type));
  }
  check_target(*file_system_, prefix_, overwrite);
  index_claim_ = std::make_unique<Claim>(file_system_, prefix_ + ".idx");
  token_claim_ = std::make_unique<Claim>(file_system_, prefix_ + ".bin");
  tokens_ = file_system_->create(token_claim_->partial_path(), 0);
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  tokens_.reset();
  for (const auto* claim : {&index_claim_, &token_claim_}) {
    if (!*claim) continue;
    try {
      file_system_->remove_all((*claim)->partial_path());
    } catch (const std::exception&) {
      // The next writer of the same file removes it.
    }
  }
}

void IndexedDatasetWriter::write(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  if (buffer_.size() >= kPieceBytes) flush();
}

void IndexedDatasetWriter::flush() {
  tokens_->write(written_bytes_, buffer_);
  written_bytes_ += buffer_.size();
  buffer_.clear();
}

void IndexedDatasetWriter::add_tokens(std::span<const int32_t> tokens) {
  if (tokens.size() > INT32_MAX - open_tokens_) {
    fail(ErrorKind::invalid,
         "a sequence of {} tokens or more is too long for {}, whose sequences have {} at most",
         open_tokens_ + tokens.size(), prefix_, INT32_MAX);
  }
  write(stored(tokens, type_, prefix_));
  open_tokens_ += tokens.size();
}

void IndexedDatasetWriter::end_sequence() {
  lengths_.push_back(static_cast<int32_t>(open_tokens_));
  open_tokens_ = 0;
}

void IndexedDatasetWriter::add_sequence(std::span<const int32_t> tokens) {
  add_tokens(tokens);
  end_sequence();
}

void IndexedDatasetWriter::end_document() { boundaries_.push_back(std::ssize(lengths_)); }

void IndexedDatasetWriter::append(const IndexedDataset& dataset,
                                  const std::function<void(uint64_t)>& copied) {
  if (dataset.type() != type_) {
    fail(ErrorKind::mismatch, "{} has tokens of type {}, and {} of type {}; they cannot be merged",
         dataset.name(), torch_name(dataset.type()), prefix_ + ".bin", torch_name(type_));
  }
  const size_t before = lengths_.size();
  int64_t end = 0;
  for (int64_t i = 0; i < dataset.sequences(); ++i) {
    const int32_t length = dataset.length(i);
    if (length < 0 || dataset.offset_bytes(i) != end) {
      fail(ErrorKind::corrupt,
           "{}.idx: sequence {} of {} tokens begins at byte {}, the one before it ends at {}; see "
           "'ferry data check'",
           dataset.prefix(), i, length, dataset.offset_bytes(i), end);
    }
    lengths_.push_back(length);
    end = checked_add(end, length * size_bytes(type_), dataset.name());
  }
  if (static_cast<uint64_t>(end) != dataset.token_bytes()) {
    fail(ErrorKind::corrupt, "{} has {} bytes, and its index tells of {}; see 'ferry data check'",
         dataset.name(), dataset.token_bytes(), end);
  }
  for (int64_t d = 1; d <= dataset.documents(); ++d) {
    if (dataset.document_begin(d) < dataset.document_begin(d - 1)) {
      fail(ErrorKind::corrupt, "{}.idx: document {} ends before it begins; see 'ferry data check'",
           dataset.prefix(), d - 1);
    }
    boundaries_.push_back(static_cast<int64_t>(before) + dataset.document_begin(d));
  }
  flush();
  for (uint64_t at = 0; at < dataset.token_bytes();) {
    buffer_.resize(std::min<uint64_t>(kPieceBytes, dataset.token_bytes() - at));
    dataset.token_file().read(at, buffer_);
    at += buffer_.size();
    if (copied) copied(buffer_.size());
    flush();
  }
}

void IndexedDatasetWriter::write_index() const {
  const std::vector<int64_t> offsets = running_offsets(lengths_, size_bytes(type_));
  const uint64_t counts[] = {lengths_.size(), boundaries_.size()};
  const uint64_t version = 1;
  const uint8_t code = *code_of_token_type(type_);
  const auto file =
      file_system_->create(index_claim_->partial_path(),
                           kIndexHeaderBytes + 12 * lengths_.size() + 8 * boundaries_.size());
  Appender out(*file);
  out.add(std::as_bytes(std::span("MMIDIDX\0", 9)));
  out.add(std::as_bytes(std::span(&version, 1)));
  out.add(std::as_bytes(std::span(&code, 1)));
  out.add(std::as_bytes(std::span(counts)));
  out.add(bytes_of(lengths_));
  out.add(bytes_of(offsets));
  out.add(bytes_of(boundaries_));
  file->sync();
  file->close();
}

void IndexedDatasetWriter::commit() {
  if (boundaries_.back() != std::ssize(lengths_) || open_tokens_ > 0) {
    fail(ErrorKind::invalid, "{}: its last document was not ended", prefix_);
  }
  flush();
  tokens_->sync();
  tokens_->close();
  tokens_.reset();
  write_index();
  index_claim_->check();
  token_claim_->check();
  const std::string folder = split_path(prefix_).parent;
  const auto put = [this](const Claim& claim) {
    if (overwrite_) {
      file_system_->replace(claim.partial_path(), claim.target());
    } else {
      file_system_->rename(claim.partial_path(), claim.target());
    }
  };
  if (overwrite_) {
    file_system_->remove_all(index_claim_->target());
    file_system_->sync_folder(folder);
  }
  put(*token_claim_);
  file_system_->sync_folder(folder);
  put(*index_claim_);
  file_system_->sync_folder(folder);
}

}  // namespace ferry
