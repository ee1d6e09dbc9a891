// No member of Architecture is lost in silence: each alone is changed in models of all families,
// and then the other side refuses the model, warns of what it will compute otherwise, or gives the
// member back.
#include "tests/convert/members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "ckpt/base/error.h"
#include "convert/arguments/argument_table.h"
#include "convert/arguments/arguments.h"
#include "convert/config/expressible.h"
#include "convert/config_json.h"
#include "convert/model/sizes.h"
#include "convert/recognise.h"
#include "tests/convert/support.h"

namespace ferry {
namespace {

using A = Architecture;

template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<int>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    std::string text;
    for (const auto each : value) text += fmt::format("{}", static_cast<int>(each));
    return text.empty() ? "none" : text;
  }
}

// Reals by twelve digits: some are stored as a root.
std::string text_of(double value) { return fmt::format("{:.12g}", value); }

// Lists by what they say about each layer.
template <typename Holds>
std::string layers_text(const A& a, Holds holds) {
  std::string text;
  for (int64_t layer = 0; layer < a.all_layers(); ++layer) text += text_of(holds(layer)) + " ";
  return text;
}

std::string member_text(const A& architecture, std::string_view member) {
  A a = architecture;
  const auto each = [&](auto holds) { return layers_text(a, holds); };
  if (member == "windowed_layers") return each([&](int64_t n) { return a.has_window(n); });
  if (member == "unrotated_layers") return each([&](int64_t n) { return a.is_rotated(n); });
  if (member == "linear_layers") return each([&](int64_t n) { return a.is_linear(n); });
  if (member == "moe_layers") return each([&](int64_t n) { return a.is_moe(n); });
  if (member == "kinds") return each([&](int64_t n) { return a.kind(n); });
  if (member == "index_every" || member == "index_first") {
    return each([&](int64_t n) { return a.has_indexer(n); });
  }
  if (member == "index_norm_eps" && a.index_norm_eps == 0) return text_of(a.norm_eps);
  std::string text;
  test::for_members(a, [&](std::string_view name, const auto& value) {
    if (name == member) text = text_of(value);
  });
  return text;
}

// A member that may be lost, and of which models.
struct Exception {
  std::string_view members;  // each between blanks
  bool (*of)(const A&) = [](const A&) { return true; };
};

bool is_excepted(std::span<const Exception> exceptions, std::string_view member, const A& changed) {
  return std::ranges::any_of(exceptions, [&](const Exception& each) {
    return each.members.find(fmt::format(" {} ", member)) != std::string_view::npos &&
           each.of(changed);
  });
}

bool no_experts(const A& a) {
  return std::ranges::count(a.moe_layers, true) == 0 || a.experts == 0;
}
bool no_indexers(const A& a) { return a.index_heads == 0; }
bool no_linear(const A& a) { return !a.any_linear(); }
bool no_mamba(const A& a) { return !a.any_mamba(); }
bool not_rotary(const A& a) { return a.position_kind != Positions::rope; }
bool not_scaled(const A& a) { return not_rotary(a) || a.rope_scaling == RopeScaling::none; }
bool not_yarn(const A& a) { return not_rotary(a) || a.rope_scaling != RopeScaling::yarn; }
bool not_llama3(const A& a) { return not_rotary(a) || a.rope_scaling != RopeScaling::llama3; }
bool all_rotated_windows(const A& a) {
  for (int64_t layer = 0; layer < a.layers; ++layer) {
    if (!a.has_window(layer)) return false;
  }
  return true;
}

