// The texts of a column of a Parquet file, one after another.
//
// Source: apache/parquet-format, README.md, Encodings.md, Compression.md and parquet.thrift.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/io/file_system.h"
#include "tools/data/parquet/page_header.h"
#include "tools/data/parquet/parquet_metadata.h"
#include "tools/data/parquet/run_lengths.h"

namespace ferry::tool {

/// Reads a column of one row group, holding one page and the column's dictionary. For one thread.
class ParquetColumnReader {
 public:
  /// `bytes_read` counts stored bytes.
  ParquetColumnReader(std::shared_ptr<const ReadableFile> file, const ParquetColumn& column,
                      const ParquetChunk& chunk, std::atomic<uint64_t>& bytes_read);

  /// The next value, valid until the next call; nothing for a null. corrupt, naming file and byte,
  /// for damage and where there is none; unsupported for codecs and encodings that are not known.
  std::optional<std::string_view> next();

 private:
  enum class Values : uint8_t { plain, indices };  // of a page

  ParquetPageHeader read_header();
  void read_page();
  void read_dictionary(const ParquetPageHeader& header);
  void begin_data(const ParquetPageHeader& header);
  void begin_values(int64_t encoding, std::span<const std::byte> bytes);
  std::vector<std::byte> stored(uint64_t bytes);
  std::vector<std::byte> uncompressed(std::span<const std::byte> bytes, int64_t size) const;
  std::string_view plain_text(std::span<const std::byte>& bytes) const;
  [[noreturn]] void fail_page(const std::string& problem) const;

  std::shared_ptr<const ReadableFile> file_;
  std::string column_;
  bool is_optional_;
  ParquetCodec codec_;
  std::atomic<uint64_t>& bytes_read_;
  uint64_t page_at_, at_, end_;  // bytes of the file
  int64_t page_values_ = 0;      // left
  std::vector<std::byte> page_, dictionary_bytes_;
  std::vector<std::string_view> dictionary_;
  bool has_levels_ = false;
  RunLengths levels_, indices_;
  Values values_ = Values::plain;
  std::span<const std::byte> plain_;
};

}  // namespace ferry::tool
