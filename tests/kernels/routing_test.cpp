#include <algorithm>
#include <numeric>

#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kTokens = 23, kExperts = 12, kSequences = 3;

std::vector<RouterShape> shapes() {
  std::vector<RouterShape> all;
  for (const auto score : {RouterScore::softmax, RouterScore::sigmoid}) {
    for (const int64_t chosen : {1, 4}) {
      for (const bool softmax_first : {false, true}) {
        for (const int64_t groups : {0, 4}) {
          if (groups > 0 && chosen == 1) continue;
          all.push_back({.tokens = kTokens,
                         .experts = kExperts,
                         .chosen = chosen,
                         .groups = groups,
                         .groups_chosen = groups > 0 ? 2 : 0,
                         .score = score,
                         .softmax_first = softmax_first,
                         .scale = groups > 0 ? 2.5 : 0.0});
        }
      }
    }
  }
  return all;
}

using Row = std::vector<double>;

Row softmax(Row x) {
  double sum = 0;
  for (auto& value : x) sum += value = std::exp(value);
  for (auto& value : x) value /= sum;
  return x;
}

double squared_log_sum(const Row& x) {
  double sum = 0;
  for (const double value : x) sum += std::exp(value);
  return std::log(sum) * std::log(sum);
}

Row sigmoids(Row x) {
  for (auto& value : x) value = 1 / (1 + std::exp(-value));
  return x;
}

std::vector<size_t> by_size(const Row& x, int64_t count) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  order.resize(static_cast<size_t>(count));
  return order;
}

Row scores_of(const RouterShape& s, const Row& logits) {
  if (s.score == RouterScore::sigmoid) return sigmoids(logits);
  return s.softmax_first ? softmax(logits) : logits;
}

std::vector<size_t> choose(const RouterShape& s, const Row& logits, const Numbers& bias) {
  auto scores = scores_of(s, logits);
  for (size_t i = 0; i < scores.size(); ++i) scores[i] += bias[i];
  if (s.groups > 0) {
    const auto size = static_cast<size_t>(s.experts / s.groups);
    Row sums;
    for (size_t g = 0; g < static_cast<size_t>(s.groups); ++g) {
      Row group(scores.begin() + static_cast<long>(g * size),
                scores.begin() + static_cast<long>((g + 1) * size));
      double sum = 0;
      for (const auto i : by_size(group, s.chosen / s.groups_chosen)) sum += group[i];
      sums.push_back(sum);
    }
    const auto best = by_size(sums, s.groups_chosen);
    for (size_t i = 0; i < scores.size(); ++i) {
      if (std::find(best.begin(), best.end(), i / size) == best.end()) scores[i] = -1e30;
    }
  }
  return by_size(scores, s.chosen);
}

Row weights_of(const RouterShape& s, const Row& logits, const std::vector<size_t>& experts) {
  const auto scores = scores_of(s, logits);
  Row weights;
  for (const auto e : experts) weights.push_back(scores[e]);
  if (s.score == RouterScore::softmax && !s.softmax_first) weights = softmax(weights);
  if (s.score == RouterScore::sigmoid && s.chosen > 1) {
    const double sum = std::accumulate(weights.begin(), weights.end(), 1e-20);
    for (auto& w : weights) w /= sum;
  }
  for (auto& w : weights) w *= s.scale != 0 ? s.scale : 1;
  return weights;
}

Row all_scores(const RouterShape& s, const Row& logits) {
  if (s.score == RouterScore::softmax) return softmax(logits);
  auto scores = sigmoids(logits);
  const double sum = std::accumulate(scores.begin(), scores.end(), 1e-20);
  for (auto& score : scores) score /= sum;
  return scores;
}

