// The tables of blocks, and how a name in a checkpoint finds its row.
#include "ckpt/megatron/model/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/model_layout.h"
#include "ckpt/megatron/model/parameter_names.h"

namespace ferry {
namespace {

using testing::ElementsAre;

std::vector<std::string> sorted(std::vector<std::string> names, bool separate_norms) {
  std::ranges::stable_sort(names, {}, [&](const std::string& name) {
    const auto found = layer_parameter(name);
    EXPECT_TRUE(found.has_value()) << name;
    return !found ? 0 : separate_norms ? found->separate_order : found->order;
  });
  return names;
}

TEST(Blocks, EachRowHasANameOfItsOwnAndItsNormsModule) {
  std::set<std::string_view> names;
  for (const Block& block : layer_blocks()) {
    for (const ParameterRow& row : block.parameters) {
      EXPECT_TRUE(names.insert(row.name).second) << row.name;
    }
  }
  for (const Block& block : layer_blocks()) {
    for (const ParameterRow& row : block.parameters) {
      if (row.separate_norm.empty()) continue;
      EXPECT_TRUE(names.contains(row.separate_norm)) << row.name;
      EXPECT_EQ(separate_norm_name(row.name, *layer_parameter(row.name)), row.separate_norm);
      EXPECT_EQ(row.first_values,
                row.name.ends_with("bias") ? FirstValues::zeros : FirstValues::ones);
    }
  }
}

TEST(Blocks, RowsStandInTheOrderOfRegistration) {
  const std::vector<std::string> names = {"mlp.linear_fc2.weight",
                                          "mlp.linear_fc1.weight",
                                          "self_attention.linear_qkv.bias",
                                          "mlp.linear_fc1.layer_norm_weight",
                                          "self_attention.linear_qkv.weight",
                                          "self_attention.q_layernorm.weight",
                                          "self_attention.linear_proj.weight",
                                          "self_attention.linear_qkv.layer_norm_weight"};
  EXPECT_THAT(sorted(names, false),
              ElementsAre("self_attention.linear_proj.weight",
                          "self_attention.linear_qkv.layer_norm_weight",
                          "self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias",
                          "self_attention.q_layernorm.weight", "mlp.linear_fc1.layer_norm_weight",
                          "mlp.linear_fc1.weight", "mlp.linear_fc2.weight"));
  EXPECT_EQ(sorted(names, true).front(), "self_attention.linear_qkv.layer_norm_weight");
  // Latent attention's norms follow its projections where they are modules of their own.
  EXPECT_THAT(sorted({"self_attention.linear_kv_up_proj.layer_norm_weight",
                      "self_attention.linear_kv_up_proj.weight"},
                     false),
              ElementsAre("self_attention.linear_kv_up_proj.layer_norm_weight",
                          "self_attention.linear_kv_up_proj.weight"));
  EXPECT_THAT(sorted({"self_attention.linear_kv_up_proj.layer_norm_weight",
                      "self_attention.linear_kv_up_proj.weight"},
                     true),
              ElementsAre("self_attention.linear_kv_up_proj.weight",
                          "self_attention.linear_kv_up_proj.layer_norm_weight"));
}

TEST(Blocks, NamesFindTheirRowHoweverLayersAndExpertsAreNumbered) {
  const auto row_of = [](std::string_view name) {
    const auto found = find_parameter(name);
    return found ? std::string(found->row->name) : "";
  };
  EXPECT_EQ(row_of("decoder.layers.mlp.linear_fc2.weight"), "mlp.linear_fc2.weight");
  EXPECT_EQ(row_of("decoder.layers.31.mlp.linear_fc2.weight"), "mlp.linear_fc2.weight");
  EXPECT_EQ(row_of("mtp.layers.0.transformer_layer.mlp.router.weight"), "mlp.router.weight");
  EXPECT_EQ(row_of("mtp.layers.0.mtp_model_layer.mlp.router.weight"), "mlp.router.weight");
  EXPECT_EQ(row_of("mtp.layers.0.eh_proj.weight"), "eh_proj.weight");
  EXPECT_EQ(row_of("output_layer.weight"), "output_layer.weight");
  const auto expert = find_parameter("decoder.layers.1.mlp.experts.experts.12.linear_fc1.weight");
  ASSERT_TRUE(expert.has_value());
  EXPECT_EQ(expert->expert, 12);
  EXPECT_TRUE(expert->row->routed);
  EXPECT_EQ(find_parameter("decoder.layers.mlp.experts.experts.linear_fc1.weight")->expert, -1);
  for (const char* unknown :
       {"decoder.layers.0.mlp.linear_fc3.weight", "decoder.layers.0.eh_proj.weight",
        "mtp.layers.0.mlp.router.weight", "decoder.layers.0.", "layers.0.mlp.linear_fc2.weight",
        "decoder.layers.99999999999.mlp.linear_fc2.weight", ""}) {
    EXPECT_EQ(row_of(unknown), "") << unknown;
  }
}

TEST(Blocks, OnlyGatedProjectionsHaveHalves) {
  const auto gate = layer_parameter("mlp.linear_fc1.weight_w");
  const auto up = layer_parameter("mlp.linear_fc1.weight_v");
  ASSERT_TRUE(gate && up);
  EXPECT_EQ(gate->piece, 0);
  EXPECT_EQ(up->piece, 1);
  EXPECT_LT(gate->order, up->order);
  EXPECT_TRUE(layer_parameter("mlp.experts.experts.3.linear_fc1.bias_w").has_value());
  EXPECT_FALSE(layer_parameter("mlp.linear_fc2.weight_w").has_value());
  EXPECT_FALSE(layer_parameter("self_attention.linear_qkv.weight_v").has_value());
}

TEST(Blocks, LayersHaveWhatTheirArchitectureSays) {
  Architecture a;
  a.hidden = 8, a.heads = 4, a.groups = 2, a.head_dim = 6, a.ffn = 10, a.experts = 3,
  a.expert_ffn = 5, a.layers = 2;
  a.moe_layers = {false, true};
  const auto shape_of = [&](std::string_view name, int64_t layer) {
    const auto found = layer_parameter(name);
    return has_parameter(found->block, *found->row, a, layer) ? found->row->extents(a) : Dims();
  };
  EXPECT_EQ(shape_of("self_attention.linear_qkv.weight", 0), (Dims{48, 8}));
  EXPECT_EQ(shape_of("self_attention.linear_proj.weight", 0), (Dims{8, 24}));
  EXPECT_EQ(shape_of("mlp.linear_fc1.weight", 0), (Dims{20, 8}));
  EXPECT_EQ(shape_of("mlp.linear_fc1.weight", 1), Dims());
  EXPECT_EQ(shape_of("mlp.experts.experts.linear_fc1.weight", 1), (Dims{10, 8}));
  EXPECT_EQ(shape_of("mlp.experts.experts.linear_fc1.weight", 0), Dims());
  EXPECT_EQ(shape_of("mlp.router.expert_bias", 1), Dims());
  a.expert_bias = true;
  EXPECT_EQ(shape_of("mlp.router.expert_bias", 1), (Dims{3}));
  EXPECT_TRUE(is_buffer("decoder.layers.1.mlp.router.expert_bias"));
  EXPECT_EQ(shape_of("self_attention.linear_qkv.bias", 0), Dims());
  a.qkv_bias = true;
  EXPECT_EQ(shape_of("self_attention.linear_qkv.bias", 0), (Dims{48}));
  // Known by name alone.
  EXPECT_EQ(shape_of("self_attention.core_attention.softmax_offset", 0), Dims());
}

TEST(Blocks, PiecesOfAParameterDifferInTheirRowsAlone) {
  RunArguments run;
  run.layers = 1;
  run.gated_mlp = true;
  const std::string name = "decoder.layers.0.mlp.linear_fc1.weight";
  const auto laid_out = [&](DType up, const Dims& shape) {
    const ModelLayout layout({{name + "_w", {8, 4}, DType::bf16}, {name + "_v", shape, up}}, run);
    return layout.parameters({}, {});
  };
  EXPECT_EQ(laid_out(DType::bf16, {8, 4}).size(), 1U);
  const auto refused = testing::ThrowsMessage<Error>(testing::HasSubstr("pieces of one parameter"));
  EXPECT_THAT([&] { laid_out(DType::i32, {8, 4}); }, refused);
  EXPECT_THAT([&] { laid_out(DType::bf16, {8, 5}); }, refused);
  EXPECT_THAT([&] { laid_out(DType::bf16, {8, 4, 1}); }, refused);
}

}  // namespace
}  // namespace ferry
