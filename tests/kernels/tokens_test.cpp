// Operations that take elements by token: embeddings, rotary positions, rows of experts.
#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

double steps(Type type) { return type == Type::f32 ? 2 : 0.51; }

TEST(Embedding, TakesRowsOfThisRank) {
  const int64_t width = 37, first = 10, rows = 4;
  const std::vector<int32_t> ids{12, 9, 13, 10, 14, 12};
  const auto count = static_cast<int64_t>(ids.size());
  for (const Type type : kTypes) {
    const auto table = random_numbers(rows * width, type, 1);
    const auto before = random_numbers(count * width, type, 2);
    for (const bool accumulate : {false, true}) {
      const auto y = on_all(before, [&](Numbers& to) {
        return EmbeddingForward{.count = count,
                                .width = width,
                                .first = first,
                                .rows = rows,
                                .ids = ids.data(),
                                .table = table,
                                .y = to,
                                .accumulate = accumulate};
      });
      std::vector<double> expected;
      for (int64_t i = 0; i < count * width; ++i) {
        const int64_t row = ids[static_cast<size_t>(i / width)] - first;
        const bool is_here = row >= 0 && row < rows;
        expected.push_back((accumulate ? before[i] : 0) +
                           (is_here ? table[row * width + i % width] : 0));
      }
      expect_near(y, expected, steps(type), 1e-3, name_of(type));
    }
  }
}

void check_embedding_gradient(const std::vector<int32_t>& ids, int64_t width, int64_t rows,
                              Type type, double steps) {
  const int64_t first = 10;
  const auto count = static_cast<int64_t>(ids.size());
  const auto dy = random_numbers(count * width, type, 1);
  const auto before = random_numbers(rows * width, Type::f32, 2);
  const auto table = on_all(before, [&](Numbers& to) {
    return EmbeddingBackward{.count = count,
                             .width = width,
                             .first = first,
                             .rows = rows,
                             .ids = ids.data(),
                             .dy = dy,
                             .dtable = to};
  });
  auto expected = before.values();
  for (int64_t i = 0; i < count * width; ++i) {
    const int64_t row = ids[static_cast<size_t>(i / width)] - first;
    if (row >= 0 && row < rows) expected[static_cast<size_t>(row * width + i % width)] += dy[i];
  }
  expect_near(table, expected, steps, 1, name_of(type));
}

TEST(Embedding, AddsGradientsOfEachToken) {
  for (const Type type : kTypes) {
    check_embedding_gradient({12, 9, 13, 10, 14, 12, 12}, 150, 4, type, 4);
  }
}

// As in real text: some tokens are a great share of all, most are rare, and rows of other ranks lie
// among them. Counts lie around those of a GPU's parts.
TEST(Embedding, AddsGradientsOfFrequentTokens) {
  for (const size_t count : {63, 64, 65, 127, 128, 129, 1500, 1536}) {
    for (const int share : {0, 3, 20, 100}) {  // in hundredths, of the two most frequent ones each
      std::mt19937 random(static_cast<unsigned>(count) + static_cast<unsigned>(share));
      std::vector<int32_t> ids;
      while (ids.size() < count) {
        const auto dice = static_cast<int>(random() % 100);
        const auto other = static_cast<int32_t>(random() % 520);
        ids.push_back(dice < share ? 77 : dice < 2 * share ? 300 : other);
      }
      for (const Type type : kTypes) {
        check_embedding_gradient(ids, 9, 500, type, 512);
        check_embedding_gradient(ids, 136, 500, type, 512);  // in packs, and more than one strip
      }
    }
  }
}

void check_rotary(int64_t heads, int64_t dim) {
  const int64_t positions = 5, sequences = 2, per_group = 3, head = dim / 8 * 8 + 8;
  const int64_t group = (per_group + 2) * head, token = heads / per_group * group, half = dim / 2;
  const int64_t tokens = positions * sequences;
  Numbers cosine(static_cast<size_t>(positions * half), Type::f32), sine = cosine;
  cosine = random_numbers(positions * half, Type::f32, 5);
  for (size_t i = 0; i < cosine.size(); ++i) {
    sine.set(i, std::sin(cosine[i]));
    cosine.set(i, std::cos(cosine[i]));
  }
  for (const Type type : kTypes) {
    for (const bool interleaved : {false, true}) {
      const auto x = random_numbers(tokens * token, type, 1);
      Rotary rotary{.positions = positions,
                    .tokens_per_position = sequences,
                    .heads = heads,
                    .dim = dim,
                    .token_stride = token,
                    .group_stride = group,
                    .head_stride = head,
                    .heads_per_group = per_group,
                    .interleaved = interleaved,
                    .cosine = cosine.floats(),
                    .sine = sine.floats(),
                    .x = {}};
      const auto turn = [&](const Numbers& from, bool back) {
        return on_all(from, [&](Numbers& to) {
          auto operation = rotary;
          operation.backward = back;
          operation.x = to;
          return operation;
        });
      };
      const auto y = turn(x, false);
      auto expected = x.values();
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = t * token + h / per_group * group + h % per_group * head;
          for (int64_t i = 0; i < half; ++i) {
            const double a = x[at + (interleaved ? 2 * i : i)];
            const double b = x[at + (interleaved ? 2 * i + 1 : i + half)];
            const double c = cosine[t / sequences * half + i], s = sine[t / sequences * half + i];
            expected[static_cast<size_t>(at + i)] = a * c - b * s;
            expected[static_cast<size_t>(at + half + i)] = b * c + a * s;
          }
        }
      }
      expect_near(y, expected, steps(type), 1, name_of(type));
      // The gradient of a turn is the turn back.
      expect_near(turn(y, true), x.values(), type == Type::f32 ? 4 : 1.5, 1, name_of(type));
    }
  }
}

