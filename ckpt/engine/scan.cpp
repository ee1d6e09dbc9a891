// Reading one tensor, whole or passing by: plans whose target is memory.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "ckpt/engine/tensor_reader.h"
#include "ckpt/engine/tiles/tile.h"
#include "ckpt/engine/tiles/tile_cut.h"
#include "ckpt/io/zstd_stream.h"

namespace ferry {
namespace {

constexpr uint64_t kTileBytes = 4 << 20;

// A target that is not a file: hands on whatever is written, with its offset.
class CallbackFile final : public WritableFile {
 public:
  using Callback = std::function<void(uint64_t, std::span<const std::byte>)>;
  explicit CallbackFile(Callback callback) : callback_(std::move(callback)) {}
  const std::string& path() const noexcept override { return path_; }
  void write(uint64_t offset, std::span<const std::byte> from) override { callback_(offset, from); }
  void read(uint64_t, std::span<std::byte>) const override {
    fail(ErrorKind::internal, "a callback file cannot be read");
  }
  void sync() override {}

 private:
  std::string path_ = "memory";
  Callback callback_;
};

// The plan that copies one entry, row-major, to a single file.
Plan identity_plan(const Catalog& catalog, const Entry& entry) {
  const auto bytes = static_cast<uint64_t>(entry.bytes());
  const auto position = static_cast<size_t>(&entry - catalog.entries.data());
  if (position >= catalog.entries.size()) {
    fail(ErrorKind::internal, "tensor {} is not one of the catalog's own entries", entry.name);
  }
  Plan plan;
  plan.source = SharedCatalog::borrow(catalog);
  plan.target.files.push_back({"memory", bytes});
  plan.target.entries.push_back({entry.name, entry.dtype, entry.shape, {}, entry.role});
  plan.target.entries[0].chunks.push_back({{Box::whole(entry.shape)}, {}, {0, 0, bytes}});
  plan.recipes.push_back({{static_cast<uint32_t>(position)}, {copy_all(entry.shape)}, {}});
  return plan;
}

}  // namespace

std::string read_tensor(const Catalog& catalog, const Entry& entry, uint64_t limit_bytes) {
  const auto bytes = static_cast<uint64_t>(entry.bytes());
  if (bytes > limit_bytes) {
    fail(ErrorKind::exhausted, "tensor {} has {} bytes; at most {} were expected", entry.name,
         bytes, limit_bytes);
  }
  std::string buffer(bytes, '\0');
  CallbackFile file([&](uint64_t offset, std::span<const std::byte> from) {
    std::memcpy(buffer.data() + offset, from.data(), from.size());
  });
  WritableFile* files[] = {&file};
  EngineOptions options;
  options.threads = 1;
  run(identity_plan(catalog, entry), files, options);
  return buffer;
}

namespace {

// Whether a located chunk's elements are contiguous, in whatever order.
bool is_packed(const Chunk& chunk) {
  std::vector<std::pair<int64_t, int64_t>> axes;  // stride, size
  for (size_t axis = 0; axis < chunk.strides.size(); ++axis) {
    if (chunk.box.size[axis] != 1) axes.emplace_back(chunk.strides[axis], chunk.box.size[axis]);
  }
  std::sort(axes.begin(), axes.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : axes) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

// The entry's chunks with raw extents; nothing when the elements of one are not contiguous.
std::optional<std::vector<Chunk>> locate_packed(const Catalog& catalog, const Entry& entry) {
  std::vector<Chunk> located;
  for (const Chunk& chunk : entry.chunks) {
    const bool raw = chunk.extent.encoding == Encoding::raw;
    if (!raw && !catalog.locator) {
      fail(ErrorKind::internal, "tensor {}: no locator for its chunks", entry.name);
    }
    located.push_back(raw ? chunk : catalog.locator->locate(catalog, entry, chunk));
    if (!is_packed(located.back()) || located.back().math.any()) return std::nullopt;
  }
  return located;
}

// Hands on the bytes of a packed chunk in the order in which they are stored.
void scan_chunk(const Catalog& catalog, const Entry& entry, const Chunk& chunk,
                std::span<std::byte> buffer,
                const std::function<void(std::span<const std::byte>)>& consume) {
  const Extent& extent = chunk.extent;
  const int64_t elements = chunk.elements(entry.name);
  uint64_t left = static_cast<uint64_t>(elements * size_bytes(entry.dtype));
  if (left == 0) return;
  const auto file = catalog.file_system->open(catalog.files.at(extent.file).path);
  std::optional<ZstdStream> stream;
  uint64_t at = extent.offset + extent.payload_offset;
  if (extent.zstd) {
    stream.emplace(file, extent.offset, extent.length);
    stream->skip(extent.payload_offset);
  }
  while (left > 0) {
    const auto part = buffer.first(std::min<uint64_t>(buffer.size(), left));
    stream ? stream->read(part) : file->read(at, part);
    consume(part);
    at += part.size();
    left -= part.size();
  }
  if (stream) stream->check_to_end(kMostStreamTailBytes);
}

// Tile by tile, for elements that are strewn over their extents.
void scan_tiles(const Catalog& catalog, const Entry& entry, uint64_t tile_bytes,
                const std::function<void(std::span<const std::byte>)>& consume) {
  const Plan plan = identity_plan(catalog, entry);
  PlanCompiler compiler(plan);
  uint64_t stream_bytes = stream_memory(entry, tile_bytes);
  if (entry.remainders && stream_bytes == 0) {
    stream_bytes = stream_memory(catalog.entries.at(entry.remainders->upper), tile_bytes);
  }
  SourceFiles sources(catalog, {}, stream_bytes, 1);
  CallbackFile file([&](uint64_t, std::span<const std::byte> from) { consume(from); });
  WritableFile* files[] = {&file};
  TileRunner runner(sources, files, nullptr, nullptr);
  const auto most = static_cast<int64_t>(tile_bytes) / size_bytes(entry.dtype);
  for (const Box& tile : cut_into_tiles(entry.shape, std::max<int64_t>(1, most))) {
    runner.run(compiler.compile(0, tile));
  }
}

}  // namespace

void scan(const Catalog& catalog, const Entry& entry, uint64_t memory_bytes,
          const std::function<void(std::span<const std::byte>)>& consume) {
  if (entry.elements() == 0) return;
  const uint64_t tile_bytes = std::min(memory_bytes / 2, kTileBytes);
  // Tiles come in the tensor's order, however it is stored, and so do sums over them. But of a zstd
  // stream they would keep all that is decoded.
  const bool streams = std::any_of(entry.chunks.begin(), entry.chunks.end(),
                                   [](const Chunk& chunk) { return chunk.extent.zstd; });
  // What is stored as remainders is put together tile by tile.
  const bool as_stored = streams && !entry.remainders;
  const auto chunks = as_stored ? locate_packed(catalog, entry) : std::nullopt;
  if (!chunks) return scan_tiles(catalog, entry, tile_bytes, consume);
  const auto element_bytes = static_cast<uint64_t>(size_bytes(entry.dtype));
  std::vector<std::byte> buffer(std::max<uint64_t>(1, tile_bytes / element_bytes) * element_bytes);
  for (const Chunk& chunk : *chunks) {
    try {
      scan_chunk(catalog, entry, chunk, buffer, consume);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::corrupt) throw;
      fail(error.kind(), "tensor {}: {}", entry.name, error.what());
    }
  }
}

namespace {

constexpr uint64_t kMostComparedBytes = 4 << 20;
constexpr uint64_t kBuffers = 6;  // both parts, and what a reader holds of either side

// The entry's elements as a tensor of `plan`.
void add(Plan& plan, const Catalog& catalog, const Entry& entry) {
  const auto position = static_cast<size_t>(&entry - catalog.entries.data());
  if (position >= catalog.entries.size()) {
    fail(ErrorKind::internal, "tensor {} is not one of the catalog's own entries", entry.name);
  }
  Recipe recipe;
  recipe.inputs.push_back(static_cast<uint32_t>(position));
  recipe.moves.push_back(copy_all(entry.shape));
  add_read_tensor(plan, entry.name, entry.dtype, entry.shape, std::move(recipe));
}

}  // namespace

bool same_elements(const Catalog& catalog, const Entry& a, const Entry& b, uint64_t memory_bytes) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  if (&a == &b || a.elements() == 0) return true;
  Plan plan;
  plan.source = SharedCatalog::borrow(catalog);
  add(plan, catalog, a);
  add(plan, catalog, b);
  TensorSource source(plan, stream_memory(catalog, memory_bytes), 1);
  TensorReader reader(source);
  const auto element_bytes = static_cast<uint64_t>(size_bytes(a.dtype));
  const uint64_t part_bytes =
      std::clamp(memory_bytes / kBuffers, element_bytes, kMostComparedBytes);
  const auto most = static_cast<int64_t>(part_bytes / element_bytes);
  std::vector<std::byte> parts[2];
  for (const Box& box : cut_into_tiles(a.shape, most)) {
    const auto bytes = static_cast<size_t>(element_count(box.size, a.name)) * element_bytes;
    for (const size_t i : {0, 1}) {
      parts[i].resize(bytes);
      reader.read(i, plan.target.entries[i].chunks[0], box, parts[i]);
    }
    if (parts[0] != parts[1]) return false;
  }
  return true;
}

}  // namespace ferry
