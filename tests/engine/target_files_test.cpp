// Plans with more files than a process may hold open.
#include "ckpt/engine/target_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/engine/run.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

constexpr size_t kFiles = 200;
constexpr int64_t kFileColumns = 24;

// Lowers what the process may open while it lives.
class FewOpenFiles {
 public:
  explicit FewOpenFiles(rlim_t most) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit low{most, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &low);
  }
  ~FewOpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// A tensor of a column a file, of which each tile holds some rows: all files are met again and
// again.
struct ManyFilesJob {
  ManyFilesJob() {
    const int64_t rows = kFiles;
    std::string bytes;
    for (int64_t i = 0; i < rows * kFileColumns; ++i) bytes += static_cast<char>(i % 251);
    memory->put("src", bytes);
    source.file_system = memory;
    source.add_file("src", bytes.size());
    const Dims shape{kFileColumns, rows};
    source.entries.push_back({"a", DType::u8, shape, {}, Role::model});
    source.entries[0].chunks.push_back({{Box::whole(shape)}, {}, {0, 0, bytes.size()}});
    plan.source = SharedCatalog::borrow(source);
    Entry target{"a", DType::u8, shape, {}, Role::model};
    for (uint32_t i = 0; i < kFiles; ++i) {
      plan.target.files.push_back({"f" + std::to_string(i), kFileColumns + 1});
      plan.literals.push_back({i, kFileColumns, "."});
      plan.items.push_back({i, 0, kFileColumns + 1, {}});
      target.chunks.push_back({{{{0, i}, {kFileColumns, 1}}}, {}, {i, 0, kFileColumns}});
      for (int64_t row = 0; row < kFileColumns; ++row) {
        expected[i] += bytes[static_cast<size_t>(row * rows + i)];
      }
      expected[i] += '.';
    }
    plan.target.entries.push_back(target);
    plan.recipes.push_back({{0}, {copy_all(shape)}, {}});
    check(plan);
  }

  std::shared_ptr<MemoryFileSystem> memory = std::make_shared<MemoryFileSystem>();
  Catalog source;
  Plan plan;
  std::vector<std::string> expected = std::vector<std::string>(kFiles);
};

class TargetFilesTest : public testing::Test {
 protected:
  TargetFilesTest() { std::filesystem::create_directory(folder_); }
  ~TargetFilesTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "ferry_target_files." +
                        testing::UnitTest::GetInstance()->current_test_info()->name() + "." +
                        std::to_string(::getpid());
  std::shared_ptr<const FileSystem> disk_ = posix_file_system();
};

TEST_F(TargetFilesTest, APlanHasMoreFilesThanMayBeOpen) {
  const ManyFilesJob job;
  EngineOptions options;
  options.threads = 3;
  options.memory_bytes = 3 * 4 * kFiles;  // two rows a tile
  {
    const FewOpenFiles few(48);
    const std::vector<Digest> digests = run(job.plan, *disk_, folder_, options);
    for (size_t i = 0; i < kFiles; ++i) {
      EXPECT_EQ(digests[i], digest_of(std::as_bytes(std::span(job.expected[i])))) << i;
    }
  }
  for (size_t i = 0; i < kFiles; ++i) {
    EXPECT_EQ(read_file(*disk_, folder_ + "/f" + std::to_string(i), 100), job.expected[i]) << i;
  }
}

TEST_F(TargetFilesTest, OnlyFilesThatAreWrittenAreOpened) {
  const ManyFilesJob job;
  const EngineOptions options;
  std::ofstream(folder_ + "/f7") << "former";
  TargetFiles files(job.plan, *disk_, folder_, TargetMode::open,
                    options);  // the others are not there
  files.files()[7]->write(0, std::as_bytes(std::span("new", 3)));
  files.sync();
  EXPECT_EQ(read_file(*disk_, folder_ + "/f7", 100), "newmer");
  EXPECT_THROW(files.files()[8]->write(0, {}), Error);
}

}  // namespace
}  // namespace ferry
