#include "trainer/schedule/flops.h"

#include <algorithm>

namespace ferry {

namespace {

constexpr double kPasses = 3;       // forward, gradient of the input, gradient of the weight
constexpr double kMultiplyAdd = 2;  // two operations

// Operations of one token in one layer, without kPasses and kMultiplyAdd.
struct AttentionWork {
  double projections = 0;
  double scores = 0;  // for each token that it attends to
};

AttentionWork attention_work(const TrainArguments& a) {
  const auto hidden = static_cast<double>(*a.hidden_size);
  const auto heads = static_cast<double>(*a.num_attention_heads);
  AttentionWork work;
  if (!a.multi_latent_attention) {
    const auto groups = a.group_query_attention ? static_cast<double>(a.num_query_groups) : heads;
    const auto head = static_cast<double>(*a.kv_channels);
    work.projections = hidden * (heads + 2 * groups) * head + heads * head * hidden;
    work.scores = 2 * heads * head;
    return work;
  }
  const auto position = static_cast<double>(a.qk_pos_emb_head_dim);
  const auto key = static_cast<double>(a.qk_head_dim);
  const auto value = static_cast<double>(a.v_head_dim);
  const auto rank = static_cast<double>(a.kv_lora_rank);
  const double queries = heads * (key + position);
  const auto query_rank = static_cast<double>(a.q_lora_rank.value_or(0));
  work.projections = a.q_lora_rank ? query_rank * (hidden + queries + 1) : hidden * queries;
  work.projections += rank * (hidden + heads * (key + value) + 1) + hidden * position;
  work.projections += heads * value * hidden;
  work.scores = queries + heads * value;
  return work;
}

struct LayerCounts {
  double dense = 0, experts = 0, prediction = 0;
};

LayerCounts count_layers(const TrainArguments& a) {
  LayerCounts counts;
  const int64_t layers = *a.num_layers;
  bool last = false;
  if (!a.num_experts) {
    counts.dense = static_cast<double>(layers);
  } else if (const auto* list = std::get_if<std::vector<int64_t>>(&a.moe_layer_freq)) {
    const auto ones = std::count_if(list->begin(), list->end(), [](int64_t n) { return n != 0; });
    counts.experts = static_cast<double>(ones);
    last = !list->empty() && list->back() != 0;
  } else {
    const auto* every = std::get_if<int64_t>(&a.moe_layer_freq);
    const int64_t step = every ? std::max<int64_t>(*every, 1) : 1;
    counts.experts = static_cast<double>((layers - 1) / step + 1);
    last = (layers - 1) % step == 0;
  }
  counts.dense = static_cast<double>(layers) - counts.experts;
  counts.prediction = static_cast<double>(a.mtp_num_layers.value_or(0));
  (last ? counts.experts : counts.dense) += counts.prediction;
  return counts;
}

}  // namespace

double floating_point_operations(const TrainArguments& a, int64_t samples, AttentionCount count) {
  const auto hidden = static_cast<double>(*a.hidden_size);
  const auto length = static_cast<double>(*a.seq_length);
  const double tokens = static_cast<double>(samples) * length;
  const double matrices = a.swiglu ? 3 : 2;
  const LayerCounts layers = count_layers(a);
  const double all_layers = layers.dense + layers.experts;

  const AttentionWork attention = attention_work(a);
  const auto ffn = static_cast<double>(*a.ffn_hidden_size);
  const auto expert_ffn = static_cast<double>(a.moe_ffn_hidden_size.value_or(*a.ffn_hidden_size));
  const auto shared_ffn = static_cast<double>(a.moe_shared_expert_intermediate_size.value_or(0));
  const auto chosen = static_cast<double>(a.moe_router_topk);
  const double mlp = hidden * matrices *
                     (ffn * layers.dense + (expert_ffn * chosen + shared_ffn) * layers.experts);
  const double prediction = layers.prediction * (3 * hidden + 2 * hidden * hidden);
  const double logits =
      hidden * static_cast<double>(a.padded_vocab_size.value_or(0)) * (layers.prediction + 1);

  const double per_token = mlp + attention.projections * all_layers + prediction + logits;
  const double scores = attention.scores * all_layers * (count == AttentionCount::causal ? 0.5 : 1);
  return kPasses * kMultiplyAdd * (tokens * per_token + tokens * length * scores);
}

double teraflops(double operations, double seconds, int64_t world_size) {
  return operations / (seconds * 1e12 * static_cast<double>(world_size));
}

}  // namespace ferry
