#include "kernels/random.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Everything that attention takes, with queries, keys and values in one array as a fused
/// projection leaves them: [position, sequence, group, heads of the group + 2, dim].
struct Problem {
  AttentionShape shape;
  std::vector<int32_t> documents;
  std::vector<int64_t> ids;
  HeadStrides fused, output;
  int64_t heads_per_group;
  Numbers qkv, doutput;

  Problem(AttentionShape s, Type type, bool has_documents) : shape(s) {
    heads_per_group = shape.heads / shape.groups;
    const int64_t per_group = (heads_per_group + 2) * dim();
    fused = {.position = shape.sequences * shape.groups * per_group,
             .sequence = shape.groups * per_group,
             .group = per_group,
             .head = dim()};
    output = {.position = shape.sequences * shape.heads * shape.value_dim,
              .sequence = shape.heads * shape.value_dim,
              .group = heads_per_group * shape.value_dim,
              .head = shape.value_dim};
    qkv = random_numbers(positions() * fused.position, type, 1);
    doutput = random_numbers(shape.queries * output.position, type, 2);
    for (int64_t i = 0; i < shape.sequences; ++i) ids.push_back(100 + 3 * i);
    shape.sequence_ids = ids.data();
    if (!has_documents) return;
    for (int64_t b = 0; b < shape.sequences; ++b) {
      for (int64_t q = 0; q < shape.queries + 3; ++q) {
        const auto position = static_cast<int32_t>(shape.query_begin + q);
        documents.push_back(position - position % static_cast<int32_t>(7 + b));
      }
    }
    shape.document_begin = documents.data();
    shape.document_stride = shape.queries + 3;
  }
  int64_t dim() const { return std::max(shape.dim, shape.value_dim); }
  int64_t positions() const { return std::max(shape.queries, shape.keys); }
  int64_t k_start() const { return heads_per_group * dim(); }
  int64_t v_start() const { return k_start() + dim(); }
  size_t q_at(int64_t b, int64_t h, int64_t q, int64_t d) const {
    return static_cast<size_t>(q * fused.position + b * fused.sequence +
                               h / heads_per_group * fused.group +
                               h % heads_per_group * fused.head + d);
  }
  size_t k_at(int64_t b, int64_t h, int64_t k, int64_t d) const {
    return static_cast<size_t>(k * fused.position + b * fused.sequence +
                               h / heads_per_group * fused.group + k_start() + d);
  }
  size_t v_at(int64_t b, int64_t h, int64_t k, int64_t d) const {
    return k_at(b, h, k, d) + static_cast<size_t>(dim());
  }
  size_t o_at(int64_t b, int64_t h, int64_t q, int64_t d) const {
    return static_cast<size_t>(q * output.position + b * output.sequence + h * shape.value_dim + d);
  }
  size_t row(int64_t b, int64_t h, int64_t q) const {
    return static_cast<size_t>((b * shape.heads + h) * shape.queries + q);
  }
  bool sees(int64_t b, int64_t q, int64_t k) const {
    const int64_t query = shape.query_begin + q, key = shape.key_begin + k;
    if (key > query || (shape.window > 0 && key <= query - shape.window)) return false;
    return documents.empty() ||
           key >= documents[static_cast<size_t>(b * shape.document_stride + q)];
  }
  double kept(int64_t b, int64_t h, int64_t q, int64_t k) const {
    if (shape.dropout == 0) return 1;
    const int64_t head = ids[static_cast<size_t>(b)] * shape.total_heads + shape.first_head + h;
    const int64_t row_number = head * shape.total_positions + shape.query_begin + q;
    const auto element = row_number * shape.total_positions + shape.key_begin + k;
    const auto number = uniform_at(shape.dropout_key, static_cast<uint64_t>(element));
    return number >= static_cast<float>(shape.dropout) ? 1 / (1 - shape.dropout) : 0;
  }
};

struct Result {
  std::vector<double> output, log_sum;
};

Result attend(const Problem& p, const std::vector<double>& x) {
  const auto& s = p.shape;
  Result result{std::vector<double>(p.doutput.size()),
                std::vector<double>(static_cast<size_t>(s.sequences * s.heads * s.queries), kNone)};
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        std::vector<double> powers(static_cast<size_t>(s.keys));
        double sum = 0;
        for (int64_t k = 0; k < s.keys; ++k) {
          double score = 0;
          for (int64_t d = 0; d < s.dim; ++d)
            score += x[p.q_at(b, h, q, d)] * x[p.k_at(b, h, k, d)];
          const double power = p.sees(b, q, k) ? std::exp(s.scale * score) : 0;
          powers[static_cast<size_t>(k)] = power;
          sum += power;
        }
        if (sum == 0) continue;
        result.log_sum[p.row(b, h, q)] = std::log(sum);
        for (int64_t k = 0; k < s.keys; ++k) {
          const double weight = powers[static_cast<size_t>(k)] / sum * p.kept(b, h, q, k);
          for (int64_t d = 0; d < s.value_dim; ++d) {
            result.output[p.o_at(b, h, q, d)] += weight * x[p.v_at(b, h, k, d)];
          }
        }
      }
    }
  }
  return result;
}

