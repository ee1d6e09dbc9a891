// Nemotron-H and Nemotron 3 (transformers/models/nemotron_h): layers are Mamba-2 mixers, attention
// without positions, MLPs and mixtures, each alone with a norm before it.
#include "convert/families/list.h"
#include "convert/families/shared.h"

namespace ferry {
namespace {

using A = Architecture;

bool has_mixtures(const A& a) { return a.experts > 0; }
bool has_mixers(const A& a) { return a.any_mamba(); }

std::vector<Rule> mamba() {
  return {
      {"decoder.layers.{layer}.mixer.in_proj.layer_norm_weight",
       {"backbone.layers.{layer}.norm.weight"}},
      {"decoder.layers.{layer}.mixer.in_proj.weight",
       {"backbone.layers.{layer}.mixer.in_proj.weight"}},
      {"decoder.layers.{layer}.mixer.conv1d.weight",
       {"backbone.layers.{layer}.mixer.conv1d.weight"}},
      {"decoder.layers.{layer}.mixer.conv1d.bias", {"backbone.layers.{layer}.mixer.conv1d.bias"}},
      {"decoder.layers.{layer}.mixer.dt_bias", {"backbone.layers.{layer}.mixer.dt_bias"}},
      {"decoder.layers.{layer}.mixer.A_log", {"backbone.layers.{layer}.mixer.A_log"}},
      {"decoder.layers.{layer}.mixer.D", {"backbone.layers.{layer}.mixer.D"}},
      {"decoder.layers.{layer}.mixer.norm.weight", {"backbone.layers.{layer}.mixer.norm.weight"}},
      {"decoder.layers.{layer}.mixer.out_proj.weight",
       {"backbone.layers.{layer}.mixer.out_proj.weight"}}};
}

std::vector<Rule> attention() {
  return {{"decoder.layers.{layer}.self_attention.linear_qkv.layer_norm_weight",
           {"backbone.layers.{layer}.norm.weight"}},
          {"decoder.layers.{layer}.self_attention.linear_qkv.weight",
           {"backbone.layers.{layer}.mixer.q_proj.weight",
            "backbone.layers.{layer}.mixer.k_proj.weight",
            "backbone.layers.{layer}.mixer.v_proj.weight"},
           Transform::qkv},
          {"decoder.layers.{layer}.self_attention.linear_proj.weight",
           {"backbone.layers.{layer}.mixer.o_proj.weight"}}};
}

std::vector<Rule> mlp() {
  return {{"decoder.layers.{layer}.mlp.linear_fc1.layer_norm_weight",
           {"backbone.layers.{layer}.norm.weight"}},
          {"decoder.layers.{layer}.mlp.linear_fc1.weight",
           {"backbone.layers.{layer}.mixer.up_proj.weight"}},
          {"decoder.layers.{layer}.mlp.linear_fc2.weight",
           {"backbone.layers.{layer}.mixer.down_proj.weight"}}};
}

std::vector<Rule> mixture() {
  return {
      {"decoder.layers.{layer}.pre_mlp_layernorm.weight", {"backbone.layers.{layer}.norm.weight"}},
      {"decoder.layers.{layer}.mlp.router.weight", {"backbone.layers.{layer}.mixer.gate.weight"}},
      {"decoder.layers.{layer}.mlp.router.expert_bias",
       {"backbone.layers.{layer}.mixer.gate.e_score_correction_bias"}},
      {"decoder.layers.{layer}.mlp.fc1_latent_proj.weight",
       {"backbone.layers.{layer}.mixer.fc1_latent_proj.weight"}},
      {"decoder.layers.{layer}.mlp.fc2_latent_proj.weight",
       {"backbone.layers.{layer}.mixer.fc2_latent_proj.weight"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc1.weight",
       {"backbone.layers.{layer}.mixer.experts.{expert}.up_proj.weight"}},
      {"decoder.layers.{layer}.mlp.experts.experts.{expert}.linear_fc2.weight",
       {"backbone.layers.{layer}.mixer.experts.{expert}.down_proj.weight"}},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc1.weight",
       {"backbone.layers.{layer}.mixer.shared_experts.up_proj.weight"}},
      {"decoder.layers.{layer}.mlp.shared_experts.linear_fc2.weight",
       {"backbone.layers.{layer}.mixer.shared_experts.down_proj.weight"}}};
}

// Around the layers inside an MTP layer, with the first or the last of them.
std::vector<Rule> mtp_layers() {
  return {{"mtp.layers.{mtp}.enorm.weight", {"mtp.layers.{mtp}.enorm.weight"}},
          {"mtp.layers.{mtp}.hnorm.weight", {"mtp.layers.{mtp}.hnorm.weight"}},
          {"mtp.layers.{mtp}.eh_proj.weight", {"mtp.layers.{mtp}.eh_proj.weight"}},
          {"mtp.layers.{mtp}.final_layernorm.weight", {"mtp.layers.{mtp}.final_layernorm.weight"}}};
}

// The class counts experts, though there may be no mixture to have them.
ConfigRow experts() {
  ConfigRow row = codec::plain("n_routed_experts", &A::experts);
  row.read = [read = row.read](nlohmann::json& config, A& a) {
    if (std::ranges::count(a.kinds, LayerKind::mixture) > 0) return read(config, a);
    config.erase("n_routed_experts");
  };
  row.write = [write = row.write](const A& a, nlohmann::json& config) {
    if (a.experts > 0) write(a, config);
  };
  return row;
}

std::vector<ConfigRow> config() {
  using codec::constant, codec::implied, codec::only_where, codec::plain;
  return {plain("vocab_size", &A::vocab),
          plain("hidden_size", &A::hidden),
          plain("intermediate_size", &A::ffn),
          codec::hybrid_layers(),
          plain("num_attention_heads", &A::heads),
          codec::or_null(plain("num_key_value_heads", &A::groups)),
          plain("head_dim", &A::head_dim),
          plain("max_position_embeddings", &A::positions),
          plain("layer_norm_epsilon", &A::norm_eps),
          plain("initializer_range", &A::init_std),
          plain("attention_dropout", &A::attention_dropout),
          plain("tie_word_embeddings", &A::tied),
          codec::activation({Activation::squared_relu}, "mlp_hidden_act"),
          implied(&A::position_kind, Positions::none),
          constant("attention_bias", false),
          constant("mlp_bias", false),
          constant("use_bias", false),
          constant("mamba_proj_bias", false),
          constant("use_conv_bias", true),
          constant("conv_kernel", 4),
          constant("mamba_hidden_act", "silu"),
          constant("residual_in_fp32", false),
          only_where(has_mixers, plain("mamba_num_heads", &A::mamba_heads)),
          only_where(has_mixers, plain("mamba_head_dim", &A::mamba_head_dim)),
          only_where(has_mixers, plain("n_groups", &A::mamba_groups)),
          only_where(has_mixers, plain("ssm_state_size", &A::mamba_state)),
          experts(),
          only_where(has_mixtures, plain("moe_intermediate_size", &A::expert_ffn)),
          only_where(has_mixtures, constant("n_shared_experts", 1)),
          only_where(has_mixtures, codec::shared_expert("moe_shared_expert_intermediate_size")),
          only_where(has_mixtures, codec::null_at_zero("moe_latent_size", &A::expert_width)),
          only_where(has_mixtures, plain("num_experts_per_tok", &A::experts_per_token)),
          only_where(has_mixtures, codec::one_at_zero("routed_scaling_factor", &A::router_scale)),
          codec::router_groups(),
          implied(&A::router_score, RouterScore::sigmoid),
          codec::renormalises_chosen("norm_topk_prob"),
          codec::router_bias()};
}

}  // namespace

Family nemotron_h_family() {
  return {
      .name = "nemotron_h",
      .class_name = "NemotronHForCausalLM",
      .rules = shared::join({{{"embedding.word_embeddings.weight",
                               {"backbone.embeddings.weight"},
                               Transform::vocabulary}},
                             mamba(),
                             attention(),
                             mlp(),
                             mixture(),
                             mtp_layers(),
                             {{"decoder.final_layernorm.weight", {"backbone.norm_f.weight"}},
                              {"output_layer.weight", {"lm_head.weight"}, Transform::vocabulary}}}),
      .config = config(),
      .defaults = R"({"num_key_value_heads": 8, "head_dim": 128, "layer_norm_epsilon": 1e-5,
                          "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu",
                          "attention_bias": false, "mlp_bias": false, "use_bias": false,
                          "mamba_proj_bias": false, "use_conv_bias": true, "conv_kernel": 4,
                          "residual_in_fp32": false, "ssm_state_size": 128, "n_groups": 8,
                          "mamba_num_heads": 128, "mamba_head_dim": 64, "n_shared_experts": 1,
                          "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
                          "topk_group": 1, "routed_scaling_factor": 1.0, "norm_topk_prob": true,
                          "num_nextn_predict_layers": 0,
                          "mtp_layers_block_type": ["full_attention", "moe"]})",
      .differences =
          [](const A& a, std::vector<std::string>& warnings) {
            if (!a.any_mamba()) return;
            warnings.emplace_back(
                "transformers keeps the time steps of Mamba mixers above time_step_min (0.001), "
                "Megatron-LM does not: logits differ where a step is shorter");
          },
      .mtp_prefix = "mtp.layers.{mtp}.",
      .base_prefix = "backbone.",
      .spellings = {{"backbone.", "model."}}};
}

}  // namespace ferry
