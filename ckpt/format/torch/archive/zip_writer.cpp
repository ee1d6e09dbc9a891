#include "ckpt/format/torch/archive/zip_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <utility>

#include "ckpt/base/checked.h"
#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/zip_directory.h"

namespace ferry {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kExtraHeaderBytes = 4;  // id and length of a field
constexpr uint64_t kMostFolderBytes = 4096;
constexpr uint16_t kUtf8Names = 0x0800, kDescriptor = 0x0008;  // flags

// An empty record has no descriptor: its header's zeros are the truth.
uint16_t flags_of(uint64_t length) { return kUtf8Names | (length > 0 ? kDescriptor : 0); }

uint64_t narrow(uint64_t value, uint64_t most) { return std::min(value, most); }

}  // namespace

ZipWriter::ZipWriter(std::string_view folder) : folder_(folder) {
  if (folder.empty() || folder.size() > kMostFolderBytes ||
      folder.find('/') != std::string_view::npos) {
    fail(ErrorKind::invalid, "'{}' cannot be the folder of an archive's records",
         folder.substr(0, 200));
  }
}

void ZipWriter::number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) literal_ += i < 8 ? static_cast<char>(value >> 8 * i) : '\0';
}

// Only what does not fit in the 32 bits of its own place.
void ZipWriter::zip64_field(const Record& record, uint64_t stored_length) {
  if (!record.is_long() && !record.is_far()) return;
  number(ZipLocalHeader::kZip64Field, 2);
  number((record.is_long() ? 16 : 0) + (record.is_far() ? 8 : 0), 2);
  if (record.is_long()) {
    number(record.length, 8);
    number(stored_length, 8);
  }
  if (record.is_far()) number(record.header, 8);
}

// The local header, and padding such that the record's bytes are aligned. PyTorch leaves all
// numbers to the descriptor and the directory.
void ZipWriter::begin(Record& record) {
  record.header = at();
  const uint64_t zip64 =
      record.is_long() || record.is_far()
          ? kExtraHeaderBytes + (record.is_long() ? 16 : 0) + (record.is_far() ? 8 : 0)
          : 0;
  const uint64_t start =
      record.header + ZipLocalHeader::kFixedBytes + record.name.size() + zip64 + kExtraHeaderBytes;
  const uint64_t padding = (kAlignment - start % kAlignment) % kAlignment;
  literal_ += "PK\3\4";
  number(0, 2);
  number(flags_of(record.length), 2);
  number(0, 2 + 2 + 2);  // stored; no time
  number(0, 4 + 4 + 4);  // CRC-32 and lengths
  number(record.name.size(), 2);
  number(zip64 + kExtraHeaderBytes + padding, 2);
  literal_ += record.name;
  zip64_field(record, 0);
  literal_ += "FB";
  number(padding, 2);
  literal_.append(padding, 'Z');
}

void ZipWriter::end(Record& record) {
  if (record.length > 0) {
    literal_ += "PK\7\10";
    if (record.payload >= 0) {
      layout_.payloads[static_cast<size_t>(record.payload)].crc32_offsets[0] = at();
    }
    number(record.crc32, 4);
    const int bytes = record.is_long() || record.is_far() ? 8 : 4;
    number(record.length, bytes);
    number(record.length, bytes);
  }
  records_.push_back(std::move(record));
}

void ZipWriter::add(std::string_view name, std::string_view content) {
  Record record;
  record.name = (folder_ + "/") += name;
  record.length = content.size();
  record.crc32 = crc32(std::as_bytes(std::span(content)));
  begin(record);
  literal_ += content;
  end(record);
}

void ZipWriter::add_payload(std::string_view name, std::string storage, uint64_t length) {
  if (length == 0) return add(name, {});
  Record record;
  record.name = (folder_ + "/") += name;
  record.length = length;
  record.payload = static_cast<int64_t>(layout_.payloads.size());
  begin(record);
  layout_.payloads.push_back({std::move(storage), at(), length, {}});
  const uint64_t payload_end = checked_add(at(), length, "an archive");
  flush();
  literal_at_ = payload_end;
  end(record);
}

void ZipWriter::flush() {
  if (literal_.empty()) return;
  const uint64_t next = at();
  layout_.literals.push_back({literal_at_, std::exchange(literal_, {})});
  literal_at_ = next;
}

std::string ZipWriter::serialization_id() const {
  uint64_t names = 0xcbf29ce484222325u, checks = 0;  // FNV-1a; PyTorch's way to join hashes
  for (const Record& record : records_) {
    for (const char c : record.name.substr(folder_.size())) {
      names = (names ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    }
    checks ^= record.crc32 + 0x9e3779b9u + (checks << 6) + (checks >> 2);
  }
  return fmt::format("{:020}{:020}", names, checks);
}

void ZipWriter::directory_entry(const Record& record) {
  literal_ += "PK\1\2";
  number(0, 4);
  number(flags_of(record.length), 2);
  number(0, 6);
  if (record.payload >= 0) {
    layout_.payloads[static_cast<size_t>(record.payload)].crc32_offsets[1] = at();
  }
  number(record.crc32, 4);
  number(narrow(record.length, UINT32_MAX), 4);
  number(narrow(record.length, UINT32_MAX), 4);
  number(record.name.size(), 2);
  const bool has_field = record.is_long() || record.is_far();
  number(has_field ? 4 + (record.is_long() ? 16 : 0) + (record.is_far() ? 8 : 0) : 0, 2);
  number(0, 2 + 2 + 2);
  number(0, 4);
  number(narrow(record.header, UINT32_MAX), 4);
  literal_ += record.name;
  zip64_field(record, record.length);
}

// The zip64 end record always, as PyTorch writes it.
void ZipWriter::end_of_directory(uint64_t directory) {
  const uint64_t end = at(), bytes = end - directory, count = records_.size();
  literal_ += "PK\6\6";
  number(44, 8);
  number(0x031e, 2);
  number(45, 2);
  number(0, 8);
  for (const uint64_t value : {count, count, bytes, directory}) number(value, 8);
  literal_ += "PK\6\7";
  number(0, 4);
  number(end, 8);
  number(1, 4);
  literal_ += "PK\5\6";
  number(0, 4);
  number(narrow(count, UINT16_MAX), 2);
  number(narrow(count, UINT16_MAX), 2);
  number(narrow(bytes, UINT32_MAX), 4);
  number(narrow(directory, UINT32_MAX), 4);
  number(0, 2);
}

TorchArchiveLayout ZipWriter::finish() && {
  const uint64_t directory = at();
  for (const Record& record : records_) directory_entry(record);
  end_of_directory(directory);
  flush();
  layout_.length = literal_at_;
  return std::move(layout_);
}

}  // namespace ferry
