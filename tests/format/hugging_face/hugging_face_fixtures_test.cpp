// Folders that transformers, PyTorch and safetensors wrote: every tensor, byte for byte.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <xxhash.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ckpt/core/plan.h"
#include "ckpt/engine/run.h"
#include "ckpt/format/hugging_face/hugging_face.h"
#include "ckpt/format/hugging_face/safetensors_plan.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

class HuggingFaceFixture : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return std::string(FERRY_FIXTURES) + "/hugging_face/" + GetParam(); }

  void expect_truth(const Catalog& catalog) const {
    const auto truth = nlohmann::json::parse(std::ifstream(folder() + "/truth.json"));
    EXPECT_EQ(catalog.entries.size(), truth.size());
    for (const Entry& entry : catalog.entries) {
      ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
      const auto& expected = truth[entry.name];
      EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
      EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
      EXPECT_NO_THROW(check_chunks(catalog, entry));
      EXPECT_EQ(test::hash_of(read_tensor(catalog, entry, 1 << 20)),
                expected["xxh3_128"].get<std::string>())
          << entry.name;
    }
  }
};

TEST_P(HuggingFaceFixture, ReadsEveryTensor) {
  expect_truth(open_hugging_face(posix_file_system(), folder()).catalog);
}

TEST_P(HuggingFaceFixture, WritesEveryTensorIntoShards) {
  const HuggingFaceModel model = open_hugging_face(posix_file_system(), folder());
  const SafetensorsExport plain =
      plan_safetensors(SharedCatalog::borrow(model.catalog), {false, std::nullopt, 2000});
  check(plain.plan);
  EXPECT_EQ(plain.plan.target.files.size() > 1, !plain.index_json.empty());
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->create_folder("out");
  run(plain.plan, *memory, "out", {});
  if (!plain.index_json.empty()) {
    memory->put("out/model.safetensors.index.json", plain.index_json);
  }
  expect_truth(open_hugging_face(memory, "out").catalog);
}

INSTANTIATE_TEST_SUITE_P(Written, HuggingFaceFixture,
                         testing::Values("safetensors_shards", "torch_shards", "every_dtype"),
                         [](const auto& param) { return param.param; });

TEST(HuggingFaceIndex, IsByteForByteWhatTransformersWrites) {
  const std::string folder = std::string(FERRY_FIXTURES) + "/hugging_face/safetensors_shards";
  const HuggingFaceModel model = open_hugging_face(posix_file_system(), folder);
  const auto truth = nlohmann::ordered_json::parse(std::ifstream(folder + "/truth.json"));
  std::vector<Entry> entries;  // in the order of the model's state
  for (const auto& [name, tensor] : truth.items()) entries.push_back(*model.catalog.find(name));
  std::ifstream in(folder + "/model.safetensors.index.json");
  const std::string theirs{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(lay_out_hugging_face(entries, 4000).index_json, theirs);
}

}  // namespace
}  // namespace ferry
