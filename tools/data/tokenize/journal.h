// A folder next to the output where an interrupted run keeps what it wrote, and how far it came.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/write_lock.h"
#include "tools/data/tokenize/encode_piece.h"
#include "tools/data/tokenize/line_reader.h"
#include "trainer/data/documents/indexed_dataset_writer.h"

namespace ferry::tool {

struct JournalEntry {
  TextPosition at;
  int64_t partition = 0;
  std::vector<WrittenTokens> outputs;  // of each key
  EncodeCounts counts;
};

class Journal {
 public:
  /// Where runs that write `prefix` leave it: PREFIX.unfinished.
  static std::string path_of(const std::string& prefix);

  /// Takes the folder over, or makes it. `settings` is all that decides on what is written:
  /// mismatch, naming a member, when an earlier run had others. busy while another process has it;
  /// corrupt when what it holds cannot be read.
  Journal(std::shared_ptr<const FileSystem> file_system, const std::string& prefix,
          const nlohmann::json& settings);
  ~Journal();

  const std::string& path() const noexcept { return path_; }
  /// What the run before wrote last; nothing when there was none.
  const std::optional<JournalEntry>& last() const noexcept { return last_; }
  /// Call it once the output files are on disk as far as `entry` says.
  void write(const JournalEntry& entry);
  /// The run is done.
  void remove();

 private:
  void read(const nlohmann::json& settings);

  std::shared_ptr<const FileSystem> file_system_;
  std::string path_;
  std::string settings_;
  std::unique_ptr<WriteLock> lock_;
  std::optional<JournalEntry> last_;
};

}  // namespace ferry::tool
