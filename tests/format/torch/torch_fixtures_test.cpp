// What the peers wrote: every metadata pickle, every item, every legacy file of the fixtures.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/format/torch/archive/torch_archive.h"
#include "ckpt/format/torch/objects.h"
#include "tests/format/torch/torch_items.h"

namespace ferry {
namespace {

using test::Item;

class DistributedFixture : public testing::TestWithParam<std::string> {};

TEST_P(DistributedFixture, MetadataHasItsClassesAndFields) {
  const std::string folder = test::iteration_folder(GetParam());
  const auto document = test::read_pickle_file(folder + "/.metadata");
  const Value root = document->root();
  EXPECT_EQ(root.text(), "torch.distributed.checkpoint.metadata.Metadata");
  const Value tensors = root.get("state_dict_metadata");
  ASSERT_EQ(tensors.kind(), ValueKind::dict);
  ASSERT_GT(tensors.pair_count(), 0u);
  const Value embedding = tensors.get("embedding.word_embeddings.weight");
  EXPECT_EQ(embedding.text(), "torch.distributed.checkpoint.metadata.TensorStorageMetadata");
  const Value size = embedding.get("size");
  EXPECT_EQ(size.kind(), ValueKind::tuple);
  ASSERT_EQ(size.size(), 2u);
  EXPECT_EQ(size[0].integer(), 256);
  EXPECT_EQ(size[1].integer(), 32);
  const Value properties = embedding.get("properties").get("__state__");
  ASSERT_EQ(properties.size(), 5u);
  EXPECT_EQ(properties[0].kind(), ValueKind::global);
  EXPECT_EQ(properties[0].text(), "torch.bfloat16");
  EXPECT_EQ(properties[2].boolean(), false);
}

TEST_P(DistributedFixture, EveryItemIsAnArchiveOfATensorOrAnObject) {
  const std::string folder = test::iteration_folder(GetParam());
  const auto file_system = posix_file_system();
  size_t tensors = 0;
  for (const Item& item : test::read_items(folder)) {
    const auto file = file_system->open(item.path);
    const TorchArchive archive = read_torch_archive(*file, item.offset, item.length);
    const StoredTensor* tensor = archive.pickle->root().tensor();
    if (!item.is_tensor) continue;
    ++tensors;
    ASSERT_NE(tensor, nullptr) << item.key;
    EXPECT_EQ(tensor->shape.size(), item.chunk_offset.size()) << item.key;
    const auto storage = archive.storage(*tensor, item.key);
    EXPECT_EQ((storage.offset - item.offset) % 64, 0u) << item.key;
    EXPECT_EQ(storage.length,
              static_cast<uint64_t>(tensor->storage_elements * size_bytes(tensor->dtype)));
    EXPECT_LE(storage.offset + storage.length, item.offset + item.length);
  }
  EXPECT_GT(tensors, 0u);
}

INSTANTIATE_TEST_SUITE_P(Peers, DistributedFixture, testing::ValuesIn(test::distributed_fixtures()),
                         [](const auto& param) { return param.param; });

TEST(LegacyFixture, HoldsArgumentsAndModel) {
  const std::string path =
      test::fixture("megatron/llama_legacy_tp2_nodo/iter_0000005/mp_rank_01/model_optim_rng.pt");
  const auto file = posix_file_system()->open(path);
  const TorchArchive archive = read_torch_archive(*file, 0, file->size());
  const Value root = archive.pickle->root();
  const Value args = root.get("args");
  EXPECT_EQ(args.text(), "argparse.Namespace");
  EXPECT_EQ(args.get("num_layers").integer(), 4);
  EXPECT_EQ(args.get("params_dtype").text(), "torch.bfloat16");
  EXPECT_EQ(root.get("iteration").integer(), 5);
  const Value weight = root.get("model").get("embedding.word_embeddings.weight");
  ASSERT_NE(weight.tensor(), nullptr);
  EXPECT_THAT(weight.tensor()->shape, testing::ElementsAre(128, 32));
  EXPECT_EQ(archive.storage(*weight.tensor(), "embedding").length, 128u * 32 * 2);
}

TEST(LegacyFixture, ObjectsAreReadByPath) {
  Catalog catalog;
  catalog.file_system = posix_file_system();
  const std::string path =
      test::fixture("megatron/llama_legacy_tp2pp2/iter_0000005/mp_rank_00_001/model_optim_rng.pt");
  const uint64_t bytes = catalog.file_system->status(path).bytes;
  Object object{"args", {catalog.add_file(path, bytes), 0, bytes}, {"args", "hidden_size"}};
  EXPECT_EQ(read_object(catalog, object).value.integer(), 32);
  object.path = {"args", "hidden_sise"};
  EXPECT_THROW(read_object(catalog, object), Error);
}

}  // namespace
}  // namespace ferry
