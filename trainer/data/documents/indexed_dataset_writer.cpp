#include "trainer/data/documents/indexed_dataset_writer.h"

#include <algorithm>
#include <string_view>

#include "ckpt/base/checked.h"

namespace ferry {

namespace {

constexpr size_t kPieceBytes = 4 << 20;
constexpr uint64_t kKernelBytes = 64 << 20;
constexpr uint64_t kCopiedBytes = 4 << 20;  // few large pieces cost the page cache less

// Writes pieces one after another.
class Appender {
 public:
  Appender(WritableFile& file, uint64_t at) : file_(file), at_(at) {}
  void add(std::span<const std::byte> bytes) {
    file_.write(at_, bytes);
    at_ += bytes.size();
  }

 private:
  WritableFile& file_;
  uint64_t at_;
};

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
    if (overwrite)
      fail(ErrorKind::invalid, "{}{} is not a file; choose another name", prefix, suffix);
    fail(ErrorKind::invalid, "{}{} exists; choose another name, or give --overwrite to replace it",
         prefix, suffix);
  }
}

IndexedDatasetWriter::IndexedDatasetWriter(std::shared_ptr<const FileSystem> file_system,
                                           std::string prefix, DType type, bool overwrite,
                                           std::optional<WorkFolder> work)
    : file_system_(std::move(file_system)),
      prefix_(std::move(prefix)),
      type_(type),
      overwrite_(overwrite),
      work_(std::move(work)),
      lengths_(kIndexHeaderBytes, work_ && work_->go_on ? work_->go_on->sequences : 0),
      boundaries_(0, work_ && work_->go_on ? work_->go_on->documents : 0) {
  if (!code_of_token_type(type)) {
    fail(ErrorKind::invalid, "token files cannot hold {} values", torch_name(type));
  }
  check_target(*file_system_, prefix_, overwrite);
  index_lock_ = std::make_unique<WriteLock>(file_system_, prefix_ + ".idx");
  token_lock_ = std::make_unique<WriteLock>(file_system_, prefix_ + ".bin");
  open_files();
}

void IndexedDatasetWriter::open_files() {
  if (work_) {
    const std::string base = join(work_->path, work_->name);
    tokens_path_ = base + ".bin";
    index_path_ = base + ".idx";
    boundaries_path_ = base + ".documents";
  } else {
    tokens_path_ = token_lock_->partial_path();
    index_path_ = index_lock_->partial_path();
    boundaries_path_ = index_lock_->trash_path();  // belongs to nobody: removed after a crash
  }
  const bool goes_on = work_ && work_->go_on;
  const auto opened = [&](const std::string& path) {
    if (goes_on) return file_system_->open_to_write(path);
    if (work_) file_system_->remove_all(path);
    return file_system_->create(path, 0);
  };
  tokens_ = opened(tokens_path_);
  index_ = opened(index_path_);
  boundaries_file_ = opened(boundaries_path_);
  if (!goes_on) return;
  written_bytes_ = work_->go_on->token_bytes;
  last_boundary_ = work_->go_on->sequences;
}

IndexedDatasetWriter::~IndexedDatasetWriter() {
  for (auto* file : {&tokens_, &index_, &boundaries_file_}) file->reset();
  if (work_) return;
  for (const std::string& path : {tokens_path_, index_path_, boundaries_path_}) {
    if (path.empty()) continue;
    try {
      file_system_->remove_all(path);
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
         "a sequence of {} tokens or more is too long for {}, whose sequences have at most {}",
         open_tokens_ + tokens.size(), prefix_, INT32_MAX);
  }
  append_stored(tokens, type_, buffer_);
  if (buffer_.size() >= kPieceBytes) flush();
  open_tokens_ += tokens.size();
}

void IndexedDatasetWriter::end_sequence() {
  lengths_.push_back(*index_, static_cast<int32_t>(open_tokens_));
  open_tokens_ = 0;
}

void IndexedDatasetWriter::add_sequence(std::span<const int32_t> tokens) {
  add_tokens(tokens);
  end_sequence();
}

void IndexedDatasetWriter::end_document() {
  last_boundary_ = lengths_.size();
  boundaries_.push_back(*boundaries_file_, last_boundary_);
}

void IndexedDatasetWriter::add(const StoredDocuments& documents) {
  write(documents.tokens);
  for (const int32_t length : documents.lengths) lengths_.push_back(*index_, length);
  for (const int32_t sequences : documents.sequences) {
    last_boundary_ += sequences;
    boundaries_.push_back(*boundaries_file_, last_boundary_);
  }
}

