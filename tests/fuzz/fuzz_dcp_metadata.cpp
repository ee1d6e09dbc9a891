#include <cstdlib>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "tests/fuzz/metadata_folder.h"

// Any bytes are a catalog whose chunks tile their tensors and lie in files of the folder, or an
// Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry;
  try {
    const DcpCheckpoint dcp =
        open_dcp(std::make_shared<test::MetadataFolder>(data, size), test::MetadataFolder::kPath);
    const Catalog& catalog = dcp.catalog;
    const EntryIndex no_name_stands_twice(catalog);
    for (const Entry& entry : catalog.entries) check_chunks(catalog, entry);
    for (const Object& object : catalog.objects) {
      const Extent& extent = object.extent;
      if (extent.offset + extent.length > catalog.files.at(extent.file).bytes) std::abort();
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::internal) std::abort();
  }
  return 0;
}
