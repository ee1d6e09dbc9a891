#include "ckpt/format/torch/archive/zip_directory.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr uint64_t kWindowBytes = 4096;       // kept of either end of an item
constexpr uint64_t kOneReadBytes = 64 << 10;  // items up to here are read whole
constexpr uint64_t kMostDirectoryBytes = 512 << 20;

constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint64_t kCentralBytes = 46;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint64_t kEndBytes = 22;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocator64Bytes = 20;
constexpr uint16_t kStored = 0;
constexpr uint16_t kEncryptedFlag = 1, kDescriptorFlag = 8;

template <typename T>
T number(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
uint16_t u16(std::string_view bytes, size_t at) { return number<uint16_t>(bytes, at); }
uint32_t u32(std::string_view bytes, size_t at) { return number<uint32_t>(bytes, at); }
uint64_t u64(std::string_view bytes, size_t at) { return number<uint64_t>(bytes, at); }

void check_stored(uint16_t flags, uint16_t method, std::string_view what) {
  if (flags & kEncryptedFlag) fail(ErrorKind::unsupported, "{}: the zip record is encrypted", what);
  if (method != kStored) {
    fail(ErrorKind::unsupported,
         "{}: the zip record is compressed (method {}); torch.save stores records as they are",
         what, method);
  }
}

// Where the central directory is, in the item.
struct EndRecord {
  uint64_t directory_offset = 0;
  uint64_t directory_bytes = 0;
  uint64_t records = 0;
  uint64_t end = 0;  // of what may be directory: where the end records begin
};

// The end record is followed by a comment of at most 65535 bytes and nothing else.
std::optional<uint64_t> find_end(std::string_view tail) {
  for (size_t at = tail.size() < kEndBytes ? 0 : tail.size() - kEndBytes + 1; at-- > 0;) {
    if (u32(tail, at) == kEndSignature && at + kEndBytes + u16(tail, at + 20) == tail.size()) {
      return at;
    }
  }
  return std::nullopt;
}

EndRecord read_end(ItemReader& item) {
  std::optional<uint64_t> found;
  uint64_t tail_at = 0;
  for (uint64_t window : {kWindowBytes, kEndBytes + UINT16_MAX}) {
    tail_at = item.length() - std::min(item.length(), window);
    found = find_end(item.bytes(tail_at, item.length() - tail_at));
    if (found || tail_at == 0) break;
  }
  if (!found) {
    fail(ErrorKind::corrupt,
         "{}: no end of a zip directory in its {} bytes; the file is truncated or not one that "
         "torch.save wrote",
         item.what(), item.length());
  }
  EndRecord end;
  end.end = tail_at + *found;
  const std::string record(item.bytes(end.end, kEndBytes));
  end.records = u16(record, 10);
  end.directory_bytes = u32(record, 12);
  end.directory_offset = u32(record, 16);
  const bool one_disk =
      u16(record, 4) == 0 && u16(record, 6) == 0 && u16(record, 8) == u16(record, 10);
  const bool has_locator =
      end.end >= kLocator64Bytes &&
      u32(item.bytes(end.end - kLocator64Bytes, kLocator64Bytes), 0) == kLocator64Signature;
  if (has_locator) {
    const uint64_t at = u64(item.bytes(end.end - kLocator64Bytes, kLocator64Bytes), 8);
    const uint64_t limit = end.end - kLocator64Bytes;
    if (at > limit || limit - at < kEnd64Bytes ||
        u32(item.bytes(at, kEnd64Bytes), 0) != kEnd64Signature) {
      fail(ErrorKind::corrupt, "{}: its zip64 end record is not at byte {}", item.what(), at);
    }
    const auto record64 = item.bytes(at, kEnd64Bytes);
    end.records = u64(record64, 32);
    end.directory_bytes = u64(record64, 40);
    end.directory_offset = u64(record64, 48);
    end.end = at;
  } else if (!one_disk) {
    fail(ErrorKind::unsupported, "{}: a zip file in several parts", item.what());
  }
  return end;
}

// Replaces the values that did not fit their 32-bit fields; they are in the order of the fields.
void read_zip64_field(std::string_view extra, ZipRecord& record, uint64_t& stored_length,
                      const std::string& what) {
  if (record.length != UINT32_MAX && stored_length != UINT32_MAX && record.header != UINT32_MAX) {
    return;
  }
  while (extra.size() >= 4) {
    const uint16_t id = u16(extra, 0), bytes = u16(extra, 2);
    extra.remove_prefix(4);
    if (bytes > extra.size()) break;
    std::string_view field = extra.substr(0, bytes);
    extra.remove_prefix(bytes);
    if (id != ZipLocalHeader::kZip64Field) continue;
    for (uint64_t* value : {&record.length, &stored_length, &record.header}) {
      if (*value != UINT32_MAX) continue;
      if (field.size() < 8) {
        fail(ErrorKind::corrupt, "{}: the zip64 field of record {} is too short", what,
             record.name);
      }
      *value = u64(field, 0);
      field.remove_prefix(8);
    }
    return;
  }
}

std::vector<ZipRecord> read_central_directory(ItemReader& item, const EndRecord& end) {
  if (end.directory_offset > end.end || end.directory_bytes > end.end - end.directory_offset ||
      end.directory_bytes > kMostDirectoryBytes ||
      end.records > end.directory_bytes / kCentralBytes) {
    fail(
        ErrorKind::corrupt,
        "{}: its zip directory of {} records in {} bytes from byte {} leaves the file of {} bytes; "
        "the file is truncated or damaged",
        item.what(), end.records, end.directory_bytes, end.directory_offset, item.length());
  }
  std::string_view directory = item.bytes(end.directory_offset, end.directory_bytes);
  std::vector<ZipRecord> records;
  records.reserve(end.records);
  for (uint64_t i = 0; i < end.records; ++i) {
    if (directory.size() < kCentralBytes || u32(directory, 0) != kCentralSignature) {
      fail(ErrorKind::corrupt, "{}: zip record {} of {} is missing from its directory", item.what(),
           i, end.records);
    }
    check_stored(u16(directory, 8), u16(directory, 10), item.what());
    const uint64_t name_bytes = u16(directory, 28), extra_bytes = u16(directory, 30);
    const uint64_t entry_bytes = kCentralBytes + name_bytes + extra_bytes + u16(directory, 32);
    if (entry_bytes > directory.size()) {
      fail(ErrorKind::corrupt, "{}: its zip directory is truncated", item.what());
    }
    ZipRecord record;
    record.crc32 = u32(directory, 16);
    uint64_t stored_length = u32(directory, 20);
    record.length = u32(directory, 24);
    record.header = u32(directory, 42);
    record.name = directory.substr(kCentralBytes, name_bytes);
    read_zip64_field(directory.substr(kCentralBytes + name_bytes, extra_bytes), record,
                     stored_length, item.what());
    if (stored_length != record.length) {
      fail(ErrorKind::corrupt, "{}: zip record {} has {} bytes but stores {}", item.what(),
           record.name, record.length, stored_length);
    }
    records.push_back(std::move(record));
    directory.remove_prefix(entry_bytes);
  }
  return records;
}

// Finds a record's bytes after its local header.
void read_local_header(ItemReader& item, ZipRecord& record) {
  if (record.header > item.length() ||
      item.length() - record.header < ZipLocalHeader::kFixedBytes) {
    fail(ErrorKind::corrupt, "{}: zip record {} begins at byte {} of {}", item.what(), record.name,
         record.header, item.length());
  }
  const auto header =
      ZipLocalHeader::parse(item.bytes(record.header, ZipLocalHeader::kFixedBytes), item.what());
  const uint64_t name_at = record.header + ZipLocalHeader::kFixedBytes;
  if (header.name_bytes != record.name.size() ||
      item.bytes(name_at, header.name_bytes) != record.name) {
    fail(ErrorKind::corrupt, "{}: zip record {} has another name where its bytes are", item.what(),
         record.name);
  }
  if (header.has_lengths && header.length != UINT32_MAX && header.length != record.length) {
    fail(ErrorKind::corrupt, "{}: zip record {} has {} bytes in the directory but {} in its header",
         item.what(), record.name, record.length, header.length);
  }
  record.offset = name_at + header.name_bytes + header.extra_bytes;
  if (record.offset > item.length() || record.length > item.length() - record.offset) {
    fail(ErrorKind::corrupt,
         "{}: zip record {} ({} bytes from byte {}) leaves the {} bytes there are", item.what(),
         record.name, record.length, record.offset, item.length());
  }
}

}  // namespace

