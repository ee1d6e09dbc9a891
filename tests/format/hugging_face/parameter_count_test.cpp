// How many parameters packed integers hold, by the rules of the programs that pack them:
// AutoGPTQ's and AutoAWQ's linear layers, bitsandbytes' Linear4bit, compressed-tensors'
// pack_to_int32, ModelOpt's NVFP4, gpt-oss' MXFP4.
#include "ckpt/format/hugging_face/parameter_count.h"

#include <gmock/gmock.h>

namespace ferry {
namespace {

Catalog catalog_of(std::vector<Entry> entries) {
  Catalog catalog;
  catalog.entries = std::move(entries);
  return catalog;
}

Entry tensor(const std::string& name, DType dtype, Dims shape) {
  return {name, dtype, std::move(shape), {}, Role::model};
}

ParameterCount count(const Catalog& catalog, int64_t config_bits = 0) {
  return count_parameters(catalog, element_kinds(catalog, config_bits));
}

// A layer of 512 inputs and 256 outputs in groups of 128 inputs.
constexpr int64_t kIn = 512, kOut = 256, kGroups = kIn / 128;

Catalog gptq(int64_t bits) {
  return catalog_of({tensor("l.qweight", DType::i32, {kIn * bits / 32, kOut}),
                     tensor("l.qzeros", DType::i32, {kGroups, kOut * bits / 32}),
                     tensor("l.scales", DType::f16, {kGroups, kOut}),
                     tensor("l.g_idx", DType::i32, {kIn}), tensor("l.bias", DType::f16, {kOut})});
}

TEST(ParameterCount, GptqPacksRows) {
  for (const int64_t bits : {2, 4, 8}) {
    const ParameterCount found = count(gptq(bits));
    EXPECT_EQ(found.parameters, kIn * kOut + kOut) << bits;
    EXPECT_EQ(found.packed_parameters, kIn * kOut);
    EXPECT_EQ(found.packed_elements, kIn * kOut * bits / 32);
    EXPECT_EQ(found.bits, bits);
    EXPECT_EQ(found.quantisation_elements, kGroups * kOut * bits / 32 + kGroups * kOut + kIn);
  }
}

TEST(ParameterCount, AwqPacksColumns) {
  const ParameterCount found =
      count(catalog_of({tensor("l.qweight", DType::i32, {kIn, kOut / 8}),
                        tensor("l.qzeros", DType::i32, {kGroups, kOut / 8}),
                        tensor("l.scales", DType::f16, {kGroups, kOut})}));
  EXPECT_EQ(found.parameters, kIn * kOut);
  EXPECT_EQ(found.bits, 4);
}

TEST(ParameterCount, BitsAndBytesPacksTwoAByte) {
  const ParameterCount found =
      count(catalog_of({tensor("l.weight", DType::u8, {kIn * kOut / 2, 1}),
                        tensor("l.weight.absmax", DType::u8, {kIn * kOut / 64}),
                        tensor("l.weight.quant_map", DType::f32, {16}),
                        tensor("l.weight.quant_state.bitsandbytes__nf4", DType::u8, {87}),
                        tensor("norm.weight", DType::bf16, {kIn})}));
  EXPECT_EQ(found.parameters, kIn * kOut + kIn);
  EXPECT_EQ(found.quantisation_elements, kIn * kOut / 64 + 16 + 87);
}

Catalog compressed_tensors(int64_t bits, int64_t groups) {
  return catalog_of({tensor("l.weight_packed", DType::i32, {kOut, kIn * bits / 32}),
                     tensor("l.weight_scale", DType::bf16, {kOut, groups}),
                     tensor("l.weight_shape", DType::i64, {2})});
}

TEST(ParameterCount, CompressedTensorsPackTo32Bits) {
  EXPECT_EQ(count(compressed_tensors(4, kGroups)).parameters, kIn * kOut);
  EXPECT_EQ(count(compressed_tensors(8, kGroups)).parameters, kIn * kOut);
  // A scale for each row: only config.json has the bits.
  EXPECT_EQ(count(compressed_tensors(4, 1)).parameters, 0);
  EXPECT_EQ(count(compressed_tensors(4, 1)).integers, kIn * kOut / 8);
  EXPECT_EQ(count(compressed_tensors(4, 1), 4).parameters, kIn * kOut);
  EXPECT_EQ(count(compressed_tensors(8, 1), 8).parameters, kIn * kOut);
  EXPECT_EQ(count(compressed_tensors(8, 1), 8).bits, 8);
}

TEST(ParameterCount, Fp4TakesHalfAByte) {
  const ParameterCount nvfp4 = count(catalog_of(
      {tensor("l.weight", DType::u8, {kOut, kIn / 2}),
       tensor("l.weight_scale", DType::f8_e4m3, {kOut, kIn / 16}),
       tensor("l.weight_scale_2", DType::f32, {}), tensor("l.input_scale", DType::f32, {})}));
  EXPECT_EQ(nvfp4.parameters, kIn * kOut);
  const ParameterCount mxfp4 =
      count(catalog_of({tensor("experts.gate_up_proj_blocks", DType::u8, {4, kOut, kIn / 32, 16}),
                        tensor("experts.gate_up_proj_scales", DType::u8, {4, kOut, kIn / 32}),
                        tensor("experts.gate_up_proj_bias", DType::bf16, {4, kOut})}));
  EXPECT_EQ(mxfp4.parameters, 4 * kIn * kOut + 4 * kOut);
  EXPECT_EQ(mxfp4.quantisation_elements, 4 * kOut * kIn / 32);
}

TEST(ParameterCount, ScalesOfFp8AreNoParameters) {
  const ParameterCount found =
      count(catalog_of({tensor("l.weight", DType::f8_e4m3, {kOut, kIn}),
                        tensor("l.weight_scale_inv", DType::f32, {2, 4}),
                        tensor("l.activation_scale", DType::f32, {}),
                        tensor("experts.down_proj", DType::f8_e4m3, {8, kOut, kIn}),
                        tensor("experts.down_proj_scale_inv", DType::f32, {8, 2, 4}),
                        tensor("attn.k_scale", DType::f32, {})}));
  EXPECT_EQ(found.parameters, 9 * kOut * kIn);
  EXPECT_EQ(found.quantisation_elements, 8 + 1 + 64 + 1);
}

TEST(ParameterCount, IntegersThatMayHoldAnyNumberOfValuesAreCountedApart) {
  const ParameterCount found =
      count(catalog_of({tensor("l.weight", DType::i8, {kOut, kIn / 2}),
                        tensor("l.weight_scale_inv", DType::f32, {kOut, 1}),
                        tensor("l.bias", DType::bf16, {kOut})}));
  EXPECT_EQ(found.parameters, kOut);
  EXPECT_EQ(found.integers, kOut * kIn / 2);
  EXPECT_EQ(found.quantisation_elements, kOut);
}

TEST(ParameterCount, ShapesThatContradictEachOtherCountSomething) {
  Catalog odd = gptq(4);
  odd.entries[2].shape = {0, kOut};
  odd.entries[3].shape = {0};
  EXPECT_EQ(count(odd).packed_parameters, kIn * kOut);
  odd.entries[3].shape = {7};
  EXPECT_EQ(count(odd, 99).bits, 4);
  EXPECT_GT(count(odd, -1).parameters, 0);
}

TEST(ParameterCount, TrainingStateIsNoModel) {
  Entry moment = tensor("optimizer.state.exp_avg.w", DType::f32, {kIn});
  moment.role = Role::optimizer;
  const ParameterCount found =
      count(catalog_of({tensor("state_dict.w", DType::f32, {kIn}), moment,
                        tensor("optimizer_states.0.state.0.exp_avg", DType::f32, {kIn}),
                        tensor("loops.fit.x", DType::f32, {3}),
                        tensor("app.optim.state.w.exp_avg_sq", DType::f32, {kIn})}));
  EXPECT_EQ(found.parameters, kIn);
  EXPECT_EQ(found.training_tensors, 4);
  EXPECT_EQ(found.training_elements, 3 * kIn + 3);
}

TEST(ParameterCount, IntegersWithoutScalesAreNoParameters) {
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::boolean}) {
    const ParameterCount found =
        count(catalog_of({tensor("l.weight", DType::bf16, {kOut, kIn}),
                          tensor("layers.0.ffn.gate.tid2eid", dtype, {kIn, 6}),
                          tensor("embeddings.position_ids", dtype, {1, kIn}),
                          tensor("ids.qweight", DType::i64, {7}), tensor("x_blocks", dtype, {5})}));
    EXPECT_EQ(found.parameters, kIn * kOut);
    EXPECT_EQ(found.integers, 0);
    EXPECT_EQ(found.quantisation_elements, 0);
  }
}

}  // namespace
}  // namespace ferry
