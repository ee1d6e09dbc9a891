// The order of parameters that ModelLayout gives, against that in which Megatron Core's own modules
// register them (tests/interop/fixtures/make_module_orders.py).
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/megatron/rank_folders/model.h"

namespace ferry {
namespace {

nlohmann::json orders() {
  return nlohmann::json::parse(
      std::ifstream(std::string(FERRY_FIXTURES) + "/megatron_modules/orders.json"));
}

class ModuleOrder : public testing::TestWithParam<std::string> {};

TEST_P(ModuleOrder, IsThatOfMegatronsModules) {
  const auto model = orders()[GetParam()];
  RunArguments run;
  run.layers = 2;
  run.gated_mlp = model["gated"];
  run.experts = model["experts"];
  run.mtp_layers = model["mtp_layers"];
  LegacyRank rank;
  rank.chunks.emplace_back();
  for (const auto& parameter : model["parameters"]) {
    rank.chunks[0].push_back({parameter[0], DType::f32, parameter[1].get<Dims>(), {}});
  }
  LegacyModelOptions options;
  options.stacked = model["stacked"];
  options.tied = model["tied"];
  options.latent_q = model["latent_q"];
  options.latent_kv = model["latent_kv"];
  const std::vector<LegacyRank> ranks = {rank};
  const LegacyModel placed = place_legacy_model(expected_rank_folders(run), ranks, run, options);

  const ModelLayout layout(placed.tensors, run);
  const std::vector<LocalParameter> ours = layout.parameters({}, {});
  const LegacyChunk& theirs = placed.ranks[0][0];
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(theirs[i].parts.size(), 1u);
    EXPECT_EQ(ours[i].shards, theirs[i].parts[0].parameter.shards)
        << theirs[i].stored->name << " at " << i << ", ours "
        << layout.tensors()[ours[i].shards[0].tensor].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ModuleOrder,
                         testing::Values("gpt2", "llama", "qwen3", "moe_shared_gate",
                                         "moe_biases_sink", "deepseek", "mla_without_q_lora",
                                         "mtp"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace ferry
