// Tensors that are mapped instead of read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/hugging_face/safetensors.h"
#include "ckpt/memory/load.h"
#include "ckpt/memory/tensor_set.h"
#include "tests/support.h"

namespace ferry::test {
namespace {

std::string text_of(const OwnedTensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()};
}

class MappedTensors : public testing::Test {
 protected:
  MappedTensors() : folder_(testing::TempDir() + "map_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~MappedTensors() override { std::filesystem::remove_all(folder_); }

  // A copy whose bytes the test may count on.
  Checkpoint open_copy(const std::string& name) const {
    std::filesystem::copy(fixture(name), folder_ + "/copy",
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
    return open_checkpoint(posix_file_system(), folder_ + "/copy");
  }

  // Mapped tensors; each is what is stored.
  static size_t count_mapped(const Checkpoint& checkpoint) {
    const TensorSet tensors(checkpoint);
    size_t mapped = 0;
    for (const Entry& entry : tensors.tensors()) {
      const std::optional<OwnedTensor> tensor = tensors.map(entry.name);
      if (!tensor) continue;
      ++mapped;
      EXPECT_EQ(tensor->name, entry.name);
      EXPECT_EQ(tensor->dtype, entry.dtype);
      EXPECT_EQ(tensor->shape, entry.shape);
      EXPECT_TRUE(text_of(*tensor) == read_tensor(checkpoint.catalog, entry, 1 << 30))
          << entry.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->bytes.data()) %
                    static_cast<uintptr_t>(size_bytes(entry.dtype)),
                0u);
    }
    return mapped;
  }

