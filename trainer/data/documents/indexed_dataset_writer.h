// Writes token files, PREFIX.bin and PREFIX.idx (indexed_dataset.h), so that they appear under
// their names only when they are whole and on disk.
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

// Numbers in a file, of which a few are in memory.

/// Lie in the file from byte `begin` on. For one thread.
template <typename T>
class SpilledNumbers {
 public:
  /// The first `count` are there already.
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

  /// use(span) for all of them, piece by piece; they have to be flushed.
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

/// The type that Megatron-LM's tools give the tokens of a vocabulary: uint16 below 65,500 tokens,
/// int32 from there on.
DType token_type_for(int64_t vocabulary_size) noexcept;

/// How far a pair has come.
struct WrittenTokens {
  uint64_t token_bytes = 0;
  int64_t sequences = 0, documents = 0;
};

/// A folder for what is being written, which outlives a process that dies: the next one goes on at
/// what sync() said last. The caller has it to itself, and removes it.
struct WorkFolder {
  std::string path;  // in the file system of the target
  std::string name;  // of this pair's files in it
  std::optional<WrittenTokens> go_on;
};

/// For one thread. Memory does not depend on how much is written.
class IndexedDatasetWriter {
 public:
  /// What can be told of the target before any work: errors as those of the constructor.
  static void check_target(const FileSystem& file_system, const std::string& prefix,
                           bool overwrite);

  /// invalid when either file exists and `overwrite` is false, or for a type without a code; busy
  /// while another process writes the same; not_found when the folder does not exist.
  IndexedDatasetWriter(std::shared_ptr<const FileSystem> file_system, std::string prefix,
                       DType type, bool overwrite = false,
                       std::optional<WorkFolder> work = std::nullopt);
  /// Without commit(): removes what was written, unless that lies in a folder of the caller's.
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  /// One more sequence of the document. invalid for a token that the type cannot hold.
  void add_sequence(std::span<const int32_t> tokens);
  /// Some tokens of a sequence that is given in pieces. invalid as add_sequence().
  void add_tokens(std::span<const int32_t> tokens);
  /// The tokens since the last end are one more sequence of the document.
  void end_sequence();
  /// The sequences since the last end are a document; one without sequences is empty.
  void end_document();
  /// Documents whose tokens have the writer's type.
  void add(const StoredDocuments& documents);
  /// All documents of another dataset of the same type. mismatch for another type; corrupt when its
  /// tokens do not lie one sequence after another, and no further. `copied` is told of pieces of so
  /// many bytes, and may throw.
  void append(const IndexedDataset& dataset, const std::function<void(uint64_t)>& copied = {});

  WrittenTokens written() const noexcept;
  /// Returns when all that was written is on disk: where a writer with the same folder can go on.
  WrittenTokens sync();

  /// Puts both files in place. invalid when the last document or sequence was not ended. A kill
  /// before the last moment leaves no index, so never one that belongs to other tokens.
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
  std::unique_ptr<WriteLock> index_claim_, token_claim_;
  std::string tokens_path_, index_path_, boundaries_path_;
  std::unique_ptr<WritableFile> tokens_, index_, boundaries_file_;
  uint64_t written_bytes_ = 0, open_tokens_ = 0;  // of the sequence that was not ended
  std::vector<std::byte> buffer_;
  SpilledNumbers<int32_t> lengths_;     // at their place in the index
  SpilledNumbers<int64_t> boundaries_;  // but the first, in a file of their own until commit()
  int64_t last_boundary_ = 0;
};

}  // namespace ferry