AttentionForward forward(const Problem& p, const Numbers& output, float* log_sum) {
  const ConstArray qkv(p.qkv);
  return {.shape = p.shape,
          .q = qkv,
          .k = qkv.from(p.k_start()),
          .v = qkv.from(p.v_start()),
          .q_strides = p.fused,
          .k_strides = p.fused,
          .v_strides = p.fused,
          .output = output,
          .output_strides = p.output,
          .log_sum = log_sum};
}

std::vector<Problem> problems(Type type) {
  AttentionShape s;
  s.scale = 0.3;
  std::vector<Problem> all;
  const auto add = [&](int64_t sequences, int64_t positions, int64_t heads, int64_t groups,
                       int64_t dim, int64_t value_dim, bool has_documents = false) {
    s.sequences = sequences;
    s.queries = s.keys = positions;
    s.heads = s.total_heads = heads;
    s.groups = groups;
    s.dim = dim;
    s.value_dim = value_dim;
    s.total_positions = positions;
    all.emplace_back(s, type, has_documents);
  };
  add(1, 1, 1, 1, 1, 1);
  add(2, 5, 4, 2, 6, 5);
  add(2, 37, 4, 2, 20, 20);
  add(1, 130, 2, 1, 16, 9);
  add(2, 80, 2, 2, 8, 12, true);
  s.window = 5;
  add(1, 40, 1, 1, 16, 16, true);
  s.window = 0;
  s.dropout = 0.25;
  s.dropout_key = 42;
  add(2, 70, 2, 1, 16, 16);
  s.dropout = 0;
  add(0, 4, 1, 1, 8, 8);
  return all;
}

TEST(Attention, ForwardEqualsAPlainLoop) {
  for (const Type type : kTypes) {
    for (const auto& p : problems(type)) {
      for (auto& device : devices()) {
        const auto expected = attend(p, p.qkv.values());
        Numbers output(p.doutput.size(), type), again = output;
        Numbers log_sum(expected.log_sum.size(), Type::f32);
        device.kernels->run(forward(p, output, log_sum.floats()));
        device.kernels->run(forward(p, again, log_sum.floats()));
        expect_near(output, expected.output,
                    type == Type::f32 ? 32 : 0.6 * std::min(product_slack(), 2.0), 1, device.name);
        expect_near(log_sum, expected.log_sum, 16, 4, device.name);
        EXPECT_TRUE(output.bits() == again.bits()) << device.name;
      }
    }
  }
}

TEST(Attention, PartsOfTheKeysMergeToTheWhole) {
  for (const auto& p : problems(Type::f32)) {
    const int64_t half = p.shape.keys / 2;
    if (half == 0) continue;
    for (auto& device : devices()) {
      const auto expected = attend(p, p.qkv.values());
      Numbers output(p.doutput.size(), Type::f32), part = output;
      Numbers log_sum(expected.log_sum.size(), Type::f32), part_log_sum = log_sum;
      auto first = forward(p, part, part_log_sum.floats());
      first.shape.keys = half;
      device.kernels->run(first);
      auto second = forward(p, output, log_sum.floats());
      second.shape.key_begin = half;
      second.shape.keys -= half;
      second.k = second.k.from(half * p.fused.position);
      second.v = second.v.from(half * p.fused.position);
      device.kernels->run(second);
      device.kernels->run(AttentionMerge{.shape = p.shape,
                                         .part = part.floats(),
                                         .part_log_sum = part_log_sum.floats(),
                                         .output = output.floats(),
                                         .output_strides = p.output,
                                         .log_sum = log_sum.floats()});
      expect_near(output, expected.output, 32, 1, device.name);
      expect_near(log_sum, expected.log_sum, 16, 4, device.name);
    }
  }
}

/// Gradients of sum(doutput · output), by differences of every element.
std::vector<double> slopes(const Problem& p) {
  auto x = p.qkv.values();
  const auto dy = p.doutput.values();
  const auto loss = [&] {
    const auto y = attend(p, x).output;
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
    return sum;
  };
  std::vector<double> result;
  for (auto& number : x) {
    constexpr double kStep = 1e-5;
    const double before = number;
    number = before + kStep;
    const double up = loss();
    number = before - kStep;
    result.push_back((up - loss()) / (2 * kStep));
    number = before;
  }
  return result;
}