// What changes nothing in a model of that kind, in both directions.
constexpr Exception kInert[] = {
    // A part that the model does not have.
    {" expert_bias expert_ffn expert_width experts_per_token shared_ffn shared_gate router_score "
     "router_pre_softmax router_scale router_groups router_groups_per_token ",
     no_experts},
    {" index_dim index_tokens index_norm_eps index_rope_interleaved ", no_indexers},
    {" linear_key_heads linear_value_heads linear_key_dim linear_value_dim linear_conv ",
     no_linear},
    {" mamba_heads mamba_head_dim mamba_groups mamba_state ", no_mamba},
    {" q_lora_rank kv_lora_rank qk_nope_dim qk_rope_dim v_dim ", [](const A& a) { return !a.mla; }},
    {" layer_embedding_vocab ", [](const A& a) { return a.layer_embedding == 0; }},
    {" mtp_inner_layers ", [](const A& a) { return a.mtp_layers == 0 || !a.is_hybrid(); }},
    {" experts ",
     [](const A& a) {
       return a.is_hybrid() && std::ranges::count(a.kinds, LayerKind::mixture) == 0;
     }},
    {" doubles_ffn ", [](const A& a) { return a.kv_taking_layers == 0; }},
    {" ffn ", [](const A& a) { return a.all_moe() && !a.is_hybrid(); }},
    {" windowed_rope_theta ", [](const A& a) { return a.window == 0; }},
    // Latent attention has sizes of its own, and rotates pairs in any case.
    {" groups head_dim rope_interleaved ", [](const A& a) { return a.mla; }},
    // Positions that are not rotary, or are scaled otherwise.
    {" rope_theta windowed_rope_theta full_rotated_pairs rotary_fraction rope_interleaved "
     "unrotated_layers rope_scaling ",
     not_rotary},
    {" rope_factor ", not_scaled},
    {" rope_scaling ", [](const A& a) { return a.rope_factor == 1; }},
    {" rope_low_freq_factor rope_high_freq_factor ", not_llama3},
    {" rope_beta_fast rope_beta_slow rope_mscale rope_mscale_all_dim rope_truncates ", not_yarn},
    {" rope_original_positions ", [](const A& a) { return not_yarn(a) && not_llama3(a); }},
    {" full_rotated_pairs ", all_rotated_windows},
    // Other words for the same.
    {" qkv_bias ", [](const A& a) { return a.linear_bias; }},
    {" router_scale ", [](const A& a) { return a.router_scale == 1; }},
    {" router_groups router_groups_per_token ", [](const A& a) { return !a.limits_groups(); }},
    {" router_pre_softmax ", [](const A& a) { return a.router_score != RouterScore::softmax; }},
    {" full_groups ", [](const A& a) { return a.full_groups == a.groups; }},
    {" full_head_dim ", [](const A& a) { return a.full_head_dim == a.head_dim; }},
    {" attention_scalar ",
     [](const A& a) { return a.attention_scalar == static_cast<double>(a.head_dim); }},
    {" moe_layers ", [](const A& a) { return a.is_hybrid(); }},  // which follow from kinds
    // What no model has: experts in no layer, a first layer without an indexer.
    {" moe_layers ", [](const A& a) { return a.experts > 0 && a.moe_layers.empty(); }},
    {" index_first ", [](const A& a) { return a.index_first < 1; }},
    // No width, which stands for that of dense layers.
    {" expert_ffn ", [](const A& a) { return a.expert_ffn == 0; }},
    // Tensors' rows and names in Megatron, which the writers of tensors decide.
    {" dense_glu_block expert_glu_block shared_glu_block glu_ranks expert_glu_ranks "
     "numbers_layers "},
};

// The members that are lost: of which models, and the value.
using Lost = std::map<std::string, std::set<std::string>>;

// What came back, and what was said before.
struct Back {
  std::optional<A> model;
  std::vector<std::string> said;
};

// What messages call a member, next to its own name and those of the arguments that are it; or what
// they say that another member makes impossible.
struct MemberWords {
  std::string_view members;  // each between blanks
  std::vector<std::string_view> words;
};

