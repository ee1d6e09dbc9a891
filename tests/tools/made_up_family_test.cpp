// A family that nobody published: odd names, three kinds of layers, a mixture and a bias on its
// router. All that ferry needs to know of it stands here; it is converted both ways, its run is
// resharded with optimizer state, and its training is estimated.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/parameter_names.h"
#include "convert/config/codecs.h"
#include "convert/config/expressible.h"
#include "convert/config_json.h"
#include "convert/model/transforms.h"
#include "convert/recognise.h"
#include "estimate/make_estimate.h"
#include "tests/convert/round_trip.h"
#include "tests/megatron/reshard_support.h"

namespace ferry {
namespace {

using nlohmann::json;
using testing::IsEmpty;
using A = Architecture;

bool is_still(const A& a, int64_t layer) { return !a.is_rotated(layer); }
bool is_turned(const A& a, int64_t layer) { return a.is_rotated(layer); }

// "plain": a window and an MLP; "crowd": all tokens and experts; "still": the same without
// positions, whose attention has names of its own.
std::string kind_of(const A& a, int64_t layer) {
  if (!a.is_moe(layer)) return a.has_window(layer) && a.is_rotated(layer) ? "plain" : "";
  if (a.has_window(layer)) return "";
  return a.is_rotated(layer) ? "crowd" : "still";
}

ConfigRow patches() {
  return {.keys = {"patches"},
          .read =
              [](json& config, A& a) {
                for (const json& kind : config.value("patches", json::array())) {
                  a.moe_layers.push_back(kind != "plain");
                  a.windowed_layers.push_back(kind == "plain");
                  a.unrotated_layers.push_back(kind == "still");
                }
                a.layers = static_cast<int64_t>(a.moe_layers.size());
              },
          .write =
              [](const A& a, json& config) {
                config["patches"] = json::array();
                for (int64_t layer = 0; layer < a.layers; ++layer) {
                  config["patches"].push_back(kind_of(a, layer));
                }
              }};
}

std::vector<Rule> attention(std::string_view megatron, std::vector<std::string_view> turned,
                            std::vector<std::string_view> still,
                            Transform transform = Transform::copy) {
  return {{megatron, std::move(turned), transform, false, false, is_turned},
          {megatron, std::move(still), transform, false, false, is_still}};
}

Family quilt_family() {
  const auto qkv =
      attention("decoder.layers.{layer}.self_attention.linear_qkv.weight",
                {"patch.{layer}.ask", "patch.{layer}.key", "patch.{layer}.say"},
                {"patch.{layer}.still.ask", "patch.{layer}.still.key", "patch.{layer}.still.say"},
                Transform::qkv);
  const auto out = attention("decoder.layers.{layer}.self_attention.linear_proj.weight",
                             {"patch.{layer}.out"}, {"patch.{layer}.still.out"});
  Family family = {
      .name = "quilt",
      .class_name = "QuiltForCausalLM",
      .rules = {{"embedding.word_embeddings.weight", {"threads"}, Transform::vocabulary},
                {"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
                 {"patch.{layer}.first"}},
                {"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
                 {"patch.{layer}.second"}},
                {"decoder.layers.{layer}.mlp.linear_fc1.weight",
                 {"patch.{layer}.cloth.a", "patch.{layer}.cloth.b"},
                 Transform::gate_up},
                {"decoder.layers.{layer}.mlp.linear_fc2.weight", {"patch.{layer}.cloth.c"}},
                {"decoder.layers.{layer}.pre_mlp_layernorm.weight", {"patch.{layer}.second"}},
                {"decoder.layers.{layer}.mlp.router.weight", {"patch.{layer}.crowd.chooser"}},
                {"decoder.layers.{layer}.mlp.router.expert_bias", {"patch.{layer}.crowd.taste"}},
                {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
                 {"patch.{layer}.crowd.{expert}.a", "patch.{layer}.crowd.{expert}.b"},
                 Transform::gate_up},
                {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
                 {"patch.{layer}.crowd.{expert}.c"}},
                {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
                 {"patch.{layer}.crowd.all.a", "patch.{layer}.crowd.all.b"},
                 Transform::gate_up},
                {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
                 {"patch.{layer}.crowd.all.c"}},
                {"decoder.final_layernorm.weight", {"hem"}},
                {"output_layer.weight", {"unravel"}, Transform::vocabulary}},
      .config = {codec::plain("words", &A::vocab), codec::plain("width", &A::hidden),
                 codec::plain("cloth", &A::ffn), codec::plain("eyes", &A::heads),
                 codec::plain("shared_eyes", &A::groups), codec::plain("eye", &A::head_dim),
                 codec::plain("length", &A::positions), codec::plain("dust", &A::norm_eps),
                 codec::plain("turn", &A::rope_theta), codec::plain("sight", &A::window),
                 codec::plain("crowd", &A::experts), codec::plain("chosen", &A::experts_per_token),
                 codec::plain("crowd_cloth", &A::expert_ffn), codec::shared_expert("all_cloth"),
                 codec::implied(&A::router_score, RouterScore::sigmoid), codec::router_bias(),
                 patches()},
      .base_prefix = ""};
  family.rules.insert(family.rules.begin() + 2, qkv.begin(), qkv.end());
  family.rules.insert(family.rules.begin() + 4, out.begin(), out.end());
  return family;
}

const Family& quilt() {
  static const Family& family = add_family(quilt_family());
  return family;
}

const char* const kConfig = R"({
  "model_type": "quilt", "architectures": ["QuiltForCausalLM"], "dtype": "float32",
  "torch_dtype": "float32", "use_cache": true, "bos_token_id": null, "eos_token_id": null,
  "pad_token_id": null, "words": 37, "width": 24,
  "cloth": 40, "eyes": 4, "shared_eyes": 2, "eye": 6, "length": 64, "dust": 1e-5, "turn": 5000,
  "sight": 16, "crowd": 4, "chosen": 2, "crowd_cloth": 20, "all_cloth": 28,
  "patches": ["plain", "crowd", "still", "crowd"]})";

