// PyTorch distributed checkpoints: what PyTorch wrote, and what nobody should.
#include "ckpt/format/dcp/dcp.h"

#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/torch/objects.h"
#include "tests/format/dcp/dcp_pickle.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::DcpPickle;
using testing::AllOf;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return std::string(FERRY_FIXTURES) + "/dcp/" + name;
}

void expect_truth(const Catalog& catalog, const std::string& truth_name) {
  const auto truth = nlohmann::json::parse(std::ifstream(fixture(truth_name + ".json")));
  EXPECT_EQ(catalog.entries.size(), truth.size());
  for (const Entry& entry : catalog.entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    const auto& expected = truth[entry.name];
    EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_EQ(test::hash_of(read_tensor(catalog, entry, 1 << 20)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
  }
}

TEST(DcpFixture, Fsdp2WithUnevenAndEmptyShards) {
  const DcpCheckpoint dcp = open_dcp(posix_file_system(), fixture("fsdp"));
  expect_truth(dcp.catalog, "fsdp");
  const Entry* bias = dcp.catalog.find("model.layers.1.bias");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->shape, Dims{1});
  const Object* step = dcp.catalog.find_object("train_state.step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(read_object(dcp.catalog, *step).value.integer(), 5);
  EXPECT_TRUE(dcp.metadata->root().get("planner_data"));
}

class DcpVariant : public testing::TestWithParam<std::string> {};

TEST_P(DcpVariant, HoldsTheShardedTensors) {
  expect_truth(open_dcp(posix_file_system(), fixture(GetParam())).catalog, "sharded");
}

INSTANTIATE_TEST_SUITE_P(PyTorch, DcpVariant,
                         testing::Values("old", "mcore", "safetensors", "hf_shards"),
                         [](const auto& param) { return param.param; });

TEST(DcpFixture, ByteObjectBeforeASafetensorsBlob) {
  const DcpCheckpoint dcp = open_dcp(posix_file_system(), fixture("safetensors"));
  EXPECT_EQ(read_object(dcp.catalog, *dcp.catalog.find_object("note")).value.string(), "bytes");
}

// A folder in memory: a copy of a fixture, or one made up.
class DcpFolder : public testing::Test {
 protected:
  void copy_fixture(const std::string& name) {
    const auto disk = posix_file_system();
    for (const std::string& file : disk->list(fixture(name))) {
      memory_->put("ck/" + file, read_file(*disk, fixture(name) + "/" + file, 1 << 20));
    }
  }
  Catalog open() { return open_dcp(memory_, "ck").catalog; }
  std::string message(ErrorKind kind) {
    try {
      open();
      ADD_FAILURE() << "opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return {};
  }
  std::string message(ErrorKind kind, const DcpPickle& pickle) {
    memory_->put("ck/.metadata", pickle.finish());
    memory_->put("ck/__0_0.distcp", std::string(1000, 'x'));
    return message(kind);
  }

  std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

// Two chunks of 2x3 each, after a byte object.
DcpPickle sound() {
  DcpPickle pickle;
  pickle.tensor("w", "float32", {4, 3}, {{{0, 0}, {2, 3}}, {{2, 0}, {2, 3}}})
      .bytes("b")
      .item("b", std::nullopt, "__0_0.distcp", 0, 100)
      .item("w", Dims{0, 0}, "__0_0.distcp", 100, 400)
      .item("w", Dims{2, 0}, "__0_0.distcp", 500, 500);
  return pickle;
}

TEST_F(DcpFolder, SoundMetadataOpens) {
  memory_->put("ck/.metadata", sound().finish());
  memory_->put("ck/__0_0.distcp", std::string(1000, 'x'));
  const Catalog catalog = open();
  ASSERT_EQ(catalog.entries.size(), 1u);
  const Entry& entry = catalog.entries[0];
  ASSERT_EQ(entry.chunks.size(), 2u);
  EXPECT_EQ(entry.chunks[1].box, (Box{{2, 0}, {2, 3}}));
  EXPECT_EQ(entry.chunks[1].extent.offset, 500u);
  EXPECT_EQ(entry.chunks[1].extent.encoding, Encoding::torch_zip);
  EXPECT_FALSE(entry.chunks[1].extent.zstd);
  ASSERT_EQ(catalog.objects.size(), 1u);
  EXPECT_EQ(catalog.objects[0].extent.length, 100u);
  EXPECT_EQ(catalog.files[0].path, "ck/__0_0.distcp");
}

TEST_F(DcpFolder, TransformsAreKnownOrNamed) {
  const auto with = [](const std::string& transform) {
    DcpPickle pickle;
    pickle.tensor("w", "float32", {2}, {{{0}, {2}}})
        .item("w", Dims{0}, "__0_0.distcp", 0, 900, transform);
    return pickle;
  };
  memory_->put("ck/__0_0.distcp", std::string(1000, 'x'));
  memory_->put("ck/.metadata", with("stream.zstd/1").finish());
  EXPECT_TRUE(open().entries[0].chunks[0].extent.zstd);
  EXPECT_THAT(message(ErrorKind::unsupported, with("stream.rot13/1")), HasSubstr("stream.rot13/1"));
  EXPECT_THAT(message(ErrorKind::unsupported, with("stream.zstd/2")), HasSubstr("stream.zstd/2"));
  EXPECT_THAT(message(ErrorKind::unsupported, with("stream.zstd")), HasSubstr("'w'"));
}

TEST_F(DcpFolder, ItemWithoutOffsetServesATensorOfOneChunk) {
  DcpPickle pickle;
  pickle.tensor("w", "int8", {2}, {{{0}, {2}}}).item("w", std::nullopt, "__0_0.distcp", 0, 900);
  memory_->put("ck/__0_0.distcp", std::string(1000, 'x'));
  memory_->put("ck/.metadata", pickle.finish());
  EXPECT_EQ(open().entries[0].chunks[0].extent.length, 900u);
}

TEST_F(DcpFolder, MissingRanksAreNamedTogether) {
  copy_fixture("old");
  memory_->remove_all("ck/__1_0.distcp");
  memory_->remove_all("ck/__1_1.distcp");
  EXPECT_THAT(message(ErrorKind::not_found),
              AllOf(HasSubstr("rank 1:"), HasSubstr("__1_0.distcp, __1_1.distcp"),
                    HasSubstr("2 of the 4 data files")));
}

TEST_F(DcpFolder, TruncatedDataFileIsNamed) {
  copy_fixture("old");
  std::string bytes = memory_->get("ck/__1_1.distcp");
  bytes.resize(bytes.size() - 1);
  memory_->put("ck/__1_1.distcp", bytes);
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr("__1_1.distcp"), HasSubstr("outside")));
}

TEST_F(DcpFolder, UnfinishedOrForeignFolders) {
  memory_->put("ck/__0_0.distcp", "x");
  EXPECT_THAT(message(ErrorKind::not_found), HasSubstr("unfinished"));
  memory_->put("ck/.metadata", "");
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("is empty"));
  memory_->put("ck/.metadata", "\x80\x02}.");
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("state_dict_metadata"));
}

