// Experts by the names of files on the hub and of transformers' own tensors.
#include "convert/model/expert_names.h"

#include <gmock/gmock.h>

#include <set>

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<ExpertPart>& parts) {
  std::vector<std::string> names;
  for (const ExpertPart& part : parts) names.push_back(part.name);
  return names;
}

// What a model of these names has for `name`: "= renamed", "< fused", or the parts.
std::string form_in(const std::set<std::string>& model, const std::string& name, Dims shape) {
  const auto form =
      other_form(name, shape, [&](const std::string& each) { return model.contains(each); });
  if (!form) return "none";
  if (!form->renamed.empty()) return "= " + form->renamed;
  if (form->place) return "< " + form->place->fused;
  return form->parts.front().name + " ... " + form->parts.back().name;
}

TEST(ExpertNames, FusedTensorsHoldExpertsOneAfterAnother) {
  const ExpertNames& qwen = *expert_names_of("qwen3_moe");
  const auto parts = experts_in("m.layers.0.mlp.experts.gate_up_proj", {2, 8, 5}, qwen);
  EXPECT_THAT(names_of(parts), ElementsAre("m.layers.0.mlp.experts.0.gate_proj.weight",
                                           "m.layers.0.mlp.experts.0.up_proj.weight",
                                           "m.layers.0.mlp.experts.1.gate_proj.weight",
                                           "m.layers.0.mlp.experts.1.up_proj.weight"));
  EXPECT_EQ(parts[3].box, (Box{{1, 4, 0}, {1, 4, 5}}));
  EXPECT_THAT(
      names_of(experts_in("l.mlp.experts.down_proj", {1, 5, 4}, *expert_names_of("mixtral"))),
      ElementsAre("l.block_sparse_moe.experts.0.w2.weight"));
  EXPECT_THAT(names_of(experts_in("l.mlp.experts.down_proj_scale_inv", {1, 5, 4}, qwen)),
              ElementsAre("l.mlp.experts.0.down_proj.weight_scale_inv"));
  EXPECT_EQ(expert_names_of("gpt_oss"), nullptr);
}

TEST(ExpertNames, OtherNamesAndShapesAreNoExperts) {
  const ExpertNames& qwen = *expert_names_of("qwen3_moe");
  EXPECT_THAT(experts_in("l.mlp.experts.gate_up_proj", {2, 7, 5}, qwen), IsEmpty());
  EXPECT_THAT(experts_in("l.mlp.experts.gate_up_proj", {8, 5}, qwen), IsEmpty());
  EXPECT_THAT(experts_in("l.mlp.experts.gate_up_proj", {int64_t{1} << 40, 8, 5}, qwen), IsEmpty());
  EXPECT_THAT(experts_in("l.mlp.experts.gate_up_proj_bias", {2, 8, 5}, qwen), IsEmpty());
  for (const char* name :
       {"l.mlp.experts.x.up_proj.weight", "l.mlp.experts.1", "l.mlp.experts.",
        "l.mlp.experts.1.weight", "l.mlp.experts.99999999999999999999.up_proj.weight"}) {
    EXPECT_EQ(form_in({"l.mlp.experts.gate_up_proj"}, name, {4, 5}), "none") << name;
  }
}

TEST(ExpertNames, AModelMayHaveThemEitherWay) {
  EXPECT_EQ(
      form_in({"l.mlp.experts.gate_up_proj"}, "l.block_sparse_moe.experts.3.w3.weight", {4, 5}),
      "< l.mlp.experts.gate_up_proj");
  EXPECT_EQ(
      form_in({"l.block_sparse_moe.experts.0.w1.weight"}, "l.mlp.experts.gate_up_proj", {2, 8, 5}),
      "l.block_sparse_moe.experts.0.w1.weight ... l.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(form_in({"l.block_sparse_moe.gate.weight"}, "l.mlp.gate.weight", {8, 5}),
            "= l.block_sparse_moe.gate.weight");
  EXPECT_EQ(form_in({"backbone.layers.1.mixer.experts.0.up_proj.weight"},
                    "model.layers.1.mixer.experts.up_proj", {2, 8, 5}),
            "backbone.layers.1.mixer.experts.0.up_proj.weight ... "
            "backbone.layers.1.mixer.experts.1.up_proj.weight");
  EXPECT_EQ(form_in({"backbone.norm.weight"}, "my.model.norm.weight", {5}), "none");
}

}  // namespace
}  // namespace ferry
