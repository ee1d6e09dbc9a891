#include <cstdlib>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "tests/fuzz/bytes_file.h"

// Any bytes are an archive whose records and storages lie inside the file, or an Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  try {
    const test::BytesFile file(data, size);
    const TorchArchive archive = read_torch_archive(file, 0, size);
    for (const auto& [name, record] : archive.records) {
      if (record.offset > size || record.length > size - record.offset) std::abort();
    }
    for (uint32_t node = 0; node < archive.pickle->nodes.size(); ++node) {
      const StoredTensor* tensor = archive.pickle->root_at(node).tensor();
      if (!tensor) continue;
      try {
        const auto storage = archive.storage(*tensor, "fuzz");
        if (storage.offset + storage.length > size) std::abort();
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
  return 0;
}