TEST(Router, ForwardAndBackwardEqualPlainLoops) {
  const auto logits = random_numbers(kTokens * kExperts, Type::f32, 1);
  const auto bias = random_numbers(kExperts, Type::f32, 2, 0.2);
  const auto expert_gradient = random_numbers(kSequences * kExperts, Type::f32, 3);
  for (const auto& s : shapes()) {
    const auto choices = kTokens * s.chosen;
    const auto dweights = random_numbers(choices, Type::f32, 4);
    for (auto& device : devices()) {
      std::vector<int32_t> experts(static_cast<size_t>(choices)), balance(experts);
      Numbers weights(experts.size(), Type::f32), scores = logits, dlogits = logits;
      device.kernels->run(RouterForward{.shape = s,
                                        .logits = logits.floats(),
                                        .expert_bias = bias.floats(),
                                        .experts = experts.data(),
                                        .weights = weights.floats(),
                                        .scores = scores.floats(),
                                        .balance_experts = balance.data()});
      device.kernels->run(RouterBackward{.shape = s,
                                         .logits = logits.floats(),
                                         .experts = experts.data(),
                                         .weights = weights.floats(),
                                         .dweights = dweights.floats(),
                                         .scores = scores.floats(),
                                         .expert_gradient = expert_gradient.floats(),
                                         .sequences = kSequences,
                                         .z_factor = 0.125,
                                         .dlogits = dlogits.floats()});
      for (int64_t t = 0; t < kTokens; ++t) {
        Row row;
        for (int64_t e = 0; e < kExperts; ++e) row.push_back(logits[t * kExperts + e]);
        const auto chosen = choose(s, row, bias);
        const auto expected = weights_of(s, row, chosen);
        for (size_t j = 0; j < chosen.size(); ++j) {
          const auto at = static_cast<size_t>(t * s.chosen) + j;
          ASSERT_EQ(experts[at], static_cast<int32_t>(chosen[j])) << device.name << ' ' << t;
          ASSERT_NEAR(weights[at], expected[j], 2e-6);
        }
        const auto loss = [&] {
          const auto w = weights_of(s, row, chosen);
          const auto p = all_scores(s, row);
          double sum = 0.125 * squared_log_sum(row);
          for (size_t j = 0; j < w.size(); ++j) {
            sum += w[j] * dweights[static_cast<size_t>(t * s.chosen) + j];
          }
          for (size_t e = 0; e < p.size(); ++e) {
            sum += p[e] * expert_gradient[static_cast<size_t>(t % kSequences * kExperts) + e];
          }
          return sum;
        };
        const auto p = all_scores(s, row);
        const auto best = by_size(p, s.chosen);
        for (size_t j = 0; j < best.size(); ++j) {
          const auto at = static_cast<size_t>(t * s.chosen) + j;
          ASSERT_EQ(balance[at], static_cast<int32_t>(best[j])) << device.name;
        }
        for (size_t e = 0; e < row.size(); ++e) {
          const auto at = static_cast<size_t>(t * kExperts) + e;
          ASSERT_NEAR(scores[at], p[e], 1e-6);
          const double before = row[e];
          row[e] = before + 1e-6;
          const double up = loss();
          row[e] = before - 1e-6;
          const double slope = (up - loss()) / 2e-6;
          row[e] = before;
          ASSERT_NEAR(dlogits[at], slope, 4e-6) << device.name << " token " << t << " expert " << e;
        }
      }
    }
  }
}

TEST(Router, TheLowerExpertComesFirstWhereTwoAreEqual) {
  const Numbers logits({1, 3, 3, 0}, Type::f32);
  std::vector<int32_t> experts(2);
  Numbers weights(2, Type::f32);
  one_device(1)->run(RouterForward{.shape = {.tokens = 1, .experts = 4, .chosen = 2},
                                   .logits = logits.floats(),
                                   .experts = experts.data(),
                                   .weights = weights.floats()});
  EXPECT_EQ(experts, (std::vector<int32_t>{1, 2}));
}

TEST(Experts, AreCounted) {
  const std::vector<int32_t> taken{3, 1, 0, 3, 2, 2, 3, 1};
  for (const bool accumulate : {false, true}) {
    const auto counts = on_all(Numbers(std::vector<double>(8, 10), Type::f32), [&](Numbers& to) {
      return ExpertCounts{.tokens = 4,
                          .chosen = 2,
                          .experts = 4,
                          .sequences = 2,
                          .taken = taken.data(),
                          .counts = to.floats(),
                          .accumulate = accumulate};
    });
    std::vector<double> expected{0, 1, 2, 1, 1, 1, 0, 2};
    for (auto& count : expected) count += accumulate ? 10 : 0;
    EXPECT_EQ(counts.values(), expected);
  }
}

TEST(Experts, ChoicesAreOrdered) {
  const std::vector<int32_t> taken{3, 1, 0, 3, 2, 1};
  for (auto& device : devices()) {
    std::vector<int64_t> offsets(5);
    std::vector<int32_t> choice_of(6), row_of(6);
    device.kernels->run(ExpertOrder{.tokens = 3,
                                    .chosen = 2,
                                    .experts = 4,
                                    .taken = taken.data(),
                                    .offsets = offsets.data(),
                                    .choice_of = choice_of.data(),
                                    .row_of = row_of.data()});
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 1, 3, 4, 6}));
    EXPECT_EQ(choice_of, (std::vector<int32_t>{2, 1, 5, 4, 0, 3}));
    EXPECT_EQ(row_of, (std::vector<int32_t>{4, 1, 0, 5, 3, 2}));
  }
}

