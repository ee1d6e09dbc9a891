#include <zstd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/torch_stream.h"
#include "tests/fuzz/bytes_file.h"

// Any bytes, met as a zstd stream, are the archive of one tensor or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  std::string compressed(ZSTD_compressBound(size), '\0');
  compressed.resize(ZSTD_compress(compressed.data(), compressed.size(), data, size, -5));
  try {
    const auto file = std::make_shared<test::BytesFile>(
        reinterpret_cast<const uint8_t*>(compressed.data()), compressed.size());
    ZstdStream stream(file, 0, compressed.size());
    const StreamedTensor found = find_streamed_tensor(stream, "fuzz");
    if (found.storage_position > size) std::abort();
  } catch (const Error&) {
  }
  return 0;
}
