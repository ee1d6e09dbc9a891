// An input is a Parquet file. Any bytes give lines or an error: of the columns that their own
// metadata name.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "tests/fuzz/bytes_file.h"
#include "tools/data/parquet/parquet_metadata.h"
#include "tools/data/parquet/parquet_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kMostReads = 64;  // a small file may stand for any number of rows
  try {
    const auto file = std::make_shared<ferry::test::BytesFile>(data, size);
    const ferry::tool::ParquetMetadata metadata = ferry::tool::read_parquet_metadata(*file);
    for (const ferry::tool::ParquetColumn& leaf : metadata.leaves) {
      if (!leaf.is_bytes || !leaf.is_flat) continue;
      std::atomic<uint64_t> read{0};
      try {
        const auto stream = ferry::tool::parquet_stream(file, {leaf.name}, read);
        std::vector<std::byte> piece(4096);
        for (int i = 0; i < kMostReads && stream->read_some(piece) > 0; ++i) {
        }
      } catch (const ferry::Error&) {
      }
    }
  } catch (const ferry::Error&) {
  }
  return 0;
}
