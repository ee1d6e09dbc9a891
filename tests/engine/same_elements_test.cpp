// Two tensors of a catalog compared by their bytes, in parts that are smaller than they.
#include <gtest/gtest.h>

#include <memory>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// Notes the furthest byte that was read.
class WatchedFile final : public ReadableFile {
 public:
  explicit WatchedFile(std::shared_ptr<const ReadableFile> file, uint64_t& read)
      : file_(std::move(file)), read_(read) {}
  const std::string& path() const noexcept override { return file_->path(); }
  uint64_t size() const noexcept override { return file_->size(); }
  void read(uint64_t offset, std::span<std::byte> into) const override {
    read_ += into.size();
    file_->read(offset, into);
  }

 private:
  std::shared_ptr<const ReadableFile> file_;
  uint64_t& read_;
};

class WatchedFiles final : public MemoryFileSystem {
 public:
  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return std::make_shared<WatchedFile>(MemoryFileSystem::open(path), read);
  }
  mutable uint64_t read = 0;
};

constexpr int64_t kManyRows = 1000, kManyColumns = 100;
constexpr uint64_t kBytes = kManyRows * kManyColumns * 2;

struct Tensors {
  std::shared_ptr<WatchedFiles> files = std::make_shared<WatchedFiles>();
  std::string bytes = std::string(2 * kBytes, 'x');
  Catalog catalog;

  Tensors() {
    catalog.file_system = files;
    catalog.add_file("both", bytes.size());
    add("a", 0, DType::bf16, {kManyRows, kManyColumns});
    add("b", kBytes, DType::bf16, {kManyRows, kManyColumns});
    add("shape", kBytes, DType::bf16, {kManyColumns, kManyRows});
    add("dtype", kBytes, DType::f16, {kManyRows, kManyColumns});
  }

  void add(const std::string& name, uint64_t offset, DType dtype, const Dims& shape) {
    Extent extent;
    extent.offset = offset;
    extent.length = kBytes;
    catalog.entries.push_back(
        {name, dtype, shape, {{{Box::whole(shape)}, {}, extent}}, Role::model});
  }

  bool same(size_t a, size_t b) {
    files->put("both", bytes);
    files->read = 0;
    return same_elements(catalog, catalog.entries[a], catalog.entries[b], 32 << 10);
  }
};

TEST(SameElements, EveryByteCounts) {
  Tensors tensors;
  EXPECT_TRUE(tensors.same(0, 0));
  EXPECT_TRUE(tensors.same(0, 1));
  for (const uint64_t at : {kBytes, 2 * kBytes - 1, kBytes + kBytes / 2 + 1}) {
    tensors.bytes[at] = 'y';
    EXPECT_FALSE(tensors.same(0, 1)) << at;
    tensors.bytes[at] = 'x';
  }
  EXPECT_FALSE(tensors.same(0, 2));
  EXPECT_FALSE(tensors.same(0, 3));
}

TEST(SameElements, ReadsNoFurtherThanTheFirstDifference) {
  Tensors tensors;
  EXPECT_TRUE(tensors.same(0, 1));
  EXPECT_EQ(tensors.files->read, 2 * kBytes);
  tensors.bytes[kBytes] = 'y';
  EXPECT_FALSE(tensors.same(0, 1));
  EXPECT_LE(tensors.files->read, uint64_t{32} << 10);
  EXPECT_FALSE(tensors.same(0, 2));
  EXPECT_EQ(tensors.files->read, 0u);
}

}  // namespace
}  // namespace ferry
