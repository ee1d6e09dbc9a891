// Random models of every family: arguments, config.json and tensors go to the other side and back
// unchanged, through runs of random layouts, too.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "ckpt/base/error.h"
#include "ckpt/megatron/model/hybrid_layers.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"
#include "convert/config/expressible.h"
#include "convert/config_json.h"
#include "convert/recognise.h"
#include "tests/convert/round_trip.h"
#include "tests/random_cases.h"

namespace ferry {
namespace {

// Makes a model of a family by changes at random, of which those stay that the family can express.
class Maker {
 public:
  Maker(const Family& family, uint64_t seed)
      : family_(family), random_(seed), a_(read_architecture(family, nlohmann::json::object())) {
    a_.layers = pick(1, 4);
    const int64_t even = pick(1, 2);  // numbers that tensor ranks can share
    a_.heads = a_.groups = even * pick(1, 3);
    a_.head_dim = 2 * pick(1, 3);
    a_.hidden = a_.heads * a_.head_dim;
    a_.ffn = even * pick(3, 9);
    a_.positions = pick(8, 99);
    a_.vocab = pick(5, 40);
    a_.window = 0;
    const PositionSettings read = a_;
    static_cast<PositionSettings&>(a_) = {};
    a_.position_kind = read.position_kind;
    a_.rope_interleaved = read.rope_interleaved;
    if (a_.mla) make_latent();
    if (a_.index_heads > 0) make_indexers();
    if (has(".mixer.")) make_hybrid();
    if (has(".self_attention.in_proj.")) make_linear();
    if (a_.attention_by_kind) make_kinds_of_attention();
  }

  Architecture make() {
    if (!a_.is_hybrid()) choose_experts();
    change([&](auto& a) { a.router_pre_softmax = a.experts > 0 && coin(); });
    change([&](auto& a) { a.router_scale = a.experts > 0 ? 2.5 : 0; });
    change([&](auto& a) {
      if (a.experts == 4) a.router_groups = 2, a.router_groups_per_token = 1;
    });
    change([&](auto& a) { a.heads *= pick(1, 3), a.hidden = a.heads * a.head_dim; });
    if (a_.mla) a_.groups = a_.heads, a_.head_dim = a_.hidden / a_.heads;
    change([&](auto& a) { a.hidden = a.heads * pick(1, 6); });
    if (a_.mla) a_.head_dim = a_.hidden / a_.heads;
    change([&](auto& a) { a.tied = coin(); });
    change([&](auto& a) { a.norm_eps = coin() ? 1e-6 : 1e-5; });
    change([&](auto& a) { a.activation = coin() ? Activation::gelu : Activation::gelu_tanh; });
    change([&](auto& a) { a.qkv_bias = coin(); });
    change([&](auto& a) { a.linear_bias = coin(); });
    change([&](auto& a) { a.qk_norm = coin(); });
    change([&](auto& a) { a.rope_theta = coin() ? 500000 : 10000.5; });
    if (a_.position_kind == Positions::rope) {
      change([&](auto& a) { scale_positions(a); });
      change([&](auto& a) { a.rotary_fraction = 0.5; });
      change([&](auto& a) { a.unrotated_layers = some_layers(); });
    }
    change([&](auto& a) { a.rope_truncates = a.mla || a.rope_scaling != RopeScaling::yarn; });
    change([&](auto& a) {
      a.index_every = a.index_heads > 0 && a.experts > 0 && a.layers > 2 ? 2 : 1;
    });
    change([&](auto& a) { a.index_first = a.index_every > 1 ? 2 : 1; });
    change([&](auto& a) { a.glu_clamp = a.glu_clamp > 0 ? 2.5 : 0; });
    change([&](auto& a) { a.window = pick(1, 64); });
    change([&](auto& a) {
      if (a.window > 0 && !a.norms_parts) a.windowed_layers = some_layers();
    });
    if (!a_.is_hybrid()) change([&](auto& a) { a.mtp_layers = pick(0, 2); });
    EXPECT_EQ(unsupported_reasons(family_, a_), std::vector<std::string>()) << family_.name;
    return a_;
  }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

 private:
  bool coin() { return pick(0, 1) == 1; }

  template <typename Change>
  void change(Change make_change) {
    const size_t before = unsupported_reasons(family_, a_).size();
    if (before == 0 && coin()) return;
    Architecture changed = a_;
    make_change(changed);
    if (unsupported_reasons(family_, changed).size() <= before) a_ = std::move(changed);
  }

  bool has(std::string_view part) const {
    return std::ranges::any_of(family_.rules, [&](const Rule& rule) {
      return rule.megatron.find(part) != std::string_view::npos;
    });
  }

