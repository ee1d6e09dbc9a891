// Distributed checkpoints whose items are compressed on their way to the files.
#include <gtest/gtest.h>

#include <random>

#include "ckpt/base/error.h"
#include "ckpt/engine/compressed_run.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/dcp/dcp.h"
#include "ckpt/format/dcp/dcp_writer.h"
#include "ckpt/io/zstd_encoder.h"
#include "ckpt/io/zstd_stream.h"
#include "tests/io/fault_file_system.h"
#include "tests/megatron/writer_support.h"

namespace ferry {
namespace {

constexpr const char* kFolder = "out";

struct DcpZstd : testing::Test {
  std::shared_ptr<MemoryFileSystem> files = std::make_shared<MemoryFileSystem>();
  test::MemoryTensors tensors;
  std::mt19937_64 random{7};

  void SetUp() override {
    for (int i = 0; i < 24; ++i) {
      const int64_t rows = 8 * (1 + i * i % 13), columns = 1 + 700 * (i % 4);
      std::string bytes(static_cast<size_t>(4 * rows * columns), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random() % (i % 3 == 0 ? 256 : 20));
      tensors.add("t" + std::to_string(i), DType::f32, {rows, columns}, Role::model, bytes);
    }
    tensors.add("none", DType::bf16, {0, 3}, Role::model, "");
    tensors.add("scalar", DType::f64, {}, Role::model, "12345678");
  }

  PlannedOutput lay_out(bool zstd) {
    std::vector<PlacedTensor> placed;
    const Catalog& source = tensors.catalog();
    for (uint32_t i = 0; i < source.entries.size(); ++i) {
      const Entry& entry = source.entries[i];
      PlacedTensor one{{entry.name, entry.dtype, entry.shape, {{i}, {copy_all(entry.shape)}, {}}},
                       {}};
      Box box = Box::whole(entry.shape);
      const int64_t parts = entry.shape.size() == 2 && entry.shape[0] > 0 ? 4 : 1;
      for (int64_t rank = 0; rank < parts; ++rank) {
        if (parts > 1) box.size[0] = entry.shape[0] / parts;
        if (parts > 1) box.offset[0] = rank * box.size[0];
        one.shards.push_back({box, rank % 2});
      }
      placed.push_back(std::move(one));
    }
    const std::string archive(300'000, 'o');  // longer than what is read at once
    return lay_out_dcp(SharedCatalog::borrow(source), {std::move(placed), {{"object", archive, 1}}},
                       {1, {}, zstd});
  }

  std::vector<Digest> compress(PlannedOutput& output, int threads, const std::string& folder,
                               uint64_t memory_bytes = 8 << 20, int level = kDefaultZstdLevel) {
    files->create_folder(folder);
    EngineOptions options;
    options.threads = threads;
    options.memory_bytes = memory_bytes;
    auto digests = run_compressed(output.plan, *files, folder, level, options);
    files->put(folder + "/.metadata", output.late_file.content(output.plan.target));
    return digests;
  }

  std::string decoded(const std::string& path, const Item& item) const {
    ZstdStream stream(files->open(path), item.offset, item.length);
    std::string bytes(1 << 20, '\0');
    bytes.resize(stream.read_some(std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }
};

TEST_F(DcpZstd, ComesBack) {
  PlannedOutput output = lay_out(true);
  compress(output, 4, kFolder);
  const Catalog read = open_dcp(files, kFolder).catalog;
  for (const Entry& entry : read.entries) {
    for (const Chunk& chunk : entry.chunks) EXPECT_TRUE(chunk.extent.zstd) << entry.name;
  }
  test::expect_same_tensors(read, tensors.catalog());
  EXPECT_NE(read.find_object("object"), nullptr);
}

TEST_F(DcpZstd, ItemsAreWhatTheyWouldBeWithoutCompression) {
  const PlannedOutput plain = lay_out(false);
  files->create_folder("plain");
  run(plain.plan, *files, "plain", {});
  PlannedOutput output = lay_out(true);
  const std::vector<Digest> digests = compress(output, 3, kFolder);
  ASSERT_EQ(output.plan.items.size(), plain.plan.items.size());
  uint64_t bytes = 0;
  for (size_t i = 0; i < plain.plan.items.size(); ++i) {
    const Item &was = plain.plan.items[i], &is = output.plan.items[i];
    const std::string name = plain.plan.target.files[was.file].path;
    EXPECT_EQ(decoded(join(kFolder, name), is),
              files->get(join("plain", name)).substr(was.offset, was.length));
    const std::string frame = files->get(join(kFolder, name)).substr(is.offset, is.length);
    EXPECT_EQ(digest_of(std::as_bytes(std::span(frame))), digests[i]);
    bytes += is.length;
  }
  EXPECT_EQ(bytes, output.plan.target_bytes()) << "no gaps";
  EXPECT_LT(bytes, plain.plan.target_bytes());
}

TEST_F(DcpZstd, IsTheSameWhateverThreadsAndMemory) {
  PlannedOutput first = lay_out(true);
  compress(first, 1, kFolder);
  for (const auto& [threads, memory] : {std::pair{8, 64 << 20}, {8, 1 << 20}, {2, 1}}) {
    const std::string folder = "out" + std::to_string(threads) + "." + std::to_string(memory);
    PlannedOutput other = lay_out(true);
    compress(other, threads, folder, static_cast<uint64_t>(memory));
    for (const std::string& name : files->list(kFolder)) {
      EXPECT_TRUE(files->get(join(kFolder, name)) == files->get(join(folder, name))) << name;
    }
  }
  PlannedOutput smaller = lay_out(true);
  compress(smaller, 4, "level", 64 << 20, kMostZstdLevel);
  EXPECT_LT(smaller.plan.target_bytes(), first.plan.target_bytes());
}

// Frames that wait for one another must not wait for one that will never come.
TEST_F(DcpZstd, EndsWhenWritingFailsOrIsCancelled) {
  for (uint64_t operation = 1; operation < 60; ++operation) {
    files->create_folder("failed");
    PlannedOutput output = lay_out(true);
    const FaultFileSystem faulty(files, operation, ErrorKind::exhausted);
    EngineOptions options;
    options.threads = 8;
    options.memory_bytes = 1 << 20;
    try {
      run_compressed(output.plan, faulty, "failed", 1, options);
      ADD_FAILURE() << "operation " << operation << " failed without an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::exhausted) << error.what();
    }
    files->remove_all("failed");
  }
  const std::atomic<bool> cancel{true};
  PlannedOutput output = lay_out(true);
  EngineOptions options;
  options.cancel = &cancel;
  EXPECT_THROW(run_compressed(output.plan, *files, kFolder, 1, options), Error);
}

}  // namespace
}  // namespace ferry
