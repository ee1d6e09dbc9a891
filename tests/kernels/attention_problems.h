// Attention of several shapes, its operations, and the same in plain loops of fp64.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/random.h"
#include "tests/kernels/support.h"

namespace ferry::kernels {

inline constexpr double kNone = -std::numeric_limits<double>::infinity();

/// Everything that attention takes, with queries, keys and values in one array as a fused
/// projection leaves them: [position, sequence, group, heads of the group + 2, dim].
struct AttentionProblem {
  AttentionShape shape;
  std::vector<int32_t> documents;
  std::vector<int64_t> ids;
  HeadStrides fused, output;
  int64_t heads_per_group;
  Numbers qkv, doutput;

  AttentionProblem(AttentionShape s, Type type, bool has_documents) : shape(s) {
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

inline Result attend(const AttentionProblem& p, const std::vector<double>& x) {
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

inline AttentionForward forward(const AttentionProblem& p, const Numbers& output, float* log_sum) {
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

inline std::vector<AttentionProblem> attention_problems(Type type) {
  AttentionShape s;
  s.scale = 0.3;
  std::vector<AttentionProblem> all;
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

inline AttentionBackward backward(const AttentionProblem& p, const Numbers& output, const float* log_sum,
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

}  // namespace ferry::kernels
