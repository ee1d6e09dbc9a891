// Lays out zip files of stored records as PyTorch does: descriptors after the bytes, which begin at
// multiples of 64, zip64 fields where a length or position needs them.
//
// Source: caffe2/serialize/inline_container.cc (record padding), PKWARE APPNOTE 6.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/format/torch/archive/torch_archive_writer.h"

namespace ferry {

class ZipWriter {
 public:
  /// All records are in `folder`. invalid when it is empty, too long or has a '/' in it.
  explicit ZipWriter(std::string_view folder);

  /// A record of these bytes.
  void add(std::string_view name, std::string_view content);
  /// A record whose bytes are written later.
  void add_payload(std::string_view name, std::string storage, uint64_t length);

  /// Digits that depend on the names of all records so far and the checks of those added with
  /// their bytes, as PyTorch puts into each archive.
  std::string serialization_id() const;

  TorchArchiveLayout finish() &&;

 private:
  struct Record {
    std::string name;
    uint64_t header = 0;
    uint64_t length = 0;
    uint32_t crc32 = 0;
    int64_t payload = -1;  // index, when it is one

    bool is_long() const noexcept { return length >= UINT32_MAX; }
    bool is_far() const noexcept { return header >= UINT32_MAX; }
  };

  uint64_t at() const noexcept { return literal_at_ + literal_.size(); }
  void number(uint64_t value, int bytes);
  void zip64_field(const Record& record, uint64_t stored_length);
  void begin(Record& record);
  void end(Record& record);
  void directory_entry(const Record& record);
  void end_of_directory(uint64_t directory);
  void flush();

  std::string folder_;
  TorchArchiveLayout layout_;
  std::vector<Record> records_;
  std::string literal_;  // not yet in the layout
  uint64_t literal_at_ = 0;
};

}  // namespace ferry