TEST_F(DcpFolder, RankLocalMetadata) {
  copy_fixture("old");
  memory_->put("ck/__0.metadata", memory_->get("ck/.metadata"));
  memory_->remove_all("ck/.metadata");
  expect_truth(open(), "sharded");
  memory_->put("ck/__1.metadata", memory_->get("ck/__0.metadata"));
  EXPECT_THAT(message(ErrorKind::unsupported), HasSubstr("2 ranks saved without collectives"));
}

TEST_F(DcpFolder, ChunksThatDoNotTileTheTensor) {
  const auto with = [](const Dims& shape, const std::vector<DcpPickle::Chunk>& chunks) {
    DcpPickle pickle;
    pickle.tensor("w", "float32", shape, chunks);
    int64_t at = 0;
    for (const auto& chunk : chunks) {
      pickle.item("w", chunk.offset, "__0_0.distcp", at, 200);
      at += 200;
    }
    return pickle;
  };
  const auto corrupt = [&](const DcpPickle& pickle) { return message(ErrorKind::corrupt, pickle); };
  EXPECT_THAT(corrupt(with({4, 3}, {{{0, 0}, {3, 3}}, {{2, 0}, {2, 3}}})), HasSubstr("overlaps"));
  EXPECT_THAT(corrupt(with({4, 3}, {{{0, 0}, {2, 3}}})), HasSubstr("6 of 12"));
  EXPECT_THAT(corrupt(with({4, 3}, {{{0, 0}, {2, 3}}, {{2, 0}, {3, 3}}})), HasSubstr("inside"));
  EXPECT_THAT(corrupt(with({4, 3}, {{{0}, {4}}})), HasSubstr("2 axes"));
  EXPECT_THAT(corrupt(with({4}, {{{0, 0}, {4}}})), HasSubstr("offset of 2"));
  EXPECT_THAT(corrupt(with({4}, {{{0}, {4, 1}}})), HasSubstr("size of 2"));
  EXPECT_THAT(corrupt(with({4}, {{{0}, {-4}}})), HasSubstr("'w'"));
  EXPECT_THAT(corrupt(with({-4}, {{{0}, {4}}})), HasSubstr("'w'"));
  EXPECT_THAT(corrupt(with(Dims(65, 1), {{Dims(65, 0), Dims(65, 1)}})), HasSubstr("65 axes"));
  const int64_t big = int64_t{1} << 62;
  EXPECT_THAT(corrupt(with({big, 8}, {{{0, 0}, {big, 8}}})), HasSubstr("64 bits"));
  EXPECT_THAT(corrupt(with({big}, {{{0}, {big}}})), HasSubstr("64 bits"));
  EXPECT_THAT(corrupt(with({4}, {{{big}, {big + (big - 1)}}})), HasSubstr("w"));
  EXPECT_THAT(corrupt(with({4}, {})), HasSubstr("0 of 4"));
}