class MadeUpFamily : public testing::Test {
 protected:
  // A Hugging Face folder of the family, with tensors of noise.
  void SetUp() override {
    A a = read_architecture(quilt(), json::parse(kConfig));
    a.padded_vocab = a.vocab;
    a.expert_bias = true;
    std::mt19937 random(1);
    std::vector<Entry> entries;
    test::MemoryTensors tensors;
    for (const Link& link : expand(quilt(), a)) {
      const std::vector<Part> parts = parts_of(link, a);
      for (size_t i = 0; i < parts.size(); ++i) {
        add_noise(random, link.hugging_face[i], parts[i].shape, Role::model, tensors);
      }
    }
    RunState state = test::state_of_entries(tensors.catalog());
    test::write_state(state, files_, "hf");
    files_->put("hf/config.json", kConfig);
    model_ = open_checkpoint(files_, "hf");
  }

  static void add_noise(std::mt19937& random, const std::string& name, const Dims& shape, Role role,
                        test::MemoryTensors& tensors) {
    std::string bytes;
    for (int64_t i = 0; i < element_count(shape, name); ++i) {
      const float value = std::uniform_real_distribution<float>(-1, 1)(random);
      bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    tensors.add(name, DType::f32, shape, role, std::move(bytes));
  }

  Import import_at(int64_t tensor, int64_t expert) const {
    ImportOptions options;
    options.make_vocab_size_divisible_by = 19;  // to 38 on one rank as on two
    options.layout.tensor = tensor;
    options.layout.expert = expert;
    options.layout.expert_tensor = 1;
    return import_model(model_, options);
  }

  std::shared_ptr<MemoryFileSystem> files_ = std::make_shared<MemoryFileSystem>();
  Checkpoint model_;
};

TEST_F(MadeUpFamily, IsConvertedBothWays) {
  EXPECT_EQ(recognise(model_).family, "quilt");
  const Import import = import_at(2, 2);
  EXPECT_EQ(import.family, "quilt");
  test::expect_back_through_run(model_, import, false, files_, "run");
  EXPECT_EQ(recognise(open_checkpoint(files_, "run")).family, "quilt");
}

TEST_F(MadeUpFamily, IsReshardedWithItsOptimizer) {
  const Import import = import_at(1, 1);
  const Checkpoint weights = test::write_state(import.state, files_, "megatron");
  std::mt19937 random(2);
  test::MemoryTensors all;
  for (const Entry& entry : weights.catalog->entries) {
    all.add(entry.name, entry.dtype, entry.shape, Role::model,
            read_tensor(weights.catalog, entry, 1 << 20));
    if (is_buffer(entry.name)) continue;
    for (const char* kind : {"param", "exp_avg", "exp_avg_sq"}) {
      const std::string name = std::string("optimizer.state.") + kind + "." + entry.name;
      add_noise(random, name, entry.shape, Role::optimizer, all);
    }
  }
  RunState state = test::state_of_entries(all.catalog());
  Draft args;
  const Value all_args = args.copy(import.state.args.value);
  args.put(all_args, "use_distributed_optimizer", args.boolean(true));
  state.args = std::move(args).finish(all_args);
  Draft groups;
  const Value group = groups.dict();
  groups.put(group, "is_expert_parallel", groups.boolean(false));
  groups.put(group, "wd_mult", groups.real(1));
  groups.put(group, "step", groups.integer(7));
  const Value list = groups.list({group});
  state.param_groups.push_back(std::move(groups).finish(list));
  TorchDistOptions options;
  options.optimizer = ShardedOptimizer::fully_reshardable;
  test::write(plan_torch_dist(std::move(state), options), files_, "run");
  const Checkpoint run = open_checkpoint(files_, "run");

  ParallelTarget target;
  target.tensor = target.pipeline = target.expert = 2;
  options.optimizer = ShardedOptimizer::dp_reshardable;
  const Checkpoint there = test::reshard(run, target, files_, "there", options);
  EXPECT_EQ(there.layout.expert, 2);
  target.tensor = target.pipeline = target.expert = 1;
  const Checkpoint back = test::reshard(there, target, files_, "back", options);
  for (const Checkpoint* checkpoint : {&there, &back}) {
    test::expect_same_tensors(checkpoint->catalog, run.catalog);
  }
}

TEST_F(MadeUpFamily, IsEstimated) {
  const EstimateSource source = read_estimate_source(files_, "hf", {});
  const Estimate estimate = make_estimate(source, {});
  int64_t elements = 0;
  for (const Entry& entry : model_.catalog->entries) {
    const bool is_bias = entry.name.ends_with("taste");  // a buffer, which is not trained
    if (!is_bias) elements += entry.elements();
  }
  EXPECT_EQ(estimate.parameters.without_padding, elements);
  EXPECT_EQ(estimate.no_plan, "");
  EXPECT_GT(estimate.operations_per_token, 0);
}

TEST_F(MadeUpFamily, IsNotTakenForAnother) {
  const A a = read_architecture(quilt(), json::parse(kConfig));
  for (const Family* family : families()) {
    if (family == &quilt()) continue;
    EXPECT_THAT(unsupported_reasons(*family, a), testing::Not(IsEmpty())) << family->name;
  }
}

TEST(AddedFamily, MustBeWhole) {
  const auto failure = [](Family family) {
    try {
      add_family(std::move(family));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid);
      return std::string(error.what());
    }
    return std::string();
  };
  quilt();
  EXPECT_EQ(failure(quilt_family()), "there is a family quilt already");
  Family family = quilt_family();
  family.name = "rag";
  family.rules.push_back({"decoder.layers.{layer}.sock", {"sock"}});
  EXPECT_THAT(failure(family), testing::HasSubstr("no block has this parameter"));
  family.rules.clear();
  EXPECT_THAT(failure(family), testing::HasSubstr("embedding.word_embeddings.weight"));
  EXPECT_EQ(find_family("rag"), nullptr);
}

}  // namespace
}  // namespace ferry
