// Plans whose files lie in memory (tmpfs): several threads write to one at once.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "ckpt/base/box.h"
#include "ckpt/base/digest.h"
#include "ckpt/base/dtype.h"
#include "ckpt/core/catalog.h"
#include "ckpt/core/plan.h"
#include "ckpt/core/recipe.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

// Tensors of some megabytes, one after another in two files at places that are not pages', each an
// item followed by its CRC-32; every other one is transposed.
struct ItemsJob {
  static constexpr int64_t kTensors = 6, kRows = 1100, kColumns = 901;
  static constexpr uint64_t kBytes = kRows * kColumns * 2, kGap = 37;

  ItemsJob() {
    std::mt19937_64 random(1);
    std::string content(kTensors * kBytes, '\0');
    for (size_t i = 0; i + 8 <= content.size(); i += 8) {
      const uint64_t value = random();
      std::memcpy(content.data() + i, &value, 8);
    }
    memory->put("src", content);
    source.file_system = memory;
    source.add_file("src", content.size());
    plan.source = SharedCatalog::borrow(source);
    plan.target.files = {{"one", kTensors / 2 * (kBytes + kGap)},
                         {"two", kTensors / 2 * (kBytes + kGap)}};
    for (uint64_t i = 0; i < kTensors; ++i) {
      const std::string name = "t" + std::to_string(i);
      const auto file = static_cast<uint32_t>(i % 2);
      const uint64_t at = i / 2 * (kBytes + kGap);
      source.entries.push_back({name, DType::u16, {kRows, kColumns}, {}, Role::model});
      source.entries[i].chunks.push_back(
          {{Box::whole({kRows, kColumns})}, {}, {0, i * kBytes, kBytes}});
      const bool turned = i % 3 == 0;
      const Dims shape = turned ? Dims{kColumns, kRows} : Dims{kRows, kColumns};
      plan.target.entries.push_back({name, DType::u16, shape, {}, Role::model});
      plan.target.entries[i].chunks.push_back({{Box::whole(shape)}, {}, {file, at, kBytes}});
      const Move turn{0, {0, 0}, {0, 0}, {{kRows, 0, 1, 1, 1}, {kColumns, 1, 1, 0, 1}}};
      plan.recipes.push_back({{static_cast<uint32_t>(i)}, {turned ? turn : copy_all(shape)}, {}});
      plan.literals.push_back({file, at + kBytes, std::string(kGap, '.')});
      plan.items.push_back({file, at, kBytes + kGap, {{at, kBytes, {at + kBytes + 9}}}});
    }
    check(plan);
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
};

struct FolderInMemory {
  FolderInMemory() {
    if (::mkdtemp(path.data()) == nullptr) path.clear();
  }
  ~FolderInMemory() {
    if (!path.empty()) std::filesystem::remove_all(path);
  }
  std::string path = "/dev/shm/ferry-engine-XXXXXX";
};

TEST(FilesInMemory, HaveTheBytesOfPlainWrites) {
  const ItemsJob job;
  job.memory->create_folder("out");
  const std::vector<Digest> expected = run(job.plan, *job.memory, "out", {});
  for (const PageWrites pages : {PageWrites::when_crowded, PageWrites::always, PageWrites::never}) {
    const FolderInMemory folder;
    if (folder.path.empty()) GTEST_SKIP() << "there are no files in memory";
    const auto files = posix_file_system({pages});
    EngineOptions options;
    options.threads = 4;
    EXPECT_EQ(run(job.plan, *files, folder.path, options), expected);
    for (const char* name : {"one", "two"}) {
      EXPECT_TRUE(read_file(*files, folder.path + "/" + name, 1 << 24) ==
                  job.memory->get(std::string("out/") + name))
          << name;
    }
  }
}

}  // namespace
}  // namespace ferry
