// Files that torch.save writes: the zip form (since PyTorch 1.6), whole files and items inside
// .distcp files alike. Records are stored, never deflated; "<prefix>/data.pkl" is a pickle whose
// tensors point at records "<prefix>/data/<key>". The form before 1.6 (torch_legacy.h) is read into
// the same structure.
//
// Source: caffe2/serialize/inline_container.cc (record layout, 64-byte alignment),
// torch/serialization.py; PKWARE APPNOTE 6.3 for zip and zip64.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "ckpt/core/catalog.h"
#include "ckpt/format/pickle/values/value.h"
#include "ckpt/io/file_system.h"

namespace ferry {

struct TorchArchive {
  static constexpr uint64_t kMostPickleBytes = uint64_t{1} << 30;

  struct Record {
    uint64_t offset = 0;  // of its bytes, in the file (not in the archive)
    uint64_t length = 0;
    uint32_t crc32 = 0;
  };
  std::map<std::string, Record> records;   // without the prefix: "data.pkl", "data/0", "byteorder"
  std::shared_ptr<const Document> pickle;  // of data.pkl
  bool big_endian = false;

  /// Byte position in the file of a tensor's storage, after checking that the storage record is
  /// there and holds `storage_elements`; corrupt otherwise. Views that leave their storage are
  /// corrupt, big-endian archives unsupported.
  Record storage(const StoredTensor& tensor, const std::string& what) const;
};

/// Reads directory and pickle of the archive (of either form) in [offset, offset + length) of a
/// file; no tensor data. corrupt (with offset) for anything that is not such an archive: truncated,
/// overlapping or out-of-range records, encryption, compression, a pickle larger than the file.
TorchArchive read_torch_archive(const ReadableFile& file, uint64_t offset, uint64_t length);

/// corrupt when the view that `tensor` is leaves its storage; unsupported when it repeats the
/// elements of its storage beyond reason.
void check_view(const StoredTensor& tensor, const std::string& what);

/// Locates torch_zip chunks (see ChunkLocator), plain or inside a zstd stream. One for each
/// catalog: it keeps files open by their path.
std::shared_ptr<const ChunkLocator> torch_zip_locator();

}  // namespace ferry
