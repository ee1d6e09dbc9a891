// Lone files of torch.save, in both of its forms, against what PyTorch holds.
#include "ckpt/format/torch/torch_file.h"

#include <gmock/gmock.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/engine/engine.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/io/memory_file_system.h"

namespace ferry {
namespace {

const std::string kFolder = std::string(FERRY_FIXTURES) + "/torch_file/";

std::string hash_of(const std::string& bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

class TorchFile : public testing::TestWithParam<std::string> {};

TEST_P(TorchFile, NamesAndReadsEveryTensor) {
  const Catalog catalog = open_torch_file(posix_file_system(), kFolder + GetParam());
  const auto truth = nlohmann::json::parse(std::ifstream(kFolder + "truth.json"));
  EXPECT_EQ(catalog.entries.size(), truth.size());
  for (const Entry& entry : catalog.entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    const auto& expected = truth[entry.name];
    // PyTorch calls the dtype "bool".
    if (expected["dtype"] != "bool") {
      EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    }
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_NO_THROW(check_chunks(catalog, entry));
    EXPECT_EQ(hash_of(read_tensor(catalog, entry, 1 << 20)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
  }
  EXPECT_NE(catalog.find("optimizer.state.1.exp_avg"), nullptr);
  EXPECT_NE(catalog.find("flat.(torch.bfloat16, torch.float32).param"), nullptr);
}

TEST_P(TorchFile, EverythingElseIsAnObject) {
  const Catalog catalog = open_torch_file(posix_file_system(), kFolder + GetParam());
  const Object* args = catalog.find_object("args");
  ASSERT_NE(args, nullptr);
  EXPECT_EQ(read_object(catalog, *args).value.get("num_layers").integer(), 2);
  const Object* step = catalog.find_object("optimizer.state.0.step");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(read_object(catalog, *step).value.integer(), 5);
  const Object* groups = catalog.find_object("optimizer.param_groups");
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(read_object(catalog, *groups).value[0].get("lr").real(), 0.1);
  EXPECT_NE(catalog.find_object("tuple.1"), nullptr);
  EXPECT_EQ(catalog.find_object("model"), nullptr);
}

TEST_P(TorchFile, EveryTruncationIsAnError) {
  const std::string whole = read_file(*posix_file_system(), kFolder + GetParam(), 1 << 20);
  const auto files = std::make_shared<MemoryFileSystem>();
  for (size_t length = 0; length < whole.size(); ++length) {
    files->put("f.pt", whole.substr(0, length));
    EXPECT_THROW(open_torch_file(files, "f.pt"), Error) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, TorchFile, testing::Values("zip.pt", "legacy.pt"),
                         [](const auto& param) {
                           return param.param.substr(0, param.param.find('.'));
                         });

}  // namespace
}  // namespace ferry
