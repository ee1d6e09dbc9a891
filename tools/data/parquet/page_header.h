// What stands before each page of a Parquet column.
//
// Source: Apache Parquet, parquet-format src/main/thrift/parquet.thrift (PageHeader).
#pragma once

#include <cstdint>

#include "tools/data/parquet/thrift_reader.h"

namespace ferry::tool {

enum ParquetEncoding : int64_t { kPlain = 0, kPlainDictionary = 2, kRle = 3, kRleDictionary = 8 };
enum ParquetPage : int64_t { kDataPage = 0, kIndexPage = 1, kDictionaryPage = 2, kDataPageV2 = 3 };

/// -1 is what was not there.
struct ParquetPageHeader {
  int64_t type = -1;  // ParquetPage
  int64_t bytes = -1, stored_bytes = -1, values = -1;
  int64_t encoding = -1, level_encoding = kRle;        // ParquetEncoding
  int64_t definition_bytes = 0, repetition_bytes = 0;  // of data pages of version 2
  bool is_compressed = true;
};

/// Errors are those of the reader.
ParquetPageHeader read_parquet_page_header(ThriftReader& in);

}  // namespace ferry::tool
