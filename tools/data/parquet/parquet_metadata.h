// What the end of a Parquet file says of its columns: which there are, and where their pages lie.
//
// Source: apache/parquet-format, README.md and src/main/thrift/parquet.thrift.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

enum class ParquetCodec : uint8_t {
  none = 0,
  snappy = 1,
  gzip = 2,
  lzo = 3,
  brotli = 4,
  lz4 = 5,
  zstd = 6,
  lz4_raw = 7
};

/// A column that has one value a row, or none.
struct ParquetColumn {
  std::string name;
  bool is_bytes = false;     // physical type BYTE_ARRAY: texts
  bool is_optional = false;  // values may be null
  bool is_flat = false;      // neither within another one nor a list
};

/// A column's values in a group of rows: pages one after another.
struct ParquetChunk {
  ParquetCodec codec = ParquetCodec::none;
  int64_t values = 0;  // nulls included
  uint64_t begin = 0, bytes = 0;
};

struct ParquetRowGroup {
  int64_t rows = 0;
  std::vector<ParquetChunk> chunks;  // by leaf
};

struct ParquetMetadata {
  std::vector<ParquetColumn> leaves;  // in the order of the file
  std::vector<ParquetRowGroup> groups;
  int64_t rows = 0;
};

/// corrupt or unsupported (encrypted files), naming the file. Sizes are checked against the file's.
ParquetMetadata read_parquet_metadata(const ReadableFile& file);

}  // namespace ferry::tool