/// The same by the formula, for shapes that differences take too long for.
std::vector<double> gradients(const Problem& p) {
  const auto& s = p.shape;
  const auto x = p.qkv.values();
  const auto result = attend(p, x);
  std::vector<double> dx(x.size());
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        double delta = 0;
        for (int64_t d = 0; d < s.value_dim; ++d) {
          delta += result.output[p.o_at(b, h, q, d)] * p.doutput[p.o_at(b, h, q, d)];
        }
        for (int64_t k = 0; k < s.keys; ++k) {
          if (!p.sees(b, q, k)) continue;
          double score = 0, gradient = 0;
          for (int64_t d = 0; d < s.dim; ++d)
            score += x[p.q_at(b, h, q, d)] * x[p.k_at(b, h, k, d)];
          const double weight = std::exp(s.scale * score - result.log_sum[p.row(b, h, q)]);
          const double kept = p.kept(b, h, q, k);
          for (int64_t d = 0; d < s.value_dim; ++d) {
            gradient += kept * p.doutput[p.o_at(b, h, q, d)] * x[p.v_at(b, h, k, d)];
            dx[p.v_at(b, h, k, d)] += kept * weight * p.doutput[p.o_at(b, h, q, d)];
          }
          const double dscore = s.scale * weight * (gradient - delta);
          for (int64_t d = 0; d < s.dim; ++d) {
            dx[p.q_at(b, h, q, d)] += dscore * x[p.k_at(b, h, k, d)];
            dx[p.k_at(b, h, k, d)] += dscore * x[p.q_at(b, h, q, d)];
          }
        }
      }
    }
  }
  return dx;
}

AttentionBackward backward(const Problem& p, const Numbers& output, const float* log_sum,
                           Numbers& dqkv) {
  const ConstArray qkv(p.qkv);
  const Array dx(dqkv);
  return {.shape = p.shape,
          .q = qkv,
          .k = qkv.from(p.k_start()),
          .v = qkv.from(p.v_start()),
          .output = output,
          .doutput = p.doutput,
          .q_strides = p.fused,
          .k_strides = p.fused,
          .v_strides = p.fused,
          .output_strides = p.output,
          .log_sum = log_sum,
          .dq = dx,
          .dk = dx.from(p.k_start()),
          .dv = dx.from(p.v_start())};
}

Numbers backward(Kernels& kernels, const Problem& p, bool accumulate, const Numbers& before) {
  Numbers output(p.doutput.size(), p.qkv.type());
  Numbers log_sum(static_cast<size_t>(p.shape.sequences * p.shape.heads * p.shape.queries),
                  Type::f32);
  kernels.run(forward(p, output, log_sum.floats()));
  Numbers dqkv = before;
  AttentionBackward operation = backward(p, output, log_sum.floats(), dqkv);
  operation.accumulate = accumulate;
  kernels.run(operation);
  return dqkv;
}

TEST(Attention, TheFormulaIsTheSlope) {
  for (const auto& p : problems(Type::f32)) {
    if (p.qkv.size() > 3000) continue;
    const auto formula = gradients(p), slope = slopes(p);
    for (size_t i = 0; i < slope.size(); ++i) ASSERT_NEAR(formula[i], slope[i], 1e-6) << i;
  }
}

TEST(Attention, BackwardEqualsTheFormula) {
  for (const Type type : kTypes) {
    for (const auto& p : problems(type)) {
      const auto expected = gradients(p);
      for (auto& device : devices()) {
        const Numbers zero(p.qkv.size(), type);
        const auto got = backward(*device.kernels, p, false, zero);
        // Outputs are rounded to the type before they are multiplied.
        expect_near(got, expected, type == Type::f32 ? 64 : 4, 2, device.name + name_of(type));
        EXPECT_TRUE(got.bits() == backward(*device.kernels, p, false, zero).bits());
        const auto before = random_numbers(static_cast<int64_t>(p.qkv.size()), type, 8);
        const auto added = backward(*device.kernels, p, true, before);
        auto sum = expected;
        const bool gaps = p.shape.dim != p.shape.value_dim;  // elements of no head stay as they are
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
        expect_near(added, sum, type == Type::f32 ? 64 : 4, 2, device.name + (gaps ? " gaps" : ""));
      }
    }
  }
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
  for (const auto& p : problems(Type::bf16)) {
    const Numbers zero(p.qkv.size(), Type::bf16);
    const auto one = backward(*one_device(1), p, false, zero);
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(one.bits() == backward(*one_device(threads), p, false, zero).bits());
    }
  }
}

// Scores of no key: a softmax over one more score for each head, whose value is zero.