  const std::string folder_;
};

TEST_F(MappedTensors, AreThoseOfSafetensorsFiles) {
  const Checkpoint checkpoint = open_copy("hugging_face/safetensors_shards");
  EXPECT_EQ(count_mapped(checkpoint), checkpoint.catalog->entries.size());
}

TEST_F(MappedTensors, AreThoseOfTorchFilesInTheirOrder) {
  const auto count = [&](const char* name) {
    return count_mapped(
        open_checkpoint(posix_file_system(), fixture(std::string("torch/") + name + ".pt")));
  };
  EXPECT_EQ(count("contiguous"), 1u);
  EXPECT_EQ(count("transposed"), 0u);
  EXPECT_EQ(count("expanded"), 0u);
  EXPECT_EQ(count("negated"), 0u);
}

TEST_F(MappedTensors, WritesDoNotReachTheFile) {
  const Checkpoint checkpoint = open_copy("hugging_face/safetensors_shards");
  const TensorSet tensors(checkpoint), copy = tensors, other(checkpoint);
  const std::string name = checkpoint.catalog->entries[0].name;
  const std::string stored =
      read_tensor(checkpoint.catalog, checkpoint.catalog->entries[0], 1 << 30);
  const OwnedTensor tensor = tensors.map(name).value();
  std::memset(tensor.bytes.data(), '!', tensor.bytes.size());
  EXPECT_TRUE(text_of(copy.map(name).value()) == std::string(stored.size(), '!'));  // is shared
  EXPECT_TRUE(text_of(other.map(name).value()) == stored);
  EXPECT_EQ(read_tensor(checkpoint.catalog, checkpoint.catalog->entries[0], 1 << 30), stored);
}

TEST_F(MappedTensors, OneMappingAFile) {
  const Checkpoint checkpoint = open_copy("hugging_face/safetensors_shards");
  const TensorSet tensors(checkpoint);
  std::map<const void*, int> owners;
  for (const Entry& entry : tensors.tensors()) ++owners[tensors.map(entry.name)->owner.get()];
  EXPECT_EQ(owners.size(), 3u);
}

TEST_F(MappedTensors, OutliveTheCheckpointAndItsFiles) {
  std::optional<OwnedTensor> tensor;
  std::string stored;
  {
    const Checkpoint checkpoint = open_copy("hugging_face/safetensors_shards");
    stored = read_tensor(checkpoint.catalog, checkpoint.catalog->entries[0], 1 << 30);
    tensor = TensorSet(checkpoint).map(checkpoint.catalog->entries[0].name);
  }
  std::filesystem::remove_all(folder_ + "/copy");
  ASSERT_TRUE(tensor);
  EXPECT_TRUE(text_of(*tensor) == stored);
}

TEST_F(MappedTensors, NothingThatIsCompressedSharedOutOrMade) {
  const Checkpoint compressed = open_checkpoint(posix_file_system(), fixture("dcp_zstd"));
  ASSERT_FALSE(compressed.catalog->entries.empty());
  EXPECT_EQ(count_mapped(compressed), 0u);
  const Checkpoint run =
      open_checkpoint(posix_file_system(), fixture("megatron/llama_legacy_tp2pp2"));
  const TensorSet tensors(run);
  for (const Entry& entry : tensors.tensors()) {
    if (entry.chunks.size() < 2) continue;
    EXPECT_FALSE(tensors.map(entry.name)) << entry.name;
  }
}

// Files of three tensors, the first of which has an odd number of bytes.
TEST_F(MappedTensors, OnlyWhereTheElementsAreAligned) {
  std::vector<Entry> entries{{"odd", DType::u8, {3}, {}},
                             {"f32", DType::f32, {2}, {}},
                             {"u8", DType::u8, {5}, {}},
                             {"none", DType::f32, {0}, {}}};
  std::vector<Entry*> members;
  for (Entry& entry : entries) members.push_back(&entry);
  uint64_t bytes = 0;
  std::string file = write_safetensors_header(members, {}, 0, &bytes);
  file += "abc12345678vwxyz";
  const std::string path = folder_ + "/odd.safetensors";
  write_file(*posix_file_system(), path, file);
  const TensorSet tensors(open_checkpoint(posix_file_system(), path));
  EXPECT_EQ(text_of(tensors.map("odd").value()), "abc");
  EXPECT_FALSE(tensors.map("f32"));
  EXPECT_EQ(text_of(tensors.map("u8").value()), "vwxyz");
  EXPECT_FALSE(tensors.map("none"));
  EXPECT_THROW(tensors.map("other"), Error);
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("odd.safetensors", file);
  EXPECT_FALSE(TensorSet(open_checkpoint(memory, "odd.safetensors")).map("odd"));
}

TEST_F(MappedTensors, NoHalvesOfOthers) {
  std::vector<Entry> entries{{"upper", DType::bf16, {4}, {}}, {"lower", DType::i16, {4}, {}}};
  uint64_t bytes = 0;
  std::string file = write_safetensors_header({&entries[0], &entries[1]}, {}, 0, &bytes);
  const std::string path = folder_ + "/halves.safetensors";
  write_file(*posix_file_system(), path, file + "0123456789abcdef");
  Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
  EXPECT_EQ(count_mapped(checkpoint), 2u);
  Entry& lower = checkpoint.catalog.edit().entries[1];
  lower.dtype = DType::f32;
  lower.remainders = Remainders{DType::i16, 0};
  EXPECT_TRUE(TensorSet(checkpoint).map("upper"));
  EXPECT_FALSE(TensorSet(checkpoint).map("lower"));
}

// Parts of a stacked tensor, as a model in other names has them: those of its rows are in one run.
TEST_F(MappedTensors, AlsoOfTensorsThatAreMade) {
  std::vector<Entry> entries{{"stacked", DType::bf16, {3, 2, 4}, {}}};
  uint64_t bytes = 0;
  std::string file = write_safetensors_header({&entries[0]}, {}, 0, &bytes);
  for (char c = 'a'; c < 'a' + 24; ++c) file += {c, '0'};
  const std::string path = folder_ + "/stacked.safetensors";
  write_file(*posix_file_system(), path, file);
  const Checkpoint checkpoint = open_checkpoint(posix_file_system(), path);
  const Recipe layer{{0}, {{0, {1, 0, 0}, {0, 0}, {{2, 1, 1, 0, 1}, {4, 2, 1, 1, 1}}}}, {}};
  const Recipe columns{{0}, {{0, {1, 0, 1}, {0, 0}, {{2, 1, 1, 0, 1}, {2, 2, 1, 1, 1}}}}, {}};
  const Recipe zeros{{}, {}, {Box::whole({2, 4})}};
  const TensorSet made =
      made_tensors(checkpoint.catalog, {{"layer", DType::bf16, {2, 4}, layer},
                                        {"cast", DType::f32, {2, 4}, layer},
                                        {"columns", DType::bf16, {2, 2}, columns},
                                        {"zeros", DType::bf16, {2, 4}, zeros}});
  EXPECT_EQ(text_of(made.map("layer").value()), "i0j0k0l0m0n0o0p0");
  EXPECT_FALSE(made.map("cast"));
  EXPECT_FALSE(made.map("columns"));
  EXPECT_FALSE(made.map("zeros"));
}

}  // namespace
}  // namespace ferry::test