TEST(Experts, ThoseOfOtherRanksAreLeftOut) {
  const std::vector<int32_t> taken{3, 1, 0, 3, 2, 1, -1, 5};
  for (auto& device : devices()) {
    std::vector<int64_t> offsets(3);
    std::vector<int32_t> choice_of(8, 7), row_of(8);
    device.kernels->run(ExpertOrder{.tokens = 4,
                                    .chosen = 2,
                                    .first = 1,
                                    .experts = 2,
                                    .taken = taken.data(),
                                    .offsets = offsets.data(),
                                    .choice_of = choice_of.data(),
                                    .row_of = row_of.data()});
    EXPECT_EQ(offsets, (std::vector<int64_t>{0, 2, 3}));
    EXPECT_EQ(choice_of, (std::vector<int32_t>{1, 5, 4, 7, 7, 7, 7, 7}));
    EXPECT_EQ(row_of, (std::vector<int32_t>{-1, 0, -1, -1, 2, 1, -1, -1}));
  }
}

// Three ranks share each two experts. More tokens than a block has threads.
TEST(Experts, RanksAreThoseThatHaveChosenOnes) {
  constexpr int64_t kMany = 1000, kChosen = 3, kAll = 8, kOfRank = 2, kParts = 3;
  constexpr int64_t kRanks = kAll / kOfRank * kParts;
  std::vector<int32_t> taken, expected(kMany * kRanks, -1);
  std::vector<int64_t> choices(kRanks);
  for (int64_t i = 0; i < kMany * kChosen; ++i) {
    const int64_t expert = i * i % 7;  // nobody takes the last one
    taken.push_back(static_cast<int32_t>(expert));
    for (int64_t rank = expert / kOfRank * kParts; rank < (expert / kOfRank + 1) * kParts; ++rank) {
      expected[static_cast<size_t>(i / kChosen * kRanks + rank)] = static_cast<int32_t>(rank);
      ++choices[static_cast<size_t>(rank)];
    }
  }
  for (auto& device : devices()) {
    std::vector<int32_t> rank_of(expected.size(), 7);
    std::vector<int64_t> counts(kRanks, 7);
    device.kernels->run(ChosenRanks{.tokens = kMany,
                                    .chosen = kChosen,
                                    .ranks = kRanks,
                                    .parts = kParts,
                                    .experts_of_rank = kOfRank,
                                    .taken = taken.data(),
                                    .rank_of = rank_of.data(),
                                    .choices = counts.data()});
    EXPECT_EQ(rank_of, expected);
    EXPECT_EQ(counts, choices);
  }
}

TEST(Experts, BalanceLossEqualsAPlainLoop) {
  const auto scores = random_numbers(kTokens * kExperts, Type::f32, 1);
  const auto counts = random_numbers(kSequences * kExperts, Type::f32, 2);
  double expected = 3;
  for (int64_t i = 0; i < kTokens * kExperts; ++i) {
    expected += 0.25 * scores[i] * counts[i / kExperts % kSequences * kExperts + i % kExperts];
  }
  for (auto& device : devices()) {
    double loss = 3;
    Numbers gradient = counts;
    device.kernels->run(BalanceLoss{.tokens = kTokens,
                                    .experts = kExperts,
                                    .sequences = kSequences,
                                    .scores = scores.floats(),
                                    .counts = counts.floats(),
                                    .factor = 0.25,
                                    .gradient_factor = 0.5,
                                    .loss = &loss,
                                    .gradient = gradient.floats()});
    EXPECT_NEAR(loss, expected, 1e-9);
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(gradient[i], 0.5 * counts[i]);
  }
}

TEST(Experts, ZLossEqualsAPlainLoop) {
  const auto logits = random_numbers(kTokens * kExperts, Type::f32, 1, 3);
  double expected = 3;
  for (int64_t t = 0; t < kTokens; ++t) {
    Row row;
    for (int64_t e = 0; e < kExperts; ++e) row.push_back(logits[t * kExperts + e]);
    expected += 0.25 * squared_log_sum(row);
  }
  for (auto& device : devices()) {
    double loss = 3;
    device.kernels->run(ZLoss{.tokens = kTokens,
                              .experts = kExperts,
                              .logits = logits.floats(),
                              .factor = 0.25,
                              .loss = &loss});
    EXPECT_NEAR(loss / expected, 1, 1e-6) << device.name;
  }
}

TEST(Experts, BiasesMoveTowardsTheMean) {
  const Numbers tokens({5, 1, 3}, Type::f32);
  const auto bias = on_all(Numbers({1, 2, 3}, Type::f32), [&](Numbers& to) {
    return ExpertBiasStep{
        .experts = 3, .tokens = tokens.floats(), .rate = 0.5, .bias = to.floats()};
  });
  EXPECT_EQ(bias.values(), (std::vector<double>{0.5, 2.5, 3}));
}

}  // namespace
}  // namespace ferry::kernels