TEST_F(DcpFolder, ItemsThatLieWrongly) {
  const auto at = [](int64_t offset, int64_t length, const std::string& path = "__0_0.distcp") {
    DcpPickle pickle;
    pickle.tensor("w", "float32", {2}, {{{0}, {2}}})
        .bytes("b")
        .item("b", std::nullopt, "__0_0.distcp", 0, 100)
        .item("w", Dims{0}, path, offset, length);
    return pickle;
  };
  const int64_t most = INT64_MAX;
  EXPECT_THAT(message(ErrorKind::corrupt, at(99, 500)),
              AllOf(HasSubstr("'b'"), HasSubstr("'w'"), HasSubstr("overlap")));
  EXPECT_THAT(message(ErrorKind::corrupt, at(900, 101)), HasSubstr("outside ck/__0_0.distcp"));
  EXPECT_THAT(message(ErrorKind::corrupt, at(most, most)), HasSubstr("outside"));
  EXPECT_THAT(message(ErrorKind::corrupt, at(-1, 500)), HasSubstr("'w'"));
  EXPECT_THAT(message(ErrorKind::corrupt, at(100, -1)), HasSubstr("'w'"));
  for (const char* path : {"../../x", "/etc/passwd", "", "a/../../b", ".."}) {
    EXPECT_THAT(message(ErrorKind::corrupt, at(100, 500, path)), HasSubstr("leave the folder"))
        << path;
  }
  memory_->create_folder("ck/folder");
  EXPECT_THAT(message(ErrorKind::invalid, at(100, 500, "folder")), HasSubstr("not a regular file"));
  // 8 bytes for two floats: not an archive but a place in a safetensors blob, which is not there.
  EXPECT_THAT(message(ErrorKind::corrupt, at(100, 8)), HasSubstr("__0_0.distcp"));
}

TEST_F(DcpFolder, ChunksWithoutItemsAreRefusedBeforeTheyAreKept) {
  const std::vector<DcpPickle::Chunk> chunks(100, {{0}, {1}});
  DcpPickle pickle;
  for (const char* name : {"u", "v"}) pickle.tensor(name, "float32", {100}, chunks);
  for (int64_t i = 0; i < 150; ++i) pickle.item("u", Dims{i}, "__0_0.distcp", i, 1);
  EXPECT_THAT(message(ErrorKind::corrupt, pickle),
              AllOf(HasSubstr("'v' has 100 chunks"), HasSubstr("only 50 items")));
}

TEST_F(DcpFolder, NamesAndTypesThatDoNotFit) {
  DcpPickle twice;
  twice.bytes("b").bytes("b").item("b", std::nullopt, "__0_0.distcp", 0, 10);
  EXPECT_THAT(message(ErrorKind::corrupt, twice), HasSubstr("it has '"));
  DcpPickle nowhere;
  nowhere.tensor("w", "float32", {2}, {{{0}, {2}}}).item("v", Dims{0}, "__0_0.distcp", 0, 10);
  EXPECT_THAT(message(ErrorKind::corrupt, nowhere), HasSubstr("its place is not"));
  DcpPickle strange;
  strange.tensor("w", "qint8", {2}, {{{0}, {2}}}).item("w", Dims{0}, "__0_0.distcp", 0, 10);
  EXPECT_THAT(message(ErrorKind::unsupported, strange), HasSubstr("torch.qint8"));
  DcpPickle object_outside;
  object_outside.bytes("b").item("b", std::nullopt, "__0_0.distcp", 990, 11);
  EXPECT_THAT(message(ErrorKind::corrupt, object_outside), HasSubstr("object 'b'"));
}

TEST_F(DcpFolder, NoTruncationOrBitFlipOfTheMetadataEscapes) {
  copy_fixture("mcore");
  const std::string good = memory_->get("ck/.metadata");
  const auto try_open = [&](const std::string& bytes) {
    memory_->put("ck/.metadata", bytes);
    try {
      for (const Entry& entry : open().entries) EXPECT_LE(entry.elements(), 1 << 20);
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::internal) << error.what();
      return false;
    }
    return true;
  };
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(try_open(good.substr(0, length))) << length;
  }
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    try_open(bad);
  }
}

TEST_F(DcpFolder, HuggingFaceShardThatIsMissingLeavesAHole) {
  copy_fixture("hf_shards");
  const std::string first = "ck/shard-00001-model-00001-of-00001.safetensors";
  const std::string second = "ck/shard-00002-model-00001-of-00001.safetensors";
  const std::string bytes = memory_->get(first);
  memory_->remove_all(first);
  EXPECT_THAT(message(ErrorKind::corrupt), AllOf(HasSubstr("w."), HasSubstr("incomplete")));
  memory_->put(first, memory_->get(second));
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("overlaps"));
  std::string damaged = bytes;
  damaged.replace(damaged.find("saved_offsets"), 5, "SAVED");
  memory_->put(first, damaged);
  EXPECT_THAT(message(ErrorKind::corrupt), HasSubstr("DCP_SHARDING_INFO"));
}

}  // namespace
}  // namespace ferry
