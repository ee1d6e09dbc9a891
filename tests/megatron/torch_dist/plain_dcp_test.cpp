// Checkpoints of other programs than Megatron-LM, copied as plain PyTorch distributed checkpoints.
#include <gmock/gmock.h>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/megatron/state/edit.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/megatron/torch_dist/plain_dcp_writer.h"
#include "tests/megatron/writer_support.h"
#include "tests/same_value.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::HasSubstr;

class PlainDcp : public testing::TestWithParam<const char*> {
 protected:
  Checkpoint source() const {
    return open_checkpoint(posix_file_system(), std::string(FERRY_FIXTURES "/") + GetParam());
  }

  Checkpoint written(RunState state, const PlainDcpOptions& options = {}) {
    test::write(plan_plain_dcp(std::move(state), options), memory_, "out");
    return open_checkpoint(memory_, "out");
  }

  const std::shared_ptr<MemoryFileSystem> memory_ = std::make_shared<MemoryFileSystem>();
};

TEST_P(PlainDcp, HoldsWhatTheSourceHolds) {
  const Checkpoint from = source();
  EXPECT_FALSE(holds_run(from));
  PlainDcpOptions options;
  options.ranks = 2;
  const Checkpoint to = written(plain_state_of(from), options);
  EXPECT_EQ(to.format, Format::dcp);
  test::expect_same_tensors(to.catalog, from.catalog);
  EXPECT_EQ(to.catalog->files.size(), from.catalog->entries.size() > 1 ? 2 : 1);
  ASSERT_EQ(to.catalog->objects.size(), from.catalog->objects.size());
  for (const Object& object : from.catalog->objects) {
    const Object* copy = to.catalog->find_object(object.name);
    ASSERT_NE(copy, nullptr) << object.name;
    EXPECT_EQ(test::Comparison::difference(read_object_with_storages(to.catalog, *copy).value,
                                           read_object_with_storages(from.catalog, object).value),
              "")
        << object.name;
  }
  for (const Entry& entry : from.catalog->entries) {
    if (!from.paths.value) break;
    EXPECT_EQ(test::Comparison::difference(to.paths.value.get(entry.name),
                                           from.paths.value.get(entry.name)),
              "")
        << entry.name;
  }
}

TEST_P(PlainDcp, IsCutUp) {
  const Checkpoint from = source();
  RunState state = plain_state_of(from);
  const std::string kept = from.catalog->entries[0].name;
  keep_tensors(state, [&](std::string_view name) { return name == kept; });
  rename_tensors(state, [](std::string_view) { return std::string("renamed"); });
  cast_model(state, DType::f32);
  const Checkpoint to = written(std::move(state));
  ASSERT_EQ(to.catalog->entries.size(), 1);
  EXPECT_EQ(to.catalog->entries[0].name, "renamed");
  EXPECT_EQ(to.catalog->entries[0].shape, from.catalog->entries[0].shape);
  EXPECT_EQ(to.paths.value.get("renamed")[0].string(), "renamed");
}

TEST_P(PlainDcp, IsNoRun) {
  try {
    state_of(source());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_THAT(error.what(), HasSubstr("options.to=dcp"));
  }
}

INSTANTIATE_TEST_SUITE_P(Sources, PlainDcp,
                         testing::Values("dcp/fsdp", "dcp/safetensors", "dcp/hf_shards",
                                         "hugging_face/safetensors_shards", "torch/state.pt"));

}  // namespace
}  // namespace ferry
