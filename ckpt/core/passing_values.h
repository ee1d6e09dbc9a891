// Which tensors hold NaN or infinite values, seen in bytes that pass by: whoever reads or writes a
// checkpoint's files for another reason need not read them once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/base/non_finite.h"
#include "ckpt/core/catalog.h"

namespace ferry {

/// Bytes [begin, end) of a file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
};

/// Where the elements of a chunk of `entry` are in its file as they are, in row-major order of its
/// box; nothing where they are not (compressed, transposed). As ChunkLocator::locate().
std::optional<ByteRange> plain_bytes(const Catalog& catalog, const Entry& entry,
                                     const Chunk& chunk);

/// A sentence that names the first few; empty where there are none.
std::string to_text(const std::vector<NonFiniteTensor>& tensors);

class PassingValues {
 public:
  /// Watches the entries of `catalog`, which must outlive this. `files` are those that the bytes
  /// will come from, identified by their paths. Locates all chunks of floating-point types, on
  /// `threads` threads; those that are damaged or are not plain bytes are left out.
  PassingValues(const Catalog& catalog, std::span<const FileInfo> files, int threads);

  using Seer =
      std::function<void(uint32_t file, uint64_t offset, std::span<const std::byte> bytes)>;
  /// For one thread, which gives it the bytes of a run in order; gaps may be between runs. Every
  /// byte is to be given once, to whichever. Must not outlive this.
  Seer reader();

  /// The bytes that are looked for, by number of the file, in order and without overlap.
  std::vector<std::vector<ByteRange>> ranges() const;

  /// What passed by, in the catalog's order.
  std::vector<NonFiniteTensor> found() const;

 private:
  struct Place {
    ByteRange bytes;
    uint32_t entry = 0;
  };
  struct Cut;  // an element of which a run had the begin

  void see(std::span<const std::byte> elements, uint32_t entry);
  void see_place(const Place& place, uint64_t offset, std::span<const std::byte> bytes, Cut& cut);

  const Catalog& catalog_;
  std::vector<std::vector<Place>> places_;  // by number of the file, in order, without overlap
  mutable std::mutex mutex_;
  std::map<uint32_t, NonFinite> found_;
};

}  // namespace ferry