ItemReader::ItemReader(const ReadableFile& file, uint64_t offset, uint64_t length)
    : file_(file), offset_(offset), length_(length) {
  what_ = fmt::format("{} at byte {}", file.path(), offset);
  if (offset > file.size() || length > file.size() - offset) {
    fail(
        ErrorKind::corrupt,
        "{}: an item of {} bytes is expected but the file has {}; the file is truncated or belongs "
        "to another checkpoint",
        what_, length, file.size());
  }
  head_.resize(length <= kOneReadBytes ? length : kWindowBytes);
  tail_.resize(length <= kOneReadBytes ? 0 : kWindowBytes);
  file_.read(offset_, std::as_writable_bytes(std::span(head_)));
  file_.read(offset_ + length_ - tail_.size(), std::as_writable_bytes(std::span(tail_)));
}

std::string_view ItemReader::bytes(uint64_t at, uint64_t count) {
  if (at > length_ || count > length_ - at) {
    fail(ErrorKind::corrupt, "{}: {} bytes from byte {} on are needed but it has {}; it is damaged",
         what_, count, at, length_);
  }
  if (at + count <= head_.size()) return std::string_view(head_).substr(at, count);
  const uint64_t tail_at = length_ - tail_.size();
  if (at >= tail_at) return std::string_view(tail_).substr(at - tail_at, count);
  other_.resize(count);
  file_.read(offset_ + at, std::as_writable_bytes(std::span(other_)));
  return other_;
}

ZipLocalHeader ZipLocalHeader::parse(std::string_view bytes, std::string_view what) {
  if (u32(bytes, 0) != kSignature) {
    fail(ErrorKind::corrupt, "{}: a zip record does not begin with a local header", what);
  }
  check_stored(u16(bytes, 6), u16(bytes, 8), what);
  ZipLocalHeader header;
  header.has_lengths = (u16(bytes, 6) & kDescriptorFlag) == 0;
  header.length = u32(bytes, 22);
  header.name_bytes = u16(bytes, 26);
  header.extra_bytes = u16(bytes, 28);
  return header;
}

std::vector<ZipRecord> read_zip_directory(ItemReader& item) {
  const EndRecord end = read_end(item);
  std::vector<ZipRecord> records = read_central_directory(item, end);
  std::sort(records.begin(), records.end(),
            [](const ZipRecord& a, const ZipRecord& b) { return a.header < b.header; });
  uint64_t free_from = 0;
  for (ZipRecord& record : records) {
    read_local_header(item, record);
    if (record.header < free_from || record.offset + record.length > end.directory_offset) {
      fail(ErrorKind::corrupt, "{}: zip record {} overlaps another one or the directory",
           item.what(), record.name);
    }
    free_from = record.offset + record.length;
  }
  return records;
}

}  // namespace ferry