  void choose_experts() {
    change([&](auto& a) { make_experts(a); });
    change([&](auto& a) { a.shared_ffn = a.experts > 0 ? a.expert_ffn * pick(1, 2) : 0; });
    change([&](auto& a) {
      make_experts(a);
      a.shared_ffn = a.expert_ffn;
    });
    for (int64_t i = 0; i < a_.layers; ++i) {
      change([&](auto& a) {
        if (a.experts > 0) a.moe_layers[static_cast<size_t>(pick(0, a.layers - 1))] = coin();
      });
    }
  }

  void make_hybrid() {
    constexpr const char* kPatterns[] = {"M-M*-M", "MEM*E/*E", "M*E", "MM-*", "E*M/ME/ME"};
    const HybridPattern pattern = parse_hybrid_pattern(kPatterns[pick(0, 4)]);
    a_.mamba_groups = 2;
    a_.mamba_heads = 2 * pick(1, 2);
    a_.mamba_head_dim = pick(1, 4);
    a_.mamba_state = pick(1, 4);
    if (std::ranges::count(pattern.decoder, LayerKind::mixture) > 0) {
      make_experts(a_);
      a_.shared_ffn = 2 * pick(1, 4);
      a_.expert_width = coin() ? 0 : pick(1, 5);
      a_.aux_loss_coeff = 0;
    } else {
      a_.experts = 0;
    }
    set_layers(pattern, a_);
  }

  void make_linear() {
    a_.linear_key_heads = 2 * pick(1, 2);
    a_.linear_value_heads = a_.linear_key_heads * pick(1, 2);
    a_.linear_key_dim = pick(1, 4);
    a_.linear_value_dim = pick(1, 4);
    a_.linear_conv = pick(1, 4);
    for (int64_t layer = 0; layer < a_.layers; ++layer) a_.linear_layers.push_back(coin());
    a_.linear_layers[0] = true;
  }

  void make_kinds_of_attention() {
    if (a_.layers > 1) {
      a_.window = pick(1, 64);
      for (int64_t layer = 0; layer < a_.layers; ++layer) {
        a_.windowed_layers.push_back(layer == 0 || (layer + 1 < a_.layers && coin()));
      }
      a_.windowed_rope_theta = 1000.5;
    }
    if (coin()) {
      make_mixture_of_kinds();
    } else {
      if (a_.layers > 1) change([&](auto& a) { a.kv_taking_layers = pick(0, a.layers - 2); });
      a_.doubles_ffn = a_.layers > 1 && coin();
      a_.layer_embedding = coin() ? 2 * pick(1, 3) : 0;
    }
    a_.full_rotated_pairs = coin() ? 0.25 : 1;
    a_.full_head_dim = coin() ? 2 * a_.head_dim : 0;
    a_.full_keys_are_values = coin();
    a_.logit_cap = coin() ? 30 : 0;
    a_.layer_embedding_vocab = 2 * pick(2, 9);
  }

  // Megatron Bridge has windows in turn there.
  void make_mixture_of_kinds() {
    a_.norms_parts = a_.router_pre_softmax = true;
    a_.norm_modules = false;
    make_experts(a_);
    a_.shared_ffn = a_.ffn;
    a_.layer_embedding = 0;
    for (int64_t layer = 0; layer < a_.layers && a_.window > 0; ++layer) {
      a_.windowed_layers[static_cast<size_t>(layer)] = (layer + 1) % a_.layers != 0;
    }
  }

  // Neither none nor all.
  std::vector<bool> some_layers() {
    std::vector<bool> layers;
    for (int64_t layer = 0; layer < a_.layers; ++layer) layers.push_back(coin());
    layers[0] = true;
    if (a_.layers > 1) layers[1] = false;
    return a_.layers > 1 ? layers : std::vector<bool>();
  }

  void scale_positions(Architecture& a) {
    if (a.mla) {
      a.rope_scaling = RopeScaling::yarn;
      a.rope_factor = static_cast<double>(pick(2, 40));
      a.rope_original_positions = YarnConstants().original_positions;
      a.rope_mscale_all_dim = coin() ? 0.7 : 0;
      a.rope_mscale = a.rope_mscale_all_dim == 0 ? 1 : 0.5;
    } else if (coin() && !a.scales_embedding) {  // that layer spec has but the linear one
      a.rope_scaling = RopeScaling::yarn;
      a.rope_factor = 2.5;
      a.rope_original_positions = pick(8, 99);
      a.rope_beta_fast = 16;
      a.rope_mscale_all_dim = coin() ? 0.7 : 0;
    } else if (coin() || a.scales_embedding) {
      a.rope_scaling = RopeScaling::linear;
      a.rope_factor = static_cast<double>(pick(2, 9));
    } else {
      a.rope_scaling = RopeScaling::llama3;
      a.rope_factor = 8.5;
      a.rope_original_positions = Llama3Constants().original_positions;
    }
  }

