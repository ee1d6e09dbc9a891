// Routing of tokens to experts, and moving tokens to experts and back.
//
// Source: Megatron-LM, megatron/core/transformer/moe/moe_utils.py
// (topk_routing_with_score_function, group_limited_topk, compute_routing_scores_for_aux_loss);
// Zoph et al. 2022 (the z-loss).
#pragma once

#include "kernels/array.h"

namespace ferry::kernels {

enum class RouterScore : uint8_t { softmax, sigmoid };

struct RouterShape {
  int64_t tokens = 0, experts = 0;
  int64_t chosen = 0;                     // experts per token
  int64_t groups = 0, groups_chosen = 0;  // experts are chosen from the best groups; 0: no groups
  RouterScore score = RouterScore::softmax;
  /// Softmax over all experts before the choice; otherwise over the chosen ones' logits.
  bool softmax_first = false;
  double scale = 0;  // factor of the weights; 0: none
};

/// Computes the chosen experts of each token, by descending score (ties: the lower index first),
/// and the weights of their outputs. Sigmoid scores of several chosen experts are divided by their
/// sum.
struct RouterForward {
  RouterShape shape;
  const float* logits = nullptr;       // [tokens, experts]
  const float* expert_bias = nullptr;  // added to scores only for the choice; may be null
  int32_t* experts = nullptr;          // [tokens, chosen]
  float* weights = nullptr;            // [tokens, chosen]
  /// [tokens, experts]: probabilities for the load-balancing loss: softmax of the logits, or
  /// sigmoids divided by their sum. May be null.
  float* scores = nullptr;
  /// [tokens, chosen]: the experts with the largest scores, without bias and groups, counted by the
  /// load-balancing loss. Null if `scores` is.
  int32_t* balance_experts = nullptr;
};

/// Sets dlogits from the gradients of the weights, of the scores and of the z-loss.
struct RouterBackward {
  RouterShape shape;
  const float* logits = nullptr;
  const int32_t* experts = nullptr;
  const float* weights = nullptr;
  const float* dweights = nullptr;
  const float* scores = nullptr;
  /// dscores of token t and expert e is expert_gradient[t's sequence][e]: the load-balancing loss
  /// is linear in the scores. Tokens are sequence first: token t is in sequence t % sequences.
  const float* expert_gradient = nullptr;  // [sequences, experts]; null: none
  int64_t sequences = 1;
  /// Factor of the z-loss gradient of each token; 0: none.
  double z_factor = 0;
  float* dlogits = nullptr;
};

/// *loss += factor · the sum over tokens of log²(the sum of exponentials of the token's logits).
struct ZLoss {
  int64_t tokens = 0, experts = 0;
  const float* logits = nullptr;
  double factor = 0;
  double* loss = nullptr;
};

/// counts[s][e] = tokens of sequence s (token t is in t % sequences) routed to expert e; added if
/// `accumulate`.
struct ExpertCounts {
  int64_t tokens = 0, chosen = 0, experts = 0, sequences = 1;
  const int32_t* taken = nullptr;  // [tokens, chosen]
  float* counts = nullptr;
  bool accumulate = false;
};

/// *loss += factor · the sum over s, e of counts[s][e] · (the sum over the tokens of s of
/// scores[t][e]), and gradient[s][e] = gradient_factor · counts[s][e].
struct BalanceLoss {
  int64_t tokens = 0, experts = 0, sequences = 1;
  const float* scores = nullptr;
  const float* counts = nullptr;
  double factor = 0, gradient_factor = 0;
  double* loss = nullptr;     // may be null
  float* gradient = nullptr;  // may be null
};

/// Which ranks have experts that a token chose. Ranks have experts_of_rank each, in order, or
/// `parts` neighbouring ones share those.
struct ChosenRanks {
  int64_t tokens = 0, chosen = 0, ranks = 0;
  int64_t parts = 1, experts_of_rank = 1;
  const int32_t* taken = nullptr;  // [tokens, chosen]
  int32_t* rank_of = nullptr;      // [tokens, ranks]: [t][r] is r, or -1 if r has none of t's
  int64_t* choices = nullptr;      // [ranks]: all tokens' choices that it has
};

/// Sorts the choices of all tokens by expert, then by token. Those of other experts than
/// [first, first + experts) are left out.
struct ExpertOrder {
  int64_t tokens = 0, chosen = 0;
  int64_t first = 0, experts = 0;
  const int32_t* taken = nullptr;  // [tokens, chosen]
  int64_t* offsets = nullptr;      // experts + 1: rows of each
  int32_t* choice_of = nullptr;    // by row: token · chosen + its place among the token's
  int32_t* row_of = nullptr;       // the inverse, [tokens, chosen]; -1 for what is left out
};

/// y[r] = x[index[r] / divisor]. Elements of one type keep all their bits.
struct GatherRows {
  int64_t rows = 0, width = 0;
  const int32_t* index = nullptr;
  int64_t divisor = 1;
  /// If known, the inverse of the index, [tokens, divisor], so that none of x's rows, `tokens`,
  /// need be read more than once; -1 for what the index does not have.
  const int32_t* row_of = nullptr;
  int64_t tokens = 0;
  ConstArray x;
  Array y;
};

/// y[t] = sum over j of x[row_of[t][j]], by ascending j, without those of row_of -1; added if
/// `accumulate`. Summed in fp32, rounded once.
struct CombineRows {
  int64_t tokens = 0, chosen = 0, width = 0;
  const int32_t* row_of = nullptr;  // [tokens, chosen]
  ConstArray x;
  Array y;
  bool accumulate = false;
};

/// `count` numbers: y[i] = x[index[i]], or 0 where the index is -1.
struct GatherNumbers {
  int64_t count = 0;
  const int32_t* index = nullptr;
  const float* x = nullptr;
  float* y = nullptr;
};

/// bias[e] += rate · the sign of (mean of tokens - tokens[e]).
struct ExpertBiasStep {
  int64_t experts = 0;
  const float* tokens = nullptr;
  double rate = 0;
  float* bias = nullptr;
};

}  // namespace ferry::kernels
