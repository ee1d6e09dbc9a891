// The one in-memory description of any checkpoint in any format.
//
// A catalog is built from metadata alone: it says which tensors there are and where the bytes of
// each of their pieces are stored, and holds no tensor data. Everything above the readers (convert,
// reshard, inspect, verify) knows tensors through this alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"

namespace ferry {

class FileSystem;
class ReaderLock;  // ckpt/io/staging/reader_lock.h

/// What the bytes of an extent are.
enum class Encoding : uint8_t {
  raw,        // the elements themselves, little-endian, row-major
  torch_zip,  // a torch.save archive that holds one tensor (an item of a .distcp file)
};

/// A run of bytes of one of the catalog's files.
struct Extent {
  uint32_t file = 0;    // index into Catalog::files
  uint64_t offset = 0;  // bytes
  uint64_t length = 0;  // bytes
  Encoding encoding = Encoding::raw;
  bool zstd = false;  // the whole extent is one zstd stream of what `encoding` says
  uint64_t payload_offset =
      0;  // bytes of decoded payload that come before the chunk's first element
  /// For a raw zstd extent: decoded bytes up to the end of the chunk's last element. Nothing after
  /// them is decoded, whatever the stream holds. 0: unknown.
  uint64_t decoded_end = 0;
};

/// How the elements of a chunk are stored.
struct ChunkStorage {
  Dims strides;  // of the box in storage, in elements; empty: row-major. Never with a run.
  Extent extent;
  MathBits math = {};  // of a view that torch.save left as it was
};

/// A shard in a file.
struct Chunk : Shard, ChunkStorage {
  Chunk() = default;
  // Not an aggregate: of one with a base, GCC 12 destroys the base twice where a later initialiser
  // throws.
  Chunk(Shard shard, Dims strides_, Extent extent_ = {})
      : Shard(std::move(shard)), ChunkStorage{std::move(strides_), extent_} {}
};

/// What a tensor is to the run that saved it.
enum class Role : uint8_t {
  model,      // a parameter or buffer of the model
  optimizer,  // fp32 parameter, exp_avg, exp_avg_sq:
              // `optimizer.state.{param,exp_avg,exp_avg_sq}.<key>`
};

/// An fp32 tensor stored as the remainders of its bf16 rounding: its chunks hold the lower 16 bits
/// of each element as a signed number, and the elements are those of a bf16 tensor with these
/// numbers added to their bits.
struct Remainders {
  DType stored = DType::i16;  // of the chunks' elements: i16, or f32 with the same whole numbers
  uint32_t upper = 0;         // position in the catalog of the bf16 tensor, of the same shape
};

struct Quantised;  // ckpt/core/quantised.h

/// One tensor. The chunks of a complete tensor cover it exactly once.
struct Entry {
  std::string name;
  DType dtype = DType::f32;
  Dims shape;
  std::vector<Chunk> chunks;
  Role role = Role::model;
  std::optional<Remainders> remainders = {};  // dtype is f32 where there are
  /// What the elements lie in where the tensor is read as values of a quantised one: it has no
  /// chunks of its own then, and `dtype` is that of the values.
  std::shared_ptr<const Quantised> quantised = {};

  int64_t elements() const { return element_count(shape, name); }
  /// The dtype of the elements in the chunks.
  DType stored_dtype() const noexcept { return remainders ? remainders->stored : dtype; }
  int64_t bytes() const;  // of the whole tensor; corrupt on overflow
};

/// Something stored that is not a tensor (args, scheduler, RNG state): a pickle or torch.save
/// archive, parsed on request by read_object (ckpt/format/torch/objects.h).
struct Object {
  std::string name;
  Extent extent;
  // A path of keys and attribute names inside the pickle at `extent`, outermost first: legacy files
  // hold all their objects in one pickle. Empty: the pickle's root.
  std::vector<std::string> path;
};

struct FileInfo {
  std::string path;  // as given to FileSystem, openable
  uint64_t bytes = 0;
  /// The bytes of a source in this process's memory; `path` is then only a name.
  const std::byte* memory = nullptr;
};

struct Catalog;

/// Turns a chunk whose extent is encoded (torch_zip) into one whose extent is raw: payload position
/// and strides come from the item's own header. Kept apart from opening because a large checkpoint
/// has thousands of items and few are asked for.
class ChunkLocator {
 public:
  virtual ~ChunkLocator() = default;
  /// Safe to call from several threads. corrupt when the item's dtype or element count contradicts
  /// the entry. A zstd extent stays zstd, with payload_offset pointing at the elements.
  virtual Chunk locate(const Catalog& catalog, const Entry& entry, const Chunk& chunk) const = 0;
};

struct Catalog {
  std::shared_ptr<const FileSystem> file_system;
  std::vector<FileInfo> files;
  std::vector<Entry> entries;  // in the order of the checkpoint
  std::vector<Object> objects;
  std::shared_ptr<const ChunkLocator> locator;  // null when every extent is raw
  /// Keep other ferry processes from removing the checkpoints whose files these are. Whoever has
  /// read from the files checks the locks before relying on what was read.
  std::vector<std::shared_ptr<const ReaderLock>> reader_locks;

  /// Index of `path` in files, added when absent. Files may be added otherwise, too, but those that
  /// are there stay at their numbers under their paths.
  uint32_t add_file(std::string path, uint64_t bytes);
  const Entry* find(std::string_view name) const;  // null when absent; linear
  const Object* find_object(std::string_view name) const;

 private:
  std::unordered_map<std::string, uint32_t> file_numbers_;  // by path, of the first files
  size_t numbered_files_ = 0;
};

/// A catalog with several owners: a checkpoint, and the states of runs and the plans made from it.
/// Copies refer to the same catalog, and each owner may go first.
class SharedCatalog {
 public:
  SharedCatalog() : SharedCatalog(Catalog()) {}
  SharedCatalog(Catalog&& catalog)  // NOLINT: to be shared from now on
      : catalog_(std::make_shared<const Catalog>(std::move(catalog))) {}
  /// Refers to a catalog that the caller keeps for as long as the result or a copy of it is used.
  static SharedCatalog borrow(const Catalog& catalog);

  // Not of a temporary, which may be the last owner: a loop over its entries would outlive it.
  const Catalog& operator*() const& noexcept { return *catalog_; }
  const Catalog& operator*() const&& = delete;
  const Catalog* operator->() const& noexcept { return catalog_.get(); }
  const Catalog* operator->() const&& = delete;
  operator const Catalog&() const noexcept { return *catalog_; }  // NOLINT: it is one

  /// For changes: other owners keep the catalog as it was.
  Catalog& edit();

 private:
  std::shared_ptr<const Catalog> catalog_;
};

/// An entry's values that are not finite.
struct NonFiniteTensor {
  std::string name;
  NonFinite values;
  int64_t elements = 0;
};

/// Name -> position of a catalog's entries, for many look-ups. Refers to the catalog's strings: the
/// catalog must outlive it and stay unchanged. Throws corrupt when a name is there twice.
class EntryIndex {
 public:
  explicit EntryIndex(const Catalog& catalog);
  const Entry* find(std::string_view name) const;

 private:
  const Catalog* catalog_;
  std::unordered_map<std::string_view, size_t> positions_;
};

/// Checks that the chunks of `entry` are inside its shape and inside their files, and together
/// cover it exactly once; corrupt or mismatch otherwise, naming tensor and file.
void check_chunks(const Catalog& catalog, const Entry& entry);

}  // namespace ferry
