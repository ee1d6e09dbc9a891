// The families' tables against what transformers itself writes (fixtures/hf_names, made by
// interop/fixtures/make_hf_names.py): names, shapes and config values, for every way in which
// Megatron lays a checkpoint out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "ckpt/engine/run.h"
#include "convert/arguments/arguments.h"
#include "convert/config/expressible.h"
#include "convert/export.h"
#include "convert/recognise.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using test::Tensors;

struct Case {
  nlohmann::json fixture;
  Architecture architecture;
  const Family* family = nullptr;
  Tensors canonical;

  explicit Case(const std::string& name) : fixture(test::named_model(name)) {
    const LoadedValue args = test::loaded(fixture["args"]);
    ReadArguments read = read_arguments(args.value, name);
    EXPECT_THAT(read.problems, testing::IsEmpty());
    architecture = read.architecture;
    family = &choose_family(architecture, std::nullopt, name);
    canonical = test::canonical_tensors(*family, architecture);
  }

  // Written as what transformers made.
  ExportOptions options() const {
    ExportOptions options;
    options.family = fixture["config"]["model_type"];
    return options;
  }
};

// The bytes of the output tensors, by name.
std::map<std::string, std::vector<float>> convert(const Tensors& tensors,
                                                  const nlohmann::json& args,
                                                  const ExportOptions& options) {
  auto files = std::make_shared<MemoryFileSystem>();
  const Checkpoint checkpoint = test::checkpoint_of(tensors, args, files);
  const Export result = plan_export(checkpoint, options);
  check(result.plan);
  files->create_folder("out");
  run(result.plan, *files, "out", {});
  std::map<std::string, std::vector<float>> outputs;
  for (const Entry& entry : result.plan.target.entries) {
    const Extent& extent = entry.chunks.front().extent;
    const std::string& file = result.plan.target.files[extent.file].path;
    outputs[entry.name] =
        test::floats(files->get("out/" + file).substr(extent.offset, extent.length));
  }
  return outputs;
}

class HfNames : public testing::TestWithParam<std::string> {};

TEST_P(HfNames, FamilyIsRecognised) {
  const Case c(GetParam());
  const std::string type = c.fixture["config"]["model_type"];
  EXPECT_THAT(unsupported_reasons(*find_family(type), c.architecture), testing::IsEmpty());
  // A family before them can be the same model, as llama that of phi3.
  const std::set<std::string> others = {"seed_oss",   "phi3",  "glm4_moe_lite",
                                        "ministral3", "hy_v3", "qwen3_5_moe_text"};
  if (others.contains(type)) return;
  EXPECT_EQ(c.family->name, type);
  EXPECT_EQ(c.family->class_name, c.fixture["config"]["architectures"][0].get<std::string>());
}

TEST_P(HfNames, NamesAndShapesAreThoseOfTransformers) {
  const Case c(GetParam());
  auto files = std::make_shared<MemoryFileSystem>();
  const Checkpoint checkpoint = test::checkpoint_of(c.canonical, c.fixture["args"], files);
  const Export result = plan_export(checkpoint, c.options());
  std::map<std::string, Dims> written;
  for (const Entry& entry : result.plan.target.entries) written[entry.name] = entry.shape;
  int64_t constants = 0;
  for (const auto& [name, shape] : c.fixture["tensors"].items()) {
    if (name.ends_with(".act_fn.beta") || name.ends_with(".act_fn.eps")) {
      ++constants;  // literals of the plan, not entries
    } else {
      ASSERT_TRUE(written.contains(name)) << name;
      EXPECT_EQ(written[name], shape.get<Dims>()) << name;
    }
  }
  EXPECT_EQ(written.size() + static_cast<size_t>(constants), c.fixture["tensors"].size());
}

// Keys of transformers' file that say nothing about the model or that it leaves at their default.
bool ignored(const std::string& key) {
  static const std::vector<std::string> keys = {"transformers_version",
                                                "chunk_size",
                                                "expand",
                                                "mamba_ssm_cache_dtype",
                                                "moe_shared_expert_overlap",
                                                "num_logits_to_keep",
                                                "rescale_prenorm_residual",
                                                "time_step_floor",
                                                "time_step_limit",
                                                "time_step_max",
                                                "time_step_min",
                                                "use_mamba_kernels",
                                                "mtp_layers_block_type",
                                                "pretraining_tp",
                                                "dtype",
                                                "output_router_logits",
                                                "layer_types",
                                                "router_jitter_noise",
                                                "moe_layer_freq",
                                                "max_window_layers",
                                                "no_rope_layer_interval",
                                                "sliding_window_pattern",
                                                "_sliding_window_pattern",
                                                "original_max_position_embeddings"};
  return std::find(keys.begin(), keys.end(), key) != keys.end() || key.starts_with("summary_");
}

