// Random models of every family: arguments, config.json and tensors go to the other side and back
// unchanged, through runs of random layouts, too.
#include <gtest/gtest.h>

#include <random>

#include "ckpt/base/error.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"
#include "convert/recognise.h"
#include "tests/convert/round_trip.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

class Maker {
 public:
  Maker(const Family& family, uint64_t seed) : traits_(family.traits), random_(seed) {
    latent_ = traits_.mla == Has::yes;
    qwen_windows_ = family.name == "qwen2" || family.name == "qwen3";
    gpt2_ = family.name == "gpt2";
    mixtral_ = family.name == "mixtral";
  }

  Architecture make() {
    a_.layers = pick(1, 4);
    const int64_t even = pick(1, 2);  // numbers that tensor ranks can share
    a_.heads = a_.groups = even * pick(1, 3);
    if (traits_.grouped_queries != Has::no && !latent_) a_.heads *= pick(1, 3);
    a_.head_dim = 2 * pick(1, 3);
    a_.hidden = gpt2_ || coin() ? a_.heads * a_.head_dim : a_.heads * pick(1, 6);
    a_.ffn = even * pick(3, 9);
    a_.positions = pick(8, 99);
    a_.vocab = pick(5, 40);
    a_.tied = coin();
    a_.norm = traits_.norm;
    a_.norm_eps = coin() ? 1e-6 : 1e-5;
    a_.activation = any_of(traits_.activations);
    a_.position_kind = traits_.positions;
    a_.qkv_bias = has(traits_.qkv_bias);
    a_.linear_bias = has(traits_.linear_bias);
    a_.qk_norm = has(traits_.qk_norm);
    if (traits_.positions == Positions::rope) make_positions();
    if (latent_) make_latent();
    if (has(traits_.window)) make_window();
    if (has(traits_.moe)) make_experts();
    if (has(traits_.mtp)) a_.mtp_layers = pick(0, 2);
    return a_;
  }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  bool coin() { return pick(0, 1) == 1; }
  bool has(Has what) { return what == Has::yes || (what == Has::either && coin()); }
  template <typename T>
  T any_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(pick(0, static_cast<int64_t>(values.size()) - 1))];
  }

  void make_positions() {
    a_.rope_theta = coin() ? 500000 : 10000.5;
    if (coin()) return;
    if (latent_) {
      a_.rope_scaling = RopeScaling::yarn;
      a_.rope_factor = static_cast<double>(pick(2, 40));
      a_.rope_original_positions = YarnConstants().original_positions;
      a_.rope_mscale_all_dim = coin() ? 0.7 : 0;
      a_.rope_mscale = a_.rope_mscale_all_dim == 0 ? 1 : 0.5;
    } else if (coin()) {
      a_.rope_scaling = RopeScaling::linear;
      a_.rope_factor = static_cast<double>(pick(2, 9));
    } else {
      a_.rope_scaling = RopeScaling::llama3;
      a_.rope_factor = 8.5;
      a_.rope_original_positions = Llama3Constants().original_positions;
    }
  }

  void make_latent() {
    a_.mla = a_.qk_norm = true;
    a_.groups = a_.heads;
    a_.head_dim = a_.hidden / a_.heads;
    a_.q_lora_rank = coin() ? 0 : pick(2, 5);
    a_.kv_lora_rank = pick(2, 5);
    a_.qk_nope_dim = pick(1, 4);
    a_.qk_rope_dim = 2 * pick(1, 2);
    a_.v_dim = pick(1, 4);
  }

  void make_window() {
    a_.window = pick(1, 64);
    if (!qwen_windows_ || a_.layers == 1 || coin()) return;
    for (int64_t layer = 0; layer < a_.layers; ++layer) a_.windowed_layers.push_back(coin());
    a_.windowed_layers[0] = true;
    a_.windowed_layers[1] = false;
  }

  void make_experts() {
    a_.experts = 2 * pick(1, 2);
    a_.experts_per_token = pick(1, a_.experts);
    a_.expert_ffn = 2 * pick(1, 3);
    a_.router_score = traits_.scores.front();
    a_.router_pre_softmax = !mixtral_ && (latent_ || coin());
    a_.aux_loss_coeff = coin() ? 0 : 0.01;
    a_.expert_bias = traits_.expert_bias != Has::no;
    a_.shared_gate = traits_.shared_gate == Has::yes;
    if (has(traits_.shared_expert)) a_.shared_ffn = a_.expert_ffn * pick(1, 2);
    if (mixtral_) a_.ffn = a_.expert_ffn;
    if (latent_ && coin()) a_.router_scale = 2.5;
    if (latent_ && a_.experts == 4 && coin()) a_.router_groups = 2, a_.router_groups_per_token = 1;
    const int64_t dense = has(traits_.dense_layers) ? pick(0, a_.layers - 1) : 0;
    for (int64_t layer = 0; layer < a_.layers; ++layer) {
      a_.moe_layers.push_back(layer >= dense);
    }
    // The dense layers of DeepSeek's models come first, those of others anywhere.
    if (!latent_) std::shuffle(a_.moe_layers.begin(), a_.moe_layers.end(), random_);
  }

  const Traits& traits_;
  bool latent_ = false, qwen_windows_ = false, gpt2_ = false, mixtral_ = false;
  std::mt19937_64 random_;
  Architecture a_;
};