const std::vector<MemberWords>& other_words() {
  static const std::vector<MemberWords> all = {
      {" moe_layers ", {"moe_layer_freq"}},
      {" windowed_layers ",
       {"window_attn_skip_freq", "has a window", "has no window", "no_rope_freq",
        "keys and values of a layer of its kind"}},
      {" unrotated_layers ", {"no_rope_freq"}},
      {" linear_layers linear_key_heads linear_value_heads linear_key_dim linear_value_dim ",
       {"linear_attention_freq", "linear attention", "linear_num_key_heads",
        "elements of a value head", "elements of a key head", "value heads"}},
      {" kinds ", {"hybrid_layer_pattern", "mamba_num_heads", "hybrid models", "moe_layer_freq"}},
      {" mamba_heads mamba_groups ", {"Mamba mixers", "groups of their heads"}},
      {" window ", {"window_size", "no_rope_freq"}},
      {" groups ", {"num_query_groups"}},
      {" norm ", {"normalization"}},
      {" position_kind ", {"position_embedding_type", "positions are neither"}},
      {" rope_interleaved ", {"rotary_interleaved"}},
      {" rotary_fraction ", {"rotary_percent"}},
      {" sinks ", {"softmax_type"}},
      {" tied ", {"tied"}},
      {" attention_scalar ", {"softmax_scale", "divide attention's scores"}},
      {" activation ", {"activation", "GELU"}},
      {" linear_bias ", {"GELU in its tanh form is Megatron's only with biases", "add_qkv_bias"}},
      {" router_score ", {"moe_router_score_function"}},
      {" router_groups ", {"do not divide into"}},
      {" router_pre_softmax ", {"renormalised over the chosen experts"}},
      {" index_heads index_dim index_tokens ",
       {"experimental_attention_variant", "an indexer's sizes"}},
      {" index_norm_eps ", {"the epsilon of the norm of an indexer's keys"}},
      {" input_norms output_norms norm_modules scales_layers norms_values norms_parts "
       "scales_embedding attention_by_kind norms_all_heads ",
       {"layers norm otherwise"}},
      {" input_norms ", {"norms of what attention and MLP take"}},
      {" output_norms ", {"norms of what attention and MLP give"}},
      {" norm_modules ", {"norms of a layer as modules"}},
      {" scales_layers ", {"a factor on what a layer gives"}},
      {" norms_values ", {"norms of values"}},
      {" norms_parts ", {"norms of a mixture's parts"}},
      {" scales_embedding ", {"embeddings times the root"}},
      {" attention_by_kind ", {"attention stored by kind", "only Gemma's layer specs"}},
      {" norms_all_heads ", {"query/key norms over all heads"}},
      {" qk_norm ", {"query/key norms", "norm queries and keys"}},
      {" rope_scaling rope_factor rope_low_freq_factor rope_high_freq_factor "
       "rope_original_positions rope_beta_fast rope_beta_slow rope_mscale rope_mscale_all_dim "
       "rope_truncates ",
       {"scaling of positions", "positions are scaled", "YaRN"}},
      {" windowed_rope_theta ", {"base of rotary positions in layers with a window"}},
      {" q_lora_rank kv_lora_rank qk_nope_dim v_dim ", {"latent attention by sizes"}},
      {" head_dim qk_rope_dim ", {"rotary positions need an even number of elements"}},
      {" kv_taking_layers layer_embedding ",
       {"keys and values of others", "keys and values of a layer of its kind"}},
      // Members that others follow from, or that have no place without them.
      {" layers ",
       {"num_experts", "has a window", "keys and values of a layer of its kind", "window_size"}},
      {" heads hidden ", {"kv_channels"}},
      {" head_dim ", {"global_kv_channels"}},
      {" expert_ffn ", {"moe_shared_expert_intermediate_size"}},
      {" experts_per_token ", {"a token goes to one expert"}},
      {" experts ", {"norms of a mixture's parts", "saves for mixtures alone"}},
      {" mla ", {"latent attention", "scaling of positions"}},
      {" layers mtp_layers ", {"is_hybrid_model"}},  // of which no pattern says so
  };
  return all;
}

bool says(std::string_view member, const std::vector<std::string>& said) {
  std::vector<std::string_view> words = {member};
  A a;
  test::for_members(a, [&](std::string_view name, const auto& value) {
    if (name != member) return;
    for (const Argument& argument : plain_arguments()) {
      std::visit(
          [&](auto each) {
            const bool is_it = static_cast<const void*>(&(a.*each)) == &value;
            if (is_it) words.push_back(argument.name);
          },
          argument.member);
    }
  });
  for (const MemberWords& each : other_words()) {
    if (each.members.find(fmt::format(" {} ", member)) == std::string_view::npos) continue;
    words.insert(words.end(), each.words.begin(), each.words.end());
  }
  return std::ranges::any_of(said, [&](const std::string& each) {
    return std::ranges::any_of(
        words, [&](std::string_view word) { return each.find(word) != std::string::npos; });
  });
}

