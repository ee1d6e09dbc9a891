// Work on one of many tensors or files must not read the others, whose memory is protected
// meanwhile: else work on all of them would be quadratic.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>

#include "ckpt/base/box.h"
#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "ckpt/engine/engine.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

constexpr size_t kMany = 20'000;

// Forbids access to the whole pages between two addresses, as long as it lives.
class OutOfBounds {
 public:
  OutOfBounds(const void* begin, const void* end) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    begin_ = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
    const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page * page;
    bytes_ = last > begin_ ? last - begin_ : 0;
    EXPECT_GT(bytes_, 100 * page);
    protect(PROT_NONE);
  }
  ~OutOfBounds() { protect(PROT_READ | PROT_WRITE); }
  OutOfBounds(const OutOfBounds&) = delete;
  OutOfBounds& operator=(const OutOfBounds&) = delete;

 private:
  void protect(int access) {
    EXPECT_EQ(::mprotect(reinterpret_cast<void*>(begin_), bytes_, access), 0);
  }

  uintptr_t begin_ = 0;
  size_t bytes_ = 0;
};

TEST(OneOfMany, ATensorIsScannedByItself) {
  const auto files = std::make_shared<MemoryFileSystem>();
  files->put("f", "abcd");
  Catalog catalog;
  catalog.file_system = files;
  catalog.add_file("f", 4);
  Extent extent;
  extent.length = 4;
  catalog.entries.assign(
      kMany, {"w", DType::u8, {2, 2}, {{{Box::whole({2, 2})}, {}, extent}}, Role::model});
  catalog.entries.back().chunks[0].strides = {1, 2};
  const Entry& last = catalog.entries.back();
  std::string bytes;
  {
    const OutOfBounds others(catalog.entries.data(), &last);
    scan(catalog, last, 1 << 20, [&](std::span<const std::byte> part) {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
  }
  EXPECT_EQ(bytes, "acbd");
}

TEST(OneOfMany, AFileIsAddedWithoutReadingTheOthers) {
  Catalog catalog;
  catalog.files.reserve(kMany + 8);
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(catalog.add_file("file " + std::to_string(i), i), i);
  }
  {
    const OutOfBounds others(catalog.files.data(), &catalog.files.back());
    EXPECT_EQ(catalog.add_file("another", 1), kMany);
    EXPECT_EQ(catalog.add_file("another", 1), kMany);
  }
  EXPECT_EQ(catalog.add_file("file 7", 0), 7u);
}

TEST(OneOfMany, FilesMayBeAddedOtherwise) {
  Catalog catalog;
  EXPECT_EQ(catalog.add_file("a", 1), 0u);
  catalog.files.push_back({"b", 2});
  EXPECT_EQ(catalog.add_file("b", 2), 1u);
  catalog.files.push_back({"c", 1});
  EXPECT_EQ(catalog.add_file("d", 1), 3u);
  EXPECT_EQ(catalog.add_file("c", 1), 2u);
  catalog.files.clear();
  EXPECT_EQ(catalog.add_file("d", 1), 0u);
}

}  // namespace
}  // namespace ferry
