#include "ckpt/format/dcp/dcp_metadata_writer.h"

#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/format/dcp/dcp_metadata.h"
#include "ckpt/format/pickle/values/draft.h"
#include "tests/format/torch/torch_items.h"

namespace ferry {
namespace {

std::shared_ptr<const Document> parse_metadata(const std::string& bytes) {
  return parse_pickle(std::as_bytes(std::span(bytes)), ".metadata");
}

// What a checkpoint's metadata says, to be written again.
DcpContent content_of(const Value& root) {
  DcpContent content;
  std::map<std::string, uint32_t> files;
  const auto place_of = [&](const DcpItem& item) {
    const auto [at, is_new] = files.try_emplace(std::string(item.file), files.size());
    if (is_new) content.files.emplace_back(item.file);
    return DcpContent::Place{at->second, item.offset, item.length, item.zstd};
  };
  const DcpMetadata metadata = read_dcp_metadata(root, "test");
  const DcpStorage storage(root.get("storage_data"), "test");
  for (const DcpTensor& tensor : metadata.tensors) {
    DcpContent::Entry entry{tensor.name, false, tensor.dtype, tensor.shape, {}, {}};
    for (const Box& box : tensor.chunks) {
      entry.chunks.push_back({box, place_of(*storage.find(tensor.name, box.offset))});
    }
    content.entries.push_back(std::move(entry));
  }
  for (const std::string& name : metadata.objects) {
    content.entries.push_back({name, true, {}, {}, {}, place_of(*storage.find(name))});
  }
  return content;
}

bool is_same(const DcpContent::Place& a, const DcpContent::Place& b) {
  return a.file == b.file && a.offset == b.offset && a.length == b.length && a.zstd == b.zstd;
}

TEST(DcpMetadataWriter, MetadataOfThePeersComesBack) {
  std::vector<std::string> paths = {test::fixture("dcp_zstd/.metadata"),
                                    test::fixture("dcp/torch_dcp/.metadata")};
  for (const std::string& name : test::distributed_fixtures()) {
    paths.push_back(test::iteration_folder(name) + "/.metadata");
  }
  for (const std::string& path : paths) {
    const auto original = test::read_pickle_file(path);
    const DcpContent expected = content_of(original->root());
    const auto written = parse_metadata(write_dcp_metadata(expected));
    const DcpContent found = content_of(written->root());
    ASSERT_EQ(found.entries.size(), expected.entries.size()) << path;
    EXPECT_EQ(found.files, expected.files) << path;
    for (size_t i = 0; i < found.entries.size(); ++i) {
      const DcpContent::Entry &a = expected.entries[i], &b = found.entries[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.is_object, b.is_object);
      EXPECT_EQ(a.dtype, b.dtype);
      EXPECT_EQ(a.shape, b.shape);
      EXPECT_TRUE(is_same(a.place, b.place)) << a.name;
      ASSERT_EQ(a.chunks.size(), b.chunks.size()) << a.name;
      for (size_t k = 0; k < a.chunks.size(); ++k) {
        EXPECT_EQ(a.chunks[k].box, b.chunks[k].box) << a.name;
        EXPECT_TRUE(is_same(a.chunks[k].place, b.chunks[k].place)) << a.name;
      }
    }
  }
}

TEST(DcpMetadataWriter, WritesTheFieldsThatPyTorchWrites) {
  DcpContent content;
  content.files = {"__0_0.distcp"};
  content.entries.push_back({"w", false, DType::bf16, {4}, {{Box::whole({4}), {0, 7, 8}}}, {}});
  content.entries.push_back({"o", true, {}, {}, {}, {0, 15, 3}});
  content.save_id = "id";
  Draft draft;
  const Value paths = draft.dict();
  draft.put(paths, "w", draft.tuple({draft.string("w")}));
  content.planner_data = std::move(draft).finish(paths);
  const auto document = parse_metadata(write_dcp_metadata(content));
  const Value root = document->root();
  EXPECT_EQ(root.text(), "torch.distributed.checkpoint.metadata.Metadata");
  EXPECT_EQ(root.get("version").string(), "1.0.0");
  EXPECT_EQ(root.get("planner_data").get("w")[0].string(), "w");
  EXPECT_TRUE(root.get("storage_meta").has("checkpoint_id"));
  EXPECT_TRUE(root.get("storage_meta").get("checkpoint_id").is_none());
  EXPECT_EQ(root.get("storage_meta").get("save_id").string(), "id");
  EXPECT_TRUE(root.get("storage_meta").has("load_id"));
  EXPECT_EQ(root.get("storage_meta").get("modules").kind(), ValueKind::list);
  const Value properties = root.get("state_dict_metadata").get("w").get("properties");
  const Value state = properties.get("__state__");
  ASSERT_EQ(state.size(), 5u);
  EXPECT_EQ(state[0].text(), "torch.bfloat16");
  EXPECT_EQ(state[1].text(), "torch.serialization._get_layout");
  EXPECT_EQ(state[3].integer(), 0);
  const Value index = root.get("storage_data").pair_key(0);
  EXPECT_EQ(index.get("offset").text(), "torch.Size");
  EXPECT_EQ(index.get("index").integer(), 0);
  EXPECT_FALSE(root.get("storage_data").pair_key(1).has("offset"));
}

TEST(DcpMetadataWriter, AnEmptyCheckpointIsWritten) {
  const auto document = parse_metadata(write_dcp_metadata({}));
  EXPECT_TRUE(read_dcp_metadata(document->root(), "test").tensors.empty());
  EXPECT_TRUE(document->root().get("planner_data").is_none());
}

TEST(DcpMetadataWriter, RefusesWhatContradictsItself) {
  DcpContent content;
  content.files = {"a"};
  content.entries.push_back({"w", false, DType::u8, {4}, {{Box::whole({4}), {1, 0, 4}}}, {}});
  EXPECT_THROW(write_dcp_metadata(content), Error);
  content.entries[0].chunks[0] = {Box::whole({2, 2}), {0, 0, 4}};
  EXPECT_THROW(write_dcp_metadata(content), Error);
  content.entries[0].chunks[0] = {Box::whole({4}), {0, UINT64_MAX, 4}};
  EXPECT_THROW(write_dcp_metadata(content), Error);
}

TEST(DcpMetadataWriter, ManyChunksTakeFewBytesEach) {
  DcpContent content;
  constexpr int64_t kChunks = 300'000;
  for (int rank = 0; rank < 128; ++rank) {
    content.files.push_back("__" + std::to_string(rank) + "_0.distcp");
  }
  DcpContent::Entry entry{"decoder.layers.weight", false, DType::f32, {kChunks, 4096}, {}, {}};
  for (int64_t i = 0; i < kChunks; ++i) {
    entry.chunks.push_back(
        {{{i, 0}, {1, 4096}},
         {static_cast<uint32_t>(i % 128), static_cast<uint64_t>(i) << 20, 18000}});
  }
  content.entries.push_back(std::move(entry));
  const std::string bytes = write_dcp_metadata(content);
  EXPECT_LT(bytes.size(), kChunks * 160u);
  const auto document = parse_metadata(bytes);
  const DcpMetadata metadata = read_dcp_metadata(document->root(), "test");
  EXPECT_EQ(metadata.tensors[0].chunks.back().offset[0], kChunks - 1);
}

}  // namespace
}  // namespace ferry