TEST(Rotary, TurnsPairsAndBack) {
  check_rotary(6, 22);
  check_rotary(66, 64);
  check_rotary(3, 600);
}

TEST(Rows, AreGatheredAndCombined) {
  const int64_t tokens = 5, chosen = 2, width = 37, rows = 7;
  const std::vector<int32_t> choice_of{9, 0, 3, 2, 8, 5, 1};
  const std::vector<int32_t> row_of{1, 6, 3, 2, 0, 5, 1, 1, 4, 0};
  for (const Type type : kTypes) {
    const auto x = random_numbers(tokens * width, type, 1);
    const auto before = random_numbers(rows * width, type, 2);
    const auto gathered = on_all(before, [&](Numbers& to) {
      return GatherRows{.rows = rows,
                        .width = width,
                        .index = choice_of.data(),
                        .divisor = chosen,
                        .x = x,
                        .y = to};
    });
    std::vector<double> expected;
    for (int64_t i = 0; i < rows * width; ++i) {
      const int64_t token = choice_of[static_cast<size_t>(i / width)] / chosen;
      expected.push_back(x[token * width + i % width]);
    }
    expect_near(gathered, expected, 0, 0, name_of(type));
    for (const bool accumulate : {false, true}) {
      const auto y = on_all(x, [&](Numbers& to) {
        return CombineRows{.tokens = tokens,
                           .chosen = chosen,
                           .width = width,
                           .row_of = row_of.data(),
                           .x = before,
                           .y = to,
                           .accumulate = accumulate};
      });
      std::vector<double> sums;
      for (int64_t i = 0; i < tokens * width; ++i) {
        double sum = accumulate ? x[i] : 0;
        for (int64_t j = 0; j < chosen; ++j) {
          const int64_t row = row_of[static_cast<size_t>(i / width * chosen + j)];
          sum += before[row * width + i % width];
        }
        sums.push_back(sum);
      }
      expect_near(y, sums, steps(type), 1, name_of(type));
    }
  }
}

// Where it is known where each number of the index is, rows may be dealt out instead of gathered.
// Every third place of a row is none.
TEST(Rows, GoToAllTheirPlaces) {
  constexpr int64_t kTokens = 37, kChosen = 5;
  std::vector<int32_t> choice_of, row_of(kTokens * kChosen, -1);
  for (int32_t i = 0; i < kTokens * kChosen; ++i) {
    const int32_t choice = (i * 64 + 11) % (kTokens * kChosen);  // which have no common factor
    if (choice % 3 == 0) continue;
    row_of[static_cast<size_t>(choice)] = static_cast<int32_t>(choice_of.size());
    choice_of.push_back(choice);
  }
  const auto rows = static_cast<int64_t>(choice_of.size());
  for (const int64_t width : {1, 24, 264}) {
    for (const Type type : kTypes) {
      const auto x = random_numbers(kTokens * width, type, 1);
      const auto y = on_all(random_numbers(rows * width, type, 2), [&](Numbers& to) {
        return GatherRows{.rows = rows,
                          .width = width,
                          .index = choice_of.data(),
                          .divisor = kChosen,
                          .row_of = row_of.data(),
                          .tokens = kTokens,
                          .x = x,
                          .y = to};
      });
      std::vector<double> expected;
      for (int64_t i = 0; i < rows * width; ++i) {
        expected.push_back(
            x[choice_of[static_cast<size_t>(i / width)] / kChosen * width + i % width]);
      }
      expect_near(y, expected, 0, 0, name_of(type));
      const auto sums = on_all(x, [&](Numbers& to) {
        return CombineRows{.tokens = kTokens,
                           .chosen = kChosen,
                           .width = width,
                           .row_of = row_of.data(),
                           .x = y,
                           .y = to};
      });
      expected.assign(static_cast<size_t>(kTokens * width), 0);
      for (int64_t i = 0; i < rows * width; ++i) {
        const int64_t token = choice_of[static_cast<size_t>(i / width)] / kChosen;
        expected[static_cast<size_t>(token * width + i % width)] += y[i];
      }
      expect_near(sums, expected, steps(type), 1, name_of(type));
    }
  }
}

// Also of integers, most of which are not normal numbers in fp32.
TEST(Rows, KeepTheirBits) {
  const std::vector<int32_t> index{2, 0}, numbers{1, -2, 0x7f800001, 3, 127, 1 << 23};
  for (auto& device : devices()) {
    std::vector<int32_t> gathered(4);
    device.kernels->run(GatherRows{.rows = 2,
                                   .width = 2,
                                   .index = index.data(),
                                   .x = {numbers.data(), Type::f32},
                                   .y = {gathered.data(), Type::f32}});
    EXPECT_EQ(gathered, (std::vector<int32_t>{127, 1 << 23, 1, -2}));
  }
}

TEST(Rows, NumbersAreGathered) {
  const std::vector<int32_t> index{2, 0, -1, 2};
  const Numbers x(std::vector<double>{5, 6, 7}, Type::f32);
  const auto y = on_all(Numbers({1, 2, 3, 4, 9}, Type::f32), [&](Numbers& to) {
    return GatherNumbers{.count = 4, .index = index.data(), .x = x.floats(), .y = to.floats()};
  });
  EXPECT_EQ(y.values(), (std::vector<double>{7, 5, 0, 7, 9}));
}

}  // namespace
}  // namespace ferry::kernels