void expect_same(const Architecture& found, const Architecture& expected) {
  for (const Argument& argument : plain_arguments()) {
    if (!has_argument(argument.of, expected)) continue;
    std::visit([&](auto member) { EXPECT_EQ(found.*member, expected.*member) << argument.name; },
               argument.member);
  }
  EXPECT_EQ(found.groups, expected.groups);
  EXPECT_EQ(found.norm, expected.norm);
  EXPECT_EQ(found.activation, expected.activation);
  EXPECT_EQ(found.position_kind, expected.position_kind);
  EXPECT_EQ(found.tied, expected.tied);
  EXPECT_EQ(found.rope_scaling, expected.rope_scaling);
  EXPECT_EQ(found.rope_factor, expected.rope_factor);
  EXPECT_EQ(found.rope_mscale, expected.rope_mscale);
  EXPECT_EQ(found.rope_mscale_all_dim, expected.rope_mscale_all_dim);
  EXPECT_EQ(found.window, expected.window);
  EXPECT_EQ(found.windowed_layers, expected.windowed_layers);
  EXPECT_EQ(found.moe_layers, expected.moe_layers);
  EXPECT_EQ(found.router_score, expected.router_score);
}

// A Hugging Face model at a random layout that it divides into.
Import import_somehow(Maker& maker, const Checkpoint& model) {
  ImportOptions options;
  options.make_vocab_size_divisible_by = maker.pick(1, 16);
  for (;;) {
    ParallelTarget layout;
    layout.tensor = maker.pick(1, 2);
    layout.pipeline = maker.pick(1, 3);
    layout.virtual_pipeline = *layout.pipeline > 1 ? maker.pick(1, 2) : 1;
    layout.expert = maker.pick(1, 2);
    if (maker.pick(1, 3) == 1) layout.expert_tensor = 1;  // otherwise as all else
    options.layout = layout;
    try {
      return import_model(model, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::invalid) throw;
    }
  }
}

class RandomModels : public testing::TestWithParam<std::string> {};

TEST_P(RandomModels, ComeBackUnchanged) {
  const Family& family = *find_family(GetParam());
  test::for_random_cases(40, [&](uint64_t number) {
    Maker maker(family, number);
    Architecture a = maker.make();
    const int64_t divisor = maker.pick(1, 16);
    a.padded_vocab = (a.vocab + divisor - 1) / divisor * divisor;

    Draft draft;
    const Value args = draft.instance("argparse.Namespace");
    const WrittenArguments written = write_arguments(a, draft, args);
    ASSERT_TRUE(written.problems.empty()) << written.problems.front();
    draft.put(args, "vocab_size", draft.integer(a.vocab));
    draft.put(args, "make_vocab_size_divisible_by", draft.integer(divisor));
    const LoadedValue loaded = std::move(draft).finish(args);
    const ReadArguments read = read_arguments(loaded.value, "args");
    ASSERT_TRUE(read.problems.empty()) << read.problems.front();
    expect_same(read.architecture, a);
    // A model that another family can be, too, may be taken for that one.
    if (choose_family(a, std::nullopt, "model").name != family.name) return;

    const auto files = std::make_shared<MemoryFileSystem>();
    const test::Tensors tensors = test::stacked_as_today(test::canonical_tensors(family, a), a);
    Checkpoint checkpoint = test::checkpoint_of(tensors, nlohmann::json::object(), files);
    checkpoint.args = loaded;
    test::expect_round_trip(checkpoint, true);

    const Checkpoint model =
        test::write_hugging_face(plan_export(checkpoint, {}), *files, files, "hf");
    const Import import = import_somehow(maker, model);
    const ParallelLayout layout = layout_from_args(import.state.args.value);
    // Rank folders have no place for experts that are split otherwise than all else.
    const bool legacy = layout.expert_tensor == layout.tensor && maker.pick(0, 1) == 1;
    SCOPED_TRACE(testing::Message()
                 << "TP" << layout.tensor << " PP" << layout.pipeline << " EP" << layout.expert
                 << " ETP" << layout.expert_tensor << (legacy ? " torch" : " torch_dist"));
    test::expect_back_through_run(model, import, legacy, files, "run");
  });
}

INSTANTIATE_TEST_SUITE_P(All, RandomModels, testing::ValuesIn(export_families()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace ferry