void IndexedDatasetWriter::append(const IndexedDataset& dataset,
                                  const std::function<void(uint64_t)>& copied) {
  if (dataset.type() != type_) {
    fail(ErrorKind::mismatch, "{} has tokens of type {} and {} of type {}; they cannot be merged",
         dataset.name(), torch_name(dataset.type()), prefix_ + ".bin", torch_name(type_));
  }
  const int64_t before = lengths_.size();
  int64_t end = 0;
  for (int64_t i = 0; i < dataset.sequences(); ++i) {
    const int32_t length = dataset.length(i);
    if (length < 0 || dataset.offset_bytes(i) != end) {
      fail(ErrorKind::corrupt,
           "{}.idx: sequence {} of {} tokens begins at byte {}, the one before it ends at {}; see "
           "'ferry data check'",
           dataset.prefix(), i, length, dataset.offset_bytes(i), end);
    }
    lengths_.push_back(*index_, length);
    end = checked_add(end, length * size_bytes(type_), dataset.name());
  }
  if (static_cast<uint64_t>(end) != dataset.token_bytes()) {
    fail(ErrorKind::corrupt,
         "{} has {} bytes but {} according to its index; see 'ferry data check'", dataset.name(),
         dataset.token_bytes(), end);
  }
  for (int64_t d = 1; d <= dataset.documents(); ++d) {
    if (dataset.document_begin(d) < dataset.document_begin(d - 1)) {
      fail(ErrorKind::corrupt, "{}.idx: document {} ends before it begins; see 'ferry data check'",
           dataset.prefix(), d - 1);
    }
    last_boundary_ = before + dataset.document_begin(d);
    boundaries_.push_back(*boundaries_file_, last_boundary_);
  }
  copy_tokens(dataset, copied);
}

void IndexedDatasetWriter::copy_tokens(const IndexedDataset& dataset,
                                       const std::function<void(uint64_t)>& copied) {
  flush();
  std::vector<std::byte> piece(kCopiedBytes);
  for (uint64_t at = 0; at < dataset.token_bytes();) {
    const uint64_t left = dataset.token_bytes() - at;
    uint64_t bytes = file_system_->copy(dataset.token_file(), at, *tokens_, written_bytes_,
                                        std::min(kKernelBytes, left), KernelCopy::always);
    if (bytes == 0) {
      bytes = std::min(kCopiedBytes, left);
      const auto some = std::span(piece).first(bytes);
      dataset.token_file().read(at, some);
      tokens_->write(written_bytes_, some);
    }
    at += bytes;
    written_bytes_ += bytes;
    if (copied) copied(bytes);
  }
}

WrittenTokens IndexedDatasetWriter::written() const noexcept {
  return {written_bytes_ + buffer_.size(), lengths_.size(), boundaries_.size()};
}

WrittenTokens IndexedDatasetWriter::sync() {
  flush();
  lengths_.flush(*index_);
  boundaries_.flush(*boundaries_file_);
  for (auto* file : {&tokens_, &index_, &boundaries_file_}) (*file)->sync();
  return written();
}

// The lengths are written; offsets and boundaries follow, then the header.
void IndexedDatasetWriter::finish_index() {
  const auto sequences = static_cast<uint64_t>(lengths_.size());
  Appender out(*index_, kIndexHeaderBytes + 4 * sequences);
  int64_t offset = 0;
  std::vector<int64_t> offsets;
  lengths_.for_each_piece(*index_, [&](std::span<const int32_t> lengths) {
    offsets.clear();
    for (const int32_t length : lengths) {
      offsets.push_back(offset);
      offset += length * size_bytes(type_);
    }
    out.add(std::as_bytes(std::span(offsets)));
  });
  const int64_t first_boundary = 0;
  out.add(std::as_bytes(std::span(&first_boundary, 1)));
  boundaries_.for_each_piece(*boundaries_file_, [&](std::span<const int64_t> boundaries) {
    out.add(std::as_bytes(boundaries));
  });
  const uint64_t version = 1, counts[] = {sequences, static_cast<uint64_t>(boundaries_.size()) + 1};
  const uint8_t code = *code_of_token_type(type_);
  Appender header(*index_, 0);
  header.add(std::as_bytes(std::span("MMIDIDX\0", 9)));
  header.add(std::as_bytes(std::span(&version, 1)));
  header.add(std::as_bytes(std::span(&code, 1)));
  header.add(std::as_bytes(std::span(counts)));
}

void IndexedDatasetWriter::put(const std::string& from, const std::string& to) {
  if (overwrite_) {
    file_system_->replace(from, to);
  } else {
    file_system_->rename(from, to);
  }
  file_system_->sync_folder(split_path(prefix_).parent);
}

void IndexedDatasetWriter::commit() {
  if (last_boundary_ != lengths_.size() || open_tokens_ > 0) {
    fail(ErrorKind::invalid, "{}: its last document was not ended", prefix_);
  }
  flush();
  lengths_.flush(*index_);
  boundaries_.flush(*boundaries_file_);
  finish_index();
  for (auto* file : {&tokens_, &index_}) {
    (*file)->sync();
    (*file)->close();
    file->reset();
  }
  index_lock_->check();
  token_lock_->check();
  if (overwrite_) {
    file_system_->remove_all(index_lock_->target());
    file_system_->sync_folder(split_path(prefix_).parent);
  }
  put(tokens_path_, token_lock_->target());
  put(index_path_, index_lock_->target());
}

}  // namespace ferry
