// A Parquet file as JSON lines: an object a row, with the columns that are asked for.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tools/data/streams/byte_stream.h"

namespace ferry::tool {

/// Nulls are null. Memory: a page of each column and its dictionary. `bytes_read` counts stored
/// bytes. not_found, naming the columns that there are, for one that is not there; unsupported for
/// one that is not a flat column of texts, and as ParquetColumnReader.
std::unique_ptr<ByteStream> parquet_stream(std::shared_ptr<const ReadableFile> file,
                                           const std::vector<std::string>& columns,
                                           std::atomic<uint64_t>& bytes_read);

}  // namespace ferry::tool