TEST_P(HfNames, ConfigSaysTheSame) {
  const Case c(GetParam());
  auto files = std::make_shared<MemoryFileSystem>();
  const Checkpoint checkpoint = test::checkpoint_of(c.canonical, c.fixture["args"], files);
  const Export result = plan_export(checkpoint, c.options());
  ASSERT_EQ(result.small_files.front().first, "config.json");
  const auto config = nlohmann::json::parse(result.small_files.front().second);
  for (const auto& [key, value] : c.fixture["config"].items()) {
    if (ignored(key)) continue;
    if (config.contains(key)) {
      EXPECT_EQ(config[key], value) << key;
    } else {
      // Left to its default: only what transformers derives or what is off.
      const bool of_mixtures = key.find("expert") != key.npos || key.starts_with("moe_") ||
                               key == "n_group" || key == "topk_group" || key == "norm_topk_prob" ||
                               key == "routed_scaling_factor";
      const bool harmless = value == false || value.is_null() || value == 0 || key == "head_dim" ||
                            key == "qk_head_dim" || key == "sliding_window" ||
                            (c.architecture.experts == 0 && of_mixtures);
      EXPECT_TRUE(harmless) << key << " = " << value;
    }
  }
  if (c.fixture["config"].contains("layer_types") && config.contains("layer_types")) {
    EXPECT_EQ(config["layer_types"], c.fixture["config"]["layer_types"]);
  }
}

TEST_P(HfNames, EveryWayOfStackingGivesTheSameBytes) {
  const Case c(GetParam());
  const auto& args = c.fixture["args"];
  const auto expected = convert(c.canonical, args, {});
  const std::string experts = ".mlp.experts.experts.";

  const Tensors by_layer = c.architecture.experts > 0
                               ? test::stacked(c.canonical, experts, c.architecture.experts)
                               : c.canonical;
  EXPECT_EQ(convert(by_layer, args, {}), expected);
  const bool are_alike =
      (c.architecture.experts == 0 || c.architecture.all_moe()) && c.architecture.index_every == 1;
  if (c.architecture.attention_by_kind) {
    EXPECT_EQ(convert(test::attention_by_kind(c.canonical, c.architecture, false), args, {}),
              expected);
    EXPECT_EQ(
        convert(test::attention_by_kind(c.canonical, c.architecture, !c.architecture.doubles_ffn),
                args, {}),
        expected);
  } else if (are_alike && !c.architecture.any_linear() && !c.architecture.is_hybrid()) {
    EXPECT_EQ(convert(test::stacked(by_layer, "decoder.layers.", c.architecture.layers), args, {}),
              expected);
  }
  EXPECT_EQ(convert(test::in_pieces(c.canonical, c.architecture), args, {}), expected);
  if (c.architecture.gated()) {
    EXPECT_EQ(convert(test::split_halves(c.canonical), args, {}), expected);
  }
  // Without Transformer Engine norms are modules of their own.
  const Tensors local =
      test::renamed(c.canonical, {{".self_attention.linear_qkv.layer_norm_", ".input_layernorm."},
                                  {".mlp.linear_fc1.layer_norm_", ".pre_mlp_layernorm."},
                                  {"linear_q_up_proj.layer_norm_", "q_layernorm."},
                                  {"linear_kv_up_proj.layer_norm_", "kv_layernorm."},
                                  {".experts.experts.", ".experts.local_experts."}});
  EXPECT_EQ(convert(local, args, {}), expected);
  const Tensors other = test::renamed(
      c.canonical,
      {{".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_"}, {"decoder.", "module.decoder."}});
  EXPECT_EQ(convert(other, args, {}), expected);
  // Transformer Engine's operation fuser numbers its operations.
  const Tensors fused =
      test::renamed(c.canonical, {{".mlp.linear_fc1.layer_norm_", ".mlp.0."},
                                  {".mlp.linear_fc1.weight", ".mlp.1.basic_ops.0.weight"},
                                  {".mlp.linear_fc1.bias", ".mlp.1.basic_ops.1.bias"},
                                  {".mlp.linear_fc2.weight", ".mlp.3.basic_ops.0.weight"},
                                  {".mlp.linear_fc2.bias", ".mlp.3.basic_ops.1.bias"},
                                  {"decoder.final_layernorm.", "decoder.final_norm."}});
  EXPECT_EQ(convert(fused, args, {}), expected);
}

INSTANTIATE_TEST_SUITE_P(All, HfNames, testing::ValuesIn(test::model_names()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace ferry