/// With scores of no key after what attend() gives.
Result with_sinks(const Problem& p, Result result, const std::vector<double>& scores) {
  const auto& s = p.shape;
  for (int64_t b = 0; b < s.sequences; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < s.queries; ++q) {
        double& log_sum = result.log_sum[p.row(b, h, q)];
        const double power = std::exp(log_sum), score = scores[static_cast<size_t>(h)];
        const double all = power + std::exp(score);
        for (int64_t d = 0; d < s.value_dim; ++d) {
          result.output[p.o_at(b, h, q, d)] *= power / all;
        }
        log_sum = std::log(all);
      }
    }
  }
  return result;
}

double loss_of(const Problem& p, const Result& result) {
  double sum = 0;
  for (size_t i = 0; i < result.output.size(); ++i) sum += result.output[i] * p.doutput[i];
  return sum;
}

struct Sinks {
  Numbers scores, output, log_sum, dscores, dqkv;

  static Numbers scores_of(const Problem& p, Type type) {
    return random_numbers(p.shape.heads, type, 5, 2);
  }
  Sinks(Kernels& kernels, const Problem& p, Type type, bool accumulate) {
    scores = scores_of(p, type);
    output = Numbers(p.doutput.size(), type);
    log_sum = Numbers(static_cast<size_t>(p.shape.sequences * p.shape.heads * p.shape.queries),
                      Type::f32);
    dscores = Numbers(std::vector<double>(static_cast<size_t>(p.shape.heads), 0.25), Type::f32);
    dqkv = Numbers(p.qkv.size(), type);
    kernels.run(forward(p, output, log_sum.floats()));
    kernels.run(AttentionSink{.shape = p.shape,
                              .score = scores,
                              .output = output,
                              .output_strides = p.output,
                              .log_sum = log_sum.floats()});
    kernels.run(AttentionSinkGradient{.shape = p.shape,
                                      .score = scores,
                                      .output = output,
                                      .doutput = p.doutput,
                                      .output_strides = p.output,
                                      .log_sum = log_sum.floats(),
                                      .dscore = Gradient(dscores, accumulate)});
    kernels.run(backward(p, output, log_sum.floats(), dqkv));
  }
};

TEST(Attention, ScoresOfNoKeyTakePartInTheSoftmax) {
  for (const Type type : kTypes) {
    for (const auto& p : problems(type)) {
      for (auto& device : devices()) {
        const Sinks sinks(*device.kernels, p, type, false), again(*device.kernels, p, type, false);
        const auto expected = with_sinks(p, attend(p, p.qkv.values()), sinks.scores.values());
        // Outputs are rounded to the type twice.
        expect_near(sinks.output, expected.output,
                    type == Type::f32 ? 32 : 1.2 * std::min(product_slack(), 2.0), 1, device.name);
        expect_near(sinks.log_sum, expected.log_sum, 16, 4, device.name);
        EXPECT_TRUE(sinks.output.bits() == again.output.bits()) << device.name;
        EXPECT_TRUE(sinks.dscores.bits() == again.dscores.bits()) << device.name;
      }
    }
  }
}

// The slope of the loss, a function of these numbers, by each of them.
template <typename Loss>
std::vector<double> differences(std::vector<double> numbers, const Loss& loss) {
  constexpr double kStep = 1e-5;
  std::vector<double> slopes;
  for (double& number : numbers) {
    const double before = number;
    number = before + kStep;
    const double up = loss(numbers);
    number = before - kStep;
    slopes.push_back((up - loss(numbers)) / (2 * kStep));
    number = before;
  }
  return slopes;
}

TEST(Attention, GradientsOfScoresOfNoKeyAreTheSlopes) {
  for (const Type type : kTypes) {
    for (const auto& p : problems(type)) {
      const auto plain = attend(p, p.qkv.values());
      const auto slopes = differences(Sinks::scores_of(p, type).values(), [&](const auto& scores) {
        return loss_of(p, with_sinks(p, plain, scores));
      });
      for (auto& device : devices()) {
        for (const bool accumulate : {true, false}) {
          const Sinks sinks(*device.kernels, p, type, accumulate);
          auto expected = slopes;
          for (double& slope : expected) slope += accumulate ? 0.25 : 0;
          // Each of many outputs is rounded to the type.
          expect_near(sinks.dscores, expected, type == Type::f32 ? 64 : 2e5, 2, device.name);
        }
      }
    }
  }
}

TEST(Attention, GradientsWithScoresOfNoKeyAreTheSlopes) {
  for (const auto& p : problems(Type::f32)) {
    if (p.qkv.size() > 1000) continue;
    const auto scores = Sinks::scores_of(p, Type::f32).values();
    const auto slopes = differences(p.qkv.values(), [&](const auto& x) {
      return loss_of(p, with_sinks(p, attend(p, x), scores));
    });
    for (auto& device : devices()) {
      const Sinks sinks(*device.kernels, p, Type::f32, false);
      expect_near(sinks.dqkv, slopes, 64, 2, device.name);
    }
  }
}

}  // namespace
}  // namespace ferry::kernels