  void make_latent() {
    a_.q_lora_rank = coin() ? 0 : pick(2, 5);
    a_.kv_lora_rank = pick(2, 5);
    a_.qk_nope_dim = pick(1, 4);
    a_.qk_rope_dim = 2 * pick(1, 2);
    a_.v_dim = pick(1, 4);
  }

  void make_indexers() {
    a_.q_lora_rank = pick(2, 5);
    a_.index_heads = pick(1, 3);
    a_.index_dim = 2 * pick(1, 3);
    a_.index_tokens = pick(1, 9);
  }

  void make_experts(Architecture& a) {
    a.experts = 2 * pick(1, 2);
    // Some sigmoid routers renormalise the score of one expert.
    a.experts_per_token = pick(a.router_score == RouterScore::sigmoid ? 2 : 1, a.experts);
    a.expert_ffn = 2 * pick(1, 3);
    a.moe_layers.assign(static_cast<size_t>(a.layers), true);
    // Where the family has one, a model without comes back with one of zeros.
    a.expert_bias = has(".router.expert_bias");
    a.aux_loss_coeff = coin() ? 0 : 0.01;
    // One member of config.json.
    if (family_.name == "mixtral" || family_.name == "gpt_oss") a.ffn = a.expert_ffn;
  }

  const Family& family_;
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
  EXPECT_EQ(found.rope_original_positions, expected.rope_original_positions);
  EXPECT_EQ(found.rope_beta_fast, expected.rope_beta_fast);
  EXPECT_EQ(found.rope_truncates, expected.rope_truncates);
  EXPECT_EQ(found.rope_interleaved, expected.rope_interleaved);
  EXPECT_EQ(found.sinks, expected.sinks);
  EXPECT_EQ(found.rope_mscale, expected.rope_mscale);
  EXPECT_EQ(found.rope_mscale_all_dim, expected.rope_mscale_all_dim);
  EXPECT_EQ(found.rotary_fraction, expected.rotary_fraction);
  EXPECT_EQ(found.unrotated_layers, expected.unrotated_layers);
  EXPECT_EQ(found.window, expected.window);
  EXPECT_EQ(found.windowed_layers, expected.windowed_layers);
  EXPECT_EQ(found.moe_layers, expected.moe_layers);
  EXPECT_EQ(found.kinds, expected.kinds);
  EXPECT_EQ(found.linear_layers, expected.linear_layers);
  if (expected.experts > 0) {
    EXPECT_EQ(found.router_score, expected.router_score);
  }
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
  test::for_random_cases(30, [&](uint64_t number) {
    Maker maker(family, number);
    Architecture a = maker.make();
    const int64_t divisor = maker.pick(1, 16);
    a.padded_vocab = (a.vocab + divisor - 1) / divisor * divisor;

    Draft draft;
    const Value args = draft.instance("argparse.Namespace");
    const WrittenArguments written = write_arguments(a, draft, args);
    if (!a.input_norms && a.norms_all_heads) {  // no program has such layers
      EXPECT_THAT(written.problems, testing::ElementsAre(testing::HasSubstr("norm otherwise")));
      return;
    }
    ASSERT_TRUE(written.problems.empty()) << written.problems.front();
    draft.put(args, "vocab_size", draft.integer(a.vocab));
    draft.put(args, "make_vocab_size_divisible_by", draft.integer(divisor));
    const LoadedValue loaded = std::move(draft).finish(args);
    const ReadArguments read = read_arguments(loaded.value, "args");
    ASSERT_TRUE(read.problems.empty()) << read.problems.front();
    expect_same(read.architecture, a);
    ExportOptions options;  // a model that another family can be, too, may be taken for that one
    options.family = family.name;

    const auto files = std::make_shared<MemoryFileSystem>();
    const test::Tensors tensors = test::stacked_as_today(test::canonical_tensors(family, a), a);
    Checkpoint checkpoint = test::checkpoint_of(tensors, nlohmann::json::object(), files);
    checkpoint.args = loaded;
    test::expect_round_trip(checkpoint, true, options);

    const Checkpoint model =
        test::write_hugging_face(plan_export(checkpoint, options), *files, files, "hf");
    const Import import = import_somehow(maker, model);
    const ParallelLayout layout = layout_from_args(import.state.args.value);
    // Rank folders have no place for experts that are split otherwise than all else.
    const bool legacy = layout.expert_tensor == layout.tensor && maker.pick(0, 1) == 1;
    SCOPED_TRACE(testing::Message()
                 << "TP" << layout.tensor << " PP" << layout.pipeline << " EP" << layout.expert
                 << " ETP" << layout.expert_tensor << (legacy ? " torch" : " torch_dist"));
    test::expect_back_through_run(model, import, legacy, files, "run", options);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RandomModels, testing::ValuesIn(export_families()),
                         [](const auto& suite) { return suite.param; });

}  // namespace
}  // namespace ferry
