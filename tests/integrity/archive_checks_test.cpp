// What a zstd stream that holds a tensor may be: no shorter than the tensor, and whole to its end.
#include "ckpt/integrity/checks/archive_checks.h"

#include <gmock/gmock.h>
#include <zstd.h>

#include <atomic>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/io/forwarding_file_system.h"
#include "ckpt/io/zstd_stream.h"
#include "tests/format/torch/zip_builder.h"
#include "tests/io/memory_file_system.h"

namespace ferry {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Asks for an end as soon as something is read.
class CancellingFiles final : public ForwardingFileSystem {
 public:
  CancellingFiles(std::shared_ptr<const FileSystem> inner, std::atomic<bool>& cancel)
      : ForwardingFileSystem(std::move(inner)), cancel_(cancel) {}

  std::shared_ptr<const ReadableFile> open(const std::string& path) const override {
    return std::make_shared<File>(inner().open(path), cancel_);
  }

 private:
  class File final : public ReadableFile {
   public:
    File(std::shared_ptr<const ReadableFile> inner, std::atomic<bool>& cancel)
        : inner_(std::move(inner)), cancel_(cancel) {}
    const std::string& path() const noexcept override { return inner_->path(); }
    uint64_t size() const noexcept override { return inner_->size(); }
    void read(uint64_t offset, std::span<std::byte> into) const override {
      cancel_ = true;
      inner_->read(offset, into);
    }

   private:
    std::shared_ptr<const ReadableFile> inner_;
    std::atomic<bool>& cancel_;
  };

  std::atomic<bool>& cancel_;
};

// A file that is one stream: a tensor's archive, cut off or followed by zeros.
class TensorStream : public testing::Test {
 protected:
  TensorStream() { entry_ = {"w", DType::f32, {4}, {}, Role::model}; }

  void put(const std::string& decoded) {
    std::string packed(ZSTD_compressBound(decoded.size()), '\0');
    const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> encoder(ZSTD_createCCtx(),
                                                                     ZSTD_freeCCtx);
    ZSTD_CCtx_setParameter(encoder.get(), ZSTD_c_checksumFlag, 1);
    packed.resize(ZSTD_compress2(encoder.get(), packed.data(), packed.size(), decoded.data(),
                                 decoded.size()));
    memory_->put(kPath, packed);
    catalog_.locator = torch_zip_locator();  // one that has not opened what was there before
    catalog_.files.clear();
    catalog_.files.push_back({kPath, packed.size()});
    entry_.chunks.assign(1,
                         {{Box::whole({4})}, {}, {0, 0, packed.size(), Encoding::torch_zip, true}});
    catalog_.entries.assign(1, entry_);
  }

  ArchiveChecks check(std::shared_ptr<const FileSystem> files, const EngineOptions& options = {}) {
    catalog_.file_system = files;
    const auto archives = find_archives(&catalog_, catalog_.files, *files);
    return check_archives(&catalog_, archives, catalog_.files, *files, options);
  }

  static constexpr uint64_t kLongTailBytes = kMostStreamTailBytes + (8 << 20);
  static constexpr const char* kPath = "__0_0.distcp";
  const std::string archive_ =
      test::tensor_archive(test::tensor_pickle("FloatStorage", 4, 0, {4}, {1}), "sixteen elements");
  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
  Catalog catalog_;
  Entry entry_;
};

TEST_F(TensorStream, MayGoOnAfterTheTensor) {
  for (const uint64_t zeros : {uint64_t{0}, kMostStreamTailBytes / 2, kLongTailBytes}) {
    put(archive_ + std::string(zeros, '\0'));
    const ArchiveChecks checks = check(memory_);
    for (const Problem& problem : checks.problems) ADD_FAILURE() << problem.what;
    EXPECT_EQ(checks.tensors, 1);
    EXPECT_EQ(checks.zstd, 1);
  }
}

TEST_F(TensorStream, IsDecodedToItsEnd) {
  put(archive_ + std::string(kLongTailBytes, '\0'));
  const std::string packed = memory_->get(kPath);
  memory_->put(kPath, packed.substr(0, packed.size() - 1) + "\x7f");
  const ArchiveChecks checks = check(memory_);
  ASSERT_EQ(checks.problems.size(), 1u);
  EXPECT_THAT(checks.problems[0].what,
              AllOf(HasSubstr("tensor w"), HasSubstr(kPath), HasSubstr("checksum")));
}

TEST_F(TensorStream, ThatEndsWithinTheElementsIsDamaged) {
  put(archive_.substr(0, archive_.find("elements")));
  const ArchiveChecks checks = check(memory_);
  ASSERT_EQ(checks.problems.size(), 1u);
  EXPECT_THAT(checks.problems[0].what,
              AllOf(HasSubstr("tensor w"), HasSubstr(kPath), HasSubstr("ends")));
}

TEST_F(TensorStream, IsLeftWhenAskedTo) {
  put(archive_ + std::string(8 << 20, '\0'));
  std::atomic<bool> cancel{false};
  EngineOptions options;
  options.cancel = &cancel;
  try {
    check(std::make_shared<CancellingFiles>(memory_, cancel), options);
    ADD_FAILURE() << "went on to the end";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

}  // namespace
}  // namespace ferry
