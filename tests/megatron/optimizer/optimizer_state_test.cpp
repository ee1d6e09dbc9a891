// Optimizer state of checkpoints that Megatron-LM wrote, against the per-parameter state that
// Megatron-LM itself saved after loading them.
#include <gmock/gmock.h>
#include <xxhash.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/engine/engine.h"
#include "tests/support.h"

namespace ferry {
namespace {

using test::fixture;

struct StoredForm {
  std::string name;
  OptimizerLayout layout;
};

class OptimizerStateOf : public testing::TestWithParam<StoredForm> {};

TEST_P(OptimizerStateOf, EveryTensorIsWhatItsResavedTwinHolds) {
  const Checkpoint checkpoint =
      open_checkpoint(posix_file_system(), fixture("megatron/" + GetParam().name));
  EXPECT_EQ(checkpoint.optimizer, GetParam().layout);
  EXPECT_EQ(checkpoint.optimizer_problem, "");
  const auto truth =
      nlohmann::json::parse(std::ifstream(fixture("truth/" + GetParam().name + ".json")));
  std::set<std::string> names;
  for (const Entry& entry : checkpoint.catalog->entries) {
    ASSERT_TRUE(truth.contains(entry.name)) << entry.name;
    const auto& expected = truth[entry.name];
    names.insert(entry.name);
    EXPECT_EQ(torch_name(entry.dtype), expected["dtype"].get<std::string>()) << entry.name;
    EXPECT_EQ(entry.shape, expected["shape"].get<Dims>()) << entry.name;
    EXPECT_NO_THROW(check_chunks(checkpoint.catalog, entry));
    EXPECT_EQ(test::hash_of(read_tensor(checkpoint.catalog, entry, 1 << 30)),
              expected["xxh3_128"].get<std::string>())
        << entry.name;
    EXPECT_EQ(entry.role == Role::optimizer, entry.name.starts_with("optimizer.state."));
  }
  EXPECT_EQ(names.size(), truth.size());
}

INSTANTIATE_TEST_SUITE_P(
    Peers, OptimizerStateOf,
    testing::Values(StoredForm{"llama_tp2dp2_dpr", OptimizerLayout::dp_reshardable},
                    StoredForm{"llama_te_tp2dp2_dpr", OptimizerLayout::dp_reshardable},
                    StoredForm{"llama_pp2vpp", OptimizerLayout::dp_reshardable},
                    StoredForm{"llama_dp4_dpr_buckets", OptimizerLayout::dp_reshardable},
                    StoredForm{"qwen2_pp2", OptimizerLayout::dp_reshardable},
                    StoredForm{"qwen3moe_te_ep2pp2_dpr", OptimizerLayout::dp_reshardable},
                    StoredForm{"swiss_llama_tp2pp2", OptimizerLayout::fully_sharded_model_space},
                    StoredForm{"llama_legacy_tp2pp2", OptimizerLayout::legacy_distributed},
                    StoredForm{"llama_legacy_tp2_nodo", OptimizerLayout::plain}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace ferry
