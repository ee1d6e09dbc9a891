// Turns chunks that are torch.save archives into chunks that are raw elements.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "ckpt/base/checked.h"
#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/torch_stream.h"

namespace ferry {
namespace {

// Files kept open: opening is slow on network storage, and chunks of one file come in a row.
constexpr size_t kMostOpenFiles = 64;

// The dimensions that matter for the place of elements.
struct View {
  Dims sizes, strides;
};

View without_ones(const StoredTensor& tensor) {
  View view;
  for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
    if (tensor.shape[axis] == 1) continue;
    view.sizes.push_back(tensor.shape[axis]);
    view.strides.push_back(tensor.strides[axis]);
  }
  return view;
}

bool is_row_major(const StoredTensor& tensor) {
  const View view = without_ones(tensor);
  const bool is_empty = std::find(view.sizes.begin(), view.sizes.end(), 0) != view.sizes.end();
  return is_empty || view.strides == row_major_strides(view.sizes);
}

// Strides for the axes of `box`, whose sizes are the tensor's but for axes of one element (a
// layer's tensor in a box of all layers).
Dims box_strides(const StoredTensor& tensor, const Box& box, const std::string& what) {
  const View view = without_ones(tensor);
  Dims strides;
  size_t next = 0;
  for (int64_t size : box.size) {
    if (size == 1) {
      strides.push_back(1);
    } else if (next < view.sizes.size() && view.sizes[next] == size) {
      strides.push_back(view.strides[next++]);
    } else {
      next = SIZE_MAX;
      break;
    }
  }
  if (next != view.sizes.size()) {
    fail(ErrorKind::corrupt, "{}: its shape {} is not that of its place {}", what,
         to_string(tensor.shape), to_string(box));
  }
  return strides;
}

class TorchZipLocator final : public ChunkLocator {
 public:
  Chunk locate(const Catalog& catalog, const Entry& entry, const Chunk& chunk) const override {
    if (chunk.extent.encoding != Encoding::torch_zip) return chunk;
    const auto file = open(catalog, chunk.extent.file);
    const Extent& extent = chunk.extent;
    const std::string what =
        fmt::format("tensor {} in {} at byte {}", entry.name, file->path(), extent.offset);
    if (extent.zstd) {
      ZstdStream stream(file, extent.offset, extent.length);
      const StreamedTensor found = find_streamed_tensor(stream, what);
      return place(entry, chunk, found.tensor, found.storage_position, what);
    }
    const TorchArchive archive = read_torch_archive(*file, extent.offset, extent.length);
    const StoredTensor* tensor = archive.pickle->root().tensor();
    if (!tensor) fail(ErrorKind::corrupt, "{}: the item does not hold a tensor", what);
    return place(entry, chunk, *tensor, archive.storage(*tensor, what).offset, what);
  }

 private:
  std::shared_ptr<const ReadableFile> open(const Catalog& catalog, uint32_t number) const {
    const std::string& path = catalog.files.at(number).path;
    const std::lock_guard lock(mutex_);
    auto& file = open_files_[path];
    if (!file) {
      auto opened = catalog.file_system->open(path);
      if (open_files_.size() > kMostOpenFiles) open_files_.clear();
      return open_files_[path] = std::move(opened);
    }
    return file;
  }

  // `storage_position` is that of the storage's first byte, in the file or in the decoded stream.
  static Chunk place(const Entry& entry, const Chunk& chunk, const StoredTensor& tensor,
                     uint64_t storage_position, const std::string& what) {
    if (tensor.dtype != entry.stored_dtype()) {
      fail(ErrorKind::corrupt, "{}: its elements are {} but the metadata says {}", what,
           torch_name(tensor.dtype), torch_name(entry.stored_dtype()));
    }
    const auto element_bytes = static_cast<uint64_t>(size_bytes(tensor.dtype));
    const auto held = static_cast<uint64_t>(element_count(tensor.shape, what));
    const auto needed = static_cast<uint64_t>(chunk.is_run() ? chunk.run_count
                                                             : element_count(chunk.box.size, what));
    const uint64_t skipped = chunk.extent.payload_offset;
    const bool is_whole = !chunk.is_run() && skipped == 0;
    const bool fits =
        is_whole ? held == needed
                 : skipped / element_bytes <= held && needed <= held - skipped / element_bytes;
    if (!fits || skipped % element_bytes != 0) {
      fail(
          ErrorKind::corrupt,
          "{}: it holds {} elements where {} are needed from byte {} on; the item and the metadata "
          "are of different checkpoints or damaged",
          what, held, needed, skipped);
    }
    Chunk placed = chunk;
    check_math_bits(tensor.math, tensor.dtype, what);
    placed.math = tensor.math;
    uint64_t span_bytes = checked_multiply(held, element_bytes, what);
    if (!is_row_major(tensor)) {
      if (!is_whole)
        fail(ErrorKind::unsupported, "{}: a part of a tensor that is not contiguous", what);
      placed.strides = box_strides(tensor, chunk.box, what);
      span_bytes = 1;
      for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
        span_bytes += static_cast<uint64_t>((tensor.shape[axis] - 1) * tensor.strides[axis]);
      }
      span_bytes *= element_bytes;
    }
    const uint64_t begin =
        storage_position + static_cast<uint64_t>(tensor.storage_offset) * element_bytes + skipped;
    placed.extent.encoding = Encoding::raw;
    if (placed.extent.zstd) {
      placed.extent.payload_offset = begin;
      placed.extent.decoded_end = checked_add(begin, span_bytes - skipped, what);
    } else {
      placed.extent.payload_offset = 0;
      placed.extent.offset = begin;
      placed.extent.length = span_bytes - skipped;
    }
    return placed;
  }

  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, std::shared_ptr<const ReadableFile>> open_files_;
};

}  // namespace

std::shared_ptr<const ChunkLocator> torch_zip_locator() {
  return std::make_shared<TorchZipLocator>();
}

}  // namespace ferry
