#include <cstdlib>
#include <memory>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp.h"
#include "tests/fuzz/bytes_file.h"
#include "tests/io/forwarding_file_system.h"
#include "tests/io/memory_file_system.h"

namespace {

using namespace ferry;

// The input is `.metadata`; every other path is a data file of 1 MiB, of zeros. No folder to write
// into.
class OneFile final : public ForwardingFileSystem {
 public:
  static constexpr uint64_t kDataBytes = 1 << 20;

  OneFile(const uint8_t* data, size_t size)
      : ForwardingFileSystem(std::make_shared<MemoryFileSystem>()), data_(data), size_(size) {}

  PathStatus status(const std::string& path) const override {
    if (!path.starts_with("ck/")) std::abort();  // a name left the folder
    return {PathKind::file, path == "ck/.metadata" ? size_ : kDataBytes};
  }
  std::vector<std::string> list(const std::string&) const override { return {".metadata"}; }
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    if (path == "ck/.metadata") return std::make_shared<test::BytesFile>(data_, size_);
    static const std::string zeros(kDataBytes, '\0');
    return std::make_shared<test::BytesFile>(reinterpret_cast<const uint8_t*>(zeros.data()),
                                             zeros.size());
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace

// Any bytes are a catalog whose chunks tile their tensors and lie in files of the folder, or an
// Error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const DcpCheckpoint dcp = open_dcp(std::make_shared<OneFile>(data, size), "ck");
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