// `there_and_back` gives no model where the other side refuses it.
template <typename ThereAndBack>
void find_lost(const std::string& model, const A& a, std::span<const Exception> exceptions,
               const ThereAndBack& there_and_back, Lost& lost) {
  const Back usual = there_and_back(a);
  EXPECT_TRUE(usual.model) << model;
  test::for_changes(a, [&](std::string_view member, const A& changed) {
    if (is_excepted(kInert, member, changed) || is_excepted(exceptions, member, changed)) return;
    Back back;
    try {
      check_sizes(changed, model, "its changed members");
      if (changed.index_every < 1) return;  // read as an error, too
      back = there_and_back(changed);
    } catch (const Error& error) {
      back.said = {error.what()};
    }
    const std::string now = member_text(changed, member);
    std::erase_if(back.said, [&](const std::string& each) {
      return std::ranges::count(usual.said, each) > 0;
    });
    const std::string found = back.model ? member_text(*back.model, member) : "nothing";
    if (found == now || says(member, back.said)) return;
    lost[std::string(member)].insert(fmt::format("{} ({} came back as {}; said: {})", model, now,
                                                 found, fmt::join(back.said, " / ")));
  });
}

std::string text_of(const Lost& lost) {
  std::string text;
  for (const auto& [member, models] : lost) {
    text += fmt::format("{}: {}\n", member, fmt::join(models, ", "));
  }
  return text;
}

A model_of(const nlohmann::json& fixture, const std::string& name) {
  return read_arguments(test::loaded(fixture["args"]).value, name).architecture;
}

TEST(Members, AreRefusedOrComeBackFromConfigJson) {
  constexpr Exception kExceptions[] = {
      // Megatron's alone: rows that fill the embedding up, how norms are stored.
      {" padded_vocab zero_centered_norms "},
      // For further training.
      {" aux_loss_coeff hidden_dropout "},
  };
  Lost lost;
  for (const std::string& name : test::model_names()) {
    const auto fixture = test::named_model(name);
    const Family& family = named_family(fixture["config"]["model_type"]);
    const A model = model_of(fixture, name);
    find_lost(
        name, model, kExceptions,
        [&](const A& changed) {
          Back back;
          report_differences(family, changed, back.said);
          std::vector<std::string> reasons = unsupported_reasons(family, changed);
          const bool is_refused = !reasons.empty();
          std::ranges::move(reasons, std::back_inserter(back.said));
          if (is_refused) return back;
          back.model = read_architecture(family, members_json(family, changed));
          for (const ConfigRow& row : family.config) {
            if (row.take_from_tensors) row.take_from_tensors(changed, *back.model);
          }
          return back;
        },
        lost);
  }
  EXPECT_TRUE(lost.empty()) << text_of(lost);
}

TEST(Members, AreRefusedOrComeBackFromArguments) {
  constexpr Exception kExceptions[] = {
      {" vocab "},  // an argument that is written with the tokenizer's
      {" aux_loss_coeff ", no_experts},
  };
  Lost lost;
  for (const std::string& name : test::model_names()) {
    find_lost(
        name, model_of(test::named_model(name), name), kExceptions,
        [&](const A& changed) {
          Draft draft;
          const Value args = draft.instance("argparse.Namespace");
          Back back;
          back.said = write_arguments(changed, draft, args).problems;
          if (!back.said.empty()) return back;
          const LoadedValue written = std::move(draft).finish(args);
          ReadArguments read = read_arguments(written.value, name);
          back.said = std::move(read.problems);
          if (back.said.empty()) back.model = std::move(read.architecture);
          return back;
        },
        lost);
  }
  EXPECT_TRUE(lost.empty()) << text_of(lost);
}

}  // namespace
}  // namespace ferry
