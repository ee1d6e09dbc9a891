// The directory of a zip file that holds stored (not compressed) records only.
//
// Source: PKWARE APPNOTE 6.3: 4.3.7 local header, 4.3.12 central directory, 4.3.14-16 end records,
// 4.5.3 zip64 field.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// An item inside a file, read in few pieces: the first and last kilobytes are read once and kept,
/// a small item is one read. Positions are from the item's start.
class ItemReader {
 public:
  /// corrupt when [offset, offset + length) leaves the file.
  ItemReader(const ReadableFile& file, uint64_t offset, uint64_t length);

  uint64_t length() const noexcept { return length_; }
  uint64_t offset() const noexcept { return offset_; }
  /// "path at byte 123", for messages.
  const std::string& what() const noexcept { return what_; }

  /// Bytes [at, at + count), which must be inside the item; valid until the next call or the end of
  /// `this`. corrupt when they leave the item.
  std::string_view bytes(uint64_t at, uint64_t count);

 private:
  const ReadableFile& file_;
  uint64_t offset_;
  uint64_t length_;
  std::string what_;
  std::string head_, tail_, other_;
};

struct ZipRecord {
  std::string name;
  uint64_t header = 0;  // of its local header, in the item
  uint64_t offset = 0;  // of its bytes, in the item
  uint64_t length = 0;
  uint32_t crc32 = 0;
};

/// The local header before a record's bytes.
struct ZipLocalHeader {
  static constexpr uint64_t kFixedBytes = 30;
  static constexpr uint32_t kSignature = 0x04034b50;
  static constexpr uint16_t kZip64Field = 0x0001;  // the extra field with lengths of 64 bits

  bool has_lengths = false;  // false: a descriptor after the bytes has them
  uint32_t length = 0;       // UINT32_MAX: in the zip64 field
  uint16_t name_bytes = 0;
  uint16_t extra_bytes = 0;

  /// From its first kFixedBytes; corrupt or unsupported (compressed, encrypted) with `what`.
  static ZipLocalHeader parse(std::string_view bytes, std::string_view what);
};

/// All records, in the order of their bytes. corrupt for anything that is not a zip file of stored
/// records without overlap inside the item; CRCs are not checked.
std::vector<ZipRecord> read_zip_directory(ItemReader& item);

}  // namespace ferry
