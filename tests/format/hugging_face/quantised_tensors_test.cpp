// Which tensors are parts of another one's quantised form, by the names that the programs give
// them.
#include "ckpt/format/hugging_face/quantised_tensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace ferry {
namespace {

struct PartOf {
  Catalog catalog;

  PartOf& add(const std::string& name, DType dtype, Dims shape) {
    catalog.entries.push_back({name, dtype, std::move(shape), {}, Role::model});
    return *this;
  }
  // "role parameter values bits" of the entry of that name.
  std::string of(const std::string& name, int64_t config_bits = 0) const {
    static constexpr const char* kRoles[] = {
        "none",           "codes",       "packed", "integers",   "weight_scale", "second_scale",
        "second_divisor", "zero_points", "shape",  "activation", "cache",        "other"};
    const auto parts = quantised_parts(catalog, config_bits);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (catalog.entries[i].name != name) continue;
      const QuantisedPart& part = parts[i];
      return fmt::format("{} {} {} {}", kRoles[static_cast<int>(part.role)], part.parameter,
                         part.values ? static_cast<int64_t>(*part.values) : -1, part.bits);
    }
    return "";
  }
};

TEST(QuantisedParts, ScalesBelongToTheirWeights) {
  PartOf model;
  model.add("a.weight", DType::f8_e4m3, {64, 64})
      .add("a.weight_scale_inv", DType::f32, {2, 2})
      .add("a.activation_scale", DType::f32, {})
      .add("experts.down_proj", DType::f8_e4m3, {8, 64, 64})
      .add("experts.down_proj_scale_inv", DType::f32, {8, 2, 2})
      .add("b.weight", DType::f8_e4m3, {64, 64})
      .add("b.weight_scale", DType::bf16, {64, 1})
      .add("c.weight", DType::f8_e4m3, {64, 64})
      .add("c.scale", DType::f8_e8m0, {2, 2})
      .add("a.bias", DType::bf16, {64});
  EXPECT_EQ(model.of("a.weight"), "codes a.weight 0 8");
  EXPECT_EQ(model.of("a.weight_scale_inv"), "weight_scale a.weight 0 0");
  EXPECT_EQ(model.of("a.activation_scale"), "activation a.weight 0 0");
  EXPECT_EQ(model.of("experts.down_proj"), "codes experts.down_proj 3 8");
  EXPECT_EQ(model.of("experts.down_proj_scale_inv"), "weight_scale experts.down_proj 3 0");
  EXPECT_EQ(model.of("b.weight_scale"), "weight_scale b.weight 5 0");
  EXPECT_EQ(model.of("c.scale"), "weight_scale c.weight 7 0");
  EXPECT_EQ(model.of("a.bias"), "none a.bias -1 0");
}

TEST(QuantisedParts, PackedValuesAreNamedAsTheirParameters) {
  PartOf model;
  model.add("a.weight_packed", DType::i32, {64, 8})
      .add("a.weight_scale", DType::bf16, {64, 2})
      .add("a.weight_shape", DType::i64, {2})
      .add("b.qweight", DType::i32, {8, 64})
      .add("b.qzeros", DType::i32, {1, 8})
      .add("b.scales", DType::f16, {1, 64})
      .add("x.gate_up_proj_blocks", DType::u8, {4, 64, 2, 16})
      .add("x.gate_up_proj_scales", DType::u8, {4, 64, 2})
      .add("d.weight", DType::i8, {64, 32})
      .add("d.scale", DType::f8_e8m0, {64, 2})
      .add("e.weight", DType::u8, {64, 16})
      .add("e.weight_scale", DType::f8_e4m3, {64, 2})
      .add("e.weight_scale_2", DType::f32, {})
      .add("f.weight_packed", DType::u8, {64, 16})
      .add("f.weight_global_scale", DType::f32, {1})
      .add("a.weight_zero_point", DType::i32, {8, 2});
  EXPECT_EQ(model.of("e.weight"), "packed e.weight 10 4");
  EXPECT_EQ(model.of("e.weight_scale_2"), "second_scale e.weight 10 0");
  EXPECT_EQ(model.of("f.weight_global_scale"), "second_divisor f.weight 13 0");
  EXPECT_EQ(model.of("a.weight_zero_point"), "zero_points a.weight 0 0");
  EXPECT_EQ(model.of("a.weight_packed"), "packed a.weight 0 4");
  EXPECT_EQ(model.of("a.weight_shape"), "shape a.weight 0 0");
  EXPECT_EQ(model.of("b.qweight"), "packed b.weight 3 4");
  EXPECT_EQ(model.of("b.qzeros"), "other b.weight 3 0");
  EXPECT_EQ(model.of("x.gate_up_proj_blocks"), "packed x.gate_up_proj 6 4");
  EXPECT_EQ(model.of("x.gate_up_proj_scales"), "weight_scale x.gate_up_proj 6 0");
  EXPECT_EQ(model.of("d.weight"), "packed d.weight 8 4");
}

TEST(QuantisedParts, IntegersMayHoldAnyNumberOfValues) {
  PartOf model;
  model.add("a.weight", DType::i8, {64, 16}).add("a.weight_scale_inv", DType::f32, {64, 1});
  EXPECT_EQ(model.of("a.weight"), "integers a.weight 0 0");
  EXPECT_EQ(model.of("a.weight", 8), "codes a.weight 0 8");
  model.add("b.weight", DType::i8, {64, 16}).add("b.SCB", DType::f32, {64});
  EXPECT_EQ(model.of("b.weight"), "codes b.weight 2 8");
}

TEST(QuantisedParts, CachesHaveScalesOfNoParameter) {
  PartOf model;
  model.add("self_attn.k_proj.weight", DType::bf16, {64, 64})
      .add("self_attn.k_proj.k_scale", DType::f32, {})
      .add("self_attn.v_scale", DType::f32, {1});
  EXPECT_EQ(model.of("self_attn.k_proj.k_scale"), "cache  -1 0");
  EXPECT_EQ(model.of("self_attn.v_scale"), "cache  -1 0");
}

TEST(QuantisedParts, AModelsOwnParametersAreNone) {
  PartOf model;
  model.add("router.scale", DType::bf16, {64})
      .add("router.proj.weight", DType::bf16, {8, 64})
      .add("norm.weight", DType::f32, {64})
      .add("norm.scale", DType::f32, {64})
      .add("hc_attn_scale", DType::f32, {3})
      .add("tid2eid", DType::i64, {256, 8})
      .add("codes.scales", DType::f32, {2});
  for (const Entry& entry : model.catalog.entries) {
    EXPECT_EQ(model.of(entry.name), "none " + entry.name + " -1 0");
  }
}

TEST(QuantisedParts, ScalesWithoutAWeightAreScales) {
  PartOf model;
  model.add("a.weight", DType::bf16, {64, 64}).add("a.weight_scale_inv", DType::f32, {2, 2});
  EXPECT_EQ(model.of("a.weight"), "none a.weight -1 0");
  EXPECT_EQ(model.of("a.weight_scale_inv"), "weight_scale  -1 0");
}

}  // namespace
}  // namespace ferry
