// Writes token files, PREFIX.bin and PREFIX.idx (indexed_dataset.h), so that they appear under
// their names only once complete and on disk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/dtype.h"
#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/write_lock.h"
#include "trainer/data/documents/indexed_dataset.h"

namespace ferry {

// An array in a file, of which only a few elements are buffered in memory.

/// The elements are stored from byte `begin` on. Not thread-safe.
template <typename T>
class SpilledNumbers {
 public:
  /// The first `count` already exist.
  explicit SpilledNumbers(uint64_t begin, int64_t count = 0) : begin_(begin), written_(count) {}

  int64_t size() const { return written_ + std::ssize(kept_); }

  void push_back(WritableFile& file, T value) {
    kept_.push_back(value);
    if (kept_.size() >= kKept) flush(file);
  }

  void flush(WritableFile& file) {
    file.write(place(written_), std::as_bytes(std::span(kept_)));
    written_ += std::ssize(kept_);
    kept_.clear();
  }

  /// Calls use(span) for all elements, piece by piece, after a flush.
  template <typename Use>
  void for_each_piece(const WritableFile& file, const Use& use) const {
    std::vector<T> piece;
    for (int64_t at = 0; at < written_; at += std::ssize(piece)) {
      piece.resize(static_cast<size_t>(std::min<int64_t>(kKept, written_ - at)));
      file.read(place(at), std::as_writable_bytes(std::span(piece)));
      use(std::span<const T>(piece));
    }
  }

 private:
  static constexpr int64_t kKept = 64 << 10;

  uint64_t place(int64_t i) const { return begin_ + static_cast<uint64_t>(i) * sizeof(T); }

  uint64_t begin_;
  int64_t written_;
  std::vector<T> kept_;
};

/// The type that Megatron-LM's tools use for a vocabulary: uint16 below 65,500 tokens, otherwise
/// int32.
DType token_type_for(int64_t vocabulary_size) noexcept;

/// Progress of writing a pair.
struct WrittenTokens {
  uint64_t token_bytes = 0;
  int64_t sequences = 0, documents = 0;
};

/// A work folder that survives a crash: the next process continues from the last sync(). The caller
/// owns it exclusively and removes it.
struct WorkFolder {
  std::string path;  // in the file system of the target
  std::string name;  // of this pair's files in it
  std::optional<WrittenTokens> go_on;
};

/// Not thread-safe. Memory use does not depend on the amount written.
class IndexedDatasetWriter {
 public:
  /// Checks the target before any work: errors as in the constructor.
  static void check_target(const FileSystem& file_system, const std::string& prefix,
                           bool overwrite);

  /// invalid if either file exists and `overwrite` is false, or the type has no code; busy while
  /// another process writes the same pair; not_found if the folder does not exist.
  IndexedDatasetWriter(std::shared_ptr<const FileSystem> file_system, std::string prefix,
                       DType type, bool overwrite = false,
                       std::optional<WorkFolder> work = std::nullopt);
  /// Without commit(), removes what was written, except in the caller's work folder.
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  /// Adds a sequence to the document. invalid for a token that does not fit the type.
  void add_sequence(std::span<const int32_t> tokens);
  /// Adds tokens of a sequence that is given in pieces. invalid as in add_sequence().
  void add_tokens(std::span<const int32_t> tokens);
  /// Ends a sequence: the tokens added since the last end.
  void end_sequence();
  /// Ends a document: the sequences since the last end, possibly none.
  void end_document();
  /// Adds documents whose tokens have the writer's type.
  void add(const StoredDocuments& documents);
  /// Adds all documents of a dataset of the same type. mismatch for another type; corrupt if its
  /// sequences are not contiguous or do not end with the file. `copied` receives the size of each
  /// copied piece, and may throw.
  void append(const IndexedDataset& dataset, const std::function<void(uint64_t)>& copied = {});

  WrittenTokens written() const noexcept;
  /// Returns once everything written is on disk: a writer with the same work folder can continue
  /// from there.
  WrittenTokens sync();

  /// Moves both files into place. invalid if the last document or sequence was not ended. The index
  /// is moved last, so a crash never leaves one that does not match its tokens.
  void commit();

 private:
  void open_files();
  void write(std::span<const std::byte> bytes);
  void flush();
  void copy_tokens(const IndexedDataset& dataset, const std::function<void(uint64_t)>& copied);
  void finish_index();
  void put(const std::string& from, const std::string& to);

  std::shared_ptr<const FileSystem> file_system_;
  std::string prefix_;
  DType type_;
  bool overwrite_;
  std::optional<WorkFolder> work_;
  std::unique_ptr<WriteLock> index_lock_, token_lock_;
  std::string tokens_path_, index_path_, boundaries_path_;
  std::unique_ptr<WritableFile> tokens_, index_, boundaries_file_;
  uint64_t written_bytes_ = 0, open_tokens_ = 0;  // of the open sequence
  std::vector<std::byte> buffer_;
  SpilledNumbers<int32_t> lengths_;     // at their final place in the index
  SpilledNumbers<int64_t> boundaries_;  // all but the first, in a separate file until commit()
  int64_t last_boundary_ = 0;
};

}  // namespace ferry
